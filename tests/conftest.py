"""What every test may rely on: a home of its own, one real Prefect server for the session, and skips that are counted
aloud."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCRATCH = tempfile.mkdtemp(prefix="limbeck-tests-")
os.environ.setdefault("LIMBECK_TESTS_DATABASES", SCRATCH)  # pytest's workers use those of the process that started them
OWNER = os.getpid()
ROOT = Path(__file__).parent


def leave_nothing() -> None:
    """Use this process's home away at its end; what it forked meanwhile ends before it and still has that home."""
    if os.getpid() == OWNER:
        shutil.rmtree(SCRATCH, ignore_errors=True)


atexit.register(leave_nothing)  # before any other: it is the last to be called
os.environ |= {
    "LIMBECK_HOME": SCRATCH,
    "PREFECT_HOME": f"{SCRATCH}/prefect",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "PREFECT_LOGGING_LEVEL": "ERROR",
}
# Compiled files are kept: pytest rewrites assertions of hundreds of files, and each process imports as many of ours.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
AT_FIRST = frozenset(os.environ)
SESSION: dict[str, str] = {}
"""Environment variables of session fixtures, which outlive the module that asked for them first."""
gc.set_threshold(50_000)  # as the command line does: what a test process loads stays

import pytest  # noqa: E402 - the environment above must be set before anything is imported
from botocore.loaders import create_loader  # noqa: E402

