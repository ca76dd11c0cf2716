"""A split without rows: where no selection rows are held back, the last checkpoint is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from tasks.catalog import TaskSpec
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice, TeacherSlice
from tasks.task_types.heads import HEADS
from tasks.training.data.rows import Rows
from tests.forked import ForkedJob


@pytest.mark.parametrize("kind", list(HEADS))
def test_no_rows_have_no_tokens(kind: str, tiny_bert: Path) -> None:
    head, tokenizer = HEADS[kind], AutoTokenizer.from_pretrained(tiny_bert)
    targets_U = None if head.units is None else np.empty(0, np.int64)
    none = Rows(np.empty(0, np.int64), [], None, head.targets([]), targets_U, head.units)
    encoded = none.tokens(tokenizer, 8)
    assert len(encoded.lengths_N) == len(encoded.ids_S) == len(none.targets_in(encoded)) == 0


def test_a_teacher_without_selection_rows_is_scored_on_train(tiny_rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=0), tmp_path / "rows")
    knobs = TeacherSlice(task_type="classification", steps=2, batch_size=8, max_length=16, precision="fp32")
    order = {
        "job": "finetune",
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {"rows": str(tmp_path / "rows"), "base": str(tiny_bert)},
        "output": str(tmp_path / "output"),
        "threads": 1,
    }
    result = ForkedJob(order, tmp_path).events()[-1]
    assert result["event"] == "result", result
    assert result["facts"]["selection_split"] == "train"
