"""The environment of an engine: inherited variables, variables set for it, and the library versions in its key.

Libraries choose kernels, arithmetic and threads by dozens of variables (``ATEN_CPU_CAPABILITY``, ``MKL_CBWR``,
``ONEDNN_DEFAULT_FPMATH_MODE``, ``NVIDIA_TF32_OVERRIDE``), and each release adds new ones. None of them is in a key.
Therefore an engine does not inherit the environment: it receives only the short list below.
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
    "LD_LIBRARY_PATH",  # the GPU driver's place in container images
    "CUDA_VISIBLE_DEVICES",  # in the key: the device class is that of the visible GPUs
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",  # network interface of distributed training
)
"""Variables that an engine inherits. It only reads and writes folders, so it needs no hub, bucket, server, proxy or
password."""
NUMERIC = {
    # Use exactly the number of threads in the key, even if the machine has fewer cores or is busy.
    "OMP_DYNAMIC": "false",
    "MKL_DYNAMIC": "FALSE",
    # OpenBLAS (numpy, scipy) uses at most one thread per core, regardless of the key: one is the same everywhere.
    "OPENBLAS_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "USE_HUB_KERNELS": "0",  # some architectures download kernels from a hub by themselves
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "LC_ALL": "C.UTF-8",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables set for every engine that can change its numbers or its reading of texts: part of every engine's key."""
PRACTICAL = {
    # Long spinning costs fifty times the work when parallel branches share cores; without spinning, small models lose
    # a third of their speed. This count is a few microseconds.
    "GOMP_SPINCOUNT": "1000",
    # By default, glibc returns large blocks to the system after every batch and requests them again for the next.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**29),
    # The order of nvidia-smi, by which the device class was determined.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "PYTHONSAFEPATH": "1",  # ignore files in the engine's working folder that are named like modules
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Variables set for every engine that do not change its results."""


def environment(threads: int, device: str = "cpu") -> dict[str, str]:
    """Return the complete environment of an engine; ``device`` is the device in its key, ``cpu`` or ``cuda``."""
    return {
        **{name: os.environ[name] for name in SEEN if name in os.environ},
        **NUMERIC,
        **PRACTICAL,
        # If this process ignores the user's site-packages folder, engines must ignore it, too.
        **({"PYTHONNOUSERSITE": "1"} if sys.flags.no_user_site else {}),
        "PYTHONPATH": module_path(),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "LIMBECK_DEVICE": device,
    }


def module_path() -> str:
    """Return the import path of an engine: the copy of the sources from which its stage's key was computed.

    Nothing else precedes the installed libraries, because their versions are in the key, too. Raise OSError if the home
    folder cannot take a copy.
    """
    return str(sources_folder())


@cache
def version_of(library: str) -> str:
    """Return a library's version without local build tags, ``none`` if it is not installed; read once per process."""
    try:
        return version(library).split("+")[0]
    except PackageNotFoundError:
        return "none"


def require_libraries(wanted: Mapping[str, str]) -> None:
    """Raise EngineError if the libraries differ from those in the key: an engine may import others than its run."""
    for name, known in wanted.items():
        if version_of(name) != known:
            raise EngineError(
                f"the engine has {name} {version_of(name)}, and this run has {known}; PYTHONPATH does not apply to "
                f"engines: install it into the environment of limbeck, and restart the run if the environment was "
                f"changed meanwhile"
            )
