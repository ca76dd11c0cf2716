"""The ledger of real runs: what was spent, what the cache saved, what each candidate cost, and a budget that stops a
run which then goes on."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import plan_of, planned_session, run_recipe
from flows.home import Home
from flows.run.history import UNFINISHED, find_run, recipe_of
from flows.run.ledger import costs_of_candidates
from tasks.contracts import Artifact
from tasks.errors import BudgetError
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.report.tables.ledger import part_of
from tasks.scoring.costs.figures import least
from tasks.scoring.costs.ledger import PARTS
from tasks.stage import context, metering
from tasks.stage.budget import RunBudget
from tasks.stage.session import Session, StageRecord
from tests.command_line import Command
from tests.flows.test_compress import FAST, recipe_for
from tests.tiny import write_tiny_bert

ROOT = Path(__file__).resolve().parents[3]
COSTS = {"region": "us-east-1", "instance": "m5.2xlarge", "market": "spot"}


def small(bert: Path, rows: Path, **costs: Any) -> Recipe:
    """Return a recipe of one student."""
    changes: dict[str, Any] = {
        "corpus": None,
        "general_distillation": None,
        "augmentation": None,
        "layer_dropping": None,
        "task_distillation": {"prediction": FAST},
        "students": [{"name": "half", "layers": 2, "stages": []}],
        "resources": {"threads_alone": 1},
    }
    return recipe_for(bert, rows, **changes, costs=COSTS | costs)


@pytest.fixture(scope="module")
def stopped(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    """A run whose budget was spent after its first stage; what MLflow noted of it."""
    with pytest.raises(
        BudgetError,
        match="the run has spent .* kWh of its budget of 1e-12 kWh; finished stages are cached; to continue: limbeck "
        "resume",
    ):
        run_recipe(small(tiny_bert, tiny_rows, budget={"kwh": 1e-12}), home=home)
    return find_run(Tracker(home.tracking_uri, home.artifacts), None, UNFINISHED)


@pytest.fixture(scope="module")
def first(stopped: dict[str, Any], home: Home) -> dict[str, Any]:
    """That run, resumed with a budget that will do."""
    recipe = recipe_of(Tracker(home.tracking_uri, home.artifacts), stopped["run"], ["costs.budget.kwh=1000"])
    return run_recipe(recipe, home=home)


@pytest.fixture(scope="module")
def second(first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    """The same again, all of it cached, with next to no budget: cached stages cost nothing."""
    return run_recipe(small(tiny_bert, tiny_rows, budget={"dollars": 1e-12}), home=home)


def metrics_of(home: Home, run: str) -> dict[str, float]:
    """Return what MLflow has of a run."""
    with sqlite3.connect(home.root / "mlflow.db") as connection:
        return dict(connection.execute("select key, value from latest_metrics where run_uuid = ?", (run,)).fetchall())


def test_a_spent_budget_ends_the_run_in_order(stopped: dict[str, Any], home: Home) -> None:
    """It failed, and did not crash; its ledger is there, and what had not begun did not cost anything."""
    assert stopped["status"] == "FAILED"
    ledger = Tracker(home.tracking_uri, home.artifacts).recall(stopped["run"], "ledger")
    ran = {row["stage"]: row["state"] for row in ledger["stages"] if row["ran"]}
    assert ran == {"prepare-rows": "completed"} and ledger["total"]["kwh"]["value"] > 0
    assert "refused" in {row["state"] for row in ledger["stages"]}
    assert all(row["cost"]["kwh"]["value"] is None for row in ledger["stages"] if not row["ran"])
    assert not list((home.root / "store" / "temporary").iterdir())


def test_resume_goes_on_with_what_was_finished(first: dict[str, Any]) -> None:
    assert {stage["name"] for stage in first["stages"] if stage["cache"] == "hit"} == {"prepare-rows"}
    assert first["ledger"]["saved"]["seconds"]["value"] > 0


def test_every_stage_has_every_figure_and_says_how_it_was_come_by(first: dict[str, Any]) -> None:
    rows = first["ledger"]["stages"]
    assert len(rows) == len(first["stages"])
    for row in rows:
        assert tuple(row["cost"]) == PARTS
        assert all(figure["how"] in ("measured", "estimated") and figure["by"] for figure in row["cost"].values()), row
        assert row["cost"]["seconds"]["how"] == "measured" and row["cost"]["kwh"]["how"] == "estimated"
    asked = {model["name"]: model["cost"]["joules"] for model in first["models"]}
    assert all(joules["how"] == "estimated" and joules["value"] > 0 for joules in asked.values()) and "half" in asked
    assert first["ledger"]["total"]["kwh"]["value"] == pytest.approx(
        sum(row["cost"]["kwh"]["value"] for row in rows if row["cache"] == "miss")
    )
    busy, whole = first["ledger"]["total"]["dollars_spot"]["value"], first["ledger"]["billed"]["dollars_spot"]["value"]
    assert 0 < busy <= whole, "stages that run side by side share the machine's price"
    assert any("days old" in warning for warning in first["ledger"]["warnings"])


def test_a_cached_run_spends_nothing_and_saves_what_was_spent_before(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    spent, saved = second["ledger"]["total"], second["ledger"]["saved"]
    assert all(spent[part] == {"value": 0.0, "how": "measured", "by": "no cost"} for part in PARTS)
    made = {row["stage"]: row["cost"]["kwh"]["value"] for row in first["ledger"]["stages"]}
    assert {row["stage"]: row["cost"]["kwh"]["value"] for row in second["ledger"]["stages"]} == made
    assert saved["kwh"]["value"] == pytest.approx(sum(made.values()))


def test_a_candidate_costs_the_same_cached_or_not(first: dict[str, Any], second: dict[str, Any]) -> None:
    ours, again = ({model["name"]: model["cost"] for model in result["models"]} for result in (first, second))
    assert ours["half"]["kwh"] == again["half"]["kwh"] and ours["half"]["kwh"]["value"] > 0
    assert ours["half"]["shared"]["stages"] == ["answer-rows", "finetune-teacher", "prepare-rows"]
    assert ours["teacher"]["shared"]["stages"] == ["prepare-rows"]
    by_stage = {row["stage"]: row["cost"]["seconds"]["value"] for row in first["ledger"]["stages"]}
    own = sum(seconds for stage, seconds in by_stage.items() if stage.endswith("/half"))
    assert ours["half"]["seconds"]["value"] == pytest.approx(own)


def test_mlflow_shows_what_is_known(first: dict[str, Any], home: Home) -> None:
    tracker = Tracker(home.tracking_uri, home.artifacts)
    run = next(
        row["run"]
        for row in tracker.runs(10)
        if row["status"] == "FINISHED" and tracker.recall(row["run"], "ledger") == first["ledger"]
    )
    parent = metrics_of(home, run)
    assert (
        parent["kwh"] == pytest.approx(first["ledger"]["total"]["kwh"]["value"])
        and parent["dollars"] > 0
        and parent["saved_kwh"] > 0
    )
    with sqlite3.connect(home.root / "mlflow.db") as connection:
        children = [
            row[0]
            for row in connection.execute(
                "select run_uuid from tags where key = 'mlflow.parentRunId' and value = ?", (run,)
            )
        ]
    named = [metrics_of(home, child) for child in children]
    assert sum({"kwh", "co2e_kg", "dollars"} <= set(found) for found in named) == sum(
        stage["cache"] == "miss" for stage in first["stages"]
    )
    assert any(found.get("made_kwh") for found in named)


def test_a_plan_says_what_the_like_of_it_took_and_what_is_unknown(
    second: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    values = small(tiny_bert, tiny_rows, budget={"kwh": 1e-12}).model_dump(mode="json", exclude_unset=True)
    longer = Recipe.model_validate(
        values
        | {"students": [{"name": "half", "layers": 2, "stages": []}, {"name": "other", "layers": 1, "stages": []}]}
    )
    plan = plan_of(planned_session(longer, home))
    missing = {row.stage: row.cost for row in plan.stages if row.cache == "miss"}
    assert {"distill-predictions/other", "score-model/other", "measure-speed/other"} <= set(missing) and all(
        stage.endswith("/other") for stage in missing
    )
    assert all(
        figure.how == "estimated" and figure.value is not None
        for cost in missing.values()
        for figure in cost.amounts().values()
    )
    saved = part_of(plan.saved, "kwh")
    assert (saved.value or saved.at_least or 0.0) > 0 and "no stage was run" in plan.refused
    fresh = plan_of(planned_session(longer, Home(home.root / "fresh").create()))
    assert (
        {part_of(row.cost, "kwh").value for row in fresh.stages} == {None}
        and part_of(fresh.total, "kwh").value is None
        and not fresh.refused
    )


def test_minutes_of_a_small_model_are_no_estimate_of_a_large_one(
    second: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A person who tried the demo first, and now plans a real teacher, is told that its cost is unknown."""
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    large = write_tiny_bert(tmp_path / "large", layers=40)
    (tmp_path / "recipe.json").write_text(json.dumps(small(tiny_bert, tiny_rows).model_dump(mode="json")))

    def costs(*words: str) -> dict[str, Any]:
        ended = command("plan", str(tmp_path / "recipe.json"), *words, "--json", str(tmp_path / "plan.json"))
        assert ended.status == 0, ended.error
        stages = json.loads((tmp_path / "plan.json").read_text())["stages"]
        return {one["stage"]: one["cost"]["kwh"] for one in stages if one["cache"] == "miss"}

    like = costs("--set", "teacher.seed=99")
    assert {"finetune-teacher", "answer-rows", "measure-speed/half"} <= set(like)
    assert all(one["value"] is not None for one in like.values())
    found = costs("--set", f"teacher.model={large}")
    assert like.keys() == found.keys()
    unknown = {stage for stage, one in found.items() if one["value"] is None}
    assert unknown == {stage for stage in found if not stage.startswith("inspect-answers")}
    assert all("with a model of this size" in found[stage]["by"] for stage in unknown)


