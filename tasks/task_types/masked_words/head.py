"""Hidden tokens of a document: cross entropy with the text, and a teacher's softened answers, kept as its likeliest
words with the mass of all others.

Devlin et al. 2018, BERT, arXiv:1810.04805; losses name theirs, and are those of next words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_head import as_drawn, labels_as_texts
from tasks.task_types.interfaces import Head
from tasks.task_types.masked_words.hidden import HIDDEN_TOKENS
from tasks.task_types.next_words.head import kept_answers, refuse_mixed_words, text_loss, word_teacher_loss
from tasks.task_types.stored import STATED
from tasks.task_types.types import WORD_LOGITS


def encoder_with_words() -> Any:
    """Return the class of encoders with the outputs of this type."""
    from tasks.task_types.masked_words.models import AutoModelForMaskedLM

    return AutoModelForMaskedLM


def configure_encoder(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; the outputs are those of the vocabulary."""
    setattr(config, STATED, "masked-words")


HEAD = Head(
    outputs=WORD_LOGITS,
    auto_class=encoder_with_words,
    configure=configure_encoder,
    targets=labels_as_texts,
    label_loss=text_loss,
    teacher_loss=word_teacher_loss,
    mix=refuse_mixed_words,
    start_from_labels=as_drawn,
    units=HIDDEN_TOKENS,
    keep=kept_answers,
)
