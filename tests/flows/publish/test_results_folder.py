"""The folder of results: files that are added, pages that are made of them, and the committed page, which cannot
lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli.shared import typed
from flows.publish.results_folder import add_result, page_of, table_of, write_page
from tasks.errors import RecipeError
from tests.command_line import Command
from tests.report.figures import swept, written

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "deployments" / "results"


def saved(folder: Path, values: Any, name: str = "out.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(values))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def test_the_committed_page_is_what_its_files_say() -> None:
    assert (RESULTS / "README.md").read_text() == page_of(RESULTS), "run: limbeck results deployments/results"


def test_the_page_grows_run_by_run(folder: Path, tmp_path: Path) -> None:
    assert add_result(folder, saved(tmp_path, written()), "First.") == folder / "tinybert-4-sst2.json"
    one = write_page(folder).read_text()
    add_result(folder, saved(tmp_path, written("pkd-skip")), "")
    add_result(folder, saved(tmp_path, swept()), "")
    assert "First." in one and "pkd-skip" not in one
    assert all(
        name in write_page(folder).read_text()
        for name in ("`tinybert-4`", "`pkd-skip`", "Layers dropped from `minilm`")
    )


def test_the_same_run_again_replaces_its_file_and_another_is_refused(folder: Path, tmp_path: Path) -> None:
    target = add_result(folder, saved(tmp_path, written()), "")
    add_result(folder, saved(tmp_path, written(date="2026-11-22")), "")
    assert json.loads(target.read_text())["made"]["date"] == "2026-11-22" and len(list(folder.glob("*.json"))) == 1
    with pytest.raises(
        RecipeError, match="holds tinybert-4 sst2 minilm, not tinybert-4 sst2 bert; give this recipe another name"
    ):
        add_result(folder, saved(tmp_path, written(teacher="bert")), "")
    saved(folder, {"kind": "nonsense"}, "pkd-skip-sst2.json")
    with pytest.raises(RecipeError, match="is not a result of a run or a sweep"):
        add_result(folder, saved(tmp_path, written("pkd-skip")), "")


def test_a_file_is_printed_as_a_short_table(folder: Path, tmp_path: Path) -> None:
    add_result(folder, saved(tmp_path, written()), "")
    add_result(folder, saved(tmp_path, swept()), "")
    lines = table_of(folder, "tinybert-4-sst2.json").splitlines()
    assert lines[0] == "| model | kind | accuracy, 872 validation rows | of the teacher | parameters | speed-up |"
    assert lines[4] == "| `4x312` | student | 0.912 ±0.004 [0.900, 0.924] | 98.1% [97.0%, 99.0%] | 14.4 M | 9.4x |"
    assert (
        lines[-1].startswith("`tinybert-4` with the teacher `minilm`: ")
        and "computed before splits were purged" in lines[-1]
    )
    with pytest.raises(
        RecipeError, match=r"has no file 'x\.json'; it has sst2-tinybert-layers\.json, tinybert-4-sst2\.json"
    ):
        table_of(folder, "x.json")
    with pytest.raises(RecipeError, match="belongs to a sweep"):
        table_of(folder, "sst2-tinybert-layers.json")


def test_two_files_of_one_recipe(folder: Path, tmp_path: Path) -> None:
    target = add_result(folder, saved(tmp_path, written()), "")
    (folder / "copy.json").write_text(target.read_text())
    with pytest.raises(RecipeError, match=r"copy\.json and .*tinybert-4-sst2\.json both hold tinybert-4 sst2 minilm"):
        page_of(folder)


def test_the_command_and_its_mistakes(command: Command, folder: Path, tmp_path: Path) -> None:
    out = saved(tmp_path, written())
    done = command("results", str(folder), "--add", str(out), "--note", "Ours.")
    assert done.status == 0 and "tinybert-4-sst2.json" in done.output and "Ours." in (folder / "README.md").read_text()
    (tmp_path / "broken.json").write_text("{")
    mistakes = {
        "does not exist; create it": [str(folder / "nowhere")],
        "cannot be read as JSON": [str(folder), "--add", str(tmp_path / "broken.json")],
        "name a file written by limbeck run --json": [str(folder), "--add", str(tmp_path / "nothing.json")],
        "--note requires an added run": [str(folder), "--note", "x"],
        "--table only prints an existing file": [str(folder), "--table", "tinybert-4-sst2.json", "--note", "x"],
    }
    for sentence, words in mistakes.items():
        done = command("results", *words)
        assert done.status == 1 and sentence in done.error and len(done.error.strip().splitlines()) == 1, done.error


def test_a_command_is_kept_without_the_files_that_it_writes() -> None:
    assert (
        typed(["run", "a", "--json", "out.json", "--set", "students.b.seeds=[0, 1]"])
        == "limbeck run a --set 'students.b.seeds=[0, 1]'"
    )
    assert typed(["run", "--json=out.json", "a"]) == "limbeck run a" and typed(["resume", "--json", "x.json"]) == ""
