"""Judging sets: labelled rows in addition to a task's own, with labels converted to the task's by its type, and
compared with all training data. Rows without a label, or with one that stands for none of the task's, are left out.
Where a set's file has the column of groups by which the task's own rows are divided (``data.group``), its rows are in
groups as well: those of one group are not independent, and intervals draw them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from tasks.catalog import GLUE, TaskSpec
from tasks.contracts import Artifact
from tasks.errors import DataError, MissingColumn
from tasks.ports.files.sources import nearest, resolve_data
from tasks.ports.rows.faulty_rows import empty_texts, with_empty_texts
from tasks.ports.rows.overlap import NONE, HeldBack, Sentences, sentences_of
from tasks.ports.rows.prepared import digest_of, numbered_rows, require_whole_units, texts_apart
from tasks.ports.rows.row_files import copy_but, copy_without, read_facts, write_beginnings, write_merged, write_split
from tasks.ports.rows.seen import read_sentences
from tasks.ports.rows.splits import MOST_PURGED, Split, divided_by_text
from tasks.ports.rows.table_files import format_of, tables_in
from tasks.ports.rows.tables import (
    drop_unlabelled,
    has_columns,
    read_documents,
    read_split,
    shard_name,
    table_rows,
)
from tasks.recipe.data import Data, JudgingSet
from tasks.recipe.slices import JudgingRowsSlice
from tasks.results.facts import SetFacts, SetPurge
from tasks.task_types.interfaces import JudgingLabels
from tasks.task_types.readers import READERS
from tasks.task_types.texts.templates import beginning
from tasks.task_types.texts.word_counts import words_in

SPLIT = "validation"
"""All rows of a set judge: they lie where those of a validation split would."""
FIRST = ("validation", "valid", "dev", "test")
"""Default names of a folder's file if the recipe names none; the first existing one is used."""


# --- location ---------------------------------------------------------------------------------------------------------


def resolve_judging_set(name: str, given: JudgingSet, data: Data, spec: TaskSpec) -> Artifact:
    """Return the source of a set's rows: its file, or the folder that contains its shards. Raises DataError if there
    are none."""
    source, revision = (given.source, given.revision) if given.source else (data.source, data.revision)
    if not source and spec.name not in GLUE:
        raise DataError(f"data.judge.{name} names no source, and neither does data; name a file, a folder or a hub id")
    artifact = resolve_data(source, revision, spec)
    files = files_of_set(Path(artifact.uri), given.split, f"data.judge.{name}")
    return resolve_data(str(files[0]), None, spec) if len(files) == 1 else artifact


