"""The inputs that a model was evaluated on, as its folder states them, so that users who do not know them ask it as in
the evaluation: the longest one, in tokens, in the config and as the limit of the tokenizer, and whether rows have a
second text, in the config."""

from __future__ import annotations

import json
from pathlib import Path

from tasks.architectures.known_architectures import JUDGED_LENGTH, JUDGED_PAIRS

MOST_TOKENS = 8192
"""Longest input that a recipe may set; transformers writes 10 ** 30 for a tokenizer without a limit."""


def write_judged_inputs(model: Path, tokenizer: Path, *, length: int, pairs: bool) -> None:
    """Write the inputs of the evaluation into the config and the tokenizer's settings in two folders."""
    places = (
        (tokenizer / "tokenizer_config.json", {"model_max_length": length}),
        (model / "config.json", {JUDGED_LENGTH: length, JUDGED_PAIRS: pairs}),
    )
    for path, stated in places:
        path.write_text(json.dumps(json.loads(path.read_text()) | stated, indent=2, ensure_ascii=False) + "\n")


def read_judged_length(folder: Path, default: int) -> int:
    """Return the longest input of a checkpoint's evaluation from its config, or its tokenizer's limit; ``default`` if
    neither states it."""
    stated = [
        json.loads((folder / name).read_text()).get(key)
        for name, key in (("config.json", JUDGED_LENGTH), ("tokenizer_config.json", "model_max_length"))
        if (folder / name).is_file()
    ]
    return next((int(one) for one in stated if isinstance(one, int) and 0 < one <= MOST_TOKENS), default)


def read_judged_pairs(folder: Path) -> bool | None:
    """Return whether the rows of a checkpoint's evaluation have a second text; None if its config does not state it."""
    stated = json.loads((folder / "config.json").read_text()).get(JUDGED_PAIRS)
    return stated if isinstance(stated, bool) else None
