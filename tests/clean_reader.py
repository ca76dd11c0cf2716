"""Asks a model folder as a stranger would: with torch and transformers alone, no network, and none of our code within
reach.

``python -I clean_reader.py FOLDER ORDER.json ANSWERS.json``. The order is ``{"texts", "pairs", "max_length",
"batch"}``. The evaluation's batches are made again from it: rows by the length of their text, ``batch`` of them at a
time, padded to the longest of a batch.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from typing import Any


def forget_our_code() -> None:
    """Use away the way to an editable install, and make sure that nothing of ours can be imported."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder)]
    for room in ("tasks", "flows"):
        assert importlib.util.find_spec(room) is None, f"{room} can be imported"


def no_network(*given: Any) -> None:
    """Stand in for every connection."""
    raise OSError("a pulled model asks no network")


def main(folder: str, order: str, answers: str) -> None:
    """Answer every row with the logits of every class."""
    forget_our_code()
    socket.socket.connect = no_network
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with open(order) as stream:
        asked = json.load(stream)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts, pairs = asked["texts"], asked["pairs"]
    by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]) + (len(pairs[row]) if pairs else 0))
    logits: list[Any] = [None] * len(texts)
    for start in range(0, len(texts), asked["batch"]):
        rows = by_length[start : start + asked["batch"]]
        second = [pairs[row] for row in rows] if pairs else None
        batch = tokenizer(
            [texts[row] for row in rows],
            second,
            truncation=True,
            max_length=asked["max_length"],
            padding=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            for row, answer in zip(rows, model(**batch).logits.tolist(), strict=True):
                logits[row] = answer
    ours = [name for name in sys.modules if name.split(".")[0] in ("tasks", "flows")]
    with open(answers, "w") as stream:
        json.dump({"logits": logits, "labels": model.config.id2label, "ours": ours}, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
