"""``limbeck deploy`` on a real Prefect server: everything is there, a second time changes nothing, and what people
switched stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.workers.process import ProcessWorker

from flows.deploy.deploy import GPU_LIMIT, Change, DeployOptions, deploy
from flows.deploy.form_schema import OWN_TITLES
from flows.deploy.pools import defaults_in, local_pool, read_site, renewed_template, run_places, settled
from flows.deploy.register_pool import register
from flows.deploy.timetable import timetable
from tasks.errors import RecipeError, ServerError
from tasks.ports.machine import device_class
from tasks.ports.work_pools import device_of
from tasks.recipe.recipe import Recipe
from tests.forked.interpreter import interpreter
from tests.prefect_server import IDLE, LAZY, ROOT, prefect_server_of_our_own
from tests.web_server import free_port

DEPLOYMENTS = {
    "compress/own-recipe",
    "compress-from-shelf/shelf-recipe",
    "compress-from-shelf/nightly",
    "sweep-from-shelf/weekly",
    "score-version/when-registered",
    "promote/promote-version",
    "rollback/rollback-champion",
    "janitor/hourly",
    "resubmit/after-crash",
    "stage/gpu",
}


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with prefect_server_of_our_own(**LAZY, **IDLE) as environment:
        settings = {
            PREFECT_API_URL: environment["PREFECT_API_URL"],
            PREFECT_API_AUTH_STRING: environment["PREFECT_API_AUTH_STRING"],
        }
        with temporary_settings(settings):
            yield environment


def set_up(**ways: Any) -> dict[str, str]:
    lines: list[Change] = asyncio.run(deploy(DeployOptions(**ways)))
    return {f"{line.kind} {line.name}": line.done for line in lines}


def ask(path: str, **content: Any) -> Any:
    """Ask the server's own interface, not through what deploy reads by."""

    async def asked() -> Any:
        async with get_client() as client:
            answer = await client._client.post(path, json=content)
            answer.raise_for_status()
            return answer.json()

    return asyncio.run(asked())


def with_client(work: Any) -> Any:
    async def done() -> Any:
        async with get_client() as client:
            return await work(client)

    return asyncio.run(done())


def everything() -> dict[str, tuple[str, str]]:
    """Return id and time of the last change of all there is. A pool's own time moves with its worker's polls; here
    there is none."""
    kinds = ("deployments", "work_pools", "automations", "v2/concurrency_limits", "work_queues", "flows")
    found = {
        f"{kind} {one['name']} {one.get('flow_id', '')}": (one["id"], one["updated"])
        for kind in kinds
        for one in ask(f"/{kind}/filter")
    }
    schedules = [schedule for one in ask("/deployments/filter") for schedule in one["schedules"]]
    return found | {f"schedule {schedule['slug']}": (schedule["id"], schedule["updated"]) for schedule in schedules}


@pytest.fixture(scope="module")
def first(server: dict[str, str]) -> dict[str, str]:
    return set_up()


def test_everything_is_there(first: dict[str, str]) -> None:
    limited = "work pool ecs-gpu, runs at once"
    assert {what for name, what in first.items() if name != limited} == {"created"}
    assert first[limited] == "updated (concurrency_limit)", "as many machines as stages that may hold a GPU: one"
    flows = {flow["id"]: flow["name"] for flow in ask("/flows/filter")}
    found = {f"{flows[one['flow_id']]}/{one['name']}": one for one in ask("/deployments/filter")}
    assert set(found) >= DEPLOYMENTS
    assert all(one["enforce_parameter_schema"] for one in found.values())
    active = {schedule["slug"]: schedule["active"] for one in found.values() for schedule in one["schedules"]}
    assert active == {"nightly": False, "weekly": False, "hourly": True}
    assert {pool["name"]: pool["type"] for pool in ask("/work_pools/filter")} == {
        "cpu": "process",
        "ecs-gpu": "ecs",
        "k8s-gpu": "kubernetes",
    }
    assert [
        (limit["name"], limit["limit"])
        for limit in ask("/v2/concurrency_limits/filter")
        if not limit["name"].startswith("deployment:")
    ] == [("gpu", 1)]


