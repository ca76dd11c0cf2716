"""What surrounds an engine: nothing of the machine's that its key does not know."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.engine import environment as engine_environment
from tasks.engine.environment import NUMERIC, PRACTICAL, SEEN, environment
from tasks.engine.fork_server import ForkServer
from tasks.engine.job import Job
from tasks.engine.process import run_engine
from tasks.errors import EngineError
from tasks.ports.tracking.packer import Packer
from tasks.recipe.slices import TeacherSlice

ROOT = Path(__file__).resolve().parents[2]
OWN = {"PYTHONPATH", "PYTHONNOUSERSITE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "LIMBECK_DEVICE"}
HOSTILE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "MKL_DYNAMIC": "TRUE",
    "MKL_VERBOSE": "0",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
    "OMP_NUM_THREADS": "3",
    "OMP_DYNAMIC": "true",
    "OMP_THREAD_LIMIT": "1",
    "OMP_SCHEDULE": "dynamic",
    "KMP_AFFINITY": "compact",
    "GOMP_CPU_AFFINITY": "0",
    "OPENBLAS_NUM_THREADS": "7",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
    "NVIDIA_TF32_OVERRIDE": "1",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":16:8",
    "CUDNN_CONVOLUTION_FORCE_ALGO": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_JIT": "0",
    "TORCH_BLAS_PREFER_CUBLASLT": "1",
    "XLA_FLAGS": "--xla_cpu_enable_fast_math=true",
    "TRANSFORMERS_ATTN_IMPLEMENTATION": "eager",
    "USE_HUB_KERNELS": "1",
    "HF_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "PREFECT_API_AUTH_STRING": "secret",
    "PYTHONHASHSEED": "77",
    "PYTHONOPTIMIZE": "2",
    "PYTHONPATH": "/nowhere",
    "PYTHONSTARTUP": "/nowhere/start.py",
    "PYTHONUTF8": "0",
    "LC_ALL": "de_DE.ISO-8859-1",
    "LANG": "tr_TR.UTF-8",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "3",
    "LIMBECK_DEVICE": "cuda",
    "ARROW_USER_SIMD_LEVEL": "NONE",
    "A_VARIABLE_OF_THE_NEXT_RELEASE": "1",
}
"""Variables that choose kernels, arithmetic, threads or code, secrets, and one that nobody has heard of."""
TELL = """
    import os, sys
    from tasks.engine.job import serve
    sys.exit(serve({"tell": lambda job: {"environment": dict(os.environ)}}, sys.argv[1]))
"""


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what would change numbers, as a user's shell or a container image may."""
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)


@contextlib.contextmanager
def server_if(forked: bool) -> Iterator[ForkServer | None]:
    """Give a server to a running loop, and end it; None where an engine is to be started by itself."""
    server = ForkServer() if forked else None
    try:
        yield server
    finally:
        if server is not None:
            server.close()


