"""The warm process: it has imported what commands and engines import, and forks one for each order of a shim.

It is a program of its own, which imports nothing of the tests, and has one thread. It ends when the process ends that
began the tests; a fork is killed when its shim is.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

LIBRARIES = (
    "mlflow.transformers",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.model_registry.sqlalchemy_store",
    "prefect.flow_engine",
    "prefect.task_engine",
    "transformers.models.bert.modeling_bert",
    "transformers.pipelines",
    "flows.cli.app",
    "flows.cli.runner",
    "flows.cli.make_models",
    "flows.compress",
    "tasks.training.jobs",
    "tasks.scoring.jobs",
    "tasks.exports.jobs",
)
HIGH = 800
"""Numbers of this process's own files begin here, out of the way of those that a fork is given."""


def serve(listener: socket.socket, owner: int) -> NoReturn:
    """Fork for each connection until the owner ends."""
    ended, wakes = socket.socketpair()
    listener, ended, wakes = (above(one) for one in (listener, ended, wakes))
    for end in (ended, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    gone = fcntl.fcntl(os.pidfd_open(owner), fcntl.F_DUPFD_CLOEXEC, HIGH)
    shims: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, ended, gone, *shims.values()], [], [])
        if gone in ready:
            for pid in shims:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if ended in ready:
            ended.recv(4096)
            reap(shims)
        for pid in [pid for pid, shim in shims.items() if shim in ready]:
            pass_on(shims, pid)
        if listener in ready:
            begin(above(listener.accept()[0]), shims)


def above(one: socket.socket) -> socket.socket:
    """Return the same socket under a high number."""
    with one:
        return socket.socket(fileno=fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH))


def reap(shims: dict[int, socket.socket]) -> None:
    """Tell shims how their forks ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            with shims.pop(found[0]) as shim, contextlib.suppress(OSError):
                shim.send(struct.pack("!i", os.waitstatus_to_exitcode(found[1])))


def pass_on(shims: dict[int, socket.socket], pid: int) -> None:
    """Send a fork the signals that its shim got; the end of a shim is SIGKILL."""
    try:
        numbers = shims[pid].recv(64)
    except OSError:
        numbers = b""
    for number in numbers or [signal.SIGKILL]:
        os.kill(pid, number)
    if not numbers:
        shims[pid].shutdown(socket.SHUT_RDWR)
        os.waitpid(pid, 0)
        shims.pop(pid).close()


def begin(shim: socket.socket, shims: dict[int, socket.socket]) -> None:
    """Fork for one order."""
    first, handles, _, _ = socket.recv_fds(shim, 4, 253)
    letter = b""
    while len(first) == 4 and len(letter) < struct.unpack("!I", first)[0]:
        more = shim.recv(2**16)
        if not more:
            break
        letter += more
    if letter:
        pid = os.fork()
        if not pid:
            run(json.loads(letter), handles)
        shims[pid] = shim
    for handle in handles:
        os.close(handle)


def run(order: dict[str, Any], handles: list[int]) -> NoReturn:
    """Be the process that the shim stands for."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    handles = [fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, HIGH) for handle in handles]
    os.closerange(0, HIGH)
    for handle, number in zip(handles, order["handles"], strict=True):
        os.dup2(handle, number)
    os.closerange(HIGH, HIGH + 400)
    os.setsid()
    os.umask(order["mask"])
    os.nice(order["nice"] - os.nice(0))
    os.sched_setaffinity(0, order["cores"])
    for name in order["ignored"]:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=order["unbuffered"])  # type: ignore[union-attr]
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:] = [*order["paths"], *sys.path]
    gc.enable()
    leave(status_of(order["module"], order["words"]))


def status_of(module: str, words: list[str]) -> int:
    """Run a module as ``python -m`` does; return the exit status, the negative number of a signal."""
    try:
        refresh()
        become_main(module, words)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def refresh() -> None:
    """Take back what imports have made of the variables of the warm process."""
    import numpy
    import prefect.context

    prefect.context.refresh_global_settings_context()
    numpy.random.seed()


def become_main(module: str, words: list[str]) -> None:
    """Execute the code of a module, or of the ``__main__`` of a package, as the main module."""
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        importlib.import_module(module)
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{sys.executable}: No module named {module}")
    main = types.ModuleType("__main__")
    vars(main).update(__file__=spec.origin, __spec__=spec, __loader__=spec.loader, __package__=spec.parent)
    sys.modules["__main__"] = main
    sys.modules.pop(spec.name, None)  # it was imported as a library, and now runs
    sys.argv = [str(spec.origin), *words]
    exec(spec.loader.get_code(spec.name), vars(main))  # type: ignore[attr-defined]


def leave(status: int) -> NoReturn:
    """End as an interpreter does, but for the memory that it would give back piece by piece."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main() -> None:
    """Import, say so on stdout, and serve."""
    address, python, owner = sys.argv[1], sys.argv[2], int(sys.argv[3])
    gc.disable()  # what is imported stays
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.collect()
    gc.freeze()
    sys.executable = python
    sys.path[:] = [path for path in sys.path if path != os.environ["PYTHONPATH"]]
    assert threading.active_count() == 1, threading.enumerate()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(128)
    print("warm", flush=True)
    serve(listener, owner)


if __name__ == "__main__":
    main()
