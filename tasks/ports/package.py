"""Writing a checkpoint folder as an MLflow model: ``python -m tasks.ports.package ORDER.json``. Needs no server."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PINNED = ("torch", "transformers", "mlflow", "safetensors", "numpy")


def package(order: dict[str, Any]) -> None:
    """Save model and tokenizer in MLflow's transformers flavour, with pinned requirements, a signature, an example and the card."""
    import mlflow.transformers
    import torch
    from mlflow.models import infer_signature
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    source, output = order["folder"], Path(order["output"])
    model = AutoModelForSequenceClassification.from_pretrained(source, local_files_only=True, dtype=torch.float32, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    # The absolute path of this machine would otherwise be written into the model's metadata and licence file.
    model.name_or_path = tokenizer.name_or_path = "limbeck"
    example = [order["example"][0]] if len(order["example"]) == 1 else [{"text": order["example"][0], "text_pair": order["example"][1]}]
    signature = infer_signature(example, [{"label": "name", "score": 0.5}])
    mlflow.transformers.save_model(
        {"model": model, "tokenizer": tokenizer}, str(output), task="text-classification", signature=signature, input_example=example,
        pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in PINNED], model_card=None,
    )  # fmt: skip
    (output / "README.md").write_text(order["card"])
    (output / "LICENSE.txt").write_text("See the licences of teacher and data in README.md.\n")
    require_same_weights(Path(source), output)


def require_same_weights(source: Path, output: Path) -> None:
    """The packaged weights must be those that were judged, byte for byte."""
    if (source / "model.safetensors").read_bytes() != (output / "model" / "model.safetensors").read_bytes():
        raise SystemExit("the packaged weights differ from those that were judged")


if __name__ == "__main__":
    import os

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    package(json.loads(Path(sys.argv[1]).read_text()))
