"""A text for each source: cross entropy with the true text, and a teacher's softened answers at each of its places,
given the true words before, kept as the likeliest words with the mass of all others.

Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", arXiv:1409.3215; answers at each word, Kim
and Rush 2016, arXiv:1606.07947. Shape letters: N rows, U pieces of the true texts of a batch, M teachers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_loss
from tasks.methods.next_words.kept_words import next_word_loss
from tasks.task_types.common_answers import LOGITS
from tasks.task_types.common_head import KEPT_IDS, KEPT_LOGS, as_drawn, labels_as_texts, stored_words
from tasks.task_types.interfaces import Head
from tasks.task_types.seq2seq.target import first_reference
from tasks.task_types.stored import STATED
from tasks.task_types.types import TARGET_LOGITS
from tasks.task_types.units import KeptWords, Writing, WrittenPieces


def reader_and_writer() -> Any:
    """Return the class of models that read a source and write a text."""
    from tasks.task_types.seq2seq.models import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM


def configure_writer(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; the outputs are those of the vocabulary."""
    setattr(config, STATED, "seq2seq")


def written_loss(outputs: Mapping[str, Tensor], targets_U1: Tensor) -> Loss:
    """Return the cross entropy with the pieces of the true texts, averaged over pieces."""
    return class_loss(outputs[LOGITS], targets_U1[:, 0].long())


def kept_target_answers(outputs: Mapping[str, Tensor], kept: KeptWords) -> dict[str, Tensor]:
    """Return a teacher's answers as they are stored, and as its students learn them."""
    return stored_words(outputs[LOGITS], kept)


def piece_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's answers, kept ones or those of a teacher beside the student, mixed with that on
    the true texts."""
    return next_word_loss(
        ours[LOGITS],
        theirs[KEPT_LOGS] if KEPT_IDS in theirs else theirs[LOGITS],
        targets_B[:, 0].long(),
        ids_UK=theirs.get(KEPT_IDS),
        temperature=temperature,
        hard_weight=hard_weight,
        formula=formula,
    )


def refuse_mixed_texts(logits_MNC: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Raise ModelError: of each teacher other words are kept."""
    raise ModelError("answers of several models that write are not mixed; remove the section ensemble")


def write_ids(model: Any, ids_BT: Tensor, mask_BT: Tensor, writing: Writing) -> Tensor:
    """Return the tokens that a model writes."""
    from tasks.task_types.seq2seq.models import written_ids

    return written_ids(model, ids_BT, mask_BT, writing)


HEAD = Head(
    outputs=TARGET_LOGITS,
    auto_class=reader_and_writer,
    configure=configure_writer,
    targets=labels_as_texts,
    label_loss=written_loss,
    teacher_loss=piece_teacher_loss,
    mix=refuse_mixed_texts,
    start_from_labels=as_drawn,
    units=WrittenPieces(target=first_reference, write=write_ids),
    keep=kept_target_answers,
    write=write_ids,
)
