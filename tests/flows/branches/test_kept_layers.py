"""A run stores its teacher's layers where its trainings read them often enough, and where the disk has room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.branches.candidate import SharedArtifacts
from flows.branches.teacher_signals import claim_storage, reads_of_rows, signal_knobs, text_size
from flows.run.recipe_file import load_recipe
from tasks.contracts import Artifact
from tasks.ports.store.open import open_store
from tasks.recipe.layer_storage import StorageShape, TextSize
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import SignalSlice
from tasks.report.tables.teacher_layers import layer_lines
from tasks.results.facts import AnswerFacts
from tasks.results.teacher_layers import TeacherLayers
from tasks.stage.session import Session, use_session

SST2 = TextSize(rows=67_349, tokens=897_033, pairs=20_000_000)
NARROW = {"layers": 4, "hidden": 312, "heads": 12, "feed_forward": 1200, "start": "random"}


def recipe(**changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "name": "kept",
        "task": "sst2",
        "gate": {"split": "validation"},
        "pretraining": {"layers": 12, "hidden": 768, "heads": 12, "feed_forward": 3072},
        "corpus": {"source": "text.txt"},
        "task_distillation": {"intermediate": {"epochs": 1}, **changes.pop("task_distillation", {})},
        "students": [{"name": "narrow", **NARROW}],
    }
    return Recipe.model_validate(values | changes)


def shared_by(free: int = 10**12) -> SharedArtifacts:
    """Return what branches share, with a teacher of BERT-base's shape and so much room on the disk."""
    base = Artifact("source", "0" * 64, "", 0, {})
    return SharedArtifacts(rows=base, base=base, teacher=None, layers=12, free=free)  # type: ignore[arg-type]


def knobs_of(given: Recipe) -> SignalSlice:
    student = given.all_students[0]
    phase = given.inner_phase(student)
    assert phase is not None
    return signal_knobs(given, student, phase)


def choice(given: Recipe, text: TextSize | None = SST2, shared: SharedArtifacts | None = None) -> TeacherLayers:
    shared = shared or shared_by()
    return claim_storage(given, knobs_of(given), shared, {"rows": shared.rows}, text)


@pytest.fixture(autouse=True)
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("LIMBECK_DEVICE", "cpu")
    with use_session(Session(open_store(str(tmp_path / "store"), tmp_path / "cache"), 1)) as found:
        yield found


def test_reads_are_counted_over_students_seeds_and_epochs() -> None:
    one = {"name": "one", **NARROW}
    other = {"name": "other", **NARROW, "hidden": 384, "seeds": [0, 1], "intermediate": {"epochs": 2}}
    elsewhere = {"name": "deeper", **NARROW, "layers": 6}
    labels = {"name": "labels", **NARROW, "signal": "labels"}
    found = choice(recipe(students=[one, other, elsewhere, labels]))
    assert (found.reads, found.kept) == (5.0, True)
    alone = choice(recipe())
    assert (alone.reads, alone.kept) == (1.0, False) and "read 1 times, and storing pays from 1.5" in alone.why
    assert choice(recipe(task_distillation={"keep_signals": "always"})).kept


def test_steps_count_by_the_rows_that_they_read() -> None:
    phase = {"intermediate": {"steps": 6000, "batch_size": 32}}
    assert choice(recipe(task_distillation=phase)).reads == pytest.approx(6000 * 32 / 67_349, abs=0.01)
    unknown = choice(recipe(task_distillation=phase), text=None)
    assert unknown.reads is None and not unknown.kept and unknown.why == "decided when the rows are counted"


def test_rows_that_augmentation_replaces_are_not_reads_of_stored_rows() -> None:
    phase = {"intermediate": {"epochs": 2, "sampling": {"share": 0.5}}}
    some = recipe(task_distillation=phase, augmentation={"masked_lm": "teacher", "rows": 20_000})
    assert choice(some).reads == pytest.approx(2 * (1 - 0.5 * 20_000 / 67_349), abs=0.01)
    every = recipe(task_distillation=phase, augmentation={"masked_lm": "teacher"})
    assert choice(every).reads == 1.0 and not choice(every).kept


def test_the_whole_of_sst2_is_stored_on_a_disk_with_room() -> None:
    twice = recipe(task_distillation={"intermediate": {"epochs": 2}})
    found = choice(twice)
    assert found.kept and 8e9 < found.sizes["16"] < 10e9 and 0.49 < found.sizes["8"] / found.sizes["16"] < 0.51
    small = choice(twice, shared=shared_by(free=3 * (found.sizes["16"] - 1)))
    assert not small.kept and "there is room for" in small.why
    bytes_8 = recipe(task_distillation={"intermediate": {"epochs": 2}, "signal_bits": 8})
    assert choice(bytes_8, shared=shared_by(free=3 * (found.sizes["16"] - 1))).kept


def test_the_recipe_bounds_what_is_stored() -> None:
    phase = {"intermediate": {"epochs": 2}, "signal_budget_gb": 5.0}
    assert not choice(recipe(task_distillation=phase)).kept


