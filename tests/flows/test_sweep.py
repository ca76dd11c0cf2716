"""How many layers does the task need: a whole sweep on a tiny real model, asked again, stopped and resumed, and
everything that it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from prefect.client.schemas.objects import FlowRun

from flows.branches.sweep import Grid, choices, going_on, of_a_sweep
from flows.cli.reproduce import reproduce
from flows.cli.runner import run_recipe
from flows.cli.sweep_options import sweep_sets
from flows.home import Home
from flows.run.history import find_run, recipe_of
from flows.run.opening import stop_branches
from flows.run.recipe_file import load_recipe
from tasks.errors import LimbeckError
from tasks.methods.layers.layer_strategies import undefined
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.recipe import Recipe
from tasks.report.page.picture import sweep_picture
from tasks.stage import context
from tests.command_line import plan_recipe
from tests.flows.run.test_interrupted import ENDED, PATIENCE, limbeck, press_cancel, press_ctrl_c, send_sigterm
from tests.flows.test_compress import FAST
from tests.prefect_server import newest_flow_run

SWEEP: dict[str, Any] = {"strategies": ["top", "greedy"], "drop": [1, 2], "seeds": [0, 1], "try_steps": 2}


def sweep_recipe(bert: Path, rows: Path, **changes: Any) -> Recipe:
    """Return a recipe that a sweep passes in seconds; its students and its text are none of the sweep's business."""
    return Recipe.model_validate(values_of(bert, rows) | changes)


def values_of(bert: Path, rows: Path) -> dict[str, Any]:
    return {
        "name": "depth",
        "task": {"name": "tiny", "text": "text", "metrics": ["accuracy"]},
        "data": {"source": str(rows), "selection_rows": 20, "holdout_rows": 30},
        "teacher": {"model": str(bert), "floor": 0.0, **FAST},
        "corpus": {"source": "no/such-corpus"},
        "general_distillation": FAST,
        "students": [{"name": "never", "layers": 2}],
        "layer_dropping": FAST,
        "sweep": SWEEP,
        "scoring": {"resamples": 100, "max_length": 16},
        "gate": {"split": "holdout"},
        "resources": {"cores": 4, "threads_alone": 1},
    }