def test_a_stage_under_way_is_stopped_in_order(
    prefect_server: None,
    engines_here: None,
    home: Home,
    tiny_bert: Path,
    tiny_rows: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The budget is looked at while a stage runs: a teacher that would learn for hours ends soon, and its run says
    why."""
    import asyncio

    ended = []

    async def endless(*given: Any) -> dict[str, Any]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("in order")
            raise
        return {}

    monkeypatch.setattr(metering, "METER_POLL_SECONDS", 0.05)
    monkeypatch.setattr(context, "run_engine", endless)
    watt = {"core_watts": 1000.0, "budget": {"kwh": 1e-4, "by_estimate": False}}  # 0.36 s of a core
    with pytest.raises(BudgetError, match="of its budget of 0.0001 kWh"):
        run_recipe(
            small(tiny_bert, tiny_rows, **watt).model_copy(
                update={"name": "endless", "teacher": other_teacher(tiny_bert)}
            ),
            home=home,
        )
    assert ended == ["in order"]
    run = find_run(Tracker(home.tracking_uri, home.artifacts), None, UNFINISHED)
    ledger = Tracker(home.tracking_uri, home.artifacts).recall(run["run"], "ledger")
    states = {row["stage"]: (row["state"], row["ran"]) for row in ledger["stages"]}
    assert states["finetune-teacher"] == ("refused", True), "what a stopped stage took was spent"
    assert least(ledger["total"]["kwh"]) > 1e-4


def other_teacher(bert: Path) -> Any:
    """Return a teacher that was never made."""
    from tasks.recipe.training import Teacher

    return Teacher.model_validate({"model": str(bert), "floor": 0.0, **FAST, "seed": 99})


def test_limbeck_ledger_and_plan_print_it(
    second: dict[str, Any], home: Home, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    run = next(row["run"] for row in Tracker(home.tracking_uri, home.artifacts).runs(10) if row["status"] == "FINISHED")
    done = command("ledger", run[:12], "--json", str(tmp_path / "ledger.json"))
    assert done.status == 0, done.error
    for said in ("spent by this run", "saved by the cache", "m5.2xlarge in us-east-1"):
        assert said in done.output
    assert json.loads((tmp_path / "ledger.json").read_text())["saved"] == second["ledger"]["saved"]


def test_an_export_costs_what_its_own_stage_took_and_its_model_is_shared(home: Home) -> None:
    """Both stages bear the name of the model; neither may be counted as the model's own, and int8 not without the graph
    that it is made of."""

    def made(name: str, label: str, kind: str, digest: str, seconds: float, *inputs: str) -> StageRecord:
        artifact = Artifact(kind, digest * 64, "", 1, {}, {"seconds": seconds})
        explanation = {"inputs": {str(number): one * 64 for number, one in enumerate(inputs)}}
        number = ord(digest)
        return StageRecord(
            name, label, digest * 64, kind, explanation, number=number, artifact=artifact, used=artifact.used
        )

    session = Session(None, 1, budget=RunBudget({}))
    session.records = [
        made("prepare-rows", "", "rows", "a", 1),
        made("finetune-teacher", "", "checkpoint", "b", 10, "a"),
        made("distill-predictions", "half", "checkpoint", "c", 100, "a", "b"),
        made("export-onnx", "half", "export", "d", 1000, "c", "a"),
        made("quantize-onnx", "half", "export", "e", 10_000, "d", "a"),
        made("score-model", "half-int8", "scorecard", "f", 100_000, "e", "b", "a"),
    ]
    costs = costs_of_candidates(["teacher", "half", "half-onnx", "half-int8", "other"], session)
    own = {name: part_of(cost, "seconds").value for name, cost in costs.items()}
    shared = {name: part_of(cost.shared, "seconds").value for name, cost in costs.items() if cost.shared is not None}
    assert own == {"teacher": 10, "half": 100, "half-onnx": 1000, "half-int8": 110_000, "other": None}
    assert shared == {"teacher": 1, "half": 11, "half-onnx": 111, "half-int8": 1111, "other": None}
