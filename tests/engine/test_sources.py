"""What runs is what was hashed: an edit during a run changes nothing of it, for engines run a copy of the sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.engine import sources as engine_sources
from tasks.engine.sources import copies, sources_folder
from tasks.ports.code.fingerprint import program

ROOT = Path(__file__).resolve().parents[2]
JOBS = (
    "from tasks.tiny.value import VALUE\n\n\ndef tell(job):\n    return {'value': VALUE}\n\n\nJOBS = {'tell': tell}\n"
)
MAIN = """import sys
from tasks.engine.job import serve
from tasks.tiny.jobs import JOBS
sys.exit(serve(JOBS, sys.argv[1]))
"""
RUN = """
import asyncio, json, sys
from pathlib import Path
import tasks
from tasks.engine.process import run_engine
from tasks.engine.fork_server import new_fork_server
from tasks.ports.code.fingerprint import code_digest

place, folder = Path(tasks.__file__).parent / "tiny", Path(sys.argv[1])
roots = (("tasks.tiny.jobs", "JOBS", "tell"),)

async def run(name, server):
    (folder / name).mkdir()
    order = {"job": "tell", "threads": 1, "output": str(folder / name / "output")}
    return (await run_engine("tasks.tiny", order, folder / name, lambda event: None, server))["value"]

async def both():
    server = new_fork_server()
    return [await run("alone", None), *([await run("forked", server)] if server else [])]

found = {"before": code_digest(roots, {})}
(place / "value.py").write_text("VALUE = 'new'\\n")
(place / "late.py").write_text("VALUE = 'late'\\n")
found["after"] = code_digest(roots, {})
found["engines"] = asyncio.run(both())
from tasks.tiny.value import VALUE
found["here"] = [VALUE]
try:
    import tasks.tiny.late
except ModuleNotFoundError as error:
    found["late"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def edit_during_a_run(folder: Path) -> dict[str, Any]:
    """Edit a source of a small engine after it was hashed, then start it in every way; return what was hashed and what
    ran."""
    tree = folder / "tree"
    shutil.copytree(ROOT / "tasks", tree / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "tasks" / "tiny").mkdir()
    for name, text in {"__init__": "", "__main__": MAIN, "jobs": JOBS, "value": "VALUE = 'old'\n"}.items():
        (tree / "tasks" / "tiny" / f"{name}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tree)}
    words = [sys.executable, "-c", RUN, str(folder)]
    done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_is_edited_during_a_run_is_made_by_the_sources_that_were_hashed(home: Path, tmp_path: Path) -> None:
    found = edit_during_a_run(tmp_path)
    assert found["before"] == found["after"]
    assert set(found["engines"]) == {"old"} and found["here"] == ["old"]
    assert found["late"] == "No module named 'tasks.tiny.late'"


def test_engines_get_every_source_that_keys_see_and_nothing_beside_them(home: Path) -> None:
    place = sources_folder()
    assert place.parent == copies() == home / "cache" / "sources"
    kept = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert sorted(body.decode() for body in kept.values()) == sorted(program().sources.values())
    assert sources_folder() == place and [path.name for path in copies().iterdir()] == [place.name]


def plant(place: Path) -> None:
    """Put a file where an engine would look for a library first."""
    (place / "torch.py").write_text("raise SystemExit('not torch')\n")


def hide(place: Path) -> None:
    """Put compiled code of something else beside a source."""
    (place / "tasks" / "engine" / "__pycache__").mkdir()
    (place / "tasks" / "engine" / "__pycache__" / "job.cpython-311.pyc").write_bytes(b"compiled")


def link(place: Path) -> None:
    """Let a source be one that lies elsewhere, with the very same text."""
    elsewhere = place.parent / "job.py"
    (place / "tasks" / "engine" / "job.py").rename(elsewhere)
    (place / "tasks" / "engine" / "job.py").symlink_to(elsewhere)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "changed": lambda place: (place / "tasks" / "engine" / "job.py").write_text("JOBS = {}\n"),
    "missing": lambda place: (place / "tasks" / "training" / "loop.py").unlink(),
    "gone": shutil.rmtree,
    "planted": plant,
    "compiled": hide,
    "link": link,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_copy_that_is_not_whole_is_made_anew_before_an_engine_runs_it(
    home: Path, damage: Callable[[Path], object]
) -> None:
    place = sources_folder()
    damage(place)
    assert not engine_sources.is_whole(place)
    assert sources_folder() == place and engine_sources.is_whole(place)
    assert not [path for path in copies().iterdir() if path.name.startswith(".")], "nothing half-made is left"


def test_runs_that_start_at_once_share_one_copy(home: Path) -> None:
    together, found = threading.Barrier(4), list[Path]()
    threads = [threading.Thread(target=lambda: (together.wait(), found.append(sources_folder()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1 and engine_sources.is_whole(found[0])
    assert [path.name for path in copies().iterdir()] == [found[0].name]


def test_copies_that_nobody_starts_engines_from_go_and_others_stay(home: Path) -> None:
    old, used = copies() / "old", copies() / "used"
    for place in (old, used):
        place.mkdir(parents=True)
    os.utime(old, (0, 0))
    place = sources_folder()
    assert {path.name for path in copies().iterdir()} == {used.name, place.name}
    os.utime(place, (0, 0))
    assert sources_folder().stat().st_mtime > 0, "starting an engine counts as use"


def test_a_home_that_takes_no_copy_is_an_error_and_no_engine_runs_other_sources(home: Path) -> None:
    home.mkdir()
    (home / "cache").write_text("a file where the folder would be")
    with pytest.raises(OSError):
        sources_folder()
