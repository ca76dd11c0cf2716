"""GPU slots: a computing stage takes as many slots of Prefect's global concurrency limit as it holds GPUs, so that a
pool is never overcommitted.

Slots are taken inside the stage, around the computation: a cached stage takes none. They are leased: the slots of a
dead worker are free again after ``LEASE`` seconds. Which of a machine's GPUs a stage computes on is decided here, too.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import IO

from tasks.errors import DispatchError
from tasks.ports.machine import Gpu, used_gpus

LEASE = 120.0  # seconds until the slots of a dead worker are free
MOST_ON_A_GPU = 64
"""Stages of one GPU that are counted; further ones compute on the first GPU."""


@asynccontextmanager
async def gpu_slots(limit: str, count: int) -> AsyncIterator[None]:
    """Wait for slots and hold them; without a limit, do nothing."""
    if not limit:
        yield
        return
    from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError, concurrency
    from prefect.logging import get_run_logger

    # A lease that cannot be renewed, because the server is unavailable, does not end a training: a second stage on the
    # GPU does less harm.
    held = concurrency(limit, occupy=count, strict=True, lease_duration=LEASE, raise_on_lease_renewal_failure=False)
    try:
        await held.__aenter__()
    except ConcurrencySlotAcquisitionError as error:
        advice = advice_for(str(error))
        raise DispatchError(
            f"no slot of the global concurrency limit {limit!r} could be acquired on this Prefect server ({error}); "
            f"{advice}"
        ) from error
    try:
        yield
    finally:
        try:
            await held.__aexit__(None, None, None)
        except Exception as error:  # the stage has its result; the slots are free when their lease ends
            get_run_logger().warning(
                f"a slot of {limit!r} could not be released ({error}); it expires in {LEASE:g} seconds"
            )


def advice_for(refusal: str) -> str:
    """Return what helps against a refusal of Prefect to give slots."""
    if "must be created" in refusal:
        return "create it (limbeck deploy does), or unset LIMBECK_GPU_LIMIT"
    if "greater than" in refusal:
        return "a stage takes one for each process: allow more (limbeck deploy --gpus N), or lower LIMBECK_PROCESSES"
    return "run again once the server answers"


@contextmanager
def own_gpus(count: int) -> Iterator[list[str]]:
    """Choose as many GPUs of this machine as a stage has processes, those on which the fewest stages compute, and hold
    them; give their names for CUDA_VISIBLE_DEVICES. Empty where there is nothing to choose: then it computes on the
    first ones.

    A stage holds locks of files, which the system releases when its process ends.
    """
    names = interchangeable(used_gpus()) if count else []
    if len(names) <= count:
        yield []
        return
    folder = folder_of_locks()
    with ExitStack() as held:
        chosen = list[str]()
        for place, name in product(range(MOST_ON_A_GPU), names):
            if len(chosen) < count and name not in chosen and holds(held, folder / f"{name}-{place}.lock"):
                chosen.append(name)
        yield sorted(chosen, key=names.index) if len(chosen) == count else []


def interchangeable(gpus: list[Gpu]) -> list[str]:
    """Return the names of GPUs among which a stage may be given any: all of one model, because keys have the model, and
    not divided into slices, which have names of their own."""
    if len({gpu.model for gpu in gpus}) != 1 or any(len(gpu.names) > 1 for gpu in gpus):
        return []
    return [gpu.number for gpu in gpus]


def folder_of_locks() -> Path:
    """Return the folder of the locks of this user's stages on this machine; it is made."""
    folder = Path(tempfile.gettempdir()) / f"limbeck-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def holds(held: ExitStack, path: Path) -> bool:
    """Lock a file until ``held`` ends; tell whether it was free."""
    file: IO[bytes] = path.open("ab")
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.enter_context(file)
        return True
    file.close()
    return False
