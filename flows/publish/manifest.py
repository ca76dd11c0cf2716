"""A run's manifest: everything that determines its outputs, and a digest of every output, so that another run can be
compared with it.

It is part of the result file and is stored with the MLflow run as ``run/manifest.json``; ``limbeck reproduce`` reads
it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version

from flows.run.opening import Run, layout
from flows.run.remote import processes_of_worker
from tasks.ports.code.fingerprint import ROOT, hash_file
from tasks.ports.machine import cpu_model, device_class, gpu_model
from tasks.ports.tracking.runs import made_with
from tasks.recipe.recipe import Recipe
from tasks.results.record import CodeState, ManifestModel, ManifestStage, RunManifest, SourceDigest
from tasks.results.row import Number, ResultRow
from tasks.stage.session import StageRecord

SCHEMA = 1
LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "evaluate",
    "datasets",
    "onnx",
    "onnxruntime",
    "mlflow",
    "prefect",
    "pydantic",
)
ROOMS = ("flows", "tasks")


def manifest_of(
    recipe: Recipe, run: Run, models: Sequence[ResultRow] = (), *, kind: str = "run", split: str = "validation"
) -> RunManifest:
    """Return the manifest of a finished run."""
    return RunManifest(
        schema=SCHEMA,
        kind=kind,
        recipe=recipe.model_dump(mode="json", exclude_unset=True),
        code=code_state(),
        sources={
            name: SourceDigest(sha256=artifact.sha256, bytes=artifact.bytes) for name, artifact in run.sources.items()
        },
        versions=library_versions(),
        seeds=dict(seeds_in(recipe.model_dump(mode="json"))),
        hardware=hardware_of(recipe),
        stages=tuple(stage_row(record) for record in run.session.records),
        models={model.name: model_row(model, split) for model in models},
    )


def code_state() -> CodeState:
    """Return the identity of the code: release, commit, whether files differ from the commit (None if unknown), and a
    digest over the sources."""
    files = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    lines = [f"{path.relative_to(ROOT).as_posix()}:{hash_file(path)}" for path in files]
    tags = made_with()
    commit, digest = tags.get("mlflow.source.git.commit"), sha256("\n".join(lines).encode()).hexdigest()
    return CodeState(
        version=tags.get("limbeck.version"),
        commit=commit,
        changed=changed() if commit else None,
        sha256=digest,
    )


def changed() -> bool | None:
    """Return whether the sources differ from their commit; None if git fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            ["git", "-C", str(ROOT), "status", "--porcelain", "--", *ROOMS],
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        )
        return bool(asked.stdout.strip())
    return None


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that can affect results."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def hardware_of(recipe: Recipe) -> dict[str, Number | str | None]:
    """Return the machine, and the cores, threads and processes that the run used."""
    cores, threads, threads_alone = layout(recipe)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "cores": cores,
        "threads": threads,
        "threads_alone": threads_alone,
        "processes": processes_of_worker(),
        "device": device_class(),
        "gpu": gpu_model(),
    }


def seeds_in(values: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every seed of a recipe with its path; entries of a list are identified by their names."""
    if isinstance(values, Mapping):
        for name, inner in values.items():
            if name in ("seed", "seeds") and inner is not None:
                yield f"{path}{name}", inner
            else:
                yield from seeds_in(inner, f"{path}{name}.")
    elif isinstance(values, list):
        for number, inner in enumerate(values):
            yield from seeds_in(inner, f"{path}{inner.get('name', number) if isinstance(inner, Mapping) else number}.")


def stage_row(record: StageRecord) -> ManifestStage:
    """Return the manifest's entry of one stage. A stage with the machine in its key is a measurement: its output is
    never the same twice."""
    return ManifestStage(
        stage=record.display_name,
        key=record.key,
        sha256=record.artifact.sha256 if record.artifact else None,
        cache=record.cache,
        threads=record.threads,
        processes=record.processes,
        measured="hardware" in record.explanation,
        explanation=dict(record.explanation),
    )


def model_row(model: ResultRow, split: str) -> ManifestModel:
    """Return the manifest's entry of one model: the digest of its weights, and its headline score."""
    return ManifestModel(checkpoint=model.checkpoint, headline=model.headline, score=model.score(split).value)
