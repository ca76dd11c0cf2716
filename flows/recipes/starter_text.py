"""The text of a starter recipe: its lines, from the columns and the form of a table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.recipes.starter_messages import has_no_label, word
from flows.recipes.starter_rows import TableSource
from tasks.recipe.data import TableFormat
from tasks.task_types.texts.pair_forms import PairForm
from tasks.task_types.types import SENTENCE_VECTORS, TaskType

if TYPE_CHECKING:
    from tasks.task_types.interfaces import ColumnChoice, TableGuess

STARTER = """# yaml-language-server: $schema={schema}
# A starter recipe, generated from {file}: edit it, then `limbeck validate {out}`, `limbeck plan {out}` and `limbeck run {out}`.
name: {name}
task:
  name: {name}
  kind: {kind}        # {reason}
{columns}
  metrics: [{metrics}]
  headline: {headline}        # the metric that decides
data:
  source: {source}        # {said}
{data}  holdout_rows: 2000    # held out from train for the decision; at most a fifth of it
teacher:
  model: {teacher}   # a hub id, or a folder
{taken}students:      # {students_reason}
  - {{name: {student}, {shape}, start: {start}}}
{baseline}# candidates:    # more models, each made from the teacher, the pretrained model or another candidate
#   - {{name: third, from: {student}, by: layer-dropping, strategy: top, drop: 1, signal: teacher}}
{further}{search}gate:
  criteria:
    - {{{criterion}
"""  # noqa: E501


RETAINED = "metric: retained, at_least: 0.95}   # of the teacher's score, at the lower end of its interval"
OF_ERROR = (
    "metric: retained, at_least: 0.83}}   # the teacher's {0} over the student's, at the lower end of its interval: at "
    "most 1.2 times as much"
)
BASELINE_LINE = "  - {{name: {student}-without-teacher, role: baseline, {shape}, start: {start}, signal: labels}}\n"
FURTHER_LINES = "scoring:\n  metrics: [{}]    # beside the task's: how well scores rank rows, at any threshold\n"
SEARCH_LINES = """search:        # limbeck search {out}: which way of training this shape is best? starts, methods and learning rates, a half hour
  recipes: {{shape: {{{shape}}}, starts: [{starts}], minutes: 30}}
"""  # noqa: E501
TAKEN_LINE = "  already_finetuned: true   # the model as it is: {}\n"


def with_data(fields: Mapping[str, object], data: Sequence[str]) -> str:
    """Return the text of a recipe with some lines in its section ``data``."""
    return STARTER.format(**fields, data="".join(f"  {line}\n" for line in data))


def taken_line(own: TaskType) -> str:
    """Return the line that takes a teacher of vectors as it is, as the usual one is good already; empty for other
    types."""
    if own.outputs != SENTENCE_VECTORS:
        return ""
    why = "without this line it learns the pairs first" if own.learns_labels else "labels of this type judge alone"
    return TAKEN_LINE.format(why)


def gathers_rows(own: TaskType) -> bool:
    """Tell whether rows with one text are one row of a task, and so divided together already."""
    return any(column.is_gathered for column in own.columns)


def has_label(chosen: ColumnChoice, values: Mapping[str, Sequence[Any]]) -> bool:
    """Tell whether a table has a column of labels: texts alone are what language models learn."""
    if has_no_label(chosen.task):
        return False
    return any(part in values for part in chosen.label.split(", "))


def recipe_name(source: str) -> str:
    """Return the name of a recipe for a table: that of its file, folder or hub id, in plain letters."""
    path = Path(source).expanduser()
    called = (path.resolve() if path.exists() else path).name.split(".")[0]
    letters = unicodedata.normalize("NFKD", called).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:60].strip("-") or "mine"


def data_lines(given: TableFormat, files: TableSource, form: PairForm) -> list[str]:
    """Return the lines of the section ``data`` that not every recipe has."""
    from tasks.ports.rows.tables import shard_name

    lines = [f"format: {{columns: [{', '.join(map(word, given.columns))}]}}"] if given.columns else []
    if files.judging:
        split = shard_name(Path(files.judging))
        given_rows = f"{{given: {{source: {word(str(files.root))}, split: {word(split)}}}}}"
        lines.append(f"# judge: {given_rows}    # evaluate on it, too")
    return [*lines, *([group_line(form.divided_by)] if form.divided_by else [])]


def validation_lines(files: TableSource) -> list[str]:
    """Return the line of the section ``task`` about the validation split; none where it has a usual name."""
    return [f"validation: {word(files.validation)}        # the first of several"] if files.validation else []


def group_line(column: str) -> str:
    """Return the line of the column by which rows are divided."""
    return f"group: {word(column)}        # none is on both sides of a split"


def column_lines(
    chosen: ColumnChoice, guess: TableGuess, form: PairForm, values: Mapping[str, Sequence[Any]]
) -> list[str]:
    """Return the lines of the section ``task`` about columns and classes."""
    pair = [f"pair: {word(form.pair)}        # a second text; remove it if it is not one"] if form.pair else []
    labels = [f"labels: [{', '.join(map(word, guess.labels))}]"] if guess.labels else []
    cut = [f"truncate: {form.truncate}        # the other text stays whole"] if form.truncate else []
    group = [f"group: {word(form.group)}        # judged together"] if form.group else []
    label = [f"label: {word(chosen.label)}"] if has_label(chosen, values) else []
    return [f"text: {word(form.text)}", *pair, *cut, *group, *label, *labels]
