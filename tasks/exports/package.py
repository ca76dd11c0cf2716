"""The files of an export: the graph, the files needed to run it with ONNX Runtime and tokenizers alone, and a card
(JSON) that describes how."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from tasks.errors import ModelError
from tasks.results.export_formats import EXPORT_FORMATS
from tasks.results.row import ResultRow
from tasks.scoring.onnx_models import CARD, ExportCard, card_of, graph_of
from tasks.task_types.texts.truncation import stated_truncation

BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
INSIDE = "onnx"
"""Folder of the exports inside a model's folder."""


@dataclass(frozen=True)
class PublishedExport:
    """An export that goes into the folder of its model: its files, fetched when they are needed, and its row."""

    folder: Callable[[], Path]
    row: ResultRow


def copy_beside(source: Path, output: Path) -> None:
    """Copy config and tokenizer; raise ModelError without a ``tokenizer.json``, the only file that the tokenizers
    library alone can read."""
    if not (source / "tokenizer.json").is_file():
        raise ModelError(
            f"{source.name} has no tokenizer.json, and an export uses the tokenizers library only; save "
            f"the model with a fast tokenizer"
        )
    for name in BESIDE:
        if (source / name).is_file():
            shutil.copyfile(source / name, output / name)


def write_card(output: Path, values: Mapping[str, object]) -> None:
    """Write an export's card."""
    (output / CARD).write_text(json.dumps(dict(values), indent=1, sort_keys=True) + "\n")


def describe(
    outputs: Mapping[str, object],
    tokenizer: Any,
    *,
    max_length: int,
    positions: int | None,
    parameters: int,
    opset: int,
) -> ExportCard:
    """Return the properties of a model that are known before its graph exists; ``outputs`` are those of its task type.
    Library versions are included, so that a new version gives a new export."""
    known: ExportCard = {
        "max_length": min(max_length, positions or max_length),
        "positions": positions,
        "pad": {
            "id": tokenizer.pad_token_id,
            "token": tokenizer.pad_token,
            "type_id": tokenizer.pad_token_type_id,
            "side": tokenizer.padding_side,
        },
        "opset": opset,
        "parameters": parameters,
        "made_with": {
            name: version(name).split("+")[0] for name in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
        },
    }
    if (strategy := stated_truncation(tokenizer)) is not None:
        known["truncation"] = strategy
    return cast(ExportCard, {**outputs, **known})


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def files_for_a_model(exports: Mapping[str, Path], workspace: Path) -> dict[str, Path]:
    """Return the export files that belong in a model's folder, by their path in it; ``exports`` are folders by
    format."""
    workspace.mkdir(parents=True, exist_ok=True)
    write_card(workspace, shared_card({way: card_of(folder) for way, folder in exports.items()}))
    found = {f"{INSIDE}/{EXPORT_FORMATS[way].file}": graph_of(folder) for way, folder in exports.items()}
    return {**found, f"{INSIDE}/{CARD}": workspace / CARD}


def shared_card(cards: Mapping[str, ExportCard]) -> dict[str, object]:
    """Merge the cards of a model's formats into one; formats differ in their file and their engine."""
    both: dict[str, object] = {}
    for card in cards.values():
        both.update(card)
    return {
        **both,
        "files": {way: EXPORT_FORMATS[way].file for way in cards},
        "engine": {way: card["engine"] for way, card in cards.items()},
    }
