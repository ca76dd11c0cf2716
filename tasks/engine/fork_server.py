"""Fork server for a run's engines and its model packer: one process imports torch once and is forked for every job,
which saves starting a new Python process each time.

Importing torch and transformers takes seconds of processor time, and a stage may take less. The server computes nothing
itself and has a single thread, so that it has no state that a fork cannot inherit. In all other respects a forked
engine behaves like a started one: it has its own session, folder, output and threads, and ends with its run. Used on
Linux; where a GPU is, for engines that compute on the CPU. The server and its forks then see no GPU: a library that
looks for one at import initialises its driver, which no fork can use. Other engines are started as new processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import importlib.util
import itertools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tasks.engine.events import Letter
from tasks.engine.job import die_with_parent

ORDER = "job.json"
"""File in an engine's folder that describes its job."""
LETTER = 2**16  # longest message, in bytes: it names a module, a folder and variables
LINE = 2**24  # longest line of an event, in bytes
WITHOUT_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Settings for libraries that would start threads at import: a fork inherits one thread, but the locks of all."""
GPUS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Device files that exist where a GPU driver is installed: NVIDIA's, the same under Windows (WSL), AMD's."""


NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
"""Variables that hide all GPUs, from NVIDIA's and AMD's libraries."""


def new_fork_server() -> ForkServer | None:
    """Return a run's fork server; None where every engine is started as a new process."""
    there = any(Path(device).exists() for device in GPUS)
    return ForkServer(NO_GPUS if there else {}) if sys.platform == "linux" else None


class Forked:
    """One engine of the server, with the interface of asyncio's processes."""

    def __init__(self, server: ForkServer, number: int, stdout: asyncio.StreamReader | None) -> None:
        self.server, self.number, self.stdout = server, number, stdout
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        """Return the exit status, the negative number of a signal; None while the engine runs."""
        return self.ended.result() if self.ended.done() else None

    async def wait(self) -> int:
        """Wait until the engine ends; return its exit status."""
        return await asyncio.shield(self.ended)

    def terminate(self) -> None:
        """Ask the engine to stop."""
        self.server.tell(self.number, signal.SIGTERM)

    def kill(self) -> None:
        """End the engine at once."""
        self.server.tell(self.number, signal.SIGKILL)


class Lent:
    """A fork requested by a thread outside the event loop, with the interface of ``subprocess``'s processes."""

    def __init__(self, engine: Forked, loop: asyncio.AbstractEventLoop) -> None:
        self.engine, self.loop = engine, loop

    def kill(self) -> None:
        """End the engine at once."""
        self.engine.kill()

    def wait(self) -> int:
        """Wait until the engine ends, in a thread that is not the loop's; return its exit status."""
        return asyncio.run_coroutine_threadsafe(self.engine.wait(), self.loop).result()


class ForkServer:
    """The run's side of the server. The process is started for the first job, or earlier by ``warm``. One event loop
    uses it. ``hidden`` are the variables that hide GPUs, where there are some."""

    def __init__(self, hidden: Mapping[str, str] | None = None) -> None:
        self.hidden = dict(hidden or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.listening = False
        self.numbers, self.running = itertools.count(), dict[int, Forked]()

    def serves(self, device: str) -> bool:
        """Tell whether engines for this device, ``cpu`` or ``cuda``, may be forked."""
        return device == "cpu" or not self.hidden

    @property
    def used(self) -> bool:
        """Whether the server process exists, has imported the engines' libraries, and has forked some engines."""
        return self.process is not None and self.listening

    def warm(self, module: str, environment: Mapping[str, str]) -> None:
        """Start the process, and let it import the libraries of a module's jobs while the run still waits for other
        things; needs no event loop."""
        self.open(environment)
        self.send({"load": module})

    async def start(self, module: str, folder: Path, errors: IO[bytes], environment: Mapping[str, str]) -> Forked:
        """Start an engine that runs ``python -m module`` on the job in a folder, with the given environment."""
        reader, writer = os.pipe()
        stdout = asyncio.StreamReader(limit=LINE)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reader, "rb")
        )
        with open(os.devnull, "rb") as nothing, os.fdopen(writer, "wb") as answers:
            return self.fork(module, folder, (nothing, answers, errors), environment, stdout)

    def fork(
        self,
        module: str,
        folder: Path,
        handles: tuple[IO[Any], IO[Any], IO[Any]],
        environment: Mapping[str, str],
        stdout: asyncio.StreamReader | None = None,
    ) -> Forked:
        """Fork an engine that runs ``python -m module FOLDER/job.json``; ``handles`` are its stdin, stdout and
        stderr."""
        if self.process is not None and self.process.poll() is not None:
            self.close()  # it died before the event loop watched it
        if self.process is None:
            self.open(environment)
        if not self.listening:
            self.loop, self.listening = asyncio.get_running_loop(), True
            self.loop.add_reader(self.wire, self.hear)
        engine = Forked(self, next(self.numbers), stdout)
        order = {
            "number": engine.number,
            "module": module,
            "folder": str(folder),
            "environment": self.changed(environment),
        }
        self.running[engine.number] = engine
        try:
            socket.send_fds(self.wire, [json.dumps(order).encode()], [handle.fileno() for handle in handles])
        except OSError:
            self.close()
        return engine

    def changed(self, environment: Mapping[str, str]) -> dict[str, str | None]:
        """Return the variables that a fork must set, or remove (None), to turn the server's environment into this
        one."""
        wanted = {**environment, **self.hidden}
        names = sorted({*wanted, *self.environment})
        return {name: wanted.get(name) for name in names if wanted.get(name) != self.environment.get(name)}

    def lend(
        self, module: str, folder: Path, handles: tuple[IO[Any], IO[Any], IO[Any]], environment: Mapping[str, str]
    ) -> Lent:
        """Fork an engine for a thread outside the loop. Call it only if the server is ``used``: for one process alone
        it would save nothing."""
        loop = self.loop
        assert loop is not None

        async def fork() -> Forked:
            return self.fork(module, folder, handles, environment)

        return Lent(asyncio.run_coroutine_threadsafe(fork(), loop).result(), loop)

    def open(self, environment: Mapping[str, str]) -> None:
        """Start the process; with ``-P``, because the user's working folder may hold a file named like a library."""
        self.environment = {**environment, **WITHOUT_THREADS, **self.hidden}
        self.wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tasks.engine.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment,
            )

    def tell(self, number: int, signal_number: int) -> None:
        """Send a signal to an engine; the server knows whether the engine still exists."""
        self.send({"number": number, "signal": signal_number})

    def send(self, letter: Mapping[str, object]) -> None:
        """Send a message that has no reply."""
        with contextlib.suppress(OSError):  # the server is gone; ``hear`` will notice
            self.wire.send(json.dumps(letter).encode())

    def hear(self) -> None:
        """Receive the exit status of an engine that has ended."""
        try:
            letter = self.wire.recv(LETTER)
        except OSError:
            letter = b""
        if not letter:
            self.close()
            return
        said = json.loads(letter)
        self.running.pop(said["number"]).ended.set_result(said["status"])

    def close(self) -> None:
        """End the process, unless it has ended by itself, and mark its engines as killed, because they end with it; the
        next job starts another process."""
        if self.process is None:
            return
        for engine in self.running.values():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                engine.ended.set_result(-signal.SIGKILL)
        self.running.clear()
        if self.loop is not None and self.listening:
            self.loop.remove_reader(self.wire)
            self.listening = False
        self.wire.close()
        self.process.kill()
        self.process.wait()
        self.process = None


