"""The files of a Hugging Face model folder that transformers reads, and checks of the other files that they name.

Only these files are hashed, copied and passed to engines; transformers never sees the other files of a folder (an
adapter, pickled weights, code, checkpoints in subfolders).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from tasks.architectures import ModelConfig
from tasks.errors import ModelError
from tasks.ports.files.model_settings import read_settings
from tasks.task_types.embedding.modules import (
    ENCODER_FILE,
    MODULES_FILE,
    POOLING_FILE,
    READING_FILE,
    files_that_count,
)

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SENTENCEPIECE = ("spm.model", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model")
"""File names of SentencePiece vocabularies in DeBERTa, XLM-R, ALBERT, XLNet, T5 and similar models."""
MARIAN_PIECES = ("source.spm", "target.spm")
"""Where a Marian translator keeps the pieces of its two languages; their ids are in ``vocab.json``."""
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", *SENTENCEPIECE)
"""Vocabulary files; a tokenizer needs one of them."""
CHAT_TEMPLATE = "chat_template.jinja"
"""Where a tokenizer keeps the template by which it writes chats; transformers runs it in a sandbox."""
BESIDE = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    CHAT_TEMPLATE,
    *MARIAN_PIECES,
)
SMALL_FILES = (CONFIG, INDEX, *VOCABULARIES, *BESIDE)
"""All files except the weights."""
HUB_PATTERNS = [
    "*.safetensors",
    CONFIG,
    INDEX,
    *VOCABULARIES,
    *BESIDE,
    POOLING_FILE,
    MODULES_FILE,
    ENCODER_FILE,
    READING_FILE,
]

NAMED_FILES = ("vocab", "merges", "tokenizer_object", "fast_tokenizer_files")
"""Tokenizer settings that would make it read other files than its own."""


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model that transformers reads, by name, and those that say how its vectors differ from what
    transformers computes.

    Raises ModelError if the weights are not safe to load.
    """
    if not (folder / CONFIG).is_file():
        return {}
    weights = [WEIGHTS] if (folder / WEIGHTS).is_file() else [INDEX, *shards_of(folder)]
    names = sorted({CONFIG, *weights, *VOCABULARIES, *BESIDE, POOLING_FILE, *files_that_count(folder)})
    return {name: folder / name for name in names if (folder / name).is_file()}


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder contains a tokenizer's vocabulary."""
    return any((folder / name).is_file() for name in VOCABULARIES)


def shards_of(folder: Path) -> list[str]:
    """Return the names of the files of a model's sharded weights.

    Raises ModelError if the weight map names any other file: transformers would load it even if it is a pickle or lies
    outside of the folder.
    """
    index = read_settings(folder / INDEX)
    named, about = index.get("weight_map"), index.get("metadata")
    if (
        not isinstance(named, dict)
        or not named
        or not isinstance(about, dict)
        or not all(isinstance(name, str) for name in named.values())
    ):
        raise ModelError(
            f"{folder} has neither {WEIGHTS} nor an {INDEX} with the names of its parts; "
            "save the model again with safetensors"
        )
    names = sorted({str(name) for name in named.values()})
    for name in names:
        if (
            PurePosixPath(name).name != name
            or "\\" in name
            or "\0" in name
            or PurePosixPath(name).suffix != ".safetensors"
        ):
            raise ModelError(
                f"{folder / INDEX} names {name[:100]!r}; only .safetensors files of the same folder are loaded; "
                "save the model again"
            )
        if not (folder / name).is_file():
            raise ModelError(f"{folder / INDEX} names {name!r}, which does not exist; fetch or save the model again")
        if leads_out(folder / name):
            raise ModelError(f"{folder / name} is a link to another folder; replace it by the file")
    return names


def leads_out(path: Path) -> bool:
    """Return whether a file is a link to a target outside of its folder, except in the layout of the hub's cache."""
    if not path.is_symlink():
        return False
    target, folder = path.resolve(), path.parent.resolve()
    blobs = folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else folder
    return not (target.is_relative_to(folder) or target.is_relative_to(blobs))


def require_settings(folder: Path, config: ModelConfig) -> None:
    """Refuse settings that would make a library read files, or use libraries, that are not part of any key."""
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} holds an adapter (adapter_config.json), which is not applied; "
            "merge it into the model and save that"
        )
    if config.get("quantization_config") is not None:
        raise ModelError(
            f"{folder} is quantized (quantization_config in config.json), which cannot be a start for training; name "
            f"the model in full precision"
        )
    for name in NAMED_FILES:
        if read_settings(folder / "tokenizer_config.json").get(name) is not None:
            raise ModelError(
                f"{folder} has a tokenizer that refers to other files ({name} in tokenizer_config.json); save the "
                f"tokenizer again"
            )


def sentencepiece_size(path: Path) -> int:
    """Return the number of pieces in a SentencePiece vocabulary."""
    from sentencepiece import SentencePieceProcessor

    try:
        return int(SentencePieceProcessor(model_file=str(path)).get_piece_size())
    except (RuntimeError, OSError, TypeError) as error:
        raise ModelError(f"{path} cannot be read as a SentencePiece vocabulary; save the tokenizer again") from error
