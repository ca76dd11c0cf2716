"""Similarities in words, and the code that computes a vector; retrieval has the same code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_view import FEEDS, two_digits
from tasks.task_types.interfaces import Code, ErrorFigure, Printed, View


def example_texts(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``feature-extraction``: one text at a time."""
    return ["some text"]


def one_text_argument(pairs: bool) -> str:
    """Return an example as the arguments of a tokenizer: texts of a pair are read one by one."""
    return '"some text"'


def similarity_written(given: Any, names: Sequence[str]) -> str:
    """Return a score or a cosine."""
    return two_digits(given)


VECTOR_CODE = Code(
    text=one_text_argument,
    checkpoint="""import torch

batch = tokenizer([{text}], truncation=True, padding=True, return_tensors="pt")
with torch.inference_mode():
    states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
way, row = model.config.limbeck_pooling, torch.arange(len(states))
if way == "cls":
    vectors = states[:, 0]
elif way == "lasttoken":
    vectors = states[row, mask[..., 0].cumsum(1).argmax(1)]
elif way == "max":
    vectors = states.masked_fill(mask == 0, -1e9).max(1).values
else:
    weights = mask * mask.cumsum(1) if way == "weightedmean" else mask
    vectors = (states * weights).sum(1) / weights.sum(1)
vectors = torch.nn.functional.normalize(vectors, dim=-1)  # the product of two of them is their cosine
print(vectors[0].tolist())
# the same: from sentence_transformers import SentenceTransformer
# SentenceTransformer("FOLDER").encode([{text}])""",
    export=f'vector = session.run(["sentence_embedding"], {FEEDS})[0][0]\nprint(vector.tolist())',
)
EXAMPLE_ANSWER: Printed = {"embedding": [0.6, 0.8]}
MISPLACED = ErrorFigure("misplaced", "mean distance from the true place, as a share of all places", "misplaced")
VIEW = View(
    example=example_texts,
    example_answer=EXAMPLE_ANSWER,
    code=VECTOR_CODE,
    analysis_title="How far pairs stand from their true place",
    figures=(MISPLACED, ErrorFigure("mean_cosine", "mean cosine of a pair", "cosine")),
    card_figure=MISPLACED,
    chart="scatter",
    chart_note="Each point is a pair: the score that it was given, and the cosine of the model's vectors.",
    matrix="",
    counted={
        "teacher_nearer": "texts whose pair the teacher puts nearer to its true place",
        "student_nearer": "texts whose pair the student puts nearer to its true place",
    },
    examples={
        "surest": "Pairs whose place changed most; their texts one after the other",
        "corrected": "Student nearer to the true place; texts one after the other",
    },
    answer=similarity_written,
)
