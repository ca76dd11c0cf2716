"""Prepared rows: a table that is checked, divided into splits and written with ids, and facts about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.data_leakage import JUDGING, held_sentences, leaked
from tasks.ports.rows.overlap import Sentences, sentences_of
from tasks.ports.rows.row_files import RowFacts, StoredRows, write_facts, write_split
from tasks.ports.rows.splits import Split, divide, leakage_of
from tasks.ports.rows.tables import clean, label_names, read_documents, read_split, read_texts, split_files
from tasks.recipe.data import Data

TRANSFER_IDS = 10**12  # first id of the user's own text, far from the ids of rows


def prepare_rows(source: Path, spec: TaskSpec, data: Data, output: Path) -> dict[str, Any]:
    """Read, check and divide the rows of a task, and write them; return counts and shares."""
    divided, names, facts = divided_rows(source, spec, data)
    write_rows(divided, spec, names, output)
    return facts


def divided_rows(source: Path, spec: TaskSpec, data: Data) -> tuple[dict[str, Split], list[str] | None, dict[str, Any]]:
    """Read, check and divide the rows of a task; return its splits, the names of its labels, and counts and shares."""
    files = split_files(source, spec)
    names: list[str] | None = list(spec.labels) if spec.labels else None
    splits = {split: read_split(paths, spec, data.group) for split, paths in files.items()}
    if spec.kind == "classification":
        names = names or label_names(files["train"][0], spec, splits["train"])
    dropped = {split: clean(rows, spec, names) for split, rows in splits.items()}
    divided, purged = divide(splits, data)
    if spec.kind == "classification":
        require_classes(divided, names or [])
    return divided, names, facts_of(divided, spec, names) | {"purged": purged, "unlabelled": dropped}


def require_classes(splits: dict[str, Split], names: list[str]) -> None:
    """Refuse a split in which a class never occurs, because its scores would be meaningless."""
    for split, rows in splits.items():
        missing = [names[index] for index in sorted(set(range(len(names))) - set(rows.labels))]
        if missing and len(rows):
            raise DataError(
                f"the {split} split has no row labelled {', '.join(missing)}; provide more rows, or hold out fewer"
            )


def write_rows(splits: dict[str, Split], spec: TaskSpec, names: list[str] | None, output: Path) -> None:
    """Write every split, with ids that no two rows share, and what the task is."""
    output.mkdir(parents=True, exist_ok=True)
    start = 0
    for split in sorted(splits):
        rows = splits[split]
        groups = None if split == "train" else rows.numbers.tolist()
        write_split(output, split, numbered_rows(rows, start, groups), spec.kind)
        start += len(rows)
    write_facts(
        output,
        RowFacts(
            name=spec.name,
            kind=spec.kind,
            labels=names,
            metrics=list(spec.metrics),
            headline=spec.headline,
            pairs=spec.pair is not None,
        ),
    )


def numbered_rows(rows: Split, start: int, groups: list[int] | None = None) -> StoredRows:
    """Return rows with ids from ``start`` on; ``groups`` say which of them belong together."""
    return StoredRows(list(range(start, start + len(rows))), rows.texts, rows.pairs, rows.labels, groups)


def facts_of(splits: dict[str, Split], spec: TaskSpec, names: list[str] | None) -> dict[str, Any]:
    """Return facts about the rows: counts, leaks, digests, longest text, and labels with their shares."""
    train = splits["train"]
    facts: dict[str, Any] = {
        "rows": {split: len(rows) for split, rows in splits.items()},
        "leaked": leakage_of(splits),
        "rows_sha256": {split: digest_of(rows) for split, rows in splits.items() if split in JUDGING},
        "longest_words": max(len(text.split()) for text in train.texts),
    }
    if spec.kind == "classification":
        counts = np.bincount(splits["validation"].labels, minlength=len(names or []))
        facts |= {"labels": names, "label_shares": [round(float(share), 4) for share in counts / counts.sum()]}
    return facts


def digest_of(rows: Split) -> str:
    """Return a digest of the rows' texts and labels, in order; it does not depend on ids or on the file of the
    rows."""
    digest = sha256()
    for row in zip(rows.texts, rows.pairs or [None] * len(rows), rows.labels, strict=True):  # type: ignore[list-item]
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def prepare_transfer(source: Path, text: str, pair: str | None, output: Path, rows: Path) -> dict[str, Any]:
    """Write the user's own unlabelled text as training rows without labels; return its number of rows, and the number
    of the held-back ``rows`` that overlap with it."""
    texts, pairs = read_texts(source, text, pair)
    output.mkdir(parents=True, exist_ok=True)
    unlabelled = Split(source.name, texts, pairs, [None] * len(texts))
    write_split(output, "train", numbered_rows(unlabelled, TRANSFER_IDS), "classification")
    return {"rows": len(texts), "leaked": leaked(sentences_of(texts, pairs), held_sentences(rows))}


def leakage_of_corpus(source: Path, column: str, most: int | None, rows: Path) -> dict[str, Any]:
    """Return the number of held-back ``rows`` that overlap with the first ``most`` words of a corpus (None: all), and
    the number of words read."""
    held, words = held_sentences(rows), 0

    def documents() -> Iterator[Sentences]:
        nonlocal words
        for text in read_documents(source, column):
            if most is not None and words >= most:
                return
            words += len(text.split())
            yield from sentences_of([text])

    return {"leaked": leaked(documents(), held), "words": words}
