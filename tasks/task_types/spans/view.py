"""Answers in a passage in words: how many are right, and questions that student and teacher answer otherwise.

transformers 5 has no pipeline of question answering, so the package of MLflow has that of features, which returns the
logits of beginnings; the code of the card, ``limbeck predict`` and the graphs return answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.metrics.of_answers import BETWEEN_ANSWERS, span_of_answer
from tasks.task_types.interfaces import Code, ErrorFigure, View

NO_ANSWER_SHOWN = "no answer"


def example_of_features(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``feature-extraction``."""
    return ["some text"]


def question_and_passage(pairs: bool) -> str:
    """Return an example as the arguments of a tokenizer."""
    return '"What is it?", "It is some text."'


def spans_of(given: Any) -> list[tuple[int, int] | None]:
    """Return the places of a prediction, or of the different true answers of a label."""
    return list(dict.fromkeys(span_of_answer(one) for one in str(given).split(BETWEEN_ANSWERS))) if given else [None]


def answers_by_place(given: Any, names: Sequence[str]) -> str:
    """Return answers by their characters, from 1 on: without a word of the passage."""
    return " or ".join(
        NO_ANSWER_SHOWN if one is None else f"characters {one[0] + 1} to {one[1]}" for one in spans_of(given)
    )


def answers_in_text(given: Any, names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return answers with their words."""
    text = next((one for one in reversed(texts) if one), "")
    return " or ".join(
        dict.fromkeys(NO_ANSWER_SHOWN if one is None else text[one[0] : one[1]] for one in spans_of(given))
    )


F1_WITH_ANSWER = ErrorFigure("f1_with_answer", "F1 of questions that have an answer", "answerable F1")
VIEW = View(
    example=example_of_features,
    example_answer={"answer": "some text", "start": 6, "end": 15, "score": 0.5},
    code=Code(
        text=question_and_passage,
        checkpoint="question, passage = {text}\n"
        'given = tokenizer(question, passage, truncation="only_second", return_offsets_mapping=True, '
        'return_tensors="pt")\n'
        'places, parts = given.pop("offset_mapping")[0].tolist(), given.sequence_ids(0)\n'
        "found = model(**given)  # of a long passage: windows, by return_overflowing_tokens and stride\n"
        "start, end = found.start_logits[0].tolist(), found.end_logits[0].tolist()\n"
        "pieces = [i for i, part in enumerate(parts) if part == 1]\n"
        "best, i, j = max((start[i] + end[j], i, j) for i in pieces for j in pieces if i <= j < i + 30)\n"
        "if start[0] + end[0] - best > model.config.limbeck_null_threshold:  # tuned on selection rows\n"
        '    print("no answer")\n'
        "else:\n"
        "    words = passage[places[i][0] : places[j][1]].strip()  # the pieces of some tokenizers begin with a space\n"
        "    first = passage.index(words, places[i][0])\n"
        "    print(first, first + len(words), words)",
        export='feeds = {name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}\n'
        'start, end = (logits[0] for logits in session.run(["start_logits", "end_logits"], feeds))\n'
        "pieces = [i for i, part in enumerate(text.sequence_ids) if part == 1]  # those of the second text\n"
        "best, i, j = max((start[i] + end[j], i, j) for i in pieces for j in pieces if i <= j < i + 30)\n"
        'if start[0] + end[0] - best > card["limbeck_null_threshold"]:\n'
        '    print("no answer")\n'
        "else:\n"
        "    print(text.offsets[i][0], text.offsets[j][1])  # its first character, and the one after its last",
    ),
    analysis_title="Answers found and missed",
    figures=(
        F1_WITH_ANSWER,
        ErrorFigure("exact_with_answer", "exact answers of questions that have one", "answerable exact"),
        ErrorFigure("right_without_answer", "questions without an answer that get none", "none right"),
        ErrorFigure("none_found", "questions that get no answer", "none found"),
    ),
    card_figure=F1_WITH_ANSWER,
    chart="",
    chart_note="",
    matrix="",
    counted={
        "both_right": "both exact",
        "only_teacher": "only the teacher exact",
        "only_student": "only the student exact",
        "both_wrong": "neither exact",
        "differ": "different answers",
    },
    examples={
        "surest": "Different answers, the student's not exact",
        "corrected": "Student exact, teacher not",
    },
    answer=answers_by_place,
    in_text=answers_in_text,
    judged="Passages for which {tokens} tokens have no room were read in windows that share a quarter; the best answer "
    "of all windows counts. The programs below read the first window alone.",
)