def test_a_second_time_changes_nothing(first: dict[str, str]) -> None:
    before = everything()
    assert set(set_up().values()) == {"unchanged"}
    assert everything() == before and len(before) > 25


def test_the_automations_say_what_they_should(first: dict[str, str]) -> None:
    found = {one["name"]: one for one in ask("/automations/filter")}
    silent, again, scoring = (
        found[f"limbeck, {name}"]
        for name in ("end what fell silent", "resubmit what crashed", "score what is registered")
    )
    assert (
        silent["trigger"]["posture"] == "Proactive"
        and silent["trigger"]["within"] == 90
        and silent["trigger"]["after"] == ["prefect.flow-run.heartbeat"]
    )
    watched = silent["trigger"]["match_related"]["prefect.resource.id"].removeprefix("prefect.tag.")
    tags = {entry.full_name: entry.fields["tags"] for entry in timetable()}
    unwatched = {name for name, given in tags.items() if watched not in given}
    upkeep = {entry.full_name for entry in timetable() if entry.fields["work_queue_name"] == "upkeep"}
    assert unwatched == upkeep, "the single heartbeat of a run of a second is heard after its end"
    assert silent["actions"][0]["state"] == "CRASHED"
    assert (
        again["trigger"]["expect"] == ["prefect.flow-run.Crashed"]
        and again["actions"][0]["parameters"]["attempts"] == 3
    )
    assert scoring["actions"][0]["parameters"]["scoring"]["__prefect_kind"] == "json"
    flows = {flow["name"]: flow["id"] for flow in ask("/flows/filter")}
    by_id = {one["id"]: one["flow_id"] for one in ask("/deployments/filter")}
    assert (
        by_id[again["actions"][0]["deployment_id"]] == flows["resubmit"]
        and by_id[scoring["actions"][0]["deployment_id"]] == flows["score-version"]
    )


def test_a_schedule_that_is_on_makes_runs_and_one_that_is_paused_does_not(first: dict[str, str]) -> None:
    """By the libraries that are pinned here: with SQLAlchemy 2.1 Prefect's scheduler fails at every turn, and only its
    log says so."""
    janitor = with_client(lambda client: client.read_deployment_by_name("janitor/hourly"))
    until = time.monotonic() + 120
    while not (found := ask("/flow_runs/filter", sort="ID_DESC")) and time.monotonic() < until:
        time.sleep(1)
    assert (
        found
        and {run["deployment_id"] for run in found} == {str(janitor.id)}
        and all(run["auto_scheduled"] for run in found)
    )


WHOLE = {"name": "mine", "task": "sst2", "students": [{"name": "half", "layers": 3}]}
COLD = {"task_distillation": {"prediction": {"temperature": -1}}}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("compress/own-recipe", {"recipe": WHOLE | COLD}, "recipe.task_distillation.prediction.temperature"),
    (
        "compress/own-recipe",
        {"recipe": WHOLE | {"layer_dropping": {"strategies": ["topp"]}}},
        "recipe.layer_dropping.strategies[0]",
    ),
    ("compress/own-recipe", {"recipe": WHOLE | {"task": "sst3"}}, "recipe.task"),
    ("compress/own-recipe", {"recipe": WHOLE | {"studens": []}}, "'studens' was unexpected"),
    ("compress/own-recipe", {"recipe": {"name": "mine"}}, "'task' is a required property"),
    ("compress-from-shelf/nightly", {"recipe": "sst2-tinybret"}, "'sst2-tinybret' is not one of"),
    ("compress-from-shelf/nightly", {"changes": COLD}, "changes.task_distillation.prediction.temperature"),
    (
        "compress-from-shelf/nightly",
        {"changes": {"students": [{"name": "half", "layers": 0}]}},
        "changes.students[0].layers",
    ),
    ("compress-from-shelf/nightly", {"without": ["teacher"]}, "without[0]"),
    ("compress-from-shelf/shelf-recipe", {}, "'recipe' is a required property"),
    ("sweep-from-shelf/weekly", {"sweep": {"strategies": ["greedyy"]}}, "sweep.strategies[0]"),
    ("sweep-from-shelf/weekly", {"sweep": {"drop": [0]}}, "sweep.drop[0]"),
    ("promote/promote-version", {"name": "m", "to": "chamption"}, "'chamption' is not one of"),
    ("score-version/when-registered", {"scoring": {"name": "m", "beside": "teacher"}}, "scoring.beside"),
    ("resubmit/after-crash", {"flow_run": "00000000-0000-0000-0000-000000000000", "attempts": 0}, "attempts"),
]


