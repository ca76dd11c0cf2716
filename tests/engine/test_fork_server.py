"""A run's engines forked from one process: real ones, ended in every way that an engine can end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import warm_engines
from tasks.catalog import TaskSpec
from tasks.engine import environment as engine_environment
from tasks.engine import fork_server
from tasks.engine.environment import environment
from tasks.engine.fork_server import ForkServer, Lent
from tasks.engine.process import run_engine
from tasks.errors import EngineError, Interrupted, OutOfMemory, RecipeError, RegistryError
from tasks.ports.tracking.packer import Packer
from tasks.stage.session import Session, StageRecord

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="engines are forked on Linux only")

ROOT = Path(__file__).resolve().parents[2]
LOADED = """
    import os, pathlib
    with pathlib.Path(__file__).parents[1].joinpath("loaded").open("a") as report:
        report.write(f"{os.getpid()}\\n")
"""
MAIN = """
    import os, sys, time
    from tasks.engine.job import serve
    import working.jobs

    def tell(job):
        return {"pid": os.getpid(), "session": os.getsid(0), "folder": os.getcwd(), "threads": os.environ["OMP_NUM_THREADS"], "stdin": sys.stdin.read(), "parent": os.getppid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}

    def fail(job):
        raise ValueError("on purpose")

    def vanish(job):
        print("gone without a word", file=sys.stderr)
        os._exit(3)

    def wait(job):
        job.log(str(os.getpid()))
        time.sleep(600)

    sys.exit(serve({"tell": tell, "fail": fail, "vanish": vanish, "wait": wait}, sys.argv[1]))
"""  # noqa: E501
Do = Callable[..., Any]
TASK = TaskSpec(name="mine")


@pytest.fixture
def do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Do:
    """Return what runs an order of a small engine on a server, in a folder of its own."""
    (tmp_path / "working").mkdir()
    for name, text in (("__init__", ""), ("jobs", LOADED), ("__main__", MAIN)):
        (tmp_path / "working" / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.setattr(engine_environment, "module_path", lambda: f"{ROOT}{os.pathsep}{tmp_path}")

    def run(
        server: ForkServer,
        job: str,
        listen: Any = lambda event: None,
        *,
        threads: int = 1,
        name: str = "",
        device: str = "cpu",
    ) -> Any:
        folder = tmp_path / (name or job)
        folder.mkdir(exist_ok=True)
        return run_engine(
            "working",
            {"job": job, "output": str(folder / "output"), "threads": threads, "device": device},
            folder,
            listen,
            server,
        )

    return run


@contextlib.contextmanager
def serving() -> Iterator[ForkServer]:
    """Give a server to a running loop, and end it."""
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


def test_engines_differ_in_all_but_what_is_loaded(do: Do, tmp_path: Path) -> None:
    async def both() -> list[dict[str, Any]]:
        with serving() as server:
            return await asyncio.gather(
                do(server, "tell", threads=2, name="one"), do(server, "tell", threads=3, name="other")
            )

    one, other = asyncio.run(both())
    assert one["pid"] != other["pid"] and (one["session"], other["session"]) == (one["pid"], other["pid"])
    assert (one["folder"], other["folder"]) == (str(tmp_path / "one"), str(tmp_path / "other"))
    assert (one["threads"], other["threads"]) == ("2", "3") and one["stdin"] == ""
    assert len((tmp_path / "loaded").read_text().splitlines()) == 1, "what both need was loaded once"


def test_an_engine_that_fails_is_told_like_any_other(do: Do) -> None:
    async def run() -> None:
        with serving() as server:
            with pytest.raises(EngineError, match="ValueError: on purpose"):
                await do(server, "fail")
            with pytest.raises(EngineError, match="stopped with status 3: gone without a word"):
                await do(server, "vanish")
            assert (await do(server, "tell"))["threads"] == "1"

    asyncio.run(run())


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGKILL, OutOfMemory), (signal.SIGTERM, Interrupted)])
def test_an_engine_that_a_signal_ends(do: Do, number: int, kind: type[Exception]) -> None:
    async def run() -> None:
        with serving() as server, pytest.raises(kind):
            await do(
                server,
                "wait",
                lambda event: os.kill(int(event["message"]), number) if event["event"] == "log" else None,
            )

    asyncio.run(run())


def test_a_cancelled_engine_is_stopped(do: Do) -> None:
    async def run() -> int:
        said: list[dict[str, Any]] = []
        with serving() as server:
            task = asyncio.ensure_future(do(server, "wait", said.append))
            while not said:
                await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return int(said[0]["message"])

    assert not alive(asyncio.run(run()))


def test_a_server_that_was_killed_takes_its_engines_along_and_is_started_again(do: Do, tmp_path: Path) -> None:
    async def run() -> int:
        said: list[dict[str, Any]] = []
        with serving() as server:

            def listen(event: dict[str, Any]) -> None:
                said.append(event)
                assert server.process is not None
                server.process.kill()

            with pytest.raises(OutOfMemory, match="lower batch_size"):
                await do(server, "wait", listen)
            assert (await do(server, "tell"))["threads"] == "1"
        return int(said[0]["message"])

    gone(asyncio.run(run()))
    assert len((tmp_path / "loaded").read_text().splitlines()) == 2


def test_no_engine_outlives_the_process_that_ran_it(do: Do, tmp_path: Path) -> None:
    (tmp_path / "wait").mkdir()
    order = {"job": "wait", "output": str(tmp_path / "wait" / "output"), "threads": 1}
    program = f"""
