"""The files of an export: the graph, the files needed to run it with ONNX Runtime and tokenizers alone, and a card
(JSON) that describes how."""

from __future__ import annotations

import json
import re
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

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
BESIDE = ("config.json", TOKENIZER, SETTINGS, "special_tokens_map.json")
SOURCE_PIECES = "source.spm"
"""Where a Marian translator keeps the pieces of its source language."""
UNIGRAM, NORMAL = 1, 1
"""Numbers of SentencePiece: for a model of likeliest pieces, and for a piece that stands for itself."""
LANGUAGE = re.compile(">>.+<<")
"""A word that names the language to write."""
INSIDE = "onnx"
"""Folder of the exports inside a model's folder."""


@dataclass(frozen=True)
class PublishedExport:
    """An export that goes into the folder of its model: its files, fetched when they are needed, and its row."""

    folder: Callable[[], Path]
    row: ResultRow


def copy_beside(source: Path, output: Path) -> None:
    """Copy config and tokenizer, or write the tokenizer anew in the form that the tokenizers library reads; raise
    ModelError for one that has no such form."""
    own = has_own_tokenizer(source)
    if own:
        write_marian_tokenizer(source, output)
    for name in BESIDE[:1] if own else BESIDE:
        if (source / name).is_file():
            shutil.copyfile(source / name, output / name)


def has_own_tokenizer(source: Path) -> bool:
    """Tell whether an export has a tokenizer of its own, because its model has none in that form."""
    return not (source / TOKENIZER).is_file()


def write_marian_tokenizer(source: Path, output: Path) -> None:
    """Write the tokenizer of a Marian translator, two files of SentencePiece and one of ids, as a ``tokenizer.json``
    that reads the source language and writes both, with settings of its own. Raises ModelError for another tokenizer of
    several files."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import SpmConverter, import_protobuf

    if not (source / SOURCE_PIECES).is_file() or json.loads((source / SETTINGS).read_text()).get("separate_vocabs"):
        raise ModelError(
            f"{source.name} has no {TOKENIZER}, and an export uses the tokenizers library only; save "
            f"the model with a fast tokenizer"
        )
    ids: dict[str, int] = json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    pieces = import_protobuf().ModelProto.FromString((source / SOURCE_PIECES).read_bytes())
    if pieces.trainer_spec.model_type != UNIGRAM or sorted(ids.values()) != list(range(len(ids))):
        raise ModelError(f"{source.name} has pieces of another kind than Marian's, and no {TOKENIZER} is made of them")
    known = {piece.piece: piece.score for piece in pieces.pieces if piece.type == NORMAL}
    # a piece of the other language is never read, but for one letter of it that the source language lacks
    in_order = sorted(ids, key=ids.__getitem__)
    scored = [(piece, known.get(piece, -1e3 if len(piece) == 1 else -1e7)) for piece in in_order]
    pieces.trainer_spec.unk_id = ids["<unk>"]
    tokenizer = SpmConverter.build_tokenizer_from_spm_proto(pieces, scored)
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>", *(piece for piece in ids if LANGUAGE.fullmatch(piece))])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", ids["</s>"])])
    marks = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(output)


def write_card(output: Path, values: Mapping[str, object]) -> None:
    """Write an export's card."""
    (output / CARD).write_text(json.dumps(dict(values), indent=1, sort_keys=True) + "\n")


def describe(
    outputs: Mapping[str, object],
    tokenizer: Any,
    *,
    max_length: int,
    positions: int | None,
    pairs: bool,
    parameters: int,
    opset: int,
) -> ExportCard:
    """Return the properties of a model that are known before its graph exists; ``outputs`` are those of its task type.
    Library versions are included, so that a new version gives a new export."""
    known: ExportCard = {
        "max_length": min(max_length, positions or max_length),
        "positions": positions,
        "pairs": pairs,
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
    if own := [folder / TOKENIZER for folder in exports.values() if card_of(folder).get("own_tokenizer")]:
        found[TOKENIZER] = own[0]
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