def started_by_hand() -> set[str]:
    """Return the runs that no schedule made."""
    return {run["id"] for run in ask("/flow_runs/filter", sort="ID_DESC") if not run["auto_scheduled"]}


def trigger(name: str, parameters: dict[str, Any]) -> Any:
    async def triggered() -> Any:
        async with get_client() as client:
            deployment = await client.read_deployment_by_name(name)
            return await client.create_flow_run_from_deployment(deployment.id, parameters=parameters)

    return asyncio.run(triggered())


@pytest.mark.parametrize(("name", "parameters", "said"), BAD, ids=[said for _, _, said in BAD])
def test_bad_parameters_are_refused_before_there_is_a_run(
    first: dict[str, str], name: str, parameters: dict[str, Any], said: str
) -> None:
    before = started_by_hand()
    with pytest.raises(PrefectHTTPStatusError) as refused:
        trigger(name, parameters)
    assert refused.value.response.status_code == 409 and said in refused.value.response.json()["detail"]
    assert started_by_hand() == before


def test_good_parameters_make_a_run(first: dict[str, str]) -> None:
    changes = {
        "task_distillation": {"prediction": {"temperature": 8}},
        "layer_dropping": {"strategies": ["top"], "drop": [1]},
    }
    run = trigger("compress-from-shelf/nightly", {"changes": changes, "without": ["augmentation"]})
    assert run.state.is_scheduled() and set(run.tags) == {"limbeck", "limbeck-resubmit"}
    assert run.parameters["recipe"] == "sst2-tinybert" and run.parameters["changes"] == changes


def test_every_field_of_every_form_has_a_title_and_a_sentence(first: dict[str, str]) -> None:
    for one in ask("/deployments/filter"):
        schema = one["parameter_openapi_schema"]
        forms = {"": schema, **schema.get("definitions", {})}
        for name, form in forms.items():
            for knob, field in form.get("properties", {}).items():
                refs = [
                    part["$ref"].rsplit("/", 1)[1]
                    for part in (field, *field.get("allOf", ()), *field.get("anyOf", ()))
                    if "$ref" in part
                ]
                assert field.get("title") or refs, f"{one['name']} {name}.{knob} has no title"
                said = [
                    field.get("title", ""),
                    form.get("title", ""),
                    *(part.get("title", "") for part in field.get("anyOf", ()) if part.get("type", "null") != "null"),
                    *(forms[ref]["title"] for ref in refs),
                ]
                raw = [title for title in said if re.search("_|[a-z][A-Z]", title) and title not in OWN_TITLES.values()]
                assert raw == [], f"{one['name']} {name}.{knob} shows names of the program"
                if "title" in field and name:
                    assert all(said), f"{one['name']} {name}.{knob} has an alternative without a name"
                assert field.get("description") or any(forms[ref].get("description") for ref in refs), (
                    f"{one['name']} {name}.{knob} says nothing of itself"
                )


def test_what_people_switched_stays_until_it_is_taken_back(first: dict[str, str]) -> None:
    async def people(client: Any) -> None:
        nightly = await client.read_deployment_by_name("compress-from-shelf/nightly")
        await client.update_deployment_schedule(nightly.id, nightly.schedules[0].id, active=True)
        await client.update_deployment(
            nightly.id, DeploymentUpdate(parameters={"recipe": "mrpc-small"}, tags=nightly.tags)
        )
        [silent] = await client.read_automations_by_name("limbeck, end what fell silent")
        await client.pause_automation(silent.id)
        pool = (await client.read_work_pool("ecs-gpu")).base_job_template
        pool["variables"]["properties"]["image"]["default"] = "example.org/limbeck:1"
        await client.update_work_pool("ecs-gpu", WorkPoolUpdate(base_job_template=pool))

    async def now(client: Any) -> tuple[Any, ...]:
        nightly = await client.read_deployment_by_name("compress-from-shelf/nightly")
        [silent] = await client.read_automations_by_name("limbeck, end what fell silent")
        image = (await client.read_work_pool("ecs-gpu")).base_job_template["variables"]["properties"]["image"][
            "default"
        ]
        return nightly.schedules[0].active, nightly.parameters["recipe"], silent.enabled, image

    with_client(people)
    assert set(set_up().values()) == {"unchanged"}
    assert with_client(now) == (True, "mrpc-small", False, "example.org/limbeck:1")
    taken_back = {name for name, done in set_up(reset=True).items() if done != "unchanged"}
    assert taken_back == {
        "deployment compress-from-shelf/nightly",
        "automation limbeck, end what fell silent",
        "work pool ecs-gpu",
    }
    assert with_client(now) == (False, "sst2-tinybert", True, None)