class Server:
    """The server process."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire, self.number_of, self.loaded = wire, dict[int, int](), set[str]()

    def serve(self) -> None:
        """Fork an engine for every job until the run closes the connection."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ended, wakes = socket.socketpair()
        for end in (ended, wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self.wire, ended], [], [])
            if ended in ready:
                ended.recv(LETTER)
                self.reap()
            if self.wire in ready:
                try:
                    letter, handles, _, _ = socket.recv_fds(self.wire, LETTER, 3)
                except ConnectionResetError:  # closed by a run that did not read the last answers
                    return
                if not letter:
                    return
                self.obey(json.loads(letter), handles)

    def obey(self, order: Letter, handles: list[int]) -> None:
        """Fork an engine, forward a signal to one, or import the libraries that the first one will need."""
        if "load" in order:
            self.load(order["load"])
            return
        if "signal" in order:
            for pid in [pid for pid, number in self.number_of.items() if number == order["number"]]:
                os.kill(pid, order["signal"])
            return
        self.load(order["module"])
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            os.write(handles[2], f"cannot start a process: {error}\n".encode())
            self.answer(order["number"], 1)
        else:
            if not pid:
                become(order, handles)
            self.number_of[pid] = order["number"]
        for handle in handles:
            os.close(handle)

    def load(self, module: str) -> None:
        """Import the libraries of a module's jobs, once; import errors are left to the engine, which tries again and
        reports them."""
        if module not in self.loaded:
            self.loaded.add(module)
            # nearly all imported objects stay alive; garbage collection would take an eighth of the import's time
            gc.disable()
            with contextlib.suppress(Exception):
                found = importlib.util.find_spec(module)
                if (
                    found is not None and found.submodule_search_locations
                ):  # a module that is no package has no jobs, and must not be imported before it is run
                    importlib.import_module(f"{module}.jobs")
            gc.collect()
            gc.freeze()  # keep the memory pages of imported libraries shared
            gc.enable()

    def reap(self) -> None:
        """Report the exit status of every engine that has ended."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self.answer(self.number_of.pop(found[0]), os.waitstatus_to_exitcode(found[1]))

    def answer(self, number: int, status: int) -> None:
        """Report the exit status of one engine."""
        with contextlib.suppress(OSError):
            self.wire.send(json.dumps({"number": number, "status": status}).encode())


def become(order: Letter, handles: list[int]) -> None:
    """Turn the fork into the engine of a job; never return."""
    status: Any = 1
    try:
        os.setsid()
        die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for there, handle in enumerate(handles):
            os.dup2(handle, there)
        os.chdir(order["folder"])
        for name in order["environment"]:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in order["environment"].items() if value is not None})
        sys.argv = [order["module"], str(Path(order["folder"]) / ORDER)]
        runpy.run_module(order["module"], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
