"""The whole chain on a tiny real model: real Prefect, real MLflow, and in the first run real engines in processes of
their own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow

from flows.cli.runner import planned_records, planned_session, run_recipe
from flows.home import Home
from flows.recipes.planned_rows import compared_rows, planned_rows
from flows.run.opening import open_run
from tasks.engine import process as engine_process
from tasks.errors import GateError, LimbeckError
from tasks.finetune_teacher import finetune_teacher
from tasks.prepare_rows import prepare_rows
from tasks.recipe.data import JudgingSet
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice, TeacherSlice
from tasks.results.facts import HeldBackFacts
from tasks.stage.session import StageRecord
from tests.command_line import plan_recipe
from tests.conftest import engines_in_this_process
from tests.forked.strangers import ask_stranger
from tests.prefect_server import newest_flow_run

FAST: dict[str, Any] = {"steps": 4, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}


def recipe_for(bert: Path, rows: Path, **changes: Any) -> Recipe:
    """Return a recipe that passes every stage in seconds."""
    values: dict[str, Any] = {
        "name": "tiny",
        "task": {"name": "tiny", "text": "text", "metrics": ["accuracy", "f1"]},
        "data": {"source": str(rows), "selection_rows": 20},
        "teacher": {"model": str(bert), "floor": 0.0, **FAST},
        "corpus": {"source": str(rows), "max_tokens": 2000, "max_length": 16},
        "general_distillation": FAST,
        "augmentation": {"masked_lm": "teacher", "rows": 20, "max_length": 16, "precision": "fp32", "options": 3},
        "task_distillation": {"intermediate": FAST, "prediction": FAST},
        "students": [
            {"name": "small", "layers": 2, "hidden": 8, "heads": 4, "feed_forward": 16, "start": "random"},
            {"name": "half", "layers": 2, "stages": []},
        ],
        "layer_dropping": {**FAST, "strategies": ["contribution"], "drop": [1]},
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {
            "criteria": [{"metric": "parameters", "at_most": 1e9}],
            "leakage": 1.0,
        },  # the corpus is the rows themselves
        "resources": {"cores": 2, "threads_alone": 1},
    }
    values |= changes
    return Recipe.model_validate(values | {"gate": {"split": "validation", **values["gate"]}})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def first(prefect_server: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    return run_recipe(recipe_for(tiny_bert, tiny_rows), home=home, json_path=home.root / "out.json")


def executed(result: dict[str, Any]) -> set[str]:
    """Return the names of the stages that ran."""
    return {stage["name"] for stage in result["stages"] if stage["cache"] == "miss"}


def test_everything_is_made_scored_and_registered(first: dict[str, Any], home: Home) -> None:
    assert {model["name"]: model["role"] for model in first["models"]} == {
        "teacher": "teacher",
        "small": "student",
        "half": "student",
        "contribution-1": "dropped",
    }
    assert [entry["alias"] for entry in first["registered"]].count("champion") == 1
    written = json.loads((home.root / "out.json").read_text())
    assert {"stages", "models", "registered"} <= set(written)
    for model in written["models"]:
        assert all(
            model[name] is not None
            for name in ("parameters", "bytes", "flops", "latency_ms", "memory_bytes", "metrics")
        )


def test_the_gate_the_card_and_the_result_say_that_the_corpus_holds_the_rows_that_judge(first: dict[str, Any]) -> None:
    """Text for general distillation that holds the judged rows used to be no leak at all."""
    rows, found = first["rows"], first["held_back"]
    assert found["leaked"]["general text"] == {split: rows[split] for split in ("selection", "validation")}
    assert found["leaked"]["training rows"] == {"selection": 0, "validation": 0} and found["purged"]["way"] == "text"
    said = (
        f"{rows['validation']} of the {rows['validation']} evaluation rows overlap with the general text (at "
        f"most 100.0%): few enough"
    )
    assert all(said in entry["reasons"] for entry in first["registered"])


def test_a_second_run_executes_and_registers_nothing(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    again = run_recipe(recipe_for(tiny_bert, tiny_rows), home=home)
    assert executed(again) == set()
    assert not any(entry["new"] for entry in again["registered"])
    assert [model["metrics"] for model in again["models"]] == [model["metrics"] for model in first["models"]]


def test_the_plan_says_what_a_knob_would_cost(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    same = plan_recipe(recipe_for(tiny_bert, tiny_rows), home=home)
    assert {row["cache"] for row in same} == {"hit"}
    changed = plan_recipe(recipe_for(tiny_bert, tiny_rows, scoring={"resamples": 200, "max_length": 16}), home=home)
    missed = [row for row in changed if row["cache"] == "miss"]
    assert {row["stage"].partition("/")[0] for row in missed} == {"score-model", "inspect-answers"}
    assert "knobs.resamples: 100 → 200" in missed[0]["why"]


def test_the_plan_says_what_would_be_left_of_train_before_anything_ran(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    def planned(**data: Any) -> HeldBackFacts:
        recipe = recipe_for(tiny_bert, tiny_rows, data={"source": str(tiny_rows), **data})
        return planned_rows(recipe, planned_session(recipe, home))

    assert planned(selection_rows=20).rows == first["rows"], "of a cached stage, what it said"
    unseen = planned(selection_rows=10)
    assert unseen.rows["selection"] == 10 and unseen.purged is not None and unseen.purged.words_left > 5
    assert unseen.leaked == {"training rows": {"validation": 0, "selection": 0}}


def test_a_plan_of_a_new_home_counts_the_overlaps_that_the_run_found(
    first: dict[str, Any], tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    recipe, fresh = recipe_for(tiny_bert, tiny_rows), Home(tmp_path / "home").create()
    told = compared_rows(recipe, planned_session(recipe, fresh))
    assert told.leaked == first["held_back"]["leaked"] and told.leaked["general text"]["validation"] > 0


def test_one_edited_byte_runs_everything_that_depends_on_it(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    edited = tmp_path / "train.csv"
    edited.write_text(tiny_rows.read_text().replace("was good", "was fine", 1))
    rows = plan_recipe(recipe_for(tiny_bert, edited), home=home)
    assert {row["cache"] for row in rows} == {"miss"}


def test_a_folder_that_moved_is_the_same(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "train.csv"
    moved.write_text(tiny_rows.read_text())
    assert {row["cache"] for row in plan_recipe(recipe_for(tiny_bert, moved), home=home)} == {"hit"}


def test_a_deleted_artifact_is_made_again_with_the_same_digest(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    from tasks.ports.store.folder import FolderStore

    store = FolderStore(Path(home.store))
    victim = next(manifest for manifest in store.manifests() if manifest["stage"] == "distill-layers")
    (store.object_path(victim["sha256"]) / "model.safetensors").unlink()
    with engines_in_this_process():
        again = run_recipe(recipe_for(tiny_bert, tiny_rows), home=home)
    assert executed(again) == {"distill-layers"}
    found = store.find(victim["key"])
    assert found is not None and found.sha256 == victim["sha256"]


def test_the_graph_in_prefect_is_the_intended_one(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    edges = asyncio.run(edges_of_run(newest_flow_run(home)))
    assert edges["distill-layers/small"] == {"finetune-teacher", "prepare-rows", "distill-general/2x8", "augment-text"}
    assert edges["distill-predictions/half"] == {"finetune-teacher", "prepare-rows", "answer-rows"}
    assert edges["finetune-teacher"] == {"prepare-rows"}
    assert edges["measure-contributions"] == {"prepare-rows"}


async def edges_of_run(flow_run: UUID) -> dict[str, set[str]]:
    """Read task runs of a flow run and the runs that they depend on."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.sorting import TaskRunSort

    async with get_client() as client:
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
        for _ in range(100):  # a busy server writes task runs some seconds after it was told of them
            runs = await client.read_task_runs(flow_run_filter=wanted, sort=TaskRunSort.ID_DESC, limit=200)
            if {"distill-layers/small", "distill-predictions/half"} <= {run.name for run in runs}:
                break
            await asyncio.sleep(0.2)
    names = {run.id: run.name for run in runs}
    return {
        run.name: {
            names[one.id] for given in run.task_inputs.values() for one in given if getattr(one, "id", None) in names
        }
        for run in runs
    }


