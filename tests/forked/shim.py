"""A ``python`` that starts in milliseconds: it asks the warm process (``warm.py``) for a fork that does what ``python
-m MODULE`` would do, passes signals on, and ends as the fork ends. Whatever else it is asked, it becomes the real one.

It runs with ``-I -S``, so it imports nothing but the standard library.
"""

import json
import os
import resource
import signal
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = ("flows", "tasks", "deployments", "tests")
PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
READ_AT_IMPORT = ("HF_", "TRANSFORMERS_", "CUDA_", "PYTHON", "PREFECT_PLUGINS", "MLFLOW_DISABLE_TELEMETRY", "OMP_")
"""Beginnings of variables that libraries read once: with others than the warm process had, a real Python starts."""
ALLOWED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONIOENCODING")


def main() -> None:
    """Ask for a fork, or become the real Python."""
    with open(os.path.join(HERE, "warm.json")) as file:
        known = json.load(file)
    words = sys.argv[1:]
    order = order_of(words, known)
    wire = connected(known["socket"]) if order else None
    if order is None or wire is None:
        os.execv(known["python"], [known["python"], *words])
    handles = [number for number in open_handles() if number != wire.fileno()]
    letter = json.dumps(order | {"handles": handles}).encode()
    for number in [getattr(signal, name) for name in PASSED_ON]:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: wire.send(bytes([number])))
    socket.send_fds(wire, [struct.pack("!I", len(letter))], handles)
    wire.sendall(letter)
    os.closerange(0, wire.fileno())
    os.closerange(wire.fileno() + 1, max([*handles, wire.fileno()]) + 1)
    end_as(wire.recv(4))


def order_of(words: list[str], known: dict) -> dict | None:
    """Return what a fork has to know; None where only a real Python does the same."""
    options, rest = [], list(words)
    while rest and rest[0] in ("-P", "-u"):
        options.append(rest.pop(0))
    if len(rest) < 2 or rest[0] != "-m" or rest[1].split(".")[0] not in known["packages"]:
        return None
    if rest[1].startswith("flows.servers"):  # a server sets variables before it imports what reads them
        return None
    if any(os.isatty(number) for number in (0, 1, 2)):
        return None
    read = {
        name: value for name, value in os.environ.items() if name.startswith(READ_AT_IMPORT) and name not in ALLOWED
    }
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if read.items() - known["environment"].items():
        return None
    if [path for path in paths if path not in known["paths"] and os.path.basename(path) != known["sources"]]:
        return None
    working = os.getcwd()
    if "-P" not in options and not os.environ.get("PYTHONSAFEPATH"):
        shadows = [name for name in os.listdir(working) if name.endswith(".py") or name in OURS]
        if working not in known["paths"] and shadows:
            return None
        paths = [working, *paths]
    mask = os.umask(0)
    os.umask(mask)
    return {
        "module": rest[1],
        "words": rest[2:],
        "paths": paths,
        "folder": working,
        "environment": dict(os.environ),
        "mask": mask,
        "nice": os.nice(0),
        "cores": sorted(os.sched_getaffinity(0)),
        "ignored": [name for name in PASSED_ON if signal.getsignal(getattr(signal, name)) == signal.SIG_IGN],
        "unbuffered": "-u" in options or bool(os.environ.get("PYTHONUNBUFFERED")),
    }


def open_handles() -> list[int]:
    """Return the numbers of all files that this process has inherited."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:  # the listing's own
            continue
    return sorted(found)


def connected(address: str) -> socket.socket | None:
    """Return a connection to the warm process; None where it has ended."""
    wire = socket.socket(socket.AF_UNIX)
    try:
        wire.connect(address)
    except OSError:
        return None
    return wire


def end_as(answer: bytes) -> None:
    """End with the status of the fork, or by its signal; without an answer the warm process has died."""
    status = struct.unpack("!i", answer)[0] if len(answer) == 4 else -signal.SIGKILL
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
