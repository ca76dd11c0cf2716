"""How a benchmark is run, and on what kind of machine."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

LIBRARIES = ("torch", "transformers", "numpy", "accelerate", "prefect", "mlflow")


@dataclass(frozen=True)
class Setting:
    """How often, how long, on how many threads."""

    repeats: int
    quick: bool
    threads: int

    def tell(self, sentence: str) -> None:
        """Say how far it is, beside the results."""
        print(f"  {sentence}", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Return what a reader must know to compare figures."""
    from tasks.ports.machine import device_class, hardware

    return {
        "hardware": hardware(),
        "device": device_class(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "libraries": {name: version_or_none(name) for name in LIBRARIES},
    }


def version_or_none(library: str) -> str:
    """Return the version of a library; ``none`` where it is not installed, such as on a machine with an engine only."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
