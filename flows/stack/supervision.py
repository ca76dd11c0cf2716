"""The supervisor: one process that starts the stack's other processes and restarts those that die. It is controlled
through a socket that only its owner can open."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import xmlrpc.client
from typing import Any

from flows.stack.settings import Stack
from tasks.errors import StackError

UP = ("RUNNING", "STARTING")
SUPERVISOR_SECONDS = 30.0
TRIES = 10  # the supervisor of a busy machine may miss some requests


def connect(stack: Stack) -> Any:
    """Return the supervisor's command interface, or None if no supervisor runs."""
    from supervisor.xmlrpc import SupervisorTransport

    if not stack.supervisor_socket.exists():
        return None
    asked = xmlrpc.client.ServerProxy(
        "http://127.0.0.1", transport=SupervisorTransport(None, None, f"unix://{stack.supervisor_socket}")
    ).supervisor
    for _ in range(TRIES):
        try:
            asked.getState()
            return asked
        except (ConnectionRefusedError, FileNotFoundError):  # the socket of a killed supervisor
            return None
        except OSError:  # busy for a moment
            time.sleep(0.5)
    return None


def states(stack: Stack) -> dict[str, str]:
    """Return the state of every process; empty if no supervisor runs."""
    supervisor = connect(stack)
    return {str(one["name"]): str(one["statename"]) for one in supervisor.getAllProcessInfo()} if supervisor else {}


def settled_states(stack: Stack, seconds: float = 10.0) -> dict[str, str]:
    """Return the state of every process, after at most some seconds in which those that start come up: the supervisor
    lists a process as started only when it has run for a moment."""
    until = time.monotonic() + seconds
    while "STARTING" in (found := states(stack)).values() and time.monotonic() < until:
        time.sleep(0.5)
    return found


def start_supervisor(stack: Stack) -> Any:
    """Start the supervisor, or make a running one reload its configuration; return its command interface."""
    supervisor = connect(stack)
    if supervisor is not None:
        read_again(supervisor)
        return supervisor
    environment = os.environ | {"LIMBECK_HOME": str(stack.root.parent)}
    command = [sys.executable, "-P", "-m", "supervisor.supervisord", "-c", str(stack.run / "supervisord.conf")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SUPERVISOR_SECONDS, cwd=stack.root
    )
    until = time.monotonic() + SUPERVISOR_SECONDS
    while done.returncode == 0 and time.monotonic() < until:
        if (supervisor := connect(stack)) is not None:
            return supervisor
        time.sleep(0.1)
    raise StackError(
        f"the supervisor did not start: {(done.stderr or done.stdout).strip()[-300:]}; its log is "
        f"{stack.logs / 'supervisord.log'}"
    )


def read_again(supervisor: Any) -> None:
    """Apply changes of the configuration; processes with an unchanged section keep running."""
    [[added, changed, removed]] = supervisor.reloadConfig()
    for name in [*changed, *removed]:
        supervisor.stopProcessGroup(name)
        supervisor.removeProcessGroup(name)
    for name in [*added, *changed]:
        supervisor.addProcessGroup(name)


def start_process(stack: Stack, name: str) -> None:
    """Start a process unless it is running or about to restart."""
    supervisor = connect(stack)
    if supervisor is None:
        raise StackError(f"the supervisor of this stack stopped; its log is {stack.logs / 'supervisord.log'}")
    if supervisor.getProcessInfo(name)["statename"] not in (*UP, "BACKOFF"):
        supervisor.startProcess(name, False)


def reload(stack: Stack, name: str) -> bool:
    """Make a running process read its files again, by SIGHUP; return whether it runs."""
    supervisor = connect(stack)
    if supervisor is None or supervisor.getProcessInfo(name)["statename"] != "RUNNING":
        return False
    supervisor.signalProcess(name, "HUP")
    return True


def failed(stack: Stack, name: str) -> bool:
    """Return whether the supervisor has given up on a process."""
    return states(stack).get(name) in ("FATAL", "UNKNOWN", None)


def process_id(stack: Stack, name: str) -> int:
    """Return the id of a service's current process; 0 if there is none."""
    supervisor = connect(stack)
    return int(supervisor.getProcessInfo(name)["pid"]) if supervisor else 0


def stop_process(stack: Stack, name: str) -> None:
    """Stop a process and wait for its end; do nothing if it is not running."""
    supervisor = connect(stack)
    if supervisor is not None:
        with contextlib.suppress(xmlrpc.client.Fault):
            supervisor.stopProcess(name, True)


def stop_supervisor(stack: Stack) -> None:
    """Stop the supervisor after its processes have stopped."""
    supervisor = connect(stack)
    if supervisor is None:
        return
    supervisor.shutdown()
    until = time.monotonic() + SUPERVISOR_SECONDS
    while connect(stack) is not None and time.monotonic() < until:
        time.sleep(0.1)
