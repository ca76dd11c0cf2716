"""Memory of general distillation over a corpus that is larger than what it may take: resident bytes beyond those of the
same training on a small corpus."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tasks.engine.environment import environment
from tasks.recipe.slices import GeneralSlice
from tasks.recipe.students import Shape
from tests.benchmarks.measure import Figure
from tests.benchmarks.setting import Setting

LENGTH, BYTES, SMALL = 128, 3 * 10**9, 10**7
MEASURE = """
import resource, runpy, sys
sys.argv = ["tasks.training", sys.argv[1]]
try:
    runpy.run_module("tasks.training", run_name="__main__")
except SystemExit as end:
    print(end.code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""


def write_corpus(folder: Path, size: int) -> Path:
    """Write a tokenized corpus of ``size`` bytes: random tokens in sequences of 128."""
    folder.mkdir()
    count = size // 2 // LENGTH
    random = np.random.default_rng(0)
    with (folder / "tokens.raw").open("wb") as stream:
        for _ in range(0, count, 10_000):
            stream.write(random.integers(2000, 28_000, (min(10_000, count), LENGTH), dtype=np.uint16).tobytes())
    sequences = (folder / "tokens.raw").stat().st_size // 2 // LENGTH
    np.save(folder / "offsets.npy", np.arange(sequences + 1, dtype=np.int64) * LENGTH)
    (folder / "index.json").write_text(
        json.dumps({"dtype": "uint16", "vocab_size": 30_522, "tokens": sequences * LENGTH, "sequences": sequences})
    )
    return folder


def resident(folder: Path, base: Path, corpus: Path, threads: int) -> int:
    """Return the most bytes that were resident while an engine distilled on a corpus."""
    folder.mkdir()
    knobs = GeneralSlice(
        steps=30, batch_size=32, max_length=LENGTH, evaluations=1, shape=Shape(layers=3), start="teacher"
    ).model_dump(mode="json")
    order = {
        "job": "general",
        "knobs": knobs,
        "inputs": {"base": str(base), "corpus": str(corpus)},
        "output": str(folder / "output"),
        "threads": threads,
    }
    (folder / "job.json").write_text(json.dumps(order))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder / "job.json")],
        env=environment(threads),
        capture_output=True,
        text=True,
    )
    status, most = done.stderr.split()[-2:]
    if int(status):
        raise RuntimeError(done.stdout[-1000:])
    return int(most)


def memory(setting: Setting) -> list[Figure]:
    """Three gigabytes of tokens, which would not fit if they were read, beside ten megabytes."""
    from tests.benchmarks.augmentation import write_random_model

    with tempfile.TemporaryDirectory() as scratch:
        base = write_random_model(Path(scratch) / "base")
        large, small = write_corpus(Path(scratch) / "large", BYTES), write_corpus(Path(scratch) / "small", SMALL)
        beyond = []
        for number in range(1 if setting.quick else 3):
            most = {
                name: resident(Path(scratch) / f"{name}-{number}", base, corpus, setting.threads)
                for name, corpus in (("large", large), ("small", small))
            }
            beyond.append((most["large"] - most["small"]) / 1e9)
            setting.tell(
                f"round {number + 1}: {most['large'] / 1e9:.2f} GB over a corpus of 3 GB, {most['small'] / 1e9:.2f} "
                f"GB over one of 10 MB"
            )
    name = "general distillation 6x384 to 3x384, corpus of 3 GB"
    return [Figure(name, "resident beyond the models", "a corpus of 10 MB", beyond, "", 2.0, unit=" GB", at_most=True)]
