"""The heads of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.chats.head import HEAD as CHATS
from tasks.task_types.choices.head import HEAD as CHOICES
from tasks.task_types.classification.head import HEAD as CLASSIFICATION
from tasks.task_types.embedding.head import HEAD as EMBEDDING
from tasks.task_types.interfaces import Head
from tasks.task_types.masked_words.head import HEAD as MASKED_WORDS
from tasks.task_types.multi_label.head import HEAD as MULTI_LABEL
from tasks.task_types.next_words.head import HEAD as NEXT_WORDS
from tasks.task_types.ranking.head import HEAD as RANKING
from tasks.task_types.regression.head import HEAD as REGRESSION
from tasks.task_types.retrieval.head import HEAD as RETRIEVAL
from tasks.task_types.seq2seq.head import HEAD as SEQ2SEQ
from tasks.task_types.spans.head import HEAD as SPANS
from tasks.task_types.tokens.head import HEAD as TOKENS

HEADS: dict[str, Head] = {
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
