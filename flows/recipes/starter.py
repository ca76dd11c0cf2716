"""A starter recipe for a table of the user's own: columns, type of task, metrics and students that fit it, and the
reasons of every choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.recipes.starter_faults import (
    require_lists_as_lists,
    require_no_empty_label,
    require_texts,
    require_usable_labels,
    unread_columns,
)
from flows.recipes.starter_messages import (
    all_differ,
    has_no_label,
    names_without_header,
    no_type_fits,
    nothing_to_learn,
    unread_files,
    word,
)
from flows.recipes.starter_rows import (
    MOST_REMOVED,
    TableSource,
    columns_of_table,
    faults_in,
    recurring_text,
    renamed,
    require_no_model,
    table_source,
    with_joined,
    with_judging,
)
from flows.recipes.starter_text import (
    BASELINE_LINE,
    FURTHER_LINES,
    OF_ERROR,
    RETAINED,
    SEARCH_LINES,
    column_lines,
    data_lines,
    gathers_rows,
    group_line,
    has_label,
    recipe_name,
    taken_line,
    validation_lines,
    with_data,
)
from tasks.errors import DataError, ModelError, RecipeError
from tasks.task_types.texts.pair_forms import PairForm, form_of_pairs, has_forms
from tasks.task_types.texts.templates import is_template
from tasks.task_types.types import ERROR_METRICS, METRICS_OF_SCORES_OF, NO_LABEL, TASK_TYPES, TaskType, task_type

if TYPE_CHECKING:
    from tasks.task_types.interfaces import ColumnChoice, TableGuess

AskUser = Callable[[str, Sequence[str]], str]
"""Asks the user a question with several answers, of which the first is the default."""


@dataclass(frozen=True)
class Wishes:
    """What the user states about the recipe."""

    text: str | None = None
    label: str | None = None
    pair: str | None = None
    task: str | None = None
    teacher: str | None = None
    search: bool = False
    """Whether the recipe has trials of ways to train its student."""


@dataclass(frozen=True)
class Starter:
    """A recipe as text, and sentences about its choices."""

    text: str
    notes: tuple[str, ...]


def starter_recipe(source: str, out: Path, wishes: Wishes = Wishes(), ask: AskUser | None = None) -> Starter:  # noqa: B008
    """Return a starter recipe for a table; ``ask`` is called where a choice is unsure. Raises RecipeError for wishes
    that the table does not fulfil, DataError for a table that cannot be read."""
    from flows.run.knob_list import SCHEMA_FILE
    from tasks.ports.rows.tables import reading_sentence

    require_no_model(source)
    files = table_source(source)
    path = files.train
    values, opened, given, notes = columns_of_table(path)
    values = with_joined(values, wishes.label)
    chosen, reasons = columns_chosen(path.name, values, wishes, ask)
    reasons += names_without_header(chosen, given)
    values, chosen, given = renamed(values, chosen, given)
    kind, guess = guessed(path.name, values, chosen)
    further = metrics_that_fit(kind, guess)
    if chosen.label in opened.classes:
        guess = replace(guess, labels=None)  # the file itself declares them, in order
    shape, why = student_of(wishes.teacher, own := task_type(kind))
    rows = len(next(iter(values.values())))
    named = bool(wishes.text or wishes.pair or given.columns)  # by the user, or by nobody
    plain = named or not has_forms(own, chosen)
    form = PairForm(chosen.text, chosen.pair) if plain else form_of_pairs(values, chosen)
    files = with_judging(files, chosen.label if has_label(chosen, values) else None)
    reasons += unread_columns(values, replace(chosen, text=form.text, pair=form.pair), opened.columns, guess.reason)
    fields = {
        "schema": SCHEMA_FILE,
        "file": path.name,
        "out": out,
        "name": recipe_name(source),
        "kind": kind,
        "reason": guess.reason,
        "columns": "\n".join(
            f"  {line}" for line in [*column_lines(chosen, guess, form, values), *validation_lines(files)]
        ),
        "metrics": ", ".join((*guess.metrics, *form.metrics)),
        "headline": guess.metrics[0],
        "source": word(source if not Path(source).exists() else str(Path(source).resolve())),
        "said": reading_sentence(opened, rows).removeprefix(f"{opened.name}: "),
        "teacher": word(wishes.teacher or own.usual_teacher),
        "taken": taken_line(own),
        "baseline": BASELINE_LINE.format(**shape) if own.learns_labels else "",
        "students_reason": why,
        "criterion": OF_ERROR.format(guess.metrics[0]) if guess.metrics[0] in ERROR_METRICS else RETAINED,
        "further": FURTHER_LINES.format(", ".join(further)) if further else "",
        "search": trial_lines(shape, own, str(out)) if wishes.search else "",
        **shape,
    }
    recurring = "" if form.divided_by or gathers_rows(own) else recurring_text(values, chosen.pair or "", chosen.text)
    text, told = with_rows(fields, data_lines(given, files, form), files, recurring)
    also = "".join(f"; {name} is reported, too" for name in further)
    said = f"{kind}: {guess.reason}; decided by {guess.metrics[0]}{also}"
    others = [] if wishes.task else sharing_columns(kind)
    reasons += [*form.reasons, said, *others, f"students: {why}", *unread_files(files.unread, files.judging)]
    return Starter(text, (reading_sentence(opened, rows), *notes, *reasons, *told))


def with_rows(
    fields: Mapping[str, object], data: Sequence[str], files: TableSource, recurring: str
) -> tuple[str, list[str]]:
    """Return the text of a recipe with the lines of its section ``data``, and notes about its rows. Where they cannot
    be divided one by one, or many would be lost, they are by the column whose texts recur, if there is one."""
    faulty, told, removed = faults_in(with_data(fields, data), files)
    if recurring and removed > MOST_REMOVED:
        grouped = [*data, group_line(recurring)]
        by_group = faults_in(with_data(fields, grouped), files)
        if by_group[2] < removed:
            data, (faulty, told, _) = grouped, by_group
            told = [f"group: {recurring}, because its texts recur: rows with one of them are divided together", *told]
    return with_data(fields, [*data, *([f"faulty_rows: drop        # {faulty}"] if faulty else [])]), told


def trial_lines(shape: Mapping[str, str], own: TaskType, out: str) -> str:
    """Return the section on trials of ways to train the student. Raises RecipeError for a type whose students have one
    way."""
    if own.writes:
        raise RecipeError(
            "init --search tries ways to train a student, and models that write texts have no inner layers to copy "
            "here; leave --search out"
        )
    narrow = shape["start"] == "random"  # another width: no layer of the teacher fits
    starts = ["random", "embeddings"] if narrow else [shape["start"], "contribution", "random"]
    return SEARCH_LINES.format(out=out, shape=shape["shape"], starts=", ".join(starts))


# --- choices ----------------------------------------------------------------------------------------------------------


def columns_chosen(
    file: str, values: Mapping[str, list[Any]], wishes: Wishes, ask: AskUser | None
) -> tuple[ColumnChoice, list[str]]:
    """Return the columns of texts and labels, and a sentence about each choice that the user did not make."""
    from tasks.ports.files.sources import nearest
    from tasks.task_types.common_rows import choose_columns, in_one_value
    from tasks.task_types.readers import columns_of_types

    wished = [name for name in (wishes.text, wishes.label, wishes.pair) if name is not None]
    if len(set(wished)) < len(wished):
        raise RecipeError(f"--text, --label and --pair name {', '.join(wished)}; name a column of its own by each")
    for option, name in (("--text", wishes.text), ("--label", wishes.label), ("--pair", wishes.pair)):
        if name is not None and name not in values:
            raise RecipeError(
                f"{option}: {file} has no column {name!r}; it has {', '.join(values)}{nearest(name, values)}"
            )
    if wishes.label is None and wishes.pair is None and (wishes.text is None or wishes.task):
        offered = values if wishes.text is None else {wishes.text: values[wishes.text]}
        if (own := columns_of_types(file, offered, wishes.task)) is not None:
            require_texts(file, values, own)
            if not wishes.task:
                require_no_empty_label(file, values, own)
            return own, reasons_of(own, wishes, values)
    lists = [name for name, column in values.items() if any(isinstance(value, list) for value in column)]
    values = {name: in_one_value(column) for name, column in values.items()}
    nested = {
        name: column for name, column in values.items() if any(isinstance(value, (list, dict)) for value in column)
    }
    if named := next((name for name in wished if name in nested), None):
        raise DataError(f"{file}: column {named!r} holds objects, lists beside single values, or lists of no labels")
    values = {name: column for name, column in values.items() if name not in nested}
    texts = {name: column for name, column in values.items() if name not in lists or name == wishes.label}
    chosen = choose_columns(values, wishes.text, wishes.label, wishes.pair)
    if chosen is not None and {*lists} & {chosen.text, chosen.pair}:  # a list of labels is one, and no text
        texts[chosen.label] = values[chosen.label]
        chosen = choose_columns(texts, wishes.text, chosen.label, wishes.pair)
    without = columns_without_label(values, wishes, chosen)
    chosen = without if without or (has_no_label(wishes.task) and not wishes.label) else chosen
    if chosen is None:
        require_lists_as_lists(file, values, list(values))
        several = {name: values.pop(name) for name in lists if name in values and len(set(values[name])) > 1}
        raise DataError(nothing_to_learn(file, values, nested | several, wishes.task))
    require_usable_labels(file, values, chosen)
    require_texts(file, values, chosen)
    chosen = replace(chosen, task=task_type(wishes.task).name if wishes.task else None)
    if ask is not None and not chosen.is_sure and chosen.other_labels:
        label = ask("Which column holds the labels?", [chosen.label, *chosen.other_labels])
        chosen = replace(choose_columns(values, wishes.text, label, wishes.pair) or chosen, task=chosen.task)
    if ask is not None and chosen.pair and not wishes.pair:
        pair = ask(f"Is {chosen.pair} a second text beside {chosen.text}?", ["yes", "no"])
        chosen = chosen if pair == "yes" else replace(chosen, pair=None, text=ask_for_text(values, chosen, ask))
    return chosen, reasons_of(chosen, wishes, values)


def columns_without_label(
    values: Mapping[str, list[Any]], wishes: Wishes, found: ColumnChoice | None
) -> ColumnChoice | None:
    """Return the columns that the user names for a type whose rows need no label, if no column is one; else None. A
    type whose rows have no label takes the longest texts where no column is named."""
    from tasks.task_types.common_rows import text_columns
    from tasks.task_types.interfaces import ColumnChoice
    from tasks.task_types.readers import READERS

    if wishes.label or not wishes.task:
        return None
    if has_no_label(wishes.task):
        text = wishes.text or next(iter(text_columns(values)), None)
        choice = ColumnChoice(text, None, NO_LABEL.role, task=wishes.task) if text else None
        return choice if choice and READERS[wishes.task].guess(values, choice) else None
    if not wishes.text:
        return None
    needed = {column.role: column.required for column in task_type(wishes.task).columns}
    if needed["label"] or ("pair" in needed and not wishes.pair):
        return None
    if found is not None and READERS[wishes.task].guess(values, replace(found, task=wishes.task)) is not None:
        return None
    return ColumnChoice(wishes.text, wishes.pair, "label")


def ask_for_text(values: Mapping[str, list[Any]], chosen: ColumnChoice, ask: AskUser) -> str:
    """Ask which of two columns of texts is the one to classify; the longer one is the default."""
    from tasks.task_types.common_rows import mean_words

    both = [name for name in (chosen.text, chosen.pair) if name is not None]
    return ask("Which column holds the texts?", sorted(both, key=lambda name: -mean_words(values[name])))


def reasons_of(chosen: ColumnChoice, wishes: Wishes, values: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a sentence about each column that the user did not name."""
    if chosen.pair and is_template(chosen.pair):  # of which options of the command name no part
        told = [f"text: {chosen.text}, {chosen.why_text}", f"pair: {chosen.pair}; the recipe may name other columns"]
        return told + label_reasons(chosen, wishes, values)
    told = [] if wishes.text else [f"text: {chosen.text}, {chosen.why_text} (--text names another)"]
    if chosen.pair and not wishes.pair:
        told.append(f"pair: {chosen.pair}, a second text (--text alone leaves it out)")
    return told + label_reasons(chosen, wishes, values)


