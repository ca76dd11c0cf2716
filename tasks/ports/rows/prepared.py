"""Prepared rows: a table that is checked, divided into splits and written with ids, and facts about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.data_leakage import (
    HELD,
    JUDGING,
    alone_note,
    free_of,
    held_sentences,
    leakage_of,
    leaked,
    overlap_of_groups,
)
from tasks.ports.rows.faulty_rows import (
    rare_classes,
    rare_sentences,
    require_no_faults,
    splits_to_draw,
    usable_rows,
    without_classes,
)
from tasks.ports.rows.overlap import Sentences, numbered, sentences_of
from tasks.ports.rows.row_files import RowFacts, StoredRows, copy_but, write_beginnings, write_facts, write_split
from tasks.ports.rows.row_files import read_split as read_prepared
from tasks.ports.rows.splits import Split, divide, divided_by_text, gathered_rows
from tasks.ports.rows.tables import (
    read_documents,
    read_split,
    read_texts,
    split_files,
    table_rows,
)
from tasks.recipe.data import Data
from tasks.recipe.slices import RowsSlice, StreamSlice, TransferSlice
from tasks.results.facts import RowsFacts
from tasks.task_types.interfaces import Reader
from tasks.task_types.readers import READERS
from tasks.task_types.texts.templates import LINES, beginning, gives_lines, prompt_in
from tasks.task_types.texts.word_counts import words_in

TRANSFER_IDS = 10**12  # first id of the user's own text, far from the ids of rows


def prepare_rows(source: Path, knobs: RowsSlice, output: Path) -> RowsFacts:
    """Read, check and divide the rows of a task, and write them; return counts and shares."""
    divided, names, facts = divided_rows(source, knobs)
    reader = READERS[knobs.task.kind]
    write_rows(divided, knobs.task, names, output, reader)
    return facts


def divided_rows(source: Path, knobs: RowsSlice) -> tuple[dict[str, Split], list[str] | None, RowsFacts]:
    """Read, check and divide the rows of a task; return its splits, the names of its labels, and counts and shares."""
    spec, reader = knobs.task, READERS[knobs.task.kind]
    files = split_files(source, spec, knobs.config)
    read = {
        split: read_split(paths, spec, reader.columns, knobs.group, knobs.format, reader.derive)
        for split, paths in files.items()
    }
    names = list(spec.labels) if spec.labels else reader.class_names(table_rows(read["train"], spec))
    usable = {split: usable_rows(rows, spec, reader, names) for split, rows in read.items()}
    unlabelled = {split: len(read[split].rows) - one.empty - len(one.rows) for split, one in usable.items()}
    splits = {split: one.rows for split, one in usable.items()}
    drawn = splits_to_draw(knobs, given="validation" in splits)
    has_classes = names is not None and reader.rows_have_classes
    rare = {} if names is None or not has_classes else rare_classes(splits["train"], reader, names, drawn)
    faults = [fault for one in usable.values() for fault in one.faults]
    faults += rare_sentences(splits["train"].file, rare, names or (), drawn)
    require_no_faults(faults, knobs)
    require_some(splits, unlabelled)
    splits, names = without_classes(splits, reader, names, rare)
    labels = splits["train"].labels if has_classes else None
    classes = labels if labels is None or reader.strata is None else reader.strata(labels, names)
    splits = divided_by_text(splits, reader.divided_by)
    for rows in splits.values():
        require_whole_units(rows, spec.group, knobs.group)
    divided, purged = divide(splits, grouped_data(knobs, reader.divided_by), classes)
    for split, rows in divided.items():
        reader.require_labels(f"{split} split", rows.labels, names)
        if reader.require_pairs is not None and split != "train":
            reader.require_pairs(f"{split} split", rows.pairs or [])
    facts = {**facts_of(divided), **reader.label_facts(divided["validation"].labels, names)}
    if reader.written is not None:
        train = divided["train"]
        words = [words_in(reader.written(*row)) for row in zip(train.texts, train.labels, strict=True)]
        facts["words_to_write"] = sum(words) / max(1, len(words))
    notes = [line for one in read.values() for line in reader.notes(table_rows(one, spec), names)]
    notes += alone_note(divided["train"], knobs.group or spec.group)
    said = {"read": [*(line for one in read.values() for line in one.said), *notes], "faulty": faults}
    return divided, names, RowsFacts.model_validate({**facts, **said, "purged": purged, "unlabelled": unlabelled})


def require_some(splits: Mapping[str, Split], unlabelled: Mapping[str, int]) -> None:
    """Raise DataError for a split of the source of which no row can be used."""
    for split, rows in splits.items():
        if not len(rows):
            why = f"none of its {unlabelled[split]:,} rows with a text has a label" if unlabelled[split] else "no text"
            raise DataError(
                f"{rows.file}: no row of the {split} split can be used, {why}; correct the file"
                + (", or remove it, and rows are drawn from train" if split == "validation" else "")
            )


def write_rows(
    splits: dict[str, Split],
    spec: TaskSpec,
    names: list[str] | None,
    output: Path,
    reader: Reader,
) -> None:
    """Write every split, with ids that no two rows share and labels of the Arrow type of their reader, and the facts
    about the task; a task that reads texts apart has a row for each text of a pair."""
    output.mkdir(parents=True, exist_ok=True)
    start = 0
    for split in sorted(splits):
        rows = splits[split]
        groups = None if split == "train" else rows.numbers.tolist()
        if reader.reads_apart:
            rows, groups = texts_apart(rows, groups, None if split == "train" else reader.second_alone)
        write_split(output, split, numbered_rows(rows, start, groups), reader.label_type())
        start += len(rows)
    write_beginnings(output, splits["train"].before, [prompt_in(spec.text), prompt_in(spec.pair or "")])
    write_facts(
        output,
        RowFacts(
            name=spec.name,
            kind=spec.kind,
            labels=names,
            metrics=list(spec.metrics),
            headline=spec.headline,
            pairs=spec.pair is not None and not reader.reads_apart,
            truncate=spec.truncate,
        ),
    )


def pack_train(rows: Path, knobs: StreamSlice, output: Path) -> tuple[int, int]:
    """Copy prepared rows with their training rows joined, neighbour to neighbour, until each new row has enough bytes;
    its id is that of the first one. Return the number of rows before and after."""
    reader, own = READERS[knobs.task_type], read_prepared(rows, "train")
    assert reader.joined is not None, knobs.task_type
    begun, before = list[int](), knobs.size
    for row, text in enumerate(own.texts):
        if before >= knobs.size:
            begun.append(row)
            before = 0
        before += len(text.encode())
    parts = [slice(start, stop) for start, stop in zip(begun, [*begun[1:], len(own)], strict=True)]
    found = [reader.joined(own.texts[part], own.labels[part]) for part in parts]
    texts, labels = [text for text, _ in found], [label for _, label in found]
    copy_but(rows, output, "train")
    write_split(output, "train", StoredRows([own.ids[row] for row in begun], texts, None, labels), reader.label_type())
    return len(own), len(found)


def texts_apart(
    rows: Split, groups: list[int] | None, second_alone: Callable[[Any], bool] | None = None
) -> tuple[Split, list[int] | None]:
    """Return rows of one text each, in pairs: every text, and then its second text, with the label and the group of
    their row. Where ``second_alone`` is true of the label, the second text is also the first."""
    twice = [row for row in range(len(rows)) for _ in range(2)]
    seconds = rows.texts if rows.pairs is None else rows.pairs
    are_alone = [second_alone is not None and second_alone(label) for label in rows.labels]
    three = zip(rows.texts, seconds, are_alone, strict=True)
    texts = [text for first, second, is_alone in three for text in (second if is_alone else first, second)]
    apart = Split(rows.file, texts, None, [rows.labels[row] for row in twice])
    return apart, None if groups is None else [groups[row] for row in twice]


def grouped_data(knobs: RowsSlice, divided_by: str = "") -> Data:
    """Return the knobs of a division in which rows that are judged together share a fate, or those with the same text
    in the column of a role."""
    columns = {"text": knobs.task.text, "pair": knobs.task.pair}
    group = knobs.task.group or columns.get(divided_by)
    return knobs if knobs.group or not group else knobs.model_copy(update={"group": group})


def require_whole_units(rows: Split, group: str | None, larger: str | None) -> None:
    """Raise DataError if rows that are judged together, those of a ``group``, may be divided: if they are in several of
    the ``larger`` groups. Both are names of columns."""
    if rows.units is None or rows.groups is None:
        return
    known: dict[str, str] = {}
    for unit, place in zip(rows.units, rows.groups, strict=True):
        if known.setdefault(unit, place) != place:
            raise DataError(
                f"{rows.file}: the rows whose {group} is {unit!r} are in several groups of {larger}, and "
                f"would be divided; name larger groups in data.group, or remove it"
            )


def numbered_rows(rows: Split, start: int, groups: list[int] | None = None) -> StoredRows:
    """Return rows with ids from ``start`` on; ``groups`` say which of them belong together."""
    ids = list(range(start, start + len(rows)))
    units = None if rows.units is None else numbered(rows.units).tolist()
    return StoredRows(ids, rows.texts, rows.pairs, rows.labels, groups, units)


def facts_of(splits: dict[str, Split]) -> dict[str, object]:
    """Return facts about the rows: counts, leaks, digests and the longest text."""
    in_part = overlap_of_groups(splits)
    return {
        **({"leaked_in_part": in_part} if in_part else {}),
        "rows": {split: len(rows) for split, rows in splits.items()},
        "leaked": leakage_of(splits),
        "leaked_by_choice": leakage_of(splits, "selection") if splits.get("selection") else {},
        "groups": drawn_groups_of({split: rows for split, rows in splits.items() if split in HELD}),
        "rows_sha256": {split: digest_of(rows) for split, rows in splits.items() if split in JUDGING},
        "longest_words": max(len(text.split()) for text in splits["train"].texts),
    }


def drawn_groups_of(splits: Mapping[str, Split]) -> dict[str, int]:
    """Return the number of groups of each split whose rows come in groups."""
    found = {split: len(np.unique(rows.numbers)) for split, rows in splits.items() if len(rows)}
    return {split: count for split, count in found.items() if count < len(splits[split])}


def digest_of(rows: Split) -> str:
    """Return a digest of the rows' texts and labels, in order; it does not depend on ids or on the file of the
    rows."""
    digest = sha256()
    pairs: Sequence[str | None] = rows.pairs or [None] * len(rows)
    for row in zip(rows.texts, pairs, rows.labels, strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def unlabelled_rows(source: Path, text: str, pair: str | None, reader: Reader) -> Split:
    """Read the user's own unlabelled text as rows of a reader's task type. Raises DataError for a type that ranks texts
    if no query has several."""
    texts, pairs = read_texts(source, text, pair)
    texts = texts if reader.unlabelled is None else [reader.unlabelled(one) for one in texts]
    rows = Split(source.name, texts, pairs, [None] * len(texts), before=(beginning(text), beginning(pair or "")))
    if pair is None or not any(column.is_gathered for column in reader.columns):
        return rows
    rows = rows.take([row for row, second in enumerate(pairs or ()) if second])
    rows = rows if gives_lines(pair) else gathered_rows(rows)
    if not any(LINES in second for second in rows.pairs or ()):
        raise DataError(f"{source.name}: each query has one text, and there is nothing to rank; add further texts")
    return replace(rows, labels=[None] * len(rows))


def prepare_transfer(source: Path, knobs: TransferSlice, output: Path, rows: Path) -> dict[str, object]:
    """Write the user's own unlabelled text as training rows without labels; return its number of rows, and the number
    of the held-back ``rows`` that overlap with it. Texts that overlap with those are left out where the knobs say so.

    Raises DataError if no text is left, or if a student can learn nothing from them.
    """
    unlabelled = unlabelled_rows(source, knobs.text, knobs.pair, READERS[knobs.task_type])
    held, leave_out, count = held_sentences(rows), knobs.overlaps == "leave-out", len(unlabelled)
    if leave_out:
        unlabelled = unlabelled.take(free_of(unlabelled.sentences, held))
        if not len(unlabelled):
            raise DataError(
                f"no text of transfer.source is left: all {count:,} overlap with held-out rows, and transfer.overlaps "
                f"is leave-out; give other texts, or set transfer.overlaps: keep"
            )
    output.mkdir(parents=True, exist_ok=True)
    write_split(output, "train", numbered_rows(unlabelled, TRANSFER_IDS))
    write_beginnings(output, unlabelled.before)
    facts = {"rows": len(unlabelled), "leaked": leaked(unlabelled.sentences, held)}
    return {**facts, "left_out": count - len(unlabelled)} if leave_out else facts


def leakage_of_corpus(source: Path, column: str, most: int | None, rows: Path) -> dict[str, object]:
    """Return the number of held-back ``rows`` that overlap with the first ``most`` words of a corpus (None: all), and
    the number of words read."""
    held, words = held_sentences(rows), 0

    def documents() -> Iterator[Sentences]:
        nonlocal words
        for text in read_documents(source, column):
            if most is not None and words >= most:
                return
            words += len(text.split())
            yield from sentences_of([text], before=[beginning(column)])

    return {"leaked": leaked(documents(), held), "words": words}
