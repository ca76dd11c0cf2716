"""The whole stack with real processes: up, used, broken in every way that the runbook names, saved, restored, down.
Slow: minutes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.stack import probes, supervision
from flows.stack.credentials import PERSON
from flows.stack.launch import marked
from flows.stack.programs import SOFTWARE
from flows.stack.services import mark_of
from flows.stack.setup.folders import give_to_user
from tests.attacks import NAME, RULES, attack, website
from tests.browser import CHROMIUM, DRIVER, WHY_NOT, browser
from tests.flows.stack.running import MOVABLE, Running, eventually, first_words, taken_by_a_program, worker_user
from tests.flows.test_compress import FAST, recipe_for

MISSING = [software.name for software in SOFTWARE.values() if software.missing]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        bool(MISSING), reason=f"NO STACK HERE: {', '.join(MISSING)} not installed; limbeck doctor says how"
    ),
]
STEPS, SECONDS = 12, 1.0


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    stack = Running()
    try:
        stack.up()
        stack.deploy_steps()
        yield stack
    finally:
        stack.remove()


def test_up_again_changes_nothing(running: Running) -> None:
    before = {name: running.pid(name) for name in supervision.states(running.stack)}
    secrets, settings = running.stack.secrets_file.read_bytes(), running.stack.file.read_bytes()
    said = running.up()
    assert {name: running.pid(name) for name in before} == before
    assert (running.stack.secrets_file.read_bytes(), running.stack.file.read_bytes()) == (secrets, settings)
    assert running.stack.prefect_url in said and 'eval "$(limbeck env)"' in said
    assert not any(value in said for value in running.secret.values()), "passwords are shown to who asks for them"


def test_the_doctor_finds_it_well(running: Running) -> None:
    done = running.limbeck("doctor")
    assert done.returncode == 0 and "BAD" not in done.stdout, done.stdout
    assert "a second conditional write is refused" in done.stdout and "require one (401)" in done.stdout


def test_both_servers_turn_strangers_away(running: Running) -> None:
    stack = running.stack
    for path in ("/api/flows/filter", "/api/admin/version", "/api/work_pools/cpu", "/api/block_documents/health"):
        assert probes.status_of(stack.prefect_url + path) == 401
    for path in (
        "/api/2.0/mlflow/users/current",
        "/api/2.0/mlflow/experiments/search?max_results=1",
        "/api/2.0/mlflow-artifacts/artifacts",
    ):
        assert probes.status_of(stack.mlflow_url + path) == 401
        assert probes.status_of(stack.mlflow_url + path, "admin", "password1234") == 401
    bad_host = probes.request_for(
        f"{stack.mlflow_url}/api/2.0/mlflow/users/current", "limbeck", running.secret["LIMBECK_MLFLOW_PASSWORD"]
    )
    bad_host.add_header("Host", "evil.example")
    with pytest.raises(OSError, match="403"):
        probes.send(bad_host)


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=WHY_NOT)
def test_a_website_in_a_browser_reaches_nothing_on_any_port(running: Running, tmp_path: Path) -> None:
    with website() as (site, _), browser(tmp_path, RULES) as window:
        assert attack(window, site, running.stack.settings.ports) == []
    assert NAME not in [one["name"] for kind in ("flows", "work_pools") for one in running.ask(f"{kind}/filter", {})]
    found = probes.ask(
        f"{running.stack.mlflow_url}/api/2.0/mlflow/experiments/search?max_results=99",
        PERSON,
        running.secret["LIMBECK_MLFLOW_PASSWORD"],
    )
    assert NAME not in [one["name"] for one in found["experiments"]]


def test_prefect_is_asked_by_its_own_name_alone(running: Running) -> None:
    for name in ("prefect", *running.stack.replicas):
        for header, value in (("Host", "evil.example"), ("Origin", "http://evil.example")):
            url = f"http://127.0.0.1:{running.stack.settings.ports[name]}/api/admin/version"
            request = probes.request_for(url, PERSON, running.secret["LIMBECK_PREFECT_PASSWORD"])
            request.add_header(header, value)
            with pytest.raises(OSError, match="403"):
                probes.send(request)


def test_its_pools_take_no_command_from_a_run(running: Running) -> None:
    for pool in running.stack.settings.pools:
        template = running.ask(f"work_pools/{pool}")["base_job_template"]
        assert "command" not in template["job_configuration"] and template["variables"]["additionalProperties"] is False


def test_a_workspace_of_a_killed_worker_is_swept_when_the_worker_starts_again(running: Running) -> None:
    left = running.stack.temporary / "0" / "prefect-workspace-attempt-left"
    left.mkdir(parents=True)
    (left / "supervisor.json").write_text("a password")
    give_to_user(left, running.stack.settings.worker_user)
    killed = running.kill("worker-cpu")
    eventually(lambda: running.recovered("worker-cpu", killed) and not left.exists(), "the workspace is still there")


def test_neither_user_of_s3_opens_the_other_s_bucket(running: Running) -> None:
    from flows.stack.services import s3_environment
    from tasks.errors import StoreError
    from tasks.ports.store.bucket import Bucket

    theirs = s3_environment(running.stack, running.secret, "STORE")
    with pytest.raises(StoreError, match="access denied"):
        Bucket(running.stack.artifacts, settings=theirs, patience=5).read("anything")


def test_no_secret_can_be_seen_from_outside(running: Running) -> None:
    seen = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    assert not any(value in seen for value in running.secret.values())
    for path in (running.stack.secrets_file, running.stack.data / "redis" / "redis.conf"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for name in ("postgres", "redis", "ceph", "mlflow", "workers"):
        assert stat.S_IMODE((running.stack.data / name).stat().st_mode) & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests do not run as root")
def test_root_runs_no_server_that_needs_no_root(running: Running) -> None:
    for name in ("postgres", "redis", "ceph-mon", "ceph-osd", "radosgw", "proxy"):
        assert Path(f"/proc/{running.pid(name)}").stat().st_uid != 0, name
    if "root" not in worker_user():
        for name in ("worker-cpu", "worker-gpu-local"):
            assert Path(f"/proc/{running.pid(name)}").stat().st_uid != 0, name


@pytest.mark.parametrize("name", ["postgres", "redis", "api-1", "services", "proxy", "mlflow", "radosgw", "ceph-osd"])
def test_what_is_killed_under_a_run_comes_back_and_the_run_completes(name: str, running: Running) -> None:
    run, witness = running.start_steps(STEPS, SECONDS)
    killed = running.kill(name)
    back = eventually(lambda: running.recovered(name, killed), f"{name} did not come back")
    assert running.finished(run) == "COMPLETED"
    assert witness.read_text().split() == [str(number) for number in range(STEPS)], "no step was taken twice"
    # What a person sees on the run's page comes by Redis and the services: it may be late, and it must be all there.
    of_run = {"flow_runs": {"id": {"any_": [run]}}}
    eventually(
        lambda: [task["state_type"] for task in running.ask("task_runs/filter", of_run)] == ["COMPLETED"] * STEPS,
        "the page lacks steps",
    )
    print(f"FIGURE kill -9 {name}: ready again after {back:.1f} s; the run completed")


def test_one_api_server_of_two_is_enough(running: Running) -> None:
    run, _ = running.start_steps(STEPS, SECONDS)
    supervision.stop_process(running.stack, "api-2")
    try:
        assert running.finished(run) == "COMPLETED"
        assert probes.prefect_ready(running.stack.prefect_url)
    finally:
        supervision.start_process(running.stack, "api-2")
        eventually(running.healthy, "api-2 did not come back")


def test_a_run_whose_worker_is_killed_is_run_again_by_the_next_worker(running: Running) -> None:
    """Prefect ends a run whose worker is gone: it is crashed at once, and an automation hands it to the worker that the
    supervisor started."""
    running.resubmit_what_crashed()
    run, witness = running.start_steps(STEPS, SECONDS)
    killed, began = running.kill("worker-cpu"), time.monotonic()
    back = eventually(lambda: running.recovered("worker-cpu", killed), "the worker did not come back")
    eventually(
        lambda: running.state(run) == "COMPLETED",
        f"the run was not run again: {running.ask(f'flow_runs/{run}')['state']}",
    )
    assert running.ask(f"flow_runs/{run}")["run_count"] == 2
    assert witness.read_text().split()[-STEPS:] == [str(number) for number in range(STEPS)]
    print(
        f"FIGURE kill -9 of the worker: a new one after {back:.1f} s; the run completed after "
        f"{time.monotonic() - began:.0f} s, {STEPS} s of it its steps"
    )


def test_the_registry_that_was_restored_serves_the_same_model(
    running: Running, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_bert, tmp_path / "bert")  # the registered name has the folder's in it
    recipe = recipe_for(
        tmp_path / "bert",
        tiny_rows,
        general_distillation=None,
        corpus=None,
        augmentation=None,
        layer_dropping=None,
        students=[{"name": "half", "layers": 2, "stages": []}],
        task_distillation={"intermediate": None, "prediction": FAST},
    )
    (tmp_path / "tiny.yaml").write_text(json.dumps(recipe.model_dump(mode="json", exclude_defaults=True)))
    # By the account that workers have: what they need, it may do.
    worker = {
        **running.client(),
        "MLFLOW_TRACKING_USERNAME": "limbeck-worker",
        "MLFLOW_TRACKING_PASSWORD": running.secret["LIMBECK_MLFLOW_WORKER_PASSWORD"],
    }
    done = running.limbeck(
        "run",
        str(tmp_path / "tiny.yaml"),
        **{name: value for name, value in worker.items() if name not in ("PATH", "PWD")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert running.limbeck("pull", "tiny-bert@champion", str(tmp_path / "before")).returncode == 0
    saved = running.limbeck("backup", str(tmp_path / "saved.tar.gz"))
    assert saved.returncode == 0, saved.stderr
    again = Running()
    try:
        done = again.limbeck("restore", str(tmp_path / "saved.tar.gz"), *first_words())
        assert done.returncode == 0, done.stdout + done.stderr
        assert again.limbeck("pull", "tiny-bert@champion", str(tmp_path / "after")).returncode == 0
        assert files(tmp_path / "before") == files(tmp_path / "after")
        plan = again.limbeck("plan", str(tmp_path / "tiny.yaml"), "--json", str(tmp_path / "plan.json"))
        assert plan.returncode == 0 and {
            stage["cache"] for stage in json.loads((tmp_path / "plan.json").read_text())["stages"]
        } == {"hit"}
        assert again.ask("deployments/name/steps/faults")["name"] == "faults", "Prefect remembers its deployments"
    finally:
        again.remove()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_after_a_rotation_the_old_secrets_open_nothing_and_the_interrupted_run_goes_on(running: Running) -> None:
    run, _ = running.start_steps(STEPS, SECONDS)
    old, began = running.secret, time.monotonic()
    done = running.limbeck("rotate")
    print(f"FIGURE rotation of all secrets: {time.monotonic() - began:.0f} s, in which the servers are away")
    assert done.returncode == 0 and "every program knows them" in done.stdout, done.stdout + done.stderr
    stack, new = running.stack, running.secret
    assert not any(value in done.stdout for value in new.values())
    for url, name in ((f"{stack.prefect_url}/api/admin/version", "PREFECT"), (f"{stack.mlflow_url}/", "MLFLOW")):
        for secret, status in ((old, 401), (new, 200)):
            assert probes.status_of(url, PERSON, secret[f"LIMBECK_{name}_PASSWORD"]) == status, name
    doctor = running.limbeck("doctor")
    assert doctor.returncode == 0, doctor.stdout  # with Redis, radosgw and the workers
    eventually(lambda: running.state(run) == "COMPLETED", "the run that the rotation interrupted was not run again")


def test_down_leaves_data_and_nothing_else_and_up_goes_on_with_the_run(running: Running) -> None:
    names = list(supervision.states(running.stack))
    run, _ = running.start_steps(STEPS, SECONDS)
    done = running.limbeck("down")
    assert done.returncode == 0 and supervision.connect(running.stack) is None, done.stderr
    assert "1 interrupted run continues at the next limbeck up" in done.stdout
    assert not [pid for name in names for pid in marked(mark_of(running.stack, name))]
    assert "no servers of this home are running" in running.limbeck("down").stdout
    assert running.stack.secrets_file.exists() and (running.stack.data / "postgres" / "cluster").exists()
    before = running.stack.settings.ports
    with ExitStack() as others:
        for name in MOVABLE:
            others.enter_context(taken_by_a_program(before[name]))
        began = time.monotonic()
        running.up()
        print(f"FIGURE up of a stack that was down: {time.monotonic() - began:.0f} s")
        after = running.stack.settings.ports
        assert sorted(name for name in after if after[name] != before[name]) == MOVABLE and running.healthy()
    eventually(lambda: running.state(run) == "COMPLETED", "the run that down interrupted was not run again")
    assert running.ask(f"flow_runs/{run}")["run_count"] == 2
