"""Comparison of two tokenizers by the files in their folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

from tasks.errors import ModelError
from tasks.ports.files.model_files import CHAT_TEMPLATE, SENTENCEPIECE

PartsAroundTexts = Sequence[tuple[str, Callable[[Path], object]]]
"""What a tokenizer puts around a text: the words for each part, and the function that returns it from a folder."""


def same_reading(first: Path, second: Path) -> bool:
    """Tell whether two tokenizers work alike, as far as their files state it: equal tokens and ids and, if both state
    them, equal rules of normalisation and splitting."""
    ours, theirs = (vocabulary(folder) for folder in (first, second))
    return ours["tokens"] == theirs["tokens"] and (
        None in (ours["rules"], theirs["rules"]) or ours["rules"] == theirs["rules"]
    )


def require_same_reading(start: Path, base: Path, of_student: str, instead: str, kept: PartsAroundTexts = ()) -> None:
    """Raise ModelError for the tokenizer of a student that divides texts otherwise than its teacher's, or, where
    answers are ``kept``, puts another part around them: a student finds a kept answer by the number of its token.
    ``of_student`` says whose it is, and ``instead`` what else can be done."""
    if not same_reading(start, base):
        raise ModelError(
            f"{of_student}, whose tokenizer is not its teacher's, so their tokens cannot be compared one by one; start "
            f"from a model with the same tokenizer, or {instead}"
        )
    for part, stated_in in kept:
        ours, theirs = (stated_in(folder) for folder in (start, base))
        if ours is not None and theirs is not None and ours != theirs:
            raise ModelError(
                f"{of_student}, whose tokenizer has another {part} than its teacher's, so the teacher's kept answers "
                f"are about other tokens; copy the files of the teacher's tokenizer into the folder of that start, or "
                f"{instead}"
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


def ends_of_texts(folder: Path) -> object:
    """Return the tokens for the beginning and the end of a text; None if they are not stated."""
    config = contents_of_json(folder / "tokenizer_config.json")
    ends = [config.get(name) for name in ("bos_token", "eos_token")]
    return None if None in ends else [one.get("content") if isinstance(one, Mapping) else one for one in ends]


def tokens_added_to_texts(folder: Path) -> object:
    """Return the rule for tokens that are added to a text; None if it is not stated."""
    own = contents_of_json(folder / "tokenizer.json")
    return (own.get("post_processor") or "none") if own else None


def template_of_chats(folder: Path) -> object:
    """Return the template of chats, or several; None if there is none."""
    file = folder / CHAT_TEMPLATE
    own = contents_of_json(folder / "tokenizer_config.json")
    return file.read_text(encoding="utf-8") if file.is_file() else own.get("chat_template")


def require_template(folders: Sequence[Path], kind: str) -> None:
    """Raise ModelError for a model whose tokenizer has no template for chats, where a task is of chats."""
    folder = next((one for one in folders if kind == "chats" and template_of_chats(one) is None), None)
    if folder is not None:
        raise ModelError(
            f"the tokenizer in {folder} has no template for chats (chat_template); name a model that answers in "
            f"chats, or write each chat as one text, and set task.kind: next-words"
        )


def contents_of_json(path: Path) -> Mapping[str, object]:
    """Return the contents of a file of JSON; nothing of one that is not there, or of another form."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found if isinstance(found, Mapping) else {}


END_OF_WRITTEN: PartsAroundTexts = (
    ("rule for tokens that are added to a text (post_processor)", tokens_added_to_texts),
)
"""Of texts that a model learns to write."""
FRAME_OF_READ: PartsAroundTexts = (
    ("token for the beginning or the end of a text (bos_token, eos_token)", ends_of_texts),
    ("template for chats (chat_template)", template_of_chats),
)
"""Of texts that are read in a frame."""
