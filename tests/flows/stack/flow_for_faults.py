"""A flow of short steps, as a worker finds it: long enough that servers can be taken away under it."""

from __future__ import annotations

import time
from pathlib import Path

from prefect import flow, task


@task(retries=3, retry_delay_seconds=1)
def step(number: int, seconds: float) -> int:
    """Use some time."""
    time.sleep(seconds)
    return number


@flow(name="steps")
def steps(count: int, seconds: float, witness: str) -> int:
    """Use the steps in turn, and write each down where a test can read it."""
    total = 0
    for number in range(count):
        total += step(number, seconds)
        with Path(witness).open("a") as stream:
            stream.write(f"{number}\n")
    return total