def test_what_differs_from_the_files_is_put_right(first: dict[str, str]) -> None:
    async def spoil(client: Any) -> None:
        deployment = await client.read_deployment_by_name("compress/own-recipe")
        await client.update_deployment(deployment.id, DeploymentUpdate(tags=["other"], enforce_parameter_schema=False))
        [again] = await client.read_automations_by_name("limbeck, resubmit what crashed")
        again.actions[0].parameters["attempts"] = 99
        await client.update_automation(again.id, AutomationCore(**again.model_dump(exclude={"id", "owner_resource"})))
        pool = (await client.read_work_pool("k8s-gpu")).base_job_template
        pool["job_configuration"]["job_manifest"]["spec"]["backoffLimit"] = 6
        await client.update_work_pool("k8s-gpu", WorkPoolUpdate(base_job_template=pool))

    with_client(spoil)
    changed = {name: done for name, done in set_up().items() if done != "unchanged"}
    assert changed == {
        "deployment compress/own-recipe": "updated (tags, enforce_parameter_schema)",
        "work pool k8s-gpu": "updated (base_job_template)",
        "automation limbeck, resubmit what crashed": "updated (actions)",
    }
    assert set(set_up().values()) == {"unchanged"}


def test_what_a_place_sets_is_kept(first: dict[str, str], tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    image = f"example.org/limbeck@sha256:{'0' * 64}"
    site.write_text(f"k8s-gpu: {{image: '{image}', gpu_count: 2}}\n")
    assert set_up(site=read_site(site), gpus=4)["work pool k8s-gpu"] == "updated (base_job_template)"
    assert set(set_up().values()) == {"unchanged"}
    variables = with_client(lambda client: client.read_work_pool("k8s-gpu")).base_job_template["variables"][
        "properties"
    ]
    assert (variables["image"]["default"], variables["gpu_count"]["default"]) == (image, 2)
    assert with_client(lambda client: client.read_global_concurrency_limit_by_name("gpu")).limit == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k8s-gpu: {imago: x}", "the pool k8s-gpu has no variable 'imago'; it has active_deadline_seconds, "),
        ("gpu: {}", "names the unknown pool 'gpu'; known are cpu, ecs-gpu, k8s-gpu, gpu-local"),
        ("k8s-gpu: {image: 'example.org/limbeck:2'}", "k8s-gpu.image: 'example.org/limbeck:2' does not match"),
        ("k8s-gpu: {gpu_count: 0}", "k8s-gpu.gpu_count: 0 is less than the minimum of 1; GPUs of a job"),
        ("k8s-gpu: {tolerations: [{effect: Never}]}", "'Never' is not one of"),
        ("[", "cannot be read as YAML"),
        ("text", "is not a mapping of pools"),
    ],
)
def test_a_site_that_says_what_is_not_legal(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(RecipeError, match=said):
        read_site(tmp_path / "site.yaml")


def test_a_deployment_with_a_former_name_hands_over_what_people_set(first: dict[str, str]) -> None:
    async def as_before(client: Any) -> None:
        now = await client.read_deployment_by_name("promote/promote-version")
        flow = (await client.read_flow_by_name("promote")).id
        await client.create_deployment(flow_id=flow, name="on-demand", parameters={"name": "mine"}, tags=["limbeck"])
        await client.delete_deployment(now.id)

    with_client(as_before)
    assert set_up()["deployment promote/promote-version"] == "created (it was promote/on-demand)"
    there = {one["name"]: one["parameters"] for one in ask("/deployments/filter")}
    assert there["promote-version"] == {"name": "mine"} and "on-demand" not in there
    assert set(set_up().values()) == {"unchanged"}


def test_the_number_of_gpus_limits_the_pool_that_gets_the_stages(first: dict[str, str], tmp_path: Path) -> None:
    def limits(pool: str) -> tuple[Any, int]:
        slots = with_client(lambda client: client.read_global_concurrency_limit_by_name("gpu")).limit
        return with_client(lambda client: client.read_work_pool(pool)).concurrency_limit, slots

    def pool_of_stages() -> str:
        return str(with_client(lambda client: client.read_deployment_by_name("stage/gpu")).work_pool_name)

    set_up(gpus=2)
    made = with_client(lambda client: client.read_work_pool("gpu-local")).base_job_template
    assert device_of(made) == device_class() and "command" not in made["variables"]["properties"]
    assert (pool_of_stages(), limits("gpu-local")) == ("gpu-local", (2, 2))
    site = tmp_path / "site.yaml"
    site.write_text("ecs-gpu: {device: cuda-a10g}\n")
    set_up(site=read_site(site), gpus=5)
    assert (pool_of_stages(), limits("ecs-gpu")) == ("ecs-gpu", (5, 5))
    assert set(set_up().values()) == {"unchanged"}, "a later deploy leaves the stages there"
    set_up(gpu_pool="gpu-local")
    assert pool_of_stages() == "gpu-local"
    site.write_text("gpu-local: {device: cuda-l4}\n")
    assert set_up(site=read_site(site), gpus=3)["work pool gpu-local"] == "updated (base_job_template)"
    there = with_client(lambda client: client.read_work_pool("gpu-local")).base_job_template
    assert device_of(there) == "cuda-l4", "workers of another machine have its hardware"
    assert there["variables"]["properties"]["env"]["default"]["LIMBECK_SILENT_MINUTES"] == "60"
    assert (pool_of_stages(), limits("gpu-local")) == ("gpu-local", (3, 3))
    assert set(set_up().values()) == set(set_up(site=read_site(site)).values()) == {"unchanged"}
    site.write_text("k8s-gpu: {device: cuda-a10g, gpu_count: 2}\n")
    assert (set_up(site=read_site(site)), limits("k8s-gpu"))[1] == (1, 3), "a container has two of the three"
    set_up(site=read_site(site), gpus=8)
    assert (pool_of_stages(), limits("k8s-gpu")) == ("k8s-gpu", (4, 8))
    with pytest.raises(RecipeError, match="pool k8s-gpu has 2 GPUs .gpu_count., and stages may hold 1 at once; give"):
        set_up(site=read_site(site), gpus=1)
    assert limits("k8s-gpu") == (4, 8)
    site.write_text("k8s-gpu: {gpu_count: 1}\n")
    set_up(site=read_site(site))
    with pytest.raises(RecipeError, match="--gpu-pool cpu: runs wait in this pool for their stages; choose another"):
        set_up(gpu_pool="cpu")
    assert set_up(runs=3)["work queue cpu/default"] == "updated (concurrency_limit)"


def test_a_form_has_the_order_of_the_recipe_and_names_for_people() -> None:
    (entry,) = [entry for entry in timetable() if entry.full_name == "compress/own-recipe"]
    schema = entry.fields["parameter_openapi_schema"]
    shown = schema["definitions"]["Recipe"]["properties"]
    assert sorted(shown, key=lambda name: shown[name]["position"]) == list(Recipe.model_fields)
    sections = [*schema["definitions"].values(), schema]
    fields = [(name, given) for one in sections for name, given in one.get("properties", {}).items()]
    assert [name for name, given in fields if "_" in given["title"] or not given["title"]] == []
    classes = [one["title"] for one in schema["definitions"].values()]
    assert [title for title in classes if re.search("[a-z][A-Z]", title)] == []
    resources = schema["definitions"]["Resources"]["properties"]
    assert resources["gpu_pool"]["title"] == "GPU pool" and resources["threads_alone"]["title"] == "Threads alone"


def test_the_limit_may_have_another_name(first: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_LIMIT, "gpu-of-team-a")
    assert set_up(gpus=2)["concurrency limit gpu-of-team-a"] == "created"


def test_servers_that_cannot_be_used(first: dict[str, str], server: dict[str, str]) -> None:
    with (
        temporary_settings({PREFECT_API_AUTH_STRING: "limbeck:wrong"}),
        pytest.raises(ServerError, match=r"denies access \(401\); set PREFECT_API_AUTH_STRING"),
    ):
        set_up()
    nobody = f"http://someone:secret@127.0.0.1:{free_port()}/api"
    with (
        temporary_settings({PREFECT_API_URL: nobody}),
        pytest.raises(ServerError, match="there is no Prefect server at http://127") as refused,
    ):
        set_up()
    assert "secret" not in str(refused.value)
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(ServerError, match="no Prefect server is configured"),
    ):
        set_up()
    with pytest.raises(
        RecipeError, match="--gpu-pool gpus: this server does not have this work pool; it has cpu, ecs-gpu, "
    ):
        set_up(gpu_pool="gpus")


