"""The longest input, in tokens, at which a model was evaluated, as its folder states it: in the config, and as the
limit of the tokenizer, so that users who do not know it get texts truncated as in the evaluation."""

from __future__ import annotations

import json
from pathlib import Path

from tasks.architectures.known_architectures import JUDGED_LENGTH

MOST_TOKENS = 8192
"""Longest input that a recipe may set; transformers writes 10 ** 30 for a tokenizer without a limit."""


def write_judged_length(model: Path, tokenizer: Path, length: int) -> None:
    """Write the longest input of the evaluation into the config and the tokenizer's settings in two folders."""
    places = (tokenizer / "tokenizer_config.json", "model_max_length"), (model / "config.json", JUDGED_LENGTH)
    for path, key in places:
        values = json.loads(path.read_text()) | {key: length}
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_judged_length(folder: Path, default: int) -> int:
    """Return the longest input of a checkpoint's evaluation from its config, or its tokenizer's limit; ``default`` if
    neither states it."""
    stated = [
        json.loads((folder / name).read_text()).get(key)
        for name, key in (("config.json", JUDGED_LENGTH), ("tokenizer_config.json", "model_max_length"))
        if (folder / name).is_file()
    ]
    return next((int(one) for one in stated if isinstance(one, int) and 0 < one <= MOST_TOKENS), default)