@pytest.fixture
def telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write an engine that tells its environment."""
    (tmp_path / "telling").mkdir()
    (tmp_path / "telling" / "__init__.py").touch()
    (tmp_path / "telling" / "__main__.py").write_text(textwrap.dedent(TELL))
    monkeypatch.setattr(engine_environment, "module_path", lambda: f"{ROOT}{os.pathsep}{tmp_path}")
    return tmp_path


def ask(folder: Path, *, forked: bool, **order: Any) -> Any:
    """Run that engine."""

    async def run() -> dict[str, Any]:
        with server_if(forked) as server:
            whole = {"job": "tell", "output": str(folder / "output"), "threads": 2, **order}
            return await run_engine("telling", whole, folder, lambda event: None, server)

    return asyncio.run(run())


forked_or_started = pytest.mark.parametrize(
    "forked",
    [
        pytest.param(
            True, marks=pytest.mark.skipif(sys.platform != "linux", reason="engines are forked on Linux only")
        ),
        False,
    ],
)


@forked_or_started
def test_no_variable_outside_the_list_reaches_an_engine(telling: Path, hostile: None, forked: bool) -> None:
    found = ask(telling, forked=forked)["environment"]
    assert found == environment(2), "the list and what we set, and nothing else"
    assert not set(found) - {*SEEN, *NUMERIC, *PRACTICAL, *OWN}
    assert all(found[name] == value for name, value in NUMERIC.items())
    assert (found["OMP_NUM_THREADS"], found["LIMBECK_DEVICE"]) == ("2", "cpu")


def test_no_variable_outside_the_list_reaches_the_packer(hostile: None, tmp_path: Path) -> None:
    given: list[dict[str, str]] = []

    def start(module: str, folder: Path, handles: Any, surroundings: Any) -> Any:
        given.append(dict(surroundings))
        return subprocess.Popen(["true"], stdout=handles[1])

    with Packer(tmp_path, start) as packer:
        packer.process = packer.start()
    assert given == [environment(1)]


@forked_or_started
def test_an_engine_with_other_libraries_than_its_key_says_computes_nothing(telling: Path, forked: bool) -> None:
    assert ask(
        telling, forked=forked, libraries={"numpy": engine_environment.version_of("numpy"), "no-such-library": "none"}
    )
    with pytest.raises(
        EngineError, match=r"the engine has numpy \d\S+, and this run has 0\.1; PYTHONPATH does not apply to engines"
    ):
        ask(telling, forked=forked, libraries={"numpy": "0.1"})


# --- bytes ------------------------------------------------------------------------------------------------------------


def order_of(folder: Path, rows: Path, bert: Path, threads: int) -> dict[str, Any]:
    """Return the order of a tiny training, long enough to see another order of sums."""
    knobs = TeacherSlice(
        task_type="classification",
        steps=6,
        batch_size=16,
        max_length=16,
        evaluations=0,
        precision="fp32",
        dropout=0.1,
        learning_rate=1e-3,
    )
    inputs = {"rows": str(rows), "base": str(bert)}
    return {
        "job": "finetune",
        "knobs": knobs.model_dump(mode="json"),
        "inputs": inputs,
        "output": str(folder / "output"),
        "threads": threads,
    }


def trained_here(order: dict[str, Any]) -> str:
    """Do a training in this process, which has the environment of the tests; return the digest of its weights."""
    import torch

    from tasks.training.jobs import JOBS

    before = torch.get_num_threads()
    torch.set_num_threads(order["threads"])
    try:
        Path(order["output"]).mkdir(parents=True)
        JOBS[order["job"]](Job(order, silent=True))
    finally:
        torch.set_num_threads(before)
    return weights(Path(order["output"]).parent)


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "output" / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def small_rows(tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tasks.catalog import TaskSpec
    from tasks.ports.rows.prepared import prepare_rows
    from tasks.recipe.slices import RowsSlice

    folder = tmp_path_factory.mktemp("prepared")
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), folder)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="engines are forked on Linux only")
def test_variables_and_cores_change_no_byte_of_a_training(
    tiny_bert: Path, small_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one key there is one result: with variables set that choose kernels, on one core or on all, here or in a
    fork."""
    made = {"here": trained_here(order_of(tmp_path / "here", small_rows, tiny_bert, 2))}
    other = trained_here(order_of(tmp_path / "other", small_rows, tiny_bert, 1))
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)

    async def train(name: str, server: ForkServer | None) -> None:
        folder = tmp_path / name
        folder.mkdir()
        await run_engine(
            "tasks.training", order_of(folder, small_rows, tiny_bert, 2), folder, lambda event: None, server
        )
        made[name] = weights(folder)

    async def run() -> None:
        with server_if(True) as server:
            await train("all cores", server)
            os.sched_setaffinity(server.process.pid, {min(os.sched_getaffinity(0))})
            await train("one core", server)

    asyncio.run(run())
    assert len(set(made.values())) == 1, made
    assert other not in made.values(), (
        "threads add up in another order: were it not so, this test would see no variable either"
    )


PREPARE = """
import sys
from pathlib import Path
from tasks.catalog import TaskSpec
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice
prepare_rows(Path(sys.argv[1]), RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), Path(sys.argv[2]))
"""


def test_variables_change_no_byte_of_the_rows_that_the_runs_own_process_prepares(
    tiny_rows: Path, small_rows: Path, tmp_path: Path
) -> None:
    """Rows are drawn by whole numbers and written as they are: the one kind of stage that no engine computes."""
    own = {**os.environ, **HOSTILE, "PYTHONPATH": str(ROOT), "PYTHONOPTIMIZE": ""}
    subprocess.run(
        [sys.executable, "-c", PREPARE, str(tiny_rows), str(tmp_path)], env=own, check=True, capture_output=True
    )
    names = sorted(path.name for path in small_rows.iterdir())
    assert names and names == sorted(path.name for path in tmp_path.iterdir())
    for name in names:
        assert (tmp_path / name).read_bytes() == (small_rows / name).read_bytes(), name