import asyncio
from pathlib import Path
from tasks.engine import environment as engine_environment
from tasks.engine.process import run_engine
from tasks.engine.fork_server import ForkServer

engine_environment.module_path = lambda: {f"{ROOT}{os.pathsep}{tmp_path}"!r}

async def run():
    await run_engine("working", {order!r}, Path({str(tmp_path / "wait")!r}), lambda event: print(event["message"], flush=True), ForkServer())

asyncio.run(run())
"""  # noqa: E501
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        engine = int(process.stdout.readline())
        assert alive(engine)
        process.kill()
    gone(engine)


def test_a_server_whose_run_vanished_without_reading_the_last_answers_ends_without_a_word(tmp_path: Path) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-P", "-m", "tasks.engine.fork_server", str(its.fileno())]
    server = subprocess.Popen(words, cwd=ROOT, pass_fds=[its.fileno()], stderr=subprocess.PIPE)
    its.close()
    order = {"number": 1, "module": "no_such_module", "folder": str(tmp_path), "environment": {}}
    with open(os.devnull, "rb+") as nothing:
        socket.send_fds(ours, [json.dumps(order).encode()], [nothing.fileno()] * 3)
        assert select.select([ours], [], [], 60)[0], "the engine's end is answered"
    ours.close()
    assert server.communicate(timeout=60) == (None, b"") and server.returncode == 0


def test_what_is_loaded_ahead_is_not_loaded_again(do: Do, tmp_path: Path) -> None:
    """The process starts before there is a loop, as a run's does while the run is planned."""
    with serving() as server:
        server.warm("working", environment(1))
        end = time.monotonic() + 60
        while not (tmp_path / "loaded").exists():
            assert time.monotonic() < end, "nothing was loaded ahead"
            time.sleep(0.05)
        said = asyncio.run(do(server, "tell"))
        assert said["threads"] == "1"
    assert len((tmp_path / "loaded").read_text().splitlines()) == 1


def test_a_server_that_is_not_needed_after_all_is_ended() -> None:
    with serving() as server:
        server.warm("working", environment(1))
        assert server.process is not None
        pid = server.process.pid
    assert not alive(pid)


def test_a_server_that_died_while_it_was_not_needed_yet_is_started_again(do: Do) -> None:
    with serving() as server:
        server.warm("working", environment(1))
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        assert asyncio.run(do(server, "tell"))["threads"] == "1"


def test_who_waits_for_an_engine_of_a_server_that_is_closed_learns_of_its_end(do: Do) -> None:
    async def run() -> None:
        said: list[dict[str, Any]] = []
        with serving() as server, pytest.raises(OutOfMemory):
            task = asyncio.ensure_future(do(server, "wait", said.append))
            while not said:
                await asyncio.sleep(0.05)
            server.close()
            await task

    asyncio.run(run())


def test_files_named_like_libraries_where_the_user_stands_are_left_alone(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "torch", "select"):
        (here / f"{name}.py").write_text(f"raise SystemExit('the {name} of the user')\n")
    monkeypatch.chdir(here)

    async def run() -> dict[str, Any]:
        with serving() as server:
            return dict(await do(server, "tell"))

    assert asyncio.run(run())["threads"] == "1"


