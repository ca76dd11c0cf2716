"""Descriptions of predictions of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.chats.view import VIEW as CHATS
from tasks.task_types.choices.view import VIEW as CHOICES
from tasks.task_types.classification.view import VIEW as CLASSIFICATION
from tasks.task_types.embedding.view import VIEW as EMBEDDING
from tasks.task_types.interfaces import View
from tasks.task_types.masked_words.view import VIEW as MASKED_WORDS
from tasks.task_types.multi_label.view import VIEW as MULTI_LABEL
from tasks.task_types.next_words.view import VIEW as NEXT_WORDS
from tasks.task_types.ranking.view import VIEW as RANKING
from tasks.task_types.regression.view import VIEW as REGRESSION
from tasks.task_types.retrieval.view import VIEW as RETRIEVAL
from tasks.task_types.seq2seq.view import VIEW as SEQ2SEQ
from tasks.task_types.spans.view import VIEW as SPANS
from tasks.task_types.tokens.view import VIEW as TOKENS

VIEWS: dict[str, View] = {
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
