"""Comparison of two tokenizers by the files in their folders."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

from tasks.ports.files.model_files import SENTENCEPIECE


def same_reading(first: Path, second: Path) -> bool:
    """Tell whether two tokenizers work alike, as far as their files state it: equal tokens and ids and, if both state
    them, equal rules of normalisation and splitting."""
    ours, theirs = (vocabulary(folder) for folder in (first, second))
    return ours["tokens"] == theirs["tokens"] and (
        None in (ours["rules"], theirs["rules"]) or ours["rules"] == theirs["rules"]
    )


class Vocabulary(TypedDict):
    """A tokenizer as it is compared with another one; None is not stated by its files."""

    tokens: object
    """Tokens with their ids, or a digest of them."""
    rules: object
    """Of normalisation and splitting."""


def vocabulary(folder: Path) -> Vocabulary:
    """Return a tokenizer's tokens with their ids, and its rules of normalisation and splitting; None if its files do
    not state them."""
    if (folder / "tokenizer.json").is_file():
        values = json.loads((folder / "tokenizer.json").read_text())
        model = dict(values.get("model") or {})
        return {
            "tokens": model.pop("vocab", None),
            "rules": [model, values.get("normalizer"), values.get("pre_tokenizer")],
        }
    if (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return {"tokens": {token: number for number, token in enumerate(lines)}, "rules": None}
    if (folder / "vocab.json").is_file():
        return {"tokens": json.loads((folder / "vocab.json").read_text()), "rules": None}
    pieces = next((folder / name for name in SENTENCEPIECE if (folder / name).is_file()), None)
    return {"tokens": pieces and sha256(pieces.read_bytes()).hexdigest(), "rules": None}