def test_engines_and_the_packer_are_forked_from_one_thread(tiny_bert: Path, tmp_path: Path) -> None:
    """A fork takes along one thread only: a lock that another one holds would never be given back. The packer works
    beside the loop, in a thread; what it does not understand it says, and it ends when there is nothing more to
    pack."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    AutoModelForSequenceClassification.from_pretrained(tiny_bert).save_pretrained(tmp_path / "checkpoint")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "checkpoint")

    async def run() -> tuple[int, str]:
        order = {"job": "no such", "output": str(tmp_path / "output"), "threads": 2}
        with serving() as server:
            for module in ("tasks.training", "tasks.scoring", "tasks.exports"):
                with pytest.raises(RecipeError, match="unknown job 'no such'; choose one of"):
                    await run_engine(module, order, tmp_path, lambda event: None, server)
            threads, loaded = threads_and_libraries(server)
            assert threads == 1 and "libtorch_cpu" in loaded and "libarrow" in loaded
            with Packer(tmp_path / "work", server.lend) as packer:
                with pytest.raises(RegistryError, match="^nothing could not be written as an MLflow model: "):
                    await asyncio.to_thread(packer.pack, tmp_path / "nothing", "nothing", card="", task=TASK)
                package = await asyncio.to_thread(
                    packer.pack, tmp_path / "checkpoint", "model", card="# card", task=TASK
                )
                assert isinstance(packer.process, Lent)
                assert "RuntimeWarning" not in packer.errors.read_text(), (
                    "what is loaded ahead is not the packer itself"
                )
                assert threads_and_libraries(server)[0] == 1
            return await asyncio.to_thread(packer.process.wait), (package / "README.md").read_text()

    assert asyncio.run(run()) == (0, "# card")


def test_a_forked_packer_that_is_killed_is_told(do: Do, tmp_path: Path) -> None:
    async def run() -> None:
        with serving() as server:
            await do(server, "tell")
            with Packer(tmp_path / "work", server.lend) as packer:
                packer.process = await asyncio.to_thread(packer.start)
                packer.process.kill()
                with pytest.raises(
                    RegistryError,
                    match="model could not be written as an MLflow model: the packer stopped with status -9",
                ):
                    await asyncio.to_thread(packer.pack, tmp_path / "model", "model", card="", task=TASK)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("found", "elsewhere", "wanted"),
    [(["hit", "miss"], False, True), (["hit", "hit"], False, False), (["miss"], True, False)],
)
def test_torch_is_loaded_ahead_where_a_plan_has_something_to_make_here(
    monkeypatch: pytest.MonkeyPatch, found: list[str], elsewhere: bool, wanted: bool
) -> None:
    monkeypatch.setattr(fork_server, "GPUS", ())
    plan = Session(None, 1, dispatcher=object() if elsewhere else None)
    plan.records += [StageRecord("stage", "", "", "", {}, number=at, cache=cache) for at, cache in enumerate(found)]
    with warm_engines(plan) as engines:
        pid = engines.process.pid if engines is not None and engines.process is not None else None
        assert (pid is not None) is wanted
    assert pid is None or not alive(pid)


def test_where_a_gpu_is_engines_of_the_cpu_are_forked_and_see_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, do: Do
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(fork_server, "GPUS", (str(tmp_path / "nvidiactl"),))
    found = []
    for name in ("without", "with"):
        server = fork_server.new_fork_server()
        assert server is not None

        async def run(server: ForkServer = server, name: str = name) -> None:
            for device in ("cpu", "cuda"):
                told = await do(server, "tell", device=device, name=f"{name}-{device}")
                forked = server.process is not None and told["parent"] == server.process.pid
                found.append((name, device, forked, told["gpus"]))
            server.close()

        asyncio.run(run())
        (tmp_path / "nvidiactl").touch()
    assert found == [
        ("without", "cpu", True, "0,1"),
        ("without", "cuda", True, "0,1"),
        ("with", "cpu", True, ""),
        ("with", "cuda", False, "0,1"),
    ]


def threads_and_libraries(server: ForkServer) -> tuple[int, str]:
    """Return how many threads a server has, and the names of the files that it has mapped."""
    assert server.process is not None
    place = Path("/proc") / str(server.process.pid)
    return len(list((place / "task").iterdir())), (place / "maps").read_text()


def alive(pid: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone(pid: int) -> None:
    """Wait until a process has ended."""
    end = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < end, "the engine works on for nobody"
        time.sleep(0.05)
