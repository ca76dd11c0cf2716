"""The next token of a document: cross entropy with the text, and a teacher's softened answers, kept as its likeliest
words with the mass of all others.

Bengio et al. 2003, "A Neural Probabilistic Language Model", JMLR 3; losses name theirs. Shape letters: N rows, U
predicted tokens of a batch, M teachers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_loss
from tasks.methods.next_words.kept_words import next_word_loss
from tasks.task_types.common_head import KEPT_IDS, KEPT_LOGS, as_drawn, labels_as_texts, stored_words
from tasks.task_types.interfaces import Head
from tasks.task_types.next_words.document import LEARNED_TOKENS, NEXT_LOGITS, WORD_IDS
from tasks.task_types.stored import STATED
from tasks.task_types.types import WORD_LOGITS
from tasks.task_types.units import KeptWords


def decoder() -> Any:
    """Return the class of decoders with the outputs of this type."""
    from tasks.task_types.next_words.models import AutoModelForCausalLM

    return AutoModelForCausalLM


def configure_decoder(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; the outputs are those of the vocabulary."""
    setattr(config, STATED, "next-words")


def text_loss(outputs: Mapping[str, Tensor], targets_U1: Tensor) -> Loss:
    """Return the cross entropy with the tokens of the text, averaged over predicted tokens."""
    return class_loss(outputs[NEXT_LOGITS], outputs[WORD_IDS].long())


def kept_answers(outputs: Mapping[str, Tensor], kept: KeptWords) -> dict[str, Tensor]:
    """Return a teacher's answers as they are stored, and as its students learn them."""
    return stored_words(outputs[NEXT_LOGITS], kept)


def word_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's answers, kept ones or those of a teacher beside the student, mixed with that on
    the text."""
    return next_word_loss(
        ours[NEXT_LOGITS],
        theirs[KEPT_LOGS] if KEPT_IDS in theirs else theirs[NEXT_LOGITS],
        ours[WORD_IDS].long(),
        ids_UK=theirs.get(KEPT_IDS),
        temperature=temperature,
        hard_weight=hard_weight,
        formula=formula,
    )


def refuse_mixed_words(logits_MNC: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Raise ModelError: of each teacher other words are kept."""
    raise ModelError("answers of several language models are not mixed; remove the section ensemble")


HEAD = Head(
    outputs=WORD_LOGITS,
    auto_class=decoder,
    configure=configure_decoder,
    targets=labels_as_texts,
    label_loss=text_loss,
    teacher_loss=word_teacher_loss,
    mix=refuse_mixed_words,
    start_from_labels=as_drawn,
    units=LEARNED_TOKENS,
    keep=kept_answers,
)