def test_maps_of_one_run_share_the_disk() -> None:
    """Two maps that fit one at a time, and not both, would fill the disk side by side."""
    twice = recipe(task_distillation={"intermediate": {"epochs": 2}})
    size = choice(twice).sizes["16"]
    shared = shared_by(free=int(3 * 1.5 * size))
    assert [choice(twice, shared=shared).kept for _ in range(2)] == [True, False]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> set[SignalSlice]:
    """The maps that the store has."""
    found = set[SignalSlice]()
    monkeypatch.setattr("flows.branches.teacher_signals.is_stored", lambda stage, knobs, inputs: knobs in found)
    return found


@pytest.mark.parametrize("disk", [0.9, 1.5, 2.2, 2.5, 3.5], ids=str)
def test_a_run_that_goes_on_chooses_as_it_began(disk: float, stored: set[SignalSlice]) -> None:
    """It stops when some maps are stored, which take their bytes; a third of the free disk in multiples of a map."""
    phase = {"intermediate": {"epochs": 2}}
    maps = [
        recipe(task_distillation=phase, students=[{"name": "x", **NARROW, "layers": layers}]) for layers in (4, 3, 6)
    ]
    sizes = [choice(one).sizes["16"] for one in maps]
    free = int(3 * disk * sizes[0])
    shared = shared_by(free=free)
    first = [choice(one, shared=shared).kept for one in maps]
    for one, size, kept in zip(maps, sizes, first, strict=True):
        if kept:
            stored.add(knobs_of(one))
            free -= size
        shared = shared_by(free=free)
        assert [choice(again, shared=shared).kept for again in maps] == first


def test_layers_that_another_recipe_has_stored_change_no_choice(stored: set[SignalSlice]) -> None:
    """Else students that learned beside their teacher would be made again."""
    more = recipe(students=[{"name": "x", **NARROW, "seeds": [0, 1]}])
    fewer = recipe(students=[{"name": "x", **NARROW}])
    assert choice(more).kept and not choice(fewer).kept
    stored.add(knobs_of(more))
    found = choice(fewer)
    assert (found.kept, found.reads) == (False, 1.0)


def test_a_gpu_runs_the_teacher_in_every_step(session: Session) -> None:
    session.dispatcher = SimpleNamespace(device="cuda-h200")  # type: ignore[assignment]
    found = choice(recipe(task_distillation={"keep_signals": "always"}))
    assert not found.kept and "a GPU" in found.why


def test_longer_rows_than_were_counted_are_bounded() -> None:
    phase = recipe(task_distillation={"intermediate": {"epochs": 2, "max_length": 64}}).task_distillation.intermediate
    assert phase is not None
    facts = AnswerFacts(rows=100, tokens=900, pairs=9_000, truncated=0.1)
    assert text_size(facts, 64, phase) == text_size(facts, 128, phase) == TextSize(100, 900, 9_000)
    assert text_size(facts, 32, phase) == TextSize(100, 900 + 10 * 32, 9_000 + 10 * (64**2 - 32**2))
    assert text_size(AnswerFacts(), 64, phase) is None


def test_reads_of_a_plan_that_knows_no_rows() -> None:
    given = recipe(task_distillation={"intermediate": {"epochs": 3}})
    student = given.all_students[0]
    phase = given.inner_phase(student)
    assert phase is not None
    assert reads_of_rows(given, signal_knobs(given, student, phase), shared_by(), None) == 3.0


@pytest.mark.parametrize(
    ("name", "rows", "kept", "reads"),
    [("sst2-tinybert", 64_349, True, 4.69), ("tinybert-4", 64_349, True, 2.52), ("tinybert-6", 64_349, True, 2.52)],
)
def test_recipes_of_the_shelf_store_what_they_read_often(
    name: str, rows: int, kept: bool, reads: float, tmp_path: Path
) -> None:
    """Layers for students of four: in ``sst2-tinybert`` five trainings read them, in the others one for many steps."""
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12})
    )
    given, shared = load_recipe(name), shared_by()
    shared.base = Artifact("source", "0" * 64, f"file://{tmp_path}", 0, {})
    student = next(one for one in given.all_students if given.inner_phase(one) is not None)
    phase = given.inner_phase(student)
    assert phase is not None
    text = TextSize(rows, 857_000, 19_000_000)
    found = claim_storage(given, signal_knobs(given, student, phase), shared, {"rows": shared.rows}, text)
    assert (found.kept, found.reads) == (kept, reads) and 8e9 < found.sizes["16"] < 13e9


def test_the_demo_runs_its_teacher_because_it_reads_each_row_once() -> None:
    given = load_recipe("demo")
    assert given.pretraining is not None
    found = choice(given, TextSize(7_800, 90_000, 1_200_000), replace(shared_by(), layers=given.pretraining.layers))
    assert (found.kept, found.reads) == (False, 0.9)


def test_lines_of_a_plan() -> None:
    shape = StorageShape(5, 4, 768, 12)
    sizes = {"16": shape.bytes(SST2), "8": StorageShape(5, 4, 768, 12, 8).bytes(SST2)}
    kept = TeacherLayers(label="4 layers", kept=True, why="", reads=5.0, sizes=sizes, room=10**11)
    live = TeacherLayers(label="6 layers", kept=False, why="each row would be read 1 times")
    assert layer_lines([kept, live]) == [
        "The teacher's layers for students of 4 layers: stored once, 8.81 GB (4.44 GB with signal_bits: 8), each row "
        "is read 5 times; the disk has room for 100 GB.",
        "The teacher's layers for students of 6 layers: not stored, the teacher runs during each training (each row "
        "would be read 1 times).",
    ]