def files_of_set(source: Path, split: str, where: str) -> list[Path]:
    """Return a set's file, or its shards in order."""
    if source.is_file() or format_of(source) is not None:
        return [source]
    found: dict[str, list[Path]] = {}
    for path in tables_in(source):
        found.setdefault(str(path.relative_to(source).parent / shard_name(path)), []).append(path)
    wanted = [split] if split else [*FIRST, *(found if len(found) == 1 else ())]
    for one in wanted:
        fitting = [known for known in found if known == one or known.endswith(f"/{one}")]
        if len(fitting) == 1:
            return found[fitting[0]]
    asked = f"no {split}" if split else "several files"
    raise DataError(
        f"{where}: {source} holds {asked}; set split to one of "
        f"{', '.join(found) or 'its files, of which there are none'}"
        f"{nearest(split, found) if split else ''}"
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def prepare_judging_set(source: Path, knobs: JudgingRowsSlice, rows: Path, output: Path) -> SetFacts:
    """Read and check a set, convert its labels to the task's, and write it; ``rows`` are the prepared rows of the task.
    Return counts and the merged classes.

    Raises DataError for unreadable files, for labels that are none of the task's, and if no row is left.
    """
    names = read_facts(rows).labels
    split, facts = judging_rows(source, knobs, names, read_sentences(rows, "train") if knobs.leave_out else None)
    output.mkdir(parents=True, exist_ok=True)
    reader, groups = READERS[knobs.task_type], split.numbers.tolist()
    written, own = texts_apart(split, groups, reader.second_alone) if reader.reads_apart else (split, groups)
    write_split(output, SPLIT, numbered_rows(written, 0, own), reader.label_type())
    write_beginnings(output, split.before)
    write_merged(output, facts.merged)
    return facts


def judging_rows(
    source: Path, knobs: JudgingRowsSlice, names: Sequence[str] | None, learned: Iterable[Sentences] | None = None
) -> tuple[Split, SetFacts]:
    """Read a set's rows with the task's classes ``names`` (None for a task without classes); rows that overlap with
    ``learned`` ones are left out. Return the rows and facts about them."""
    where = place_of(knobs)
    table, merged, faults, empty = labelled_rows(files_of_set(source, knobs.split, where), knobs, names)
    split, before = drop_unlabelled(table, table.labels), len(table)
    split = divided_by_text({SPLIT: split}, READERS[knobs.task_type].divided_by)[SPLIT]
    unlabelled = before - len(split)
    before += empty
    taken_out_N = np.zeros(len(split), bool) if learned is None else overlapping(split.sentences, learned)[0]
    require_whole_units(split, knobs.group, knobs.drawn_by)
    split = split.take(np.flatnonzero(~taken_out_N).tolist())
    split = split if knobs.rows is None else split.take(sampled(split, knobs.rows))
    if not len(split):
        raise DataError(
            f"{where}: none of the {before:,} rows of {split.file} remains for evaluation ({unlabelled:,} have no "
            f"label, {taken_out_N.sum():,} overlap with training rows); name other rows"
        )
    reader = READERS[knobs.task_type]
    if names is None or not reader.rows_have_classes:  # a set may lack classes, and have rows of one alone
        reader.require_labels(f"judging set {knobs.name}", split.labels, names)
    if reader.require_pairs is not None:
        reader.require_pairs(f"judging set {knobs.name}", split.pairs or [])
    facts = SetFacts(
        rows=len(split),
        rows_sha256=digest_of(split),
        unlabelled=unlabelled,
        faulty=tuple(faults),
        left_out=int(taken_out_N.sum()),
        merged=None if merged is None else tuple(merged),
        merges=tuple(said_of(merged, list(names or ()))),
    )
    return split, facts


def place_of(knobs: JudgingRowsSlice) -> str:
    """Return the place of a set in the recipe, for errors."""
    return f"data.judge.{knobs.name}"


def labelled_rows(
    files: list[Path], knobs: JudgingRowsSlice, names: Sequence[str] | None
) -> tuple[Split, list[int] | None, list[str], int]:
    """Return the rows of a set that have a text, with the task's labels (None for no label); for each class the number
    of its merged class; sentences about faulty rows, and the number of rows without a text."""
    reader = READERS[knobs.task_type]
    given = JudgingLabels(place_of(knobs), knobs.labels or (), knobs.numbered, dict(knobs.classes))
    spec = TaskSpec(
        name="judging", kind=knobs.task_type, text=knobs.text, pair=knobs.pair, label=knobs.label, group=knobs.group
    )
    drawn_by = knobs.drawn_by if knobs.drawn_by and has_columns(files[0], knobs.drawn_by, knobs.format) else None
    try:
        read = read_split(files, spec, reader.columns, drawn_by, given=knobs.format, derive=reader.derive)
    except MissingColumn as error:
        # The columns are the task's where a set names none of its own, which nothing in the sentence tells.
        raise DataError(f"{error}; name the set's own columns in {place_of(knobs)} (text, pair, label)") from error
    labels, merged = reader.judging_labels(table_rows(read, spec), given, names)
    told, empty = empty_texts(read.rows, spec, reader)
    faults = [*read.broken, *told]
    if faults and knobs.faulty_rows == "refuse":
        raise DataError(
            f"{place_of(knobs)}: {'; '.join(faults)}; correct these rows, or set data.faulty_rows: drop, which leaves "
            f"them out"
        )
    kept = [row for row in range(len(labels)) if row not in empty]
    return with_empty_texts(replace(read.rows, labels=labels).take(kept)), merged, faults, len(empty)


def sampled(split: Split, count: int) -> list[int]:
    """Return the indices of at most ``count`` rows, selected by a hash of their texts, in their original order; of rows
    that are judged together whole groups, and at least one."""
    sentences, judged = split.sentences, split.units or split.groups
    order = sorted(range(len(split)), key=lambda row: sha256("\0".join(sentences[row]).encode()).digest())
    if judged is None:
        return sorted(order[:count])
    together: dict[object, list[int]] = {}
    for row in order:
        together.setdefault(judged[row], []).append(row)
    found: list[int] = []
    for rows in together.values():
        if not found or len(found) + len(rows) <= count:
            found += rows
    return sorted(found)


def said_of(merged: Sequence[int] | None, names: Sequence[str]) -> list[str]:
    """Return a description of each group of merged classes."""
    groups = [
        [names[number] for number, into in enumerate(merged or ()) if into == first] for first in range(len(names))
    ]
    return [" and ".join(group) for group in groups if len(group) > 1]


# --- comparison with training data ------------------------------------------------------------------------------------


def overlapping(held: Sequence[Sentences], learned: Iterable[Sentences]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of a set whether it overlaps with a learned row, and for each learned row whether it overlaps
    with a row of the set."""
    index = HeldBack(held)
    first_N = index.overlaps(learned)
    return index.found(), first_N < NONE


def compare_judging_set(
    folder: Path, rows: Path, transfer: Path | None, corpus: Path | None, column: str, most: int | None
) -> dict[str, object]:
    """Count which rows of a set overlap with what is learned from: training rows, transfer text, and a corpus of which
    so many words are read."""
    held, learned = read_sentences(folder, SPLIT), {"training rows": read_sentences(rows, "train")}
    if transfer is not None:
        learned["transfer text"] = read_sentences(transfer, "train")
    found = {where: overlapping(held, texts) for where, texts in learned.items()}
    if corpus is not None:
        found["general text"] = overlapping(held, documents(corpus, column, most))
    return {
        "rows": len(held),
        "leaked": {where: int(ours_N.sum()) for where, (ours_N, _) in found.items()},
        "learned": {where: int(theirs_N.sum()) for where, (_, theirs_N) in found.items()},
    }


def documents(source: Path, column: str, most: int | None) -> Iterator[Sentences]:
    """Yield the documents of a corpus until ``most`` words were read (None: all)."""
    words = 0
    for text in read_documents(source, column):
        if most is not None and words >= most:
            return
        words += len(text.split())
        yield from sentences_of([text], before=[beginning(column)])


# --- purge of train ---------------------------------------------------------------------------------------------------


def purge_train(rows: Path, sets: Mapping[str, Path], output: Path) -> SetPurge:
    """Copy prepared rows without the training rows that overlap with one of the sets; return the number of removed rows
    for each set, and the size of the rest.

    Raises DataError if the share of removed rows is above ``MOST_PURGED``.
    """
    sentences = read_sentences(rows, "train")
    gone_N, by = np.zeros(len(sentences), bool), {}
    for name, folder in sets.items():
        also_N = overlapping(read_sentences(folder, SPLIT), sentences)[1] & ~gone_N
        gone_N, by[name] = gone_N | also_N, int(also_N.sum())
    if gone_N.sum() > MOST_PURGED * len(sentences):
        raise DataError(
            f"{gone_N.sum():,} of {len(sentences):,} training rows overlap with rows of {', '.join(sets)} and would "
            f"be removed; at most {MOST_PURGED:.0%} may be removed: set overlaps: leave-out, which removes rows from "
            f"the set instead"
        )
    copy_but(rows, output, "train")
    copy_without(rows, output, "train", gone_N)
    words = [sum(map(words_in, row)) for row, gone in zip(sentences, gone_N, strict=True) if not gone]
    return SetPurge(rows=int(gone_N.sum()), by=by, left=len(words), words_left=float(np.mean(words)))