from flows.home import Home  # noqa: E402
from flows.servers.watch import let_go  # noqa: E402
from tests import databases, postgres  # noqa: E402
from tests.command_line import Command, command_line  # noqa: E402
from tests.forked import start_fork  # noqa: E402
from tests.prefect_server import LAZY, prefect_server_of_the_session  # noqa: E402
from tests.s3_server import S3Server, kind_here  # noqa: E402
from tests.s3_server import s3_server as running_s3_server  # noqa: E402
from tests.tiny import write_sharded, write_tiny_bert, write_tiny_rows  # noqa: E402


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """Run one real Prefect server for the tests of all workers that need it; heartbeats are off, because each would
    cost a second."""
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    # As few services as Prefect's own harness for tests runs, whose server has no password.
    with prefect_server_of_the_session(PREFECT__SERVER_EPHEMERAL="1", **LAZY) as told:
        settings = {PREFECT_API_URL: told["PREFECT_API_URL"], PREFECT_API_AUTH_STRING: told["PREFECT_API_AUTH_STRING"]}
        SESSION["PREFECT_API_AUTH_STRING"] = told["PREFECT_API_AUTH_STRING"]  # for processes that a test starts
        os.environ |= SESSION
        with temporary_settings(settings | {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
            let_go()
        del os.environ["PREFECT_API_AUTH_STRING"], SESSION["PREFECT_API_AUTH_STRING"]


@pytest.fixture
def prefect_url(prefect_server: None) -> str:
    """The address of that server, for processes that a test starts."""
    from prefect.settings import PREFECT_API_URL

    return str(PREFECT_API_URL.value())


@pytest.fixture(scope="module", autouse=True)
def own_environment() -> Iterator[None]:
    """Give each module the environment that it would have alone: MLflow writes its tracking URI there.

    What a session's fixture left, which is made before this one, is taken away first.
    """
    for name in [name for name in os.environ if name.startswith("MLFLOW_") and name not in AT_FIRST]:
        del os.environ[name]
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before | SESSION)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process."""
    return command_line(monkeypatch, capsys)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 16 hidden units with a masked-LM head and a real tokenizer."""
    return write_tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def sharded_bert(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in several files."""
    return write_sharded(tiny_bert, tmp_path_factory.mktemp("sharded") / "sharded-bert")


@pytest.fixture(scope="session")
def tiny_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of sentences with string labels and no validation split."""
    return write_tiny_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def engines_here() -> Iterator[None]:
    """Let engines do their jobs in the process of the tests."""
    with engines_in_this_process():
        yield


@contextlib.contextmanager
def engines_in_this_process() -> Iterator[None]:
    """Let engines do their jobs in this process, and fork the packer: the code is theirs, only the start of a Python
    for each stage, and for the packer of each run, is spared."""
    from tasks.engine.job import Job
    from tasks.scoring.speed import matmul_libraries

    first = matmul_libraries.libraries()[:1]

    async def here(module: str, order: Mapping[str, Any], workspace: Path, listen: Any, server: Any) -> dict[str, Any]:
        job = Job(order)
        job.say = lambda event, **content: listen({"event": event, **content})
        facts: dict[str, Any] = importlib.import_module(f"{module}.jobs").JOBS[order["job"]](job)
        return facts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.stage.context.run_engine", here)
        patch.setattr("flows.cli.runner.new_fork_server", lambda: None)  # it would load torch ahead for nobody
        patch.setattr("tasks.register_model.started", start_fork)
        # Which library multiplies a tiny model faster interests no run of these tests, and would load each model
        # twice: ``scoring/speed`` tests the choice.
        patch.setattr(matmul_libraries, "libraries", lambda: first)
        yield


@pytest.fixture(scope="module", autouse=True)
def tables_of_mlflow(request: pytest.FixtureRequest) -> Iterator[None]:
    """Copy MLflow's tables into new homes in this process; ``test_migrations.py`` makes them as the product does."""
    with pytest.MonkeyPatch.context() as patch:
        if "test_migrations" not in request.module.__name__:
            patch.setattr("tasks.ports.tracking.client.create_mlflow_tables", databases.copy_mlflow_tables)
        yield


@pytest.fixture(scope="session")
def template() -> Path:
    """An MLflow database whose tables are made."""
    return databases.made_once("mlflow.db", databases.migrate_mlflow)


@pytest.fixture(scope="module")
def home(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home for the tests of one module, its MLflow database made already."""
    made = Home(tmp_path_factory.mktemp("home")).create()
    shutil.copyfile(template, made.root / "mlflow.db")
    return made


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Run one S3 server for all tests that need it: a real one where Ceph is installed."""
    with running_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def descriptions_of_aws() -> Iterator[None]:
    """Let all clients of AWS share one loader: each store has a client of its own, which would read the descriptions of
    S3 and of its endpoints, two megabytes, again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", functools.cache(create_loader))
        yield


@pytest.fixture(scope="session", autouse=True)
def operators_of_onnx() -> Iterator[None]:
    """Let all graphs of a process share one list of ONNX's operators: for each graph torch would parse the sources of
    500 of them again, for half a second."""
    with pytest.MonkeyPatch.context() as patch:
        if "torch" in sys.modules:
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Set the usual AWS settings to the S3 server of the tests."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let one of pytest's workers compile the tests, and the others read what it has compiled."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with Path(os.environ["LIMBECK_TESTS_DATABASES"], "compiled.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)  # the first has ended; all others go on at once
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that run whole chains, or several processes: begun last, they would keep one worker busy
    long after the others have ended."""
    first = ("suites", "test_interrupted", "test_sweep", "flows", "test_together")

    @functools.cache
    def place(path: Path) -> int:
        names = {path.stem, *(folder.name for folder in path.parents if folder.is_relative_to(ROOT))}
        return min((first.index(name) for name in names if name in first), default=len(first))

    items.sort(key=lambda item: place(item.path))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass by what collected tests and libraries hold: it stays until the end."""
    gc.freeze()  # without a search for garbage, which would take half a second


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say aloud how much was not tested here, and why."""
    said = {
        "radosgw": "radosgw, a real one (Ceph)",
        "moto": "moto, in memory: Ceph is not installed, or the tests do not run as root",
    }
    terminalreporter.section("S3")
    terminalreporter.write_line(f"the S3 server of these tests was {said[kind_here()]}")
    terminalreporter.section("PostgreSQL")
    terminalreporter.write_line("a real one on 127.0.0.1" if postgres.is_here() else postgres.WHY_NOT)
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("NOT TESTED HERE")
        terminalreporter.write_line(
            f"{len(skipped)} tests skipped: real data or a server was not found (reasons above)"
        )
