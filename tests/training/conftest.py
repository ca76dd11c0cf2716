"""What several tests of the engine share: the tiny table, prepared as a stage would prepare it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.catalog import TaskSpec
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice


@pytest.fixture(scope="module")
def rows(tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of prepared rows: train, twenty for selection, validation."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), folder)
    return folder