def test_a_pool_of_another_type_is_not_touched(first: dict[str, str]) -> None:
    async def other(client: Any, kind: str) -> None:
        with contextlib.suppress(Exception):
            await client.delete_work_pool("ecs-gpu")
        await client.create_work_pool(WorkPoolCreate(name="ecs-gpu", type=kind))

    with_client(lambda client: other(client, "process"))
    with pytest.raises(ServerError, match="work pool ecs-gpu on this server is of type process, and its runs need ecs"):
        set_up()
    # A pool that `prefect worker start` made, with Prefect's own template, is made ours.
    with_client(lambda client: other(client, "ecs"))
    assert set_up()["work pool ecs-gpu"].startswith("updated (")


def test_the_command(first: dict[str, str], server: dict[str, str], tmp_path: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
        "LIMBECK_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    command = [interpreter(), "-P", "-m", "flows.cli", "deploy"]
    done = subprocess.run(command, env=known | server, capture_output=True, text=True)
    assert (
        done.returncode == 0 and "deployment         compress-from-shelf/nightly            unchanged" in done.stdout
    ), done.stderr
    refused = subprocess.run(
        command, env=known | server | {"PREFECT_API_AUTH_STRING": "x:y"}, capture_output=True, text=True
    )
    assert (
        refused.returncode == 1
        and refused.stderr.count("\n") == 1
        and refused.stderr.startswith("limbeck: the Prefect server at http://127.0.0.1:")
    )


def test_stages_stay_where_they_were_sent_and_go_first_to_the_pool_of_this_machine(first: dict[str, str]) -> None:
    def pool() -> str:
        return str(with_client(lambda client: client.read_deployment_by_name("stage/gpu")).work_pool_name)

    set_up(gpus=1, gpu_pool="k8s-gpu")
    assert pool() == "k8s-gpu"
    set_up(gpus=1)
    assert pool() == "k8s-gpu", "a deployment that was sent somewhere stays there"
    deployment = with_client(lambda client: client.read_deployment_by_name("stage/gpu"))
    with_client(lambda client: client.delete_deployment(deployment.id))
    assert set_up()["deployment stage/gpu"] == "created" and pool() == "gpu-local"


def queue_of_runs() -> Any:
    """Return the queue of the pool ``cpu``, whose limit is how many runs it starts at once."""
    return with_client(lambda client: client.read_work_queue_by_name("default", work_pool_name="cpu"))


def test_a_container_gives_its_pool_the_places_of_its_machine_and_leaves_a_persons_number(
    first: dict[str, str],
) -> None:
    queue = queue_of_runs()
    with_client(lambda client: client.update_work_queue(queue.id, concurrency_limit=None))
    asyncio.run(register("cpu"))
    assert queue_of_runs().concurrency_limit == run_places()
    with_client(lambda client: client.update_work_queue(queue.id, concurrency_limit=run_places() + 1))
    before = with_client(lambda client: client.read_work_pool("cpu"))
    asyncio.run(register("cpu"))
    assert queue_of_runs().concurrency_limit == run_places() + 1
    assert with_client(lambda client: client.read_work_pool("cpu")).base_job_template == before.base_job_template


def test_a_pool_that_a_worker_made_gets_our_template_from_the_container(first: dict[str, str]) -> None:
    """That of a worker lets whoever starts a run choose its command."""
    name, of_a_worker = "of-a-container", ProcessWorker.get_default_base_job_template()
    assert "command" in of_a_worker["variables"]["properties"]
    made = WorkPoolCreate(name=name, type="process", base_job_template=of_a_worker)
    with_client(lambda client: client.create_work_pool(made))
    asyncio.run(register(name))
    template = with_client(lambda client: client.read_work_pool(name)).base_job_template
    assert template == local_pool(name)["base_job_template"]
    assert "command" not in template["variables"]["properties"]
    with_client(lambda client: client.delete_work_pool(name))
    asyncio.run(register(name))
    assert with_client(lambda client: client.read_work_pool(name)).base_job_template == template
    with_client(lambda client: client.delete_work_pool(name))


def test_a_pool_of_an_earlier_release_gets_new_defaults_and_keeps_what_a_person_has_set() -> None:
    """A pool that was there kept the template of its release: no limit for stages that hang ever came to it."""
    ours = local_pool("gpu-local")["base_job_template"]
    assert renewed_template(ours, ours) is None
    before = deepcopy(ours)
    variables = before["variables"]["properties"]
    before["limbeck"]["defaults"] = {**before["limbeck"]["defaults"], "env": {"OLD": "1"}}
    variables["env"]["default"], variables["name"]["default"] = {"OLD": "1"}, "of a person"
    after = renewed_template(ours, before)
    assert after is not None
    assert defaults_in(after) == {**defaults_in(ours), "name": "of a person"}
    assert renewed_template(ours, after) is None, "once"


def test_the_hardware_that_a_person_has_set_stays_and_that_of_this_machine_is_renewed() -> None:
    """A pool for workers of another machine got the servers' own hardware at the next start, and they no more work."""
    ours = local_pool("gpu-local")["base_job_template"]

    def named(device: str, template: Mapping[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = deepcopy(dict(template))
        changed["variables"]["properties"]["device"]["default"] = device
        return changed

    of_a_person = named("cuda-l4", ours)
    assert renewed_template(ours, of_a_person) is None
    assert device_of(settled(ours, of_a_person, {})) == "cuda-l4"
    older = named("cuda-old", ours)
    older["limbeck"]["device"] = "cuda-old"
    after = renewed_template(ours, older)
    assert after is not None and device_of(after) == after["limbeck"]["device"] == device_class()
    of_an_earlier_release = {**of_a_person, "limbeck": {"defaults": ours["limbeck"]["defaults"]}}
    kept = renewed_template(ours, of_an_earlier_release)
    assert kept is not None and device_of(kept) == "cuda-l4"


@pytest.mark.parametrize(
    ("cores", "gib", "places"),
    [(4, 64, 8), (4, 8, 2), (1, 1, 1)],
    ids=["two a core", "as many as fit into memory", "never none"],
)
def test_a_machine_has_places_for_as_many_runs_as_it_has_cores_and_memory_for(
    monkeypatch: pytest.MonkeyPatch, cores: int, gib: int, places: int
) -> None:
    monkeypatch.setattr("flows.deploy.pools.available_cores", lambda: cores)
    monkeypatch.setattr("flows.deploy.pools.total_memory", lambda: gib * 2**30)
    assert run_places() == places


@pytest.mark.slow
def test_prefect_deploy_takes_the_same_file(server: dict[str, str], first: dict[str, str]) -> None:
    set_up()
    before = {one["id"]: one["parameter_openapi_schema"] for one in ask("/deployments/filter")}
    command = [
        sys.executable,
        "-P",
        "-m",
        "prefect",
        "--no-prompt",
        "deploy",
        "--all",
        "--prefect-file",
        "deployments/prefect.yaml",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **server, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(before) == {one["id"] for one in ask("/deployments/filter")}
    changes = set_up()
    forms = {"updated (parameter_openapi_schema)"}
    assert set(changes.values()) - forms == {"unchanged"}, (
        "it writes forms without names for people, and nothing else differs"
    )
    assert {name.split()[0] for name, done in changes.items() if done in forms} == {"deployment"}
    assert set(set_up().values()) == {"unchanged"}
    after = {one["id"]: one["parameter_openapi_schema"] for one in ask("/deployments/filter")}
    assert after == before
