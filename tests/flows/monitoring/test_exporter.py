"""Metrics that Prometheus reads: what a real Prefect and a real MLflow say of finished runs, and a page that neither a
stranger nor a dead server can spoil."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import httpx
import pytest
from prefect import flow, task
from prefect.states import Completed
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from flows.branches.subflow import BRANCH
from flows.branches.sweep import STRATEGY
from flows.monitoring import costs, machine, server_api, servers, work
from flows.monitoring.costs import LedgerSums
from flows.monitoring.exporter import COLLECTION_SECONDS, METRICS_PASSWORD, Limbeck, Page, main, parts
from flows.monitoring.server_api import Api
from flows.monitoring.work import WITH_STAGES, Ended, queue_metrics, worker_metrics
from flows.servers.access import Access

SMI = """0, NVIDIA A10G, 87, 20480, 23028, 212.50, 61
1, NVIDIA H200 MIG 1g.18gb, [N/A], 512, 18432, [N/A], 40
"""


def samples(metrics: Any) -> dict[tuple[str, ...], float]:
    """Return the figures of some metrics by their names and labels."""
    return {(sample.name, *sample.labels.values()): sample.value for metric in metrics for sample in metric.samples}


def test_every_flow_whose_tasks_are_stages_is_counted() -> None:
    """Runs of a form were not: its flow has another name than that of a file."""
    sources = (Path(__file__).resolve().parents[3] / "flows").glob("*.py")
    named = {name for path in sources for name in re.findall(r'@flow\(name="([\w-]+)"', path.read_text())}
    without = {"promote", "rollback", "delete", "janitor", "resubmit"}
    assert without < named and {BRANCH, STRATEGY} | named - without == set(WITH_STAGES)


@task(name="prepare-rows", task_run_name="prepare-rows/{label}")
def stage_task(label: str, hit: bool) -> Any:
    return Completed(name="Cached") if hit else label


@flow(name="janitor", flow_run_name="any-name")
def upkeep() -> None:
    """A flow within a flow has a task run there, with its own name; it is no stage."""


@flow(name="counted")
def recipe_flow() -> None:
    stage_task("first", hit=False)
    stage_task("second", hit=True)
    stage_task("third", hit=True)
    upkeep()


@flow(name="counted-stage")
def remote_stage() -> None:
    stage_task("elsewhere", hit=False)


@pytest.fixture
def api(prefect_server: None) -> Api:
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

    login = PREFECT_API_AUTH_STRING.value()
    return Api(str(PREFECT_API_URL.value()), str(login) if login else "")


def eventually(read: Any, wanted: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while (found := read()) != wanted and time.monotonic() < until:
        time.sleep(0.5)
    assert found == wanted


def test_hits_and_misses_are_counted_once_and_a_remote_stage_where_it_was_requested(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "prefect_of_environment", lambda: api)
    monkeypatch.setattr(work, "WITH_STAGES", ["counted"])  # other tests' runs end on this server, too
    counts = Ended()
    recipe_flow()
    remote_stage()

    def stages() -> dict[tuple[str, ...], float]:
        return {key: value for key, value in samples(counts.metrics()).items() if key[0] == "limbeck_stages_total"}

    first: list[float] = []
    eventually(lambda: bool(first.extend(stages().values()) or first), True)
    assert set(first) == {0.0}, "Prometheus takes the first figure for the beginning"
    eventually(
        stages,
        {
            ("limbeck_stages_total", "prepare-rows", "miss", "completed"): 1.0,
            ("limbeck_stages_total", "prepare-rows", "hit", "completed"): 2.0,
        },
    )
    assert stages() == stages(), "a second look counts nothing again"
    runs = samples(counts.metrics())
    assert runs["limbeck_flow_runs_total", "counted", "completed"] == 1.0
    assert runs["limbeck_flow_runs_total", "counted-stage", "completed"] == 1.0


def test_a_queue_counts_runs_that_are_due_and_not_those_of_tomorrow(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "prefect_of_environment", lambda: api)
    name = f"watched-{time.time_ns()}"
    api.ask("work_pools/", {"name": name, "type": "process", "concurrency_limit": 3})
    flow_id = api.ask("flows/", {"name": "compress"})["id"]
    deployment = api.ask("deployments/", {"name": name, "flow_id": flow_id, "work_pool_name": name})["id"]
    for when in ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", "2099-01-01T00:00:00Z"):
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": when}}
        api.ask(f"deployments/{deployment}/create_flow_run", {"state": state})
    found = {key[0]: value for key, value in samples(queue_metrics()).items() if key[1] == name}
    assert found["limbeck_queue_length"] == 2 and found["limbeck_queue_running"] == 0
    assert found["limbeck_queue_limit"] == 3
    years = (time.time() - 1577836800) / 86400 / 365
    assert found["limbeck_queue_oldest_seconds"] / 86400 / 365 == pytest.approx(years, rel=1e-3)
    assert samples(worker_metrics())["limbeck_workers", name] == 0, "a pool without workers has a figure, too"


@pytest.mark.parametrize(("busy", "status"), [(2, 503), (99, 503), (1, 500)])
def test_a_server_that_is_busy_for_a_moment_is_asked_again(
    busy: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_api, "BUSY_PAUSE", 0.01)
    asked: list[bytes] = []

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status if len(asked) <= busy else 200)
            self.end_headers()
            self.wfile.write(b'{"id": 7}')

        def log_message(self, *arguments: Any) -> None:
            """Nothing is printed."""

    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = Api(f"http://127.0.0.1:{server.server_port}", seconds=0.3)
        if (busy, status) == (2, 503):
            assert api.ask("flows/", {"name": "one"}) == {"id": 7}
            assert asked == [b'{"name": "one"}'] * 3, "each request is whole"
        else:
            with pytest.raises(HTTPError, match=str(status)):
                api.ask("flows/", {"name": "one"})
            assert len(asked) > 3 if status == 503 else len(asked) == 1, (
                "only a busy server is asked again, and not for ever"
            )
        server.shutdown()


def test_the_ledgers_of_finished_runs_are_added_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = int(time.time() * 1000)
    ended = [
        {"info": {"run_id": "1"}, "data": {"metrics": [{"key": "dollars", "value": 2.5}, {"key": "kwh", "value": 1}]}},
        {"info": {"run_id": "2"}, "data": {"metrics": [{"key": "saved_dollars", "value": 4}]}},
        {"info": {"run_id": "3"}, "data": {"metrics": [{"key": "accuracy", "value": 1}]}},
    ]
    asked: list[int] = []
    monkeypatch.setattr(costs, "mlflow_of_environment", lambda seconds: Api("http://unused"))
    monkeypatch.setattr(costs, "ended_runs", lambda mlflow, since: asked.append(since) or ended)
    counts = LedgerSums()
    for _ in range(4):
        counts.last_read = -costs.COST_LOOK_SECONDS
        found = samples(counts.metrics())
        assert counts.reading is not None
        counts.reading.result()
    assert len(asked) == 4 and min(asked) >= began, "what ended before the exporter began is not counted"
    assert found["limbeck_cost_dollars_total", "computed"] == 2.5
    assert found["limbeck_cost_dollars_total", "saved-by-cache"] == 4
    assert found["limbeck_cost_energy_kwh_total", "computed"] == 1
    monkeypatch.setattr(costs, "ended_runs", lambda mlflow, since: ended[0]["nothing"])
    counts.last_read = -costs.COST_LOOK_SECONDS
    samples(counts.metrics())
    assert counts.reading is not None and isinstance(counts.reading.exception(), KeyError)
    with pytest.raises(KeyError):
        samples(counts.metrics())


def test_figures_that_a_gpu_does_not_know_are_left_out() -> None:
    found = samples(machine.read_gpus(SMI))
    assert found["limbeck_gpu_utilization_ratio", "0", "NVIDIA A10G"] == pytest.approx(0.87)
    assert found["limbeck_gpu_memory_used_bytes", "1", "NVIDIA H200 MIG 1g.18gb"] == 512 * 2**20
    assert ("limbeck_gpu_utilization_ratio", "1", "NVIDIA H200 MIG 1g.18gb") not in found
    assert ("limbeck_gpu_power_watts", "1", "NVIDIA H200 MIG 1g.18gb") not in found


def test_the_disk_of_a_folder_that_is_not_there_yet_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/not/yet"
    monkeypatch.setenv(machine.MEASURED_FOLDERS, f"{path}:{tmp_path}")
    found = samples(machine.disk_metrics())
    assert list(found) == [("limbeck_disk_free_bytes", path), ("limbeck_disk_size_bytes", path)]
    assert 0 < found["limbeck_disk_free_bytes", path] < found["limbeck_disk_size_bytes", path]


def test_a_part_that_hangs_or_fails_takes_no_other_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    released = threading.Event()

    def hanging() -> Iterator[Metric]:
        released.wait()
        yield GaugeMetricFamily("limbeck_late", "Late.", 1)

    def failing() -> Iterator[Metric]:
        raise ConnectionRefusedError("nobody is there")
        yield

    def one(server: str) -> Any:
        metric = GaugeMetricFamily("limbeck_server_up", "Up.", labels=["server"])
        metric.add_metric([server], 1)
        return lambda: [metric]

    collector = Limbeck({"hang": hanging, "fail": failing, "a": one("a"), "b": one("b")}, patience=0.2)
    found = samples(collector.collect())
    assert found["limbeck_server_up", "a"] == found["limbeck_server_up", "b"] == 1
    works = {key[1]: value for key, value in found.items() if key[0] == "limbeck_exporter_part_up"}
    assert works == {"hang": 0, "fail": 0, "a": 1, "b": 1}
    assert "nobody is there" in capfd.readouterr().err
    released.set()
    assert samples(collector.collect())["limbeck_late",] == 1, "the answer that was late is in the next collection"


def test_a_server_that_accepts_and_is_silent_is_down_in_every_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was down in each second collection alone, so its alarm, which waits for two minutes, never rang."""
    assert len(("health", "ready")) * servers.READY_SECONDS < COLLECTION_SECONDS, "each path may take that long"
    monkeypatch.setattr(servers, "READY_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("PREFECT_API_URL", f"http://{address}/api")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{address}")
        named = ("prefect", "mlflow")
        collector = Limbeck({name: part for name, part in parts().items() if name in named})
        for _ in range(3):
            found = samples(collector.collect())
            assert [found["limbeck_server_up", name] for name in named] == [0, 0]
            assert [found["limbeck_exporter_part_up", name] for name in named] == [1, 1]


def test_the_page_needs_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access("http://127.0.0.1:9464", "secret")
    page = Page(Limbeck({"a": lambda: [GaugeMetricFamily("limbeck_a", "A.", 1)]}), access)

    async def ask(path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(page), base_url=access.url) as client:
            return await client.get(path, **more)

    refused = [asyncio.run(ask("/metrics")), asyncio.run(ask("/metrics", auth=("limbeck", "wrong")))]
    assert [answer.status_code for answer in refused] == [401, 401]
    assert "limbeck_a" not in "".join(answer.text for answer in refused)
    assert asyncio.run(ask("/health")).text == "OK\n", "a supervisor of containers knows no password"
    assert asyncio.run(ask("/", auth=("limbeck", "secret"))).status_code == 404
    answer = asyncio.run(ask("/metrics", auth=("limbeck", "secret")))
    assert answer.status_code == 200
    families = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"limbeck_a", "limbeck_exporter_part_up"} <= families


def test_it_serves_nothing_without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(METRICS_PASSWORD, raising=False)
    monkeypatch.setattr("sys.argv", ["exporter"])
    with pytest.raises(SystemExit, match=METRICS_PASSWORD):
        main()