def test_the_page_of_a_large_run_has_one_node_for_each_branch(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with all stages of a run of a thousand cannot be read."""
    monkeypatch.setattr("flows.branches.subflow.TRAININGS_ON_A_PAGE", 2)
    large = run_recipe(recipe_for(tiny_bert, tiny_rows, name="large"), home=home)
    assert executed(large) == set(), "a page changes no key"
    graph, branches = asyncio.run(pages_of_run(newest_flow_run(home), len(large["stages"])))
    assert set(branches) == {"small", "half", "contribution-1", "scores", "comparisons", "speeds"}
    assert branches["small"] == {"distill-layers/small", "distill-predictions/small"}
    assert branches["half"] == {"distill-predictions/half"}, "stages that several branches use belong to the run"
    assert {"finetune-teacher", "answer-rows", "augment-text", "distill-general/2x8"} <= set(graph)
    assert not {stage for stages in branches.values() for stage in stages} & set(graph)
    assert graph["small"] == {"prepare-rows"} and graph["scores"] == {"score-model/teacher"}


async def pages_of_run(flow_run: UUID, stages: int) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Read the page of a run as Prefect draws it: its nodes with those that they come after, and the tasks on the page
    of each of its branches."""
    from prefect.client.orchestration import PrefectClient, get_client

    async def page_of(client: PrefectClient, run: object) -> dict[str, dict[str, Any]]:
        answer = await client._client.get(f"/flow_runs/{run}/graph-v2")
        return {node["id"]: node for _, node in answer.json()["nodes"]}

    def named(node: dict[str, Any]) -> str:
        return str(node["label"]).removeprefix("branch / ")

    async with get_client() as client:
        for _ in range(200):  # a busy server writes task runs some seconds after it was told of them
            page = await page_of(client, flow_run)
            below = [node for node in page.values() if node["kind"] == "flow-run"]
            branches = {named(node): await page_of(client, node["id"]) for node in below}
            if len(page) - len(below) + sum(map(len, branches.values())) >= stages:
                break
            await asyncio.sleep(0.2)
    drawn = {
        named(node): {named(page[one["id"]]) for one in node["parents"] if one["id"] in page} for node in page.values()
    }
    return drawn, {branch: {named(node) for node in tasks.values()} for branch, tasks in branches.items()}


def test_a_weak_teacher_stops_the_run_and_leaves_nothing_open(
    prefect_server: None, home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    with pytest.raises(GateError, match=r"floor is 1\.000"), engines_in_this_process():
        run_recipe(recipe_for(tiny_bert, tiny_rows, teacher={"model": str(tiny_bert), "floor": 1.0, **FAST}), home=home)
    from tasks.ports.tracking.tracker import Tracker

    assert "RUNNING" not in {row["status"] for row in Tracker(home.own_tracking_uri, None).runs(100)}


def test_a_student_with_other_heads_is_refused_before_anything_is_spent(
    home: Home, prefect_server: None, tiny_bert: Path, tiny_rows: Path
) -> None:
    student = {"name": "odd", "layers": 2, "hidden": 8, "heads": 2, "feed_forward": 16, "start": "random"}
    with pytest.raises(LimbeckError, match="attention scores need equal heads"):
        run_recipe(recipe_for(tiny_bert, tiny_rows, students=[student]), home=home)


def test_a_champion_that_is_pulled_or_loaded_through_mlflow_needs_none_of_our_code(
    first: dict[str, Any], home: Home, tmp_path: Path
) -> None:
    from tasks.ports.tracking.tracker import Tracker

    name = next(entry for entry in first["registered"] if entry["alias"] == "champion")["name"]
    Tracker(home.own_tracking_uri, home.artifacts).download(name, "champion", tmp_path / "model")
    code = f"""
import sys, mlflow
from transformers import pipeline
mlflow.set_tracking_uri({home.own_tracking_uri!r})
for model in pipeline("text-classification", sys.argv[1]), mlflow.transformers.load_model("models:/{name}@champion"):
    print(model("the film was good")[0]["label"])
print(sorted({{"flows", "tasks"}} & set(sys.modules)))
"""
    done = ask_stranger(code, str(tmp_path / "model"), folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    pulled, loaded, ours = done.stdout.strip().splitlines()[-3:]
    assert pulled == loaded and pulled in ("positive", "negative") and ours == "[]"
    with pytest.raises(LimbeckError, match="not empty"):
        Tracker(home.own_tracking_uri, home.artifacts).download(name, "champion", tmp_path / "model")


def test_the_teacher_reads_as_much_of_a_text_as_its_student(
    home: Home, prefect_server: None, tiny_bert: Path, tiny_rows: Path
) -> None:
    students = [
        {"name": "short", "layers": 2, "stages": []},
        {"name": "other", "layers": 3, "stages": []},
        {"name": "long", "layers": 2, "stages": [], "prediction": FAST | {"max_length": 32}},
    ]
    dropping = {**FAST, "max_length": 48, "drop": [1], "signal": "teacher"}
    records = planned_records(recipe_for(tiny_bert, tiny_rows, students=students, layer_dropping=dropping), home)
    assert sorted(
        record.explanation["knobs"]["max_length"] for record in records if record.display_name.startswith("answer-rows")
    ) == [16, 32, 48]


@pytest.fixture(scope="module")
def several(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Recipe, dict[str, Any]]:
    """A run of several students of one map, judged elsewhere too, after the first."""
    phase = {**FAST, "steps": None, "epochs": 2.0}
    students = [
        {"name": "two", "layers": 2, "stages": ["intermediate"], "seeds": [0, 1]},
        {
            "name": "narrow",
            "layers": 2,
            "hidden": 8,
            "heads": 4,
            "feed_forward": 16,
            "start": "random",
            "stages": ["intermediate"],
        },
        {"name": "three", "layers": 3, "stages": ["intermediate"]},
        {"name": "varied", "compared_to": ["two"], "layers": 2, "stages": ["augmentation", "intermediate"]},
    ]
    lines = [
        f"{('it was fine', 'it was poor')[number % 2]} for once {number},{('good', 'bad')[number % 2]}"
        for number in range(10)
    ]
    lines += [
        line.replace(",positive", ",good").replace(",negative", ",bad")
        for line in tiny_rows.read_text().splitlines()[1:3]
    ]
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.csv"
    elsewhere.write_text("\n".join(["words,mark", *lines]) + "\n")
    other = {
        "source": str(elsewhere),
        "text": "words",
        "label": "mark",
        "classes": {"good": "positive", "bad": "negative"},
    }
    values = {
        "students": students,
        "layer_dropping": None,
        "task_distillation": {"intermediate": phase, "prediction": FAST},
        "data": {"source": str(tiny_rows), "selection_rows": 20, "judge": {"other": other}},
        "gate": {
            "criteria": [{"metric": "accuracy", "at_least": 0.0, "worst_of": ["validation", "other"]}],
            "leakage": 1.0,
        },
    }
    recipe = recipe_for(tiny_bert, tiny_rows, **values)
    with engines_in_this_process():
        return recipe, run_recipe(recipe, home=home)


def test_students_of_one_map_share_one_pass_of_the_teacher(several: tuple[Recipe, dict[str, Any]], home: Home) -> None:
    recipe, result = several
    names = [stage["label"] for stage in result["stages"] if stage["name"] == "record-signals"]
    assert sorted(names) == ["2 layers", "3 layers"] and executed(result) >= {"record-signals", "distill-layers"}
    assert all(stage["cache"] == "hit" for stage in result["stages"] if stage["name"] == "finetune-teacher")
    assert [(one["label"], one["kept"], one["bits"]) for one in result["teacher_layers"]] == [
        ("2 layers", True, 16),
        ("3 layers", True, 16),
    ]
    stored = next(one for one in result["teacher_layers"] if one["label"] == "3 layers")
    written = sum(path.stat().st_size for path in home.root.glob("store/objects/*/*/hidden.raw"))
    assert 0 < stored["sizes"]["8"] < stored["sizes"]["16"] < stored["room"] and stored["sizes"]["16"] > written / 4
    reads = {model["name"]: model for model in result["models"] if "teacher_rows_read" in model}
    assert set(reads) == {"two", "narrow", "three", "varied"}
    rows = 2 * result["rows"]["train"]
    assert reads["two"]["teacher_rows_read"] == [rows, rows] and reads["two"]["teacher_rows_computed"] == [0, 0]
    varied = reads["varied"]["teacher_rows_read"][0], reads["varied"]["teacher_rows_computed"][0]
    assert sum(varied) == rows and 0 < varied[1] <= 2 * 20, "twenty rows have substitutes"
    more = recipe.model_copy(update={"students": recipe.students[:1]})
    assert {row["cache"] for row in plan_recipe(more, home=home)} == {"hit"}, (
        "another student changes nothing for the others"
    )


def test_everyone_is_judged_on_every_set_and_it_is_told_everywhere(
    several: tuple[Recipe, dict[str, Any]], home: Home, tmp_path: Path
) -> None:
    from tasks.ports.tracking.tracker import Tracker

    recipe, result = several
    for model in result["models"]:
        found, own = model["judged"], model["metrics"]["validation"]["accuracy"]["value"]
        assert {name: one["rows"] for name, one in found.items()} == {"other": 12}
        assert all(
            one["drop"] == pytest.approx(own - one["metrics"]["accuracy"]["value"]) and 0 <= one["agreement"] <= 1
            for one in found.values()
        )
    assert (
        len(result["models"][1]["judged"]["other"]["per_seed"]["accuracy"]) == 2
        and result["models"][0]["judged"]["other"]["agreement"] == 1
    )
    varied, two = (
        {one["name"]: one for one in result["models"]}[name]["judged"]["other"] for name in ("varied", "two")
    )
    apart = varied["against"]["two"]
    means = (one["means"]["metrics"]["accuracy"]["value"] for one in (varied, two))
    assert apart["value"] == pytest.approx(next(means) - next(means)) and apart["seeds"] == [1, 2]
    assert "stages" in apart["differs"] and "against" not in two and apart["low"] <= apart["value"] <= apart["high"]
    assert [one["label"] for one in result["stages"] if one["name"] == "contrast-models"] == [
        "varied against two",
        "varied against two on other",
    ]
    known = result["held_back"]["judging"]["other"]
    assert known["leaked"]["general text"] == 2 >= known["leaked"]["training rows"], (
        "two of its rows stand in the corpus"
    )
    assert all(
        entry["reasons"][0].startswith("on ")
        and "2 of the 12 rows of other overlap with the general text" in " ".join(entry["reasons"])
        for entry in result["registered"]
    )
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    kept = tracker.client.get_run(result["run"])
    assert {"judge/other/score", "judge/other/drop_pts"} <= {
        *kept.data.metrics
    } and "on judging sets" in kept.data.tags["mlflow.note.content"]
    entry = result["registered"][0]
    tracker.download(entry["name"], entry["version"], tmp_path / "model")
    assert "| accuracy, judging set other, 12 rows" in (tmp_path / "model" / "README.md").read_text()
    page = Path(tracker.client.download_artifacts(result["run"], "report/report.html", str(tmp_path))).read_text()
    assert "<h3>Judging sets</h3>" in page and "<caption>other</caption>" in page
    assert page.count("<li>varied against two") == 2, "on the task's own rows, and on the set"


def test_one_set_more_recomputes_nothing_else(several: tuple[Recipe, dict[str, Any]], home: Home) -> None:
    recipe, result = several
    sets = recipe.data.judge
    third = sets | {"third": JudgingSet.model_validate(dict(sets["other"]) | {"rows": 6})}  # type: ignore[arg-type]
    more = recipe.model_copy(update={"data": recipe.data.model_copy(update={"judge": third})})
    session = planned_session(more, home)
    missed = [record.display_name for record in session.records if record.cache == "miss"]
    assert missed[:2] == ["prepare-judging-set/third", "compare-judging-set/third"] and all(
        one.endswith(" on third") for one in missed[2:]
    )
    assert len(missed) == 3 + len(result["models"]), "a score of each model, and one comparison of two"
    told = planned_rows(more, session).judging
    assert (
        told["third"].rows == 6
        and [*told["third"].leaked] == ["training rows"]
        and told["other"].leaked["general text"] == 2
    )
    renamed = recipe.model_copy(update={"data": recipe.data.model_copy(update={"judge": {"renamed": sets["other"]}})})
    assert {row["cache"] for row in plan_recipe(renamed, home=home)} == {"hit"}, "what a set is called is in no key"
    none = recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"judge": {}}),
            "gate": recipe.gate.model_copy(update={"criteria": ()}),
        }
    )
    assert {row["cache"] for row in plan_recipe(none, home=home)} == {"hit"}
    assert not planned_rows(none, planned_session(none, home)).judging