def label_reasons(chosen: ColumnChoice, wishes: Wishes, values: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a sentence about the column of the label, if the user did not name it."""
    told = []
    if not wishes.label and has_label(chosen, values):
        why = "by its name" if chosen.is_sure else "a guess: no column has the usual name of a label"
        parts = chosen.label.split(", ")
        further = [name for name in chosen.other_labels if name not in parts][:5]
        others = f"; others: {', '.join(further)}" if further else ""
        told.append(f"label: {chosen.label}, {why} (--label names another{others})")
    return told


def guessed(file: str, values: Mapping[str, list[Any]], chosen: ColumnChoice) -> tuple[str, TableGuess]:
    """Return the type of task that fits best, and how the table would be used. Raises DataError if none fits."""
    from tasks.task_types.readers import READERS, able_to_read

    labels = values.get(chosen.label, [])  # the label of a type may be several columns
    able = able_to_read(labels)
    asked = [name for name in able if chosen.task in (None, name)]
    if all_differ(labels):
        asked = [name for name in asked if not task_type(name).has_classes]
    found = {name: guess for name in asked if (guess := READERS[name].guess(values, chosen)) is not None}
    if not found:
        raise DataError(no_type_fits(file, labels, chosen, able))
    best = max(found, key=lambda name: found[name].fit)
    return best, found[best]


def sharing_columns(kind: str) -> list[str]:
    """Return a sentence about the types of task that read the same columns as this one."""
    others = [name for name, one in TASK_TYPES.items() if name != kind and one.columns == task_type(kind).columns]
    return [f"{name} learns from the same table: --task {name}, {task_type(name).description}" for name in others]


def metrics_that_fit(kind: str, guess: TableGuess) -> tuple[str, ...]:
    """Return metrics of scores for two classes that are so unequal that another metric than the usual one decides."""
    two_unequal = len(guess.labels or ()) == 2 and guess.metrics[0] != task_type(kind).headline
    return METRICS_OF_SCORES_OF.get(kind, ()) if two_unequal else ()


def student_of(teacher: str | None, own: TaskType) -> tuple[dict[str, str], str]:
    """Return the lines of a student that is smaller than its teacher, and the reason of its size."""
    layers, width = (own.usual_layers, None) if teacher is None else shape_of_teacher(teacher)
    # each word takes another pass of the decoder, so its depth counts most
    more, also = (
        (", decoder_layers: 1", ", and one of its decoder, where writing takes its time") if own.writes else ("", "")
    )
    if layers is None:
        return (
            {"student": "small", "shape": f"layers: 2{more}", "start": "teacher"},
            f"2 layers{also}, because the config of {teacher} is not at hand; its depth is unknown",
        )
    if layers > 1:
        half = layers // 2
        shape = {"student": "half", "shape": f"layers: {half}{more}", "start": "teacher"}
        return shape, f"{half} of the teacher's {layers} layers{also}"
    if width is None:
        raise ModelError(f"the config of {teacher} states no width; use a BERT-like encoder")
    shape = {
        "student": "narrow",
        "shape": f"layers: 1, hidden: {width // 2}, heads: 1, feed_forward: {width * 2}",
        "start": "random",
    }
    return shape, f"half of the teacher's width {width}, because it has one layer"


def shape_of_teacher(teacher: str) -> tuple[int | None, int | None]:
    """Return the layers and the width of a teacher; None if its config is not at hand. Raises ModelError for a folder
    that is no usable model."""
    from tasks.ports.files.sources import folder_of_config, looks_like_path, resolve_model, shape_known

    if Path(teacher).expanduser().exists() or looks_like_path(teacher):
        return shape_known(Path(resolve_model(teacher, None).uri))
    folder = folder_of_config(teacher)
    return (None, None) if folder is None else shape_known(folder)
