"""Choices in words: the option by its letter and its text, calibration, and code that scores the options of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.choices.options import OPTION_LETTERS, options_in, place_in_text
from tasks.task_types.interfaces import Code, ErrorFigure, View

LONGEST_OPTION = 120
"""Characters of an option on a page."""


def example_question(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline in which MLflow keeps the model: one text at a time."""
    return ["some text"]


def example_option(pairs: bool) -> str:
    """Return a text and an option as the arguments of a tokenizer."""
    return '"some text", "first option"'


def option_by_letter(given: Any, names: Sequence[str]) -> str:
    """Return the letter of an option; a dash for a row without a label."""
    if not isinstance(given, str) or not given:
        return "—"
    place, count = place_in_text(given)
    letter = OPTION_LETTERS[place] if place < len(OPTION_LETTERS) else str(place)
    return f"{letter} of {count}"


def option_in_text(given: Any, names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return the letter of an option with its text."""
    named, pair = option_by_letter(given, names), texts[1] if len(texts) > 1 else None
    if not pair or named == "—":
        return named
    options, place = options_in(pair), place_in_text(given)[0]
    text = options[place] if place < len(options) else ""
    return f"{named}: {text if len(text) <= LONGEST_OPTION else text[:LONGEST_OPTION].rstrip() + ' …'}"


CHOICE_ECE = ErrorFigure("ece", "expected calibration error", "ECE")
VIEW = View(
    example=example_question,
    example_answer={"choice": 0, "score": 0.5},
    code=Code(
        text=example_option,
        checkpoint="import torch\n\n"
        'question, *options = {text}, "second option"\n'
        'given = tokenizer([question] * len(options), options, truncation=True, padding=True, return_tensors="pt")\n'
        "with torch.inference_mode():\n"
        "    scores = model(**{name: values[None] for name, values in given.items()}).logits[0]\n"
        "print(options[scores.argmax()], scores.softmax(-1).tolist())",
        export="scores = []\n"
        'question, *options = {text}, "second option"\n'
        "for option in options:  # one by one, as the model was evaluated\n"
        "    text = tokenizer.encode(question, option)\n"
        '    given = {"input_ids": text.ids, "attention_mask": text.attention_mask, "token_type_ids": text.type_ids}\n'
        '    feeds = {name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}\n'
        '    scores.append(session.run(["logits"], feeds)[0][0, 0])\n'
        "print(options[int(np.argmax(scores))], scores)",
    ),
    analysis_title="Calibration of choices",
    figures=(
        CHOICE_ECE,
        ErrorFigure("certainty_of_errors", "mean probability of a wrong choice", "wrong but sure"),
    ),
    card_figure=CHOICE_ECE,
    chart="reliability",
    chart_note="Reliability: the bars are the accuracy at each probability of the chosen option, the dark line is the "
    "mean probability; a calibrated model has both on the diagonal.",
    matrix="",
    counted={
        "both_right": "both right",
        "only_teacher": "only the teacher right",
        "only_student": "only the student right",
        "both_wrong": "both wrong",
        "differ": "different options",
    },
    examples={
        "surest": "Both confident, different options, the student's is wrong",
        "corrected": "Student right, teacher wrong",
    },
    answer=option_by_letter,
    in_text=option_in_text,
)
