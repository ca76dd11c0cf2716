"""General text as one stream of token ids on disk, read by memory map: two bytes a token, however large the corpus.

Shape letters: N sequences, S tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.ports.rows.document_files import document_batches
from tasks.recipe.data import CorpusText
from tasks.training.data.encoded import Encoded
from tasks.training.data.rows import load_tokenizer

DOCUMENTS_AT_ONCE = 200
HELD_BACK = 100  # every hundredth sequence is held back to measure the loss


def tokenize_corpus(job: Job) -> dict[str, object]:
    """Tokenize ``documents`` with the tokenizer of ``base`` into sequences of at most ``max_length`` tokens."""
    tokenizer, knobs = load_tokenizer(job.inputs["base"]), job.read(CorpusText)
    dtype = np.uint16 if len(tokenizer) < 65_536 else np.uint32
    lengths: list[int] = []
    total = 0
    with (job.output / "tokens.raw").open("wb") as stream:
        for sequence in sequences(job.inputs["documents"], tokenizer, knobs.max_length):
            stream.write(np.asarray(sequence, dtype=dtype).tobytes())
            lengths.append(len(sequence))
            total += len(sequence)
            job.progress(min(total, knobs.max_tokens), knobs.max_tokens, unit="tokens")
            if total >= knobs.max_tokens:
                break
    if not lengths:
        raise DataError("the corpus holds no text; check corpus.source and corpus.text")
    np.save(job.output / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    index = {"dtype": np.dtype(dtype).name, "vocab_size": len(tokenizer), "tokens": total, "sequences": len(lengths)}
    index["max_length"] = knobs.max_length
    (job.output / "index.json").write_text(json.dumps(index, sort_keys=True))
    return {"tokens": total, "sequences": len(lengths)}


def sequences(documents: Path, tokenizer: Any, max_length: int) -> Iterator[list[int]]:
    """Yield token ids of consecutive pieces of each document, with the tokenizer's special tokens around each piece."""
    before, after = special_tokens_around(tokenizer)
    room = max_length - len(before) - len(after)
    for texts in document_batches(documents, DOCUMENTS_AT_ONCE):
        encoded = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for ids in encoded["input_ids"]:
            for cut in range(0, len(ids), room):
                yield [*before, *ids[cut : cut + room], *after]


def special_tokens_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a text: BERT's summary token is the first token, XLNet's the last."""
    bare, framed = (list(tokenizer("a", add_special_tokens=special)["input_ids"]) for special in (False, True))
    at = next(at for at in range(len(framed)) if framed[at : at + len(bare)] == bare)
    return framed[:at], framed[at + len(bare) :]


def read_corpus(folder: Path, *, left: bool = False) -> Encoded:
    """Open a tokenized corpus without reading it into memory; ``left`` says whether batches are padded on the left."""
    index = json.loads((folder / "index.json").read_text())
    ids_S = np.memmap(folder / "tokens.raw", dtype=index["dtype"], mode="r")
    # One zero, broadcast to all tokens: general text has a single segment.
    return Encoded(ids_S, np.broadcast_to(np.int8(0), ids_S.shape), np.load(folder / "offsets.npy"), left)


def longest_sequence(folder: Path) -> int:
    """Return the maximum number of tokens in a sequence of a tokenized corpus."""
    return int(json.loads((folder / "index.json").read_text())["max_length"])


def learning_rows(encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the training sequences, and of the sequences held back to measure the loss."""
    numbers = np.arange(len(encoded.offsets) - 1)
    held = numbers % HELD_BACK == HELD_BACK - 1
    return numbers[~held], numbers[held][:512]
