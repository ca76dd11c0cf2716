"""The form of pairs of texts in a table, as ``limbeck init`` guesses it: passages that other columns name, the text
that alone is cut, and rows that are judged together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.task_types.common_rows import are_strings, mean_words
from tasks.task_types.interfaces import ColumnChoice
from tasks.task_types.texts.templates import Unrendered, is_template, rendered
from tasks.task_types.types import TaskType

ROWS_LOOKED_AT = 2000
"""Rows that are looked at."""
SHARE_OF_A_FORM = 0.95
"""Share of the rows that must have a form."""
WORDS_OF_A_PASSAGE, TIMES_AS_LONG = 64, 4
"""Mean number of words from which on a text is often cut, and how many times as long as the other one it then is."""
ROWS_OF_A_QUESTION = 2
"""Mean number of rows from which on a text is a question with several answers."""


@dataclass(frozen=True)
class PairForm:
    """Columns or templates of two texts, and the knobs of a recipe about them; empty: as usual."""

    text: str
    pair: str | None
    truncate: str = ""
    group: str = ""
    divided_by: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of rows that are judged together."""
        return ("group_exact",) if self.group else ()


def has_forms(own: TaskType, chosen: ColumnChoice) -> bool:
    """Tell whether the texts of a task type may be put together from several columns: those of optional pairs, or of
    which one is a template already."""
    may = any(column.role == "pair" and not column.required for column in own.columns)
    return may or (chosen.pair is not None and is_template(chosen.pair))


def form_of_pairs(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> PairForm:
    """Return the form of the chosen texts of a table."""
    some = {name: values[:ROWS_LOOKED_AT] for name, values in columns.items()}
    plain = PairForm(chosen.text, chosen.pair)
    if is_template(chosen.text) or (chosen.pair is not None and is_template(chosen.pair)):
        return with_truncation(some, plain)
    form = with_questions(some, chosen) or with_words(some, chosen) or with_marks(some, plain)
    return with_truncation(some, form)


def with_questions(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> PairForm | None:
    """Return the form of rows that are answers to a question about a text, with several answers each; None for
    others."""
    texts = [name for name in columns if name not in (chosen.text, chosen.label) and are_strings(columns[name])]
    for question in texts:
        by_question = defaultdict[tuple[Any, Any], list[int]](list)
        for row, both in enumerate(zip(columns[chosen.text], columns[question], strict=True)):
            by_question[both].append(row)
        rows = len(columns[question])
        if rows < ROWS_OF_A_QUESTION * len(by_question) or len(by_question) == len({text for text, _ in by_question}):
            continue
        for answer in texts:
            different = {(*both, columns[answer][row]) for both, own in by_question.items() for row in own}
            if answer != question and len(different) >= SHARE_OF_A_FORM * rows:
                why = f"{question} has {rows / len(by_question):.1f} rows on average, which differ in {answer}: "
                return PairForm(
                    chosen.text,
                    f"{{{question}}} {{{answer}}}",
                    group=f"{{{chosen.text}}} {{{question}}}",
                    divided_by=chosen.text,
                    reasons=(f"{why}they are judged together, and divided by {chosen.text}",),
                )
    return None


def with_words(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> PairForm | None:
    """Return the form of a text of which columns count the words of passages and hold them; None for others."""
    found = []
    for index in columns:
        words = f"{index.removesuffix('_index')}_text"
        template = f"{{{chosen.text} *{index}+{words}*}}"
        if index.endswith("_index") and words in columns and fills(template, columns):
            found.append((template, words))
    if not found:
        return None
    (template, words), (_, other) = found[-1], found[0]
    reason = f"{words} stands at a word of {chosen.text}, and is marked there"
    return PairForm(template, chosen.pair if len(found) == 1 else other, reasons=(reason,))


def with_marks(columns: Mapping[str, Sequence[Any]], form: PairForm) -> PairForm:
    """Return the form of texts of which columns name the first and the last character of a passage."""
    found = {
        name: template for name in (form.text, form.pair) if name and (template := template_of_marks(columns, name))
    }
    if not found:
        return form
    reason = f"the passages that are named in {' and '.join(found)} are marked there"
    pair = None if form.pair is None else found.get(form.pair, form.pair)
    return replace(form, text=found.get(form.text, form.text), pair=pair, reasons=(reason,))


def template_of_marks(columns: Mapping[str, Sequence[Any]], text: str) -> str:
    """Return a template that marks the passage that two columns name in a text; empty if there are none."""
    starts = [name for name in columns if "start" in name and name.replace("start", "end") in columns]
    own = [name for name in starts if text.endswith(name.partition("start")[2])]
    for start in own:
        template = f"{{{text} *{start}:{start.replace('start', 'end')}*}}"
        if fills(template, columns):
            return template
    return ""


def fills(template: str, columns: Mapping[str, Sequence[Any]]) -> bool:
    """Tell whether a template can be filled in nearly all rows, with passages that are meant."""
    rows = len(next(iter(columns.values())))
    found, notes = rendered(template, columns, rows)
    wrong = sum(one is None or isinstance(one, Unrendered) for one in found) + notes.total()
    return rows > 0 and wrong <= (1 - SHARE_OF_A_FORM) * rows


def with_truncation(columns: Mapping[str, Sequence[Any]], form: PairForm) -> PairForm:
    """Return the form with the text that alone is cut, where one is a passage and the other one short."""
    if form.pair is None:
        return form
    rows = len(next(iter(columns.values())))
    texts = (rendered(name, columns, rows)[0] for name in (form.text, form.pair))
    first, second = (mean_words([one for one in values if isinstance(one, str)]) for values in texts)
    long, short = max(first, second), min(first, second)
    if long < WORDS_OF_A_PASSAGE or long < TIMES_AS_LONG * short:
        return form
    which = "first" if first > second else "second"
    reason = f"the {which} text has {long:.0f} words on average, the other one {short:.0f}: the {which} alone is cut"
    return replace(form, truncate=which, reasons=(*form.reasons, reason))
