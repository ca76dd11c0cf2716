"""An engine in its own process: started with fixed threads, read line by line, and never left running."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tasks.engine.environment import environment
from tasks.engine.events import EngineOrder, Event
from tasks.engine.fork_server import LINE, ORDER, Forked, ForkServer
from tasks.engine.job import die_with_parent
from tasks.errors import BY_NAME, EngineError, Interrupted, OutOfMemory

# seconds that an engine has to write its checkpoint after a request to stop; torchrun gives its processes 30 of them
ENGINE_ENDING_SECONDS = 45.0


async def run_engine(
    module: str,
    order: EngineOrder,
    folder: Path,
    listen: Callable[[Event], None],
    server: ForkServer | None = None,
) -> dict[str, object]:
    """Run ``python -m module`` on a job and return its facts; pass its events to ``listen``. With a run's fork server,
    the engine need not import torch."""
    (folder / ORDER).write_text(json.dumps(order))
    with (folder / "stderr.log").open("wb") as errors:
        process = await start(module, order, folder, errors, server)
    try:
        last = await listen_to(process, listen)
    except asyncio.CancelledError:
        await stop(process)
        raise
    return facts_of(last, process, folder, order["job"])


async def start(
    module: str, order: EngineOrder, folder: Path, errors: IO[bytes], server: ForkServer | None
) -> Process | Forked:
    """Start an engine in its folder; torchrun starts several processes that share one job."""
    processes, device = order.get("processes", 1), order.get("device", "cpu")
    own = environment(order["threads"], device)
    if gpus := order.get("gpus"):
        own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if server is not None and processes == 1 and server.serves(device):
        return await server.start(module, folder, errors, own)
    return await asyncio.create_subprocess_exec(
        *command(module, processes),
        str(folder / ORDER),
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        stdin=asyncio.subprocess.DEVNULL,
        limit=LINE,
        cwd=folder,
        env=own,
        preexec_fn=die_with_parent,
        start_new_session=True,
    )


def command(module: str, processes: int) -> list[str]:
    """Return the command line of an engine, with torchrun if several processes share its job."""
    together = (
        ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "--log-dir", "logs", "-m"]
        if processes > 1
        else []
    )
    return [sys.executable, "-m", *together, module]


async def listen_to(process: Process | Forked, listen: Callable[[Event], None]) -> Event | None:
    """Pass events to ``listen`` until the engine ends; return the last one that is no report of resources."""
    assert process.stdout is not None
    last: Event | None = None
    async for line in process.stdout:
        try:
            event: Event = json.loads(line)
        except ValueError:
            continue  # output of a library, not an event
        listen(event)
        # With several processes, a report of resources can arrive after the result.
        last = last if event.get("event") == "used" else event
    await process.wait()
    return last


def facts_of(last: Event | None, process: Process | Forked, folder: Path, job: str) -> dict[str, object]:
    """Return the facts of a finished engine, or raise the error that ended it."""
    if last is not None and last["event"] == "result" and process.returncode == 0:
        return dict(last["facts"])
    if last is not None and last["event"] == "error":
        raise BY_NAME.get(last["kind"], EngineError)(last["message"])
    if process.returncode == -signal.SIGKILL:
        raise OutOfMemory(
            f"the engine of {job!r} was killed, probably for lack of memory; lower batch_size, batch_tokens or "
            f"max_length, or run fewer branches"
        )
    if process.returncode in (-signal.SIGTERM, -signal.SIGINT):
        raise Interrupted(f"the engine of {job!r} was stopped; run the same command again to continue")
    said = (folder / "stderr.log").read_text(errors="replace").strip()
    if "Signal 9 (SIGKILL)" in said:
        raise OutOfMemory(
            f"a process of {job!r} was killed, probably for lack of memory; lower batch_size, batch_tokens or "
            f"max_length, or run fewer branches"
        )
    lines = said.splitlines()
    raise EngineError(
        f"the engine of {job!r} stopped with status {process.returncode}: {lines[-1] if lines else 'no message'}"
    )


async def stop(process: Process | Forked) -> None:
    """Ask an engine to write its checkpoint and stop; kill it if it does not stop in time."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), ENGINE_ENDING_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
