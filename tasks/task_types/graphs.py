"""Exported graphs of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.chats.graph import GRAPH as CHATS
from tasks.task_types.choices.graph import GRAPH as CHOICES
from tasks.task_types.classification.graph import GRAPH as CLASSIFICATION
from tasks.task_types.embedding.graph import GRAPH as EMBEDDING
from tasks.task_types.interfaces import Graph
from tasks.task_types.masked_words.graph import GRAPH as MASKED_WORDS
from tasks.task_types.multi_label.graph import GRAPH as MULTI_LABEL
from tasks.task_types.next_words.graph import GRAPH as NEXT_WORDS
from tasks.task_types.ranking.graph import GRAPH as RANKING
from tasks.task_types.regression.graph import GRAPH as REGRESSION
from tasks.task_types.seq2seq.graph import GRAPH as SEQ2SEQ
from tasks.task_types.spans.graph import GRAPH as SPANS
from tasks.task_types.tokens.graph import GRAPH as TOKENS

GRAPHS: dict[str, Graph] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "choices": CHOICES,
    "tokens": TOKENS,
    "multi-label": MULTI_LABEL,
    "spans": SPANS,
    "embedding": EMBEDDING,
    "retrieval": EMBEDDING,
    "ranking": RANKING,
    "next-words": NEXT_WORDS,
    "chats": CHATS,
    "masked-words": MASKED_WORDS,
    "seq2seq": SEQ2SEQ,
}
