"""Writing checkpoint folders as MLflow models: ``python -m tasks.ports.tracking.package`` reads orders from stdin, one
JSON line each. Needs no server."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXAMPLE: dict[bool, list[Any]] = {False: ["some text"], True: [{"text": "first text", "text_pair": "second text"}]}
"""What a model takes, by whether it takes pairs. Never a row of anybody's: MLflow keeps the example with every version,
for all who may read it."""
PINNED = ("torch", "transformers", "mlflow", "safetensors", "numpy")


def package(order: dict[str, Any]) -> None:
    """Save model and tokenizer in MLflow's transformers flavour, with pinned requirements, a signature, an example and
    the card."""
    import mlflow.transformers
    import torch
    from mlflow.models import infer_signature
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    source, output = order["folder"], Path(order["output"])
    model = AutoModelForSequenceClassification.from_pretrained(
        source, local_files_only=True, dtype=torch.float32, use_safetensors=True
    )
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    # The absolute path of this machine would otherwise be written into the model's metadata and licence file.
    model.name_or_path = tokenizer.name_or_path = "limbeck"
    example = EXAMPLE[order["pairs"]]
    signature = infer_signature(example, [{"label": "name", "score": 0.5}])
    mlflow.transformers.save_model(
        {"model": model, "tokenizer": tokenizer},
        str(output),
        task="text-classification",
        signature=signature,
        input_example=example,
        pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in PINNED],
        model_card=None,
    )
    (output / "README.md").write_text(order["card"])
    (output / "LICENSE.txt").write_text("See the licences of teacher and data in README.md.\n")
    keep_judged_files(Path(source), output)


def keep_judged_files(source: Path, output: Path) -> None:
    """Let config and tokenizer be those that were judged, byte for byte, whatever saving again made of them; weights
    that differ are an error."""
    for path in sorted(path for path in source.iterdir() if path.is_file()):
        ours = output / "model" / path.name
        if path.suffix != ".safetensors":
            shutil.copyfile(path, ours if ours.is_file() else output / "components" / "tokenizer" / path.name)
        elif not (ours.is_file() and filecmp.cmp(path, ours, shallow=False)):
            raise ValueError("the packaged weights differ from those that were judged")


def serve() -> None:
    """Carry out orders until there are no more, and answer each with what went wrong, or with nothing."""
    answers = os.fdopen(
        os.dup(1), "w", closefd=False
    )  # its end is the process's, which may take longer than this function
    os.dup2(2, 1)  # libraries print; answers have the pipe to themselves
    for line in sys.stdin:
        try:
            package(json.loads(line))
            problem = ""
        except Exception as error:  # whatever it is, the one who ordered must hear of it
            problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        print(json.dumps({"problem": problem}), file=answers, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    serve()
