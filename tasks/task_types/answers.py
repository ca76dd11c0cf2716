"""Predictions and figures of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.chats.answers import ANSWERS as CHATS
from tasks.task_types.choices.answers import ANSWERS as CHOICES
from tasks.task_types.classification.answers import ANSWERS as CLASSIFICATION
from tasks.task_types.embedding.answers import ANSWERS as EMBEDDING
from tasks.task_types.interfaces import Answers
from tasks.task_types.masked_words.answers import ANSWERS as MASKED_WORDS
from tasks.task_types.multi_label.answers import ANSWERS as MULTI_LABEL
from tasks.task_types.next_words.answers import ANSWERS as NEXT_WORDS
from tasks.task_types.ranking.answers import ANSWERS as RANKING
from tasks.task_types.regression.answers import ANSWERS as REGRESSION
from tasks.task_types.retrieval.answers import ANSWERS as RETRIEVAL
from tasks.task_types.seq2seq.answers import ANSWERS as SEQ2SEQ
from tasks.task_types.spans.answers import ANSWERS as SPANS
from tasks.task_types.tokens.answers import ANSWERS as TOKENS

ANSWERS: dict[str, Answers] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "choices": CHOICES,
    "tokens": TOKENS,
    "multi-label": MULTI_LABEL,
    "spans": SPANS,
    "embedding": EMBEDDING,
    "retrieval": RETRIEVAL,
    "ranking": RANKING,
    "next-words": NEXT_WORDS,
    "chats": CHATS,
    "masked-words": MASKED_WORDS,
    "seq2seq": SEQ2SEQ,
}
