"""Conversion of checkpoint folders to MLflow models: ``python -m tasks.ports.tracking.package`` reads orders from
stdin, one JSON object per line. It needs no server."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from tasks.architectures.judged_inputs import write_judged_inputs
from tasks.architectures.known_architectures import longest
from tasks.modeling.registration import register_if_own
from tasks.task_types.texts.truncation import stated_truncation
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.views import VIEWS

PINNED = ("torch", "transformers", "mlflow", "safetensors", "numpy")


class PackingOrder(TypedDict):
    """A checkpoint folder to be converted."""

    folder: str
    output: str
    task_type: str
    max_length: int
    pairs: bool
    """Whether its inputs have a second text."""
    card: str


def package(order: PackingOrder) -> None:
    """Save model and tokenizer in MLflow's transformers flavour, with pinned requirements, signature, example and
    model card."""
    import mlflow.transformers
    import torch
    from mlflow.models import infer_signature
    from transformers import AutoTokenizer

    from tasks.task_types.heads import HEADS

    name_packages()
    register_if_own([Path(order["folder"])])
    own = TASK_TYPES[order["task_type"]]
    source, output, view = order["folder"], Path(order["output"]), VIEWS[order["task_type"]]
    model = (
        HEADS[order["task_type"]]
        .auto_class()
        .from_pretrained(source, local_files_only=True, dtype=torch.float32, use_safetensors=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    # Otherwise MLflow would write the absolute path on this machine into the model's metadata and licence file.
    model.name_or_path = tokenizer.name_or_path = "limbeck"
    length = longest(model.config, order["max_length"])
    # MLflow stores the example with every version, visible to all readers.
    example = view.example(order["pairs"])
    mlflow.transformers.save_model(
        {"model": model, "tokenizer": tokenizer},
        str(output),
        task=own.pipeline or own.hub_task,
        signature=infer_signature(example, [dict(view.example_answer)]),
        input_example=example,
        # for MLflow's own server and for pyfunc: a text beyond the model's positions would be an error
        model_config={"truncation": stated_truncation(tokenizer) or True, "max_length": length},
        pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in PINNED],
        model_card=None,
    )
    (output / "README.md").write_text(order["card"])
    (output / "LICENSE.txt").write_text("See the licences of teacher and data in README.md.\n")
    keep_judged_files(Path(source), output)
    stated = output / "model", output / "components" / "tokenizer"
    write_judged_inputs(*stated, length=length, pairs=order["pairs"])


def name_packages() -> None:
    """Tell MLflow the packages of the requirements. It compares requirements with the environment, and would list the
    files of all installed packages for that, which takes longer than the rest of a small model's conversion; these
    requirements are pinned to the versions of this very environment."""
    from mlflow.utils import requirements_utils

    packages: Any = requirements_utils
    packages._MODULES_TO_PACKAGES = {name: [name] for name in PINNED}


def keep_judged_files(source: Path, output: Path) -> None:
    """Replace config and tokenizer by the files that were scored, byte for byte, because saving may have changed them;
    different weights are an error."""
    for path in sorted(path for path in source.iterdir() if path.is_file()):
        ours = output / "model" / path.name
        if path.suffix != ".safetensors":
            shutil.copyfile(path, ours if ours.is_file() else output / "components" / "tokenizer" / path.name)
        elif not (ours.is_file() and filecmp.cmp(path, ours, shallow=False)):
            raise ValueError("the packaged weights differ from the evaluated ones")


def serve() -> None:
    """Execute orders until stdin ends, and answer each with its error message, or with an empty one."""
    # stays open until the process ends, which may be later than this function
    answers = os.fdopen(os.dup(1), "w", closefd=False)
    # Libraries print to stdout: redirect that to stderr, so that only answers use the pipe.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            package(json.loads(line))
            problem = ""
        except Exception as error:  # every error must be reported to the sender of the order
            problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        print(json.dumps({"problem": problem}), file=answers, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    serve()