def test_a_set_for_which_train_is_purged_changes_what_is_learned(
    several: tuple[Recipe, dict[str, Any]], home: Home
) -> None:
    recipe, _ = several
    purging = {"other": recipe.judging_sets["other"].model_copy(update={"overlaps": "purge"})}
    records = planned_records(
        recipe.model_copy(update={"data": recipe.data.model_copy(update={"judge": purging})}), home
    )
    purge, teacher = (
        next(record for record in records if record.name == name) for name in ("purge-rows", "finetune-teacher")
    )
    assert purge.cache == "miss" and teacher.why == "waits for rows"


@flow
async def teacher_alone(recipe: Recipe) -> list[StageRecord]:
    """Make the recipe's rows and its teacher, and leave it at that."""
    async with open_run(recipe) as run:
        rows = await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=run.sources["data"])
        knobs = TeacherSlice(**dict(recipe.teacher), task_type=recipe.spec.kind)
        await finetune_teacher(knobs, rows=rows, base=run.sources["teacher"])
        return run.session.records


def test_the_key_of_a_training_says_how_many_processes_share_it(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several processes made is taken for what one makes by nobody: sums and dropout are others."""
    recipe = recipe_for(tiny_bert, tiny_rows)
    monkeypatch.setenv("LIMBECK_PROCESSES", "two")
    with pytest.raises(LimbeckError, match="LIMBECK_PROCESSES is 'two'; set it to the number of GPUs"):
        plan_recipe(recipe, home=home)
    monkeypatch.setenv("LIMBECK_PROCESSES", "2")
    rows = {row["stage"]: row for row in plan_recipe(recipe, home=home)}
    assert rows["prepare-rows"]["cache"] == "hit"
    assert (rows["finetune-teacher"]["cache"], rows["finetune-teacher"]["why"]) == ("miss", "processes: None → 2")
    monkeypatch.delenv("LIMBECK_PROCESSES")
    again = {row["stage"]: (row["cache"], row["why"]) for row in plan_recipe(recipe, home=home)}
    missed = {stage: why for stage, (cache, why) in again.items() if cache != "hit"}
    assert not missed, missed  # one process has the key it always had


@pytest.mark.slow
def test_several_processes_share_a_training_and_its_key_says_how_many(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several processes made is taken for what one makes by nobody: sums and dropout are others."""
    recipe = recipe_for(tiny_bert, tiny_rows)
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.setenv("LIMBECK_PROCESSES", "two")
    with pytest.raises(LimbeckError, match="LIMBECK_PROCESSES is 'two'; set it to the number of GPUs"):
        run_recipe(recipe, home=home)
    monkeypatch.setenv("LIMBECK_PROCESSES", "2")
    started: list[tuple[str, int]] = []
    real = engine_process.command
    monkeypatch.setattr(
        engine_process,
        "command",
        lambda module, processes: started.append((module, processes)) or real(module, processes),
    )
    rows, teacher = asyncio.run(teacher_alone(recipe))
    assert started == [("tasks.training", 2)]
    assert (rows.cache, teacher.cache, teacher.why) == ("hit", "miss", "processes: None → 2")
    assert {record.cache for record in asyncio.run(teacher_alone(recipe))} == {"hit"}
    monkeypatch.delenv("LIMBECK_PROCESSES")
    assert {row["cache"] for row in plan_recipe(recipe, home=home)} == {"hit"}, (
        "one process has the key that it always had"
    )
