"""An engine's environment: the variables that it may see, those set for it, and the libraries that its key names.

Libraries choose kernels, arithmetic and threads by dozens of variables (``ATEN_CPU_CAPABILITY``, ``MKL_CBWR``,
``ONEDNN_DEFAULT_FPMATH_MODE``, ``NVIDIA_TF32_OVERRIDE``), and each release brings new ones. None of them is in a key.
So an engine does not inherit the environment: it gets the short list below, and nothing that is not on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from tasks.engine.sources import sources_folder
from tasks.errors import EngineError

SEEN = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "LD_LIBRARY_PATH",  # where images keep the GPU's driver
    "CUDA_VISIBLE_DEVICES",  # counted: the device class is that of the GPUs that are visible
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",  # the network interface of processes that share a training
)
"""What an engine inherits. It reads and writes folders: it needs no hub, bucket, server, proxy or password."""
NUMERIC = {
    # As many threads as the key says: not fewer because the machine has fewer cores, or is busy.
    "OMP_DYNAMIC": "false",
    "MKL_DYNAMIC": "FALSE",
    # The library of numpy and scipy takes at most as many threads as there are cores, whatever it is told.
    "OPENBLAS_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "USE_HUB_KERNELS": "0",  # some architectures fetch kernels from a hub by themselves
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "LC_ALL": "C.UTF-8",
    "TOKENIZERS_PARALLELISM": "false",
}
"""What is set for every engine and can change its numbers or how it reads texts: part of every engine's key."""
PRACTICAL = {
    # Threads that spin for long cost fifty times the work when cores are shared, as branches side by side do; threads
    # that never spin cost small models a third of their speed. This many turns are a few microseconds.
    "GOMP_SPINCOUNT": "1000",
    # glibc would hand large blocks back to the system after every batch and take them again for the next.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**29),
    # nvidia-smi's order, by which the device class was found.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "PYTHONSAFEPATH": "1",  # no file that is named like a module, where an engine works
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""What is set for every engine and changes nothing that it makes."""


def environment(threads: int, device: str = "cpu") -> dict[str, str]:
    """Return an engine's whole environment; ``device`` is what its key says it computes on, ``cpu`` or ``cuda``."""
    return {
        **{name: os.environ[name] for name in SEEN if name in os.environ},
        **NUMERIC,
        **PRACTICAL,
        # A folder of libraries that this process does not look into must not be looked into by an engine.
        **({"PYTHONNOUSERSITE": "1"} if sys.flags.no_user_site else {}),
        "PYTHONPATH": module_path(),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "LIMBECK_DEVICE": device,
    }


def module_path() -> str:
    """Return where an engine finds our modules: the copy of the sources that its stage's key was made of.

    Nothing else is put before the installed libraries: their versions are in the key, too. Raises OSError where the
    home folder takes no copy.
    """
    return str(sources_folder())


@cache
def version_of(library: str) -> str:
    """Return a library's version without local build tags, read once a process; ``none`` where it is not installed."""
    try:
        return version(library).split("+")[0]
    except PackageNotFoundError:
        return "none"


def require_libraries(wanted: Mapping[str, str]) -> None:
    """Raise EngineError where the libraries are not those of the key: an engine may find others than its run."""
    for name, known in wanted.items():
        if version_of(name) != known:
            raise EngineError(
                f"the engine finds {name} {version_of(name)}, and this run has {known}; PYTHONPATH does not reach "
                "engines: install it into the environment of limbeck, and start the run anew if it was changed "
                "meanwhile"
            )
