"""Files of prepared rows: what is written is read back, and files of earlier releases are read, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.ports.rows.document_files import AT_ONCE, document_batches, write_documents
from tasks.ports.rows.row_files import (
    RowFacts,
    StoredRows,
    copy_without,
    has_split,
    read_facts,
    read_merged,
    read_split,
    read_texts,
    write_facts,
    write_merged,
    write_split,
)

ROWS = StoredRows([7, 8, 9], ["one", "two", "three"], ["a", "b", "c"], [0, None, 1], [4, 4, 5])


@pytest.mark.parametrize("rows", [ROWS, StoredRows([1], ["alone"], None, [1])], ids=["pairs in groups", "one text"])
def test_what_was_written_is_read_back(tmp_path: Path, rows: StoredRows) -> None:
    write_split(tmp_path, "train", rows, pa.int64())
    assert has_split(tmp_path, "train") and not has_split(tmp_path, "holdout")
    assert read_split(tmp_path, "train") == rows and read_texts(tmp_path, "train") == (rows.texts, rows.pairs)


def test_numbers_stay_numbers_and_what_is_unlabelled_stays_so(tmp_path: Path) -> None:
    write_split(tmp_path, "train", StoredRows([1, 2], ["a", "b"], None, [1, None]), pa.float64())
    found = read_split(tmp_path, "train").labels
    assert found == [1.0, None] and isinstance(found[0], float)


def test_rows_of_an_earlier_release_have_no_groups(tmp_path: Path) -> None:
    columns = {"id": [1], "text": ["a"], "pair": pa.nulls(1, pa.string()), "label": [0]}
    pq.write_table(pa.table(columns), tmp_path / "holdout.parquet")
    assert read_split(tmp_path, "holdout").groups_N is None


def test_a_row_without_a_group_leaves_all_rows_without(tmp_path: Path) -> None:
    """Groups are drawn whole in a bootstrap: rows beside them could not be drawn at all."""
    write_split(tmp_path, "holdout", StoredRows([1, 2], ["a", "b"], None, [0, 1], [3, None]), pa.int64())
    assert read_split(tmp_path, "holdout").groups_N is None


def test_rows_that_stay_are_copied_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    write_split(tmp_path, "train", ROWS, pa.int64())
    copy_without(tmp_path, tmp_path / "left", "train", np.asarray([False, True, False]))
    assert read_split(tmp_path / "left", "train") == StoredRows([7, 9], ["one", "three"], ["a", "c"], [0, 1], [4, 5])


def test_facts_of_a_task_and_of_a_judging_set_are_read_back(tmp_path: Path) -> None:
    facts = RowFacts("mine", "classification", ["no", "yes"], ["accuracy"], "accuracy", pairs=False)
    write_facts(tmp_path, facts)
    assert read_facts(tmp_path) == facts
    write_merged(tmp_path, [0, 1, 1])
    assert read_merged(tmp_path) == [0, 1, 1]


def test_documents_come_back_in_order_and_in_batches(tmp_path: Path) -> None:
    texts = [str(number) for number in range(AT_ONCE + 5)]
    write_documents(tmp_path, iter(texts))
    batches = list(document_batches(tmp_path, 300))
    assert [text for batch in batches for text in batch] == texts and max(map(len, batches)) == 300
    write_documents(tmp_path, [])
    assert [text for batch in document_batches(tmp_path, 300) for text in batch] == []