@pytest.fixture(scope="module")
def first(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    return run_recipe(sweep_recipe(tiny_bert, tiny_rows), home=home, kind="sweep", json_path=home.root / "sweep.json")


def stages(result: dict[str, Any], name: str) -> list[str]:
    """Return the labels of a stage's runs."""
    return [stage["label"] for stage in result["stages"] if stage["name"] == name]


def test_every_strategy_number_and_seed_is_trained_from_one_teacher(first: dict[str, Any]) -> None:
    assert [(cell["drop"], cell["strategy"], cell["state"]) for cell in first["cells"]] == [
        (1, "top", "scored"),
        (1, "greedy", "scored"),
        (2, "top", "scored"),
        (2, "greedy", "scored"),
    ]
    trained = stages(first, "drop-layers")
    assert {
        f"{strategy}-{drop} s{seed}" for strategy in ("top", "greedy") for drop in (1, 2) for seed in (0, 1)
    } <= set(trained)
    assert len(stages(first, "finetune-teacher")) == len(stages(first, "measure-similarity")) == 1
    assert not {"distill-general", "distill-predictions", "answer-rows", "measure-speed"} & {
        stage["name"] for stage in first["stages"]
    }


def test_the_layer_sets_are_exact(first: dict[str, Any]) -> None:
    kept = {(cell["strategy"], cell["drop"]): cell["kept"] for cell in first["cells"]}
    assert kept["top", 1] == [0, 1, 2] and kept["top", 2] == [0, 1]
    assert len(kept["greedy", 1]) == 3 and set(kept["greedy", 2]) < set(kept["greedy", 1])
    (gone,) = set(range(4)) - set(kept["greedy", 1])
    tries = {label for label in stages(first, "drop-layers") if " try " in label}
    assert tries == {f"greedy-1 try without {layer}" for layer in range(4)} | {
        f"greedy-2 try without {layer}" for layer in range(4) if layer != gone
    }


def test_the_answer_is_read_on_the_split_of_the_gate_with_an_interval(first: dict[str, Any], home: Home) -> None:
    assert first["split"] == "holdout" and first["rows"] == 30
    for cell in first["cells"]:
        assert cell["difference"]["low"] <= cell["difference"]["value"] <= cell["difference"]["high"]
        assert len(cell["per_seed"]) == 2 and cell["deviation"] is not None
    assert [answer["points"] for answer in first["answer"]] == [1, 2, 3]
    assert [sum(cell["chosen"] for cell in first["cells"] if cell["drop"] == drop) for drop in (1, 2)] == [1, 1]
    assert [row["layer"] for row in first["similarity"]] == ["embeddings", 0, 1, 2, 3]
    assert json.loads((home.root / "sweep.json").read_text())["answer"] == first["answer"]


def test_nothing_is_registered_and_mlflow_holds_table_plot_and_curves(first: dict[str, Any], home: Home) -> None:
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    assert tracker.models() == []
    (run,) = [row for row in tracker.runs(10) if row["status"] == "FINISHED"][:1]
    assert run["kind"] == "sweep" and run["best"].endswith("of 4 layers within 1, 2, 3 points")
    assert tracker.recall(run["run"], "sweep")["cells"] == first["cells"]
    again = reproduce(tracker, run, home=home, environment={}, from_cache=True)
    assert again.equal, [row for row in again.stages if row.verdict not in ("equal", "measured")]
    assert tracker.recall(run["run"], "manifest")["kind"] == "sweep"
    plots = list(home.artifacts.rglob("run/sweep.svg"))
    drawn = plots[0].read_text()
    assert ET.fromstring(drawn).tag.endswith("svg") and drawn == sweep_picture(first)
    curve = tracker.client.get_metric_history(run["run"], "score.top")
    assert [point.step for point in curve] == [1, 2]


def test_each_strategy_is_a_subflow_and_its_teacher_belongs_to_the_sweep(first: dict[str, Any], home: Home) -> None:
    for _ in range(40):  # a server writes task runs some seconds after it was told of them
        names = asyncio.run(stages_of_subflows(newest_flow_run(home)))
        if names["greedy"] >= {"score-model/greedy-2"} and names["top"] >= {"score-model/top-1"}:
            break
        time.sleep(0.5)
    assert names["top"] >= {"drop-layers/top-1 s0", "drop-layers/top-2 s1", "score-model/top-1"}
    assert names["greedy"] >= {"drop-layers/greedy-1 try without 0", "score-model/greedy-2"}
    assert "finetune-teacher" not in names["top"] | names["greedy"]


async def subflows(flow_run: UUID) -> list[FlowRun]:
    """Read the flow runs of a sweep's branches."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

    async with get_client() as client:
        below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run]))
        return await client.read_flow_runs(flow_run_filter=below, limit=20)


async def stages_of_subflows(flow_run: UUID) -> dict[str, set[str]]:
    """Read the names of task runs of each of a sweep's branches."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.sorting import TaskRunSort

    async def stages(run: UUID) -> set[str]:
        own = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
        return {task.name for task in await client.read_task_runs(flow_run_filter=own, sort=TaskRunSort.ID_DESC)}

    async with get_client() as client:
        return {below.name: await stages(below.id) for below in await subflows(flow_run)}


def test_a_second_sweep_trains_nothing_and_one_strategy_more_trains_only_that(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    again = run_recipe(sweep_recipe(tiny_bert, tiny_rows), home=home, kind="sweep")
    assert {stage["cache"] for stage in again["stages"]} == {"hit"}
    assert [again[name] for name in ("cells", "answer", "similarity")] == [
        first[name] for name in ("cells", "answer", "similarity")
    ]
    more = sweep_recipe(tiny_bert, tiny_rows, sweep=SWEEP | {"strategies": ["top", "greedy", "symmetric"]})
    plan = plan_recipe(more, home=home, kind="sweep")
    missing = [row["stage"] for row in plan if row["cache"] == "miss"]
    assert len(missing) == 6 and all("symmetric" in stage for stage in missing)


def test_a_plan_does_not_pretend_to_know_what_a_search_will_find(
    home: Home, first: dict[str, Any], tiny_bert: Path, tiny_rows: Path
) -> None:
    plan = plan_recipe(sweep_recipe(tiny_bert, tiny_rows, sweep=SWEEP | {"try_steps": 3}), home=home, kind="sweep")
    greedy = [row for row in plan if row["stage"].startswith("drop-layers/greedy")]
    assert len(greedy) == 4 + 3 + 4 and {row["cache"] for row in greedy} == {"miss"}
    assert {row["why"] for row in greedy if " try " not in row["stage"]} == {"waits for tries"}


def test_halving_shows_what_dropped_out_as_such(
    home: Home, first: dict[str, Any], tiny_bert: Path, tiny_rows: Path
) -> None:
    knobs = SWEEP | {"strategies": ["top", "bottom", "alternate-odd"], "drop": [1, 3], "seeds": [0], "halving": True}
    result = run_recipe(sweep_recipe(tiny_bert, tiny_rows, sweep=knobs), home=home, kind="sweep")
    states = {drop: sorted(cell["state"] for cell in result["cells"] if cell["drop"] == drop) for drop in (1, 3)}
    assert states == {1: ["dropped out", "scored", "scored"], 3: ["scored", "scored", "undefined"]}
    (out,) = [cell for cell in result["cells"] if cell["state"] == "dropped out"]
    assert out["rung_score"] is not None and "score" not in out and not out["chosen"]
    assert len([label for label in stages(result, "drop-layers") if "first rung" in label]) == 5
    assert len([label for label in stages(result, "drop-layers") if "first rung" not in label]) == 4
    assert all(answer["holds"] is None for answer in result["answer"]), "one seed is never sure"
    again = plan_recipe(sweep_recipe(tiny_bert, tiny_rows, sweep=knobs), home=home, kind="sweep")
    assert {row["cache"] for row in again} == {"hit"}


def test_the_better_half_goes_on_and_at_least_two() -> None:
    strategies = ("top", "bottom", "symmetric", "contribution", "greedy")
    grid = Grid(6, strategies, (1, 2), LayerDropping(), True, 100)
    scores = {(strategy, 1): 0.9 - 0.1 * number for number, strategy in enumerate(strategies)} | {
        ("top", 2): 0.1,
        ("bottom", 2): 0.2,
        ("greedy", 2): 0.3,
    }
    assert going_on(grid, scores) == {"top": [1], "bottom": [1, 2], "symmetric": [1], "contribution": [], "greedy": [2]}


def test_a_recipe_without_layer_dropping_gets_sensible_defaults(tiny_bert: Path, tiny_rows: Path) -> None:
    strategies, drops, dropping = choices(of_a_sweep(sweep_recipe(tiny_bert, tiny_rows, layer_dropping=None, sweep={})))
    assert (
        strategies == ("top", "bottom", "alternate-odd", "alternate-even", "symmetric", "contribution")
        and drops is None
    )
    assert (dropping.steps, dropping.batch_size, dropping.seeds, dropping.max_length) == (500, 64, (0, 1, 2), 16)
    grid = Grid(6, strategies, tuple(range(1, 6)), dropping, False, 100)
    assert grid.drops_of("alternate-odd") == [1, 2, 3] and grid.drops_of("top") == [1, 2, 3, 4, 5]
    assert sum(len(grid.drops_of(strategy)) for strategy in strategies) == 26 and undefined("alternate-odd", 6, 4)


def test_the_command_line_beats_the_recipe_and_is_stored_with_it() -> None:
    given = sweep_sets(strategies="top, symmetric", drop="1,2", seeds=None, halving=True)
    recipe = load_recipe("sst2-tinybert", ["data.source=x", *given], ["sweep"])
    strategies, drops, dropping = choices(of_a_sweep(recipe))
    assert strategies == ("top", "symmetric") and drops == (1, 2) and dropping.seeds == (0,) and dropping.steps == 500
    stored = Recipe.model_validate(of_a_sweep(recipe).model_dump(mode="json", exclude_unset=True))
    assert stored.sweep == recipe.sweep and stored.students == () and stored.corpus is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sweep": {"strategies": ["topp"]}}, "unknown layer-dropping strategy 'topp'; did you mean 'top'"),
        ({"sweep": {"strategies": ["top", "top"]}}, "strategies .*contain duplicates; list each once"),
        ({"sweep": {"drop": [1, 1]}}, "drop .*contain duplicates; list each once"),
        ({"sweep": {"seeds": [3, 3]}}, "seeds .*contain duplicates; list each once"),
        ({"sweep": {"drop": []}}, "drop is an empty list"),
        ({"sweep": {"strategies": []}}, "strategies is an empty list"),
        ({"sweep": {"drop": [0]}}, "greater than or equal to 1"),
        ({"sweep": {"drop": [4]}}, "dropping 4 of 4 layers leaves none; at most 3 can be dropped"),
        ({"sweep": {"strategies": ["alternate-odd", "alternate-even"], "drop": [3]}}, "there are no candidates"),
        ({"data": {"source": "ROWS", "selection_rows": 0}, "gate": {"split": "validation"}}, "set data.selection_rows"),
        ({"layer_dropping": FAST | {"evaluations": 0}}, "layer_dropping.evaluations to at least 1"),
        (
            {"task": {"name": "tiny", "kind": "regression", "metrics": ["mse"], "headline": "mse"}},
            "mse is an error; set task.headline to a score",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_cannot_answer_is_refused_before_anything_is_spent(
    changes: dict[str, Any], sentence: str, tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    own = Home(tmp_path / "home").create()
    filled = json.loads(json.dumps(changes).replace("ROWS", str(tiny_rows)))
    with pytest.raises((LimbeckError, ValueError), match=sentence):
        plan_recipe(sweep_recipe(tiny_bert, tiny_rows, **filled), home=own, kind="sweep")
    assert not list(Path(own.store).rglob("*.json"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"strategies": ","},
            "--strategies ',' has an empty entry; give a list with commas, for example top,symmetric",
        ),
        ({"drop": "1;2"}, "--drop takes whole numbers with commas, for example 1,2,3, not '1;2'"),
        ({"seeds": ""}, "--seeds '' has an empty entry"),
    ],
)
def test_slips_in_lists_are_sentences(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(LimbeckError, match=sentence):
        sweep_sets(**{"strategies": None, "drop": None, "seeds": None, "halving": False} | given)  # type: ignore[arg-type]


def test_a_plot_that_could_not_be_written_is_refused_first(tmp_path: Path) -> None:
    out, err = limbeck(tmp_path, "sweep", "sst2-tinybert", "--plot", "no/such/folder/plot.svg").communicate(
        timeout=PATIENCE
    )
    assert "does not exist; create it" in err and "Traceback" not in err and not out


def test_a_run_says_that_greedy_is_for_sweeps(
    prefect_server: None, home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    changes = {"layer_dropping": FAST | {"strategies": ["greedy"]}, "corpus": None, "general_distillation": None}
    with pytest.raises(LimbeckError, match="only limbeck sweep runs"):
        plan_recipe(sweep_recipe(tiny_bert, tiny_rows, **changes), home=home)
    with pytest.raises(LimbeckError, match="there are no candidates"):
        plan_recipe(sweep_recipe(tiny_bert, tiny_rows, **changes | {"layer_dropping": None, "students": []}), home=home)


def long_sweep(folder: Path, home: Path, bert: Path, rows: Path, until: str) -> tuple[subprocess.Popen[str], str]:
    """Start a sweep whose trainings take long enough to be stopped, and read on until a line says that it has come so
    far."""
    slow = {"layer_dropping": FAST | {"steps": 1200}, "resources": {"cores": 2, "threads_alone": 1}, "sweep": None}
    (folder / "depth.yaml").write_text(yaml.safe_dump(values_of(bert, rows) | slow))
    running = limbeck(
        home, "sweep", str(folder / "depth.yaml"), "--strategies", "top,bottom", "--drop", "1", "--seeds", "0,1"
    )
    assert running.stdout is not None
    read, limit = "", time.monotonic() + PATIENCE
    while until not in read and time.monotonic() < limit:
        line = running.stdout.readline()
        assert line, running.stderr.read() if running.stderr else ""
        read += line
    return running, read


def require_nothing_left(running: subprocess.Popen[str], home: Path) -> None:
    """Wait for the end; nothing may be open in MLflow, and nothing half-written in the store."""
    _, err = running.communicate(timeout=PATIENCE)
    assert (
        running.returncode == 130
        and err.strip() == "limbeck: stopped; run the same command again to continue from there"
    ), err
    with sqlite3.connect(home / "mlflow.db") as database:
        assert {status for (status,) in database.execute("select status from runs")} == {"KILLED", "FINISHED"}
    assert not list((home / "store" / "temporary").iterdir())


def test_sigterm_stops_every_subflow_in_order_and_the_sweep_goes_on_from_there(
    home: Home, first: dict[str, Any], tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect's own handler of SIGTERM, which every subflow installs, would raise anywhere in the event loop."""
    begun, ended, real = set[str](), set[str](), context.run_engine

    async def endless(module: str, order: Mapping[str, Any], *given: Any) -> dict[str, Any]:
        if order["job"] != "drop":
            return await real(module, order, *given)
        begun.add(strategy := order["knobs"]["strategy"])
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            await asyncio.sleep(0.01)  # as an engine that writes its checkpoint
            ended.add(strategy)
        return {}

    monkeypatch.setattr(context, "run_engine", endless)
    knobs = {"strategies": ["top", "bottom"], "drop": [1], "seeds": [7]}
    with pytest.raises(KeyboardInterrupt):
        run_recipe(sweep_recipe(tiny_bert, tiny_rows, name="stopped", sweep=knobs), home=home, kind="sweep")
    assert begun == ended == {"top", "bottom"}
    states = asyncio.run(states_of_sweep(newest_flow_run(home)))
    assert set(states) == {"stopped", "top", "bottom"} and set(states.values()) <= ENDED["send_sigterm"]
    tracker = Tracker(home.own_tracking_uri, None)
    assert {row["status"] for row in tracker.runs(100)} == {"KILLED", "FINISHED"}
    assert not list((Path(home.store) / "temporary").iterdir())

    monkeypatch.setattr(context, "run_engine", real)
    stored = recipe_of(tracker, find_run(tracker, None, ("KILLED",))["run"])
    assert stored.sweep is not None and stored.sweep.seeds == (7,)
    resumed = run_recipe(stored, home=home, kind="sweep")
    assert {(cell["strategy"], cell["state"]) for cell in resumed["cells"]} == {("top", "scored"), ("bottom", "scored")}
    assert {stage["cache"] for stage in resumed["stages"] if stage["name"] == "finetune-teacher"} == {"hit"}


async def states_of_sweep(flow_run: UUID) -> dict[str, str]:
    """Read the state of a sweep's flow run and of its branches', by their names."""
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        runs = [await client.read_flow_run(flow_run), *await subflows(flow_run)]
    return {run.name: str(run.state_type.value) for run in runs if run.state_type is not None}


@pytest.mark.slow
@pytest.mark.parametrize("stop", [send_sigterm, press_cancel])
def test_a_sweep_is_stopped_inside_its_subflows(
    stop: Callable[..., None], tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    home = tmp_path / "home"
    running, read = long_sweep(tmp_path, home, tiny_bert, tiny_rows, "layers [")
    limit = time.monotonic() + PATIENCE
    while set(flow_runs(home)) != {
        "depth",
        "top",
        "bottom",
    }:  # SIGTERM comes while Prefect begins the second branch, or just after
        assert running.poll() is None and time.monotonic() < limit, flow_runs(home)
        time.sleep(0.1)
    stop(running, read)
    require_nothing_left(running, home)
    assert set(flow_runs(home).values()) <= ENDED[stop.__name__]


def flow_runs(home: Path) -> dict[str, str]:
    """Return the state of every flow run by its name."""
    with contextlib.closing(sqlite3.connect(home / "prefect.db", timeout=60)) as database:
        return dict(database.execute("select name, state_type from flow_run"))


def test_a_branch_that_tidies_up_is_not_asked_twice() -> None:
    """Asked again, a subflow could not tell Prefect that it has ended, and would be shown as running for ever."""

    async def log_stages() -> list[str]:
        told: list[str] = []

        async def branch(name: str) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)  # a call to a server
                told.append(name)

        already = asyncio.all_tasks()
        asked, other = (asyncio.ensure_future(branch(name)) for name in ("asked", "other"))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.sleep(0)
        await stop_branches(already)
        assert asked.cancelled() and other.cancelled()
        return told

    assert sorted(asyncio.run(log_stages())) == ["asked", "other"]


@pytest.mark.slow
def test_a_stopped_sweep_resumes_without_repeating_what_is_there(
    tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    home = tmp_path / "home"
    running, read = long_sweep(tmp_path, home, tiny_bert, tiny_rows, "-1 s0: done")
    press_ctrl_c(running, read)
    require_nothing_left(running, home)
    tracker = Tracker(Home(home).own_tracking_uri, None)
    stored = recipe_of(tracker, find_run(tracker, None, ("KILLED",))["run"])
    assert stored.sweep is not None and stored.sweep.seeds == (0, 1) and stored.sweep.strategies == ("top", "bottom")
    out, err = limbeck(home, "resume", "--json", str(tmp_path / "out.json")).communicate(timeout=PATIENCE)
    assert "-1 s0: cached" in out and "Within 1 point of the teacher" in out, err
    cells = json.loads((tmp_path / "out.json").read_text())["cells"]
    assert {(cell["strategy"], cell["drop"], cell["state"]) for cell in cells} == {
        ("top", 1, "scored"),
        ("bottom", 1, "scored"),
    }
