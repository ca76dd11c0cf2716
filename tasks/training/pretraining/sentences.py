"""A corpus as one stream of tokens with the borders of its sentences and documents.

Written by ``divide_documents``, read by memory map. Shape letters: S sentences, D documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.methods.text.sentence_ends import RULE, split_sentences
from tasks.ports.rows.document_files import document_batches
from tasks.recipe.slices import SentencesSlice
from tasks.training.data.corpora import DOCUMENTS_AT_ONCE
from tasks.training.data.rows import load_tokenizer

TOKEN_FILE, OFFSET_FILE = "sentence_tokens.raw", "sentence_offsets.npy"
DOCUMENT_FILE, INDEX_FILE = "documents.npy", "sentences.json"
HELD_DOCUMENT = 20  # every twentieth document is held back, to choose weights or to measure accuracies
LEAST_FOR_TWO, LEAST_FOR_FOUR = 8, 40  # documents of which so many are held back; fewer would be missed in training


@dataclass(frozen=True)
class DividedCorpus:
    """The tokens of all sentences, ``offsets_S`` with the first token of each and their number behind them, and the
    first and the last but one sentence of each document of two sentences or more."""

    ids: np.ndarray
    offsets_S: np.ndarray
    documents_D2: np.ndarray

    @property
    def learned_D2(self) -> np.ndarray:
        """The documents to learn from."""
        return self.documents_D2[~self.is_held_D]

    @property
    def reported_D2(self) -> np.ndarray:
        """The held-back documents on which accuracies are reported: every second one."""
        return self.documents_D2[self.is_held_D][::2]

    @property
    def choosing_D2(self) -> np.ndarray:
        """The other held-back documents, by which the weights are chosen; none of a corpus with one of them."""
        return self.documents_D2[self.is_held_D][1::2]

    @property
    def is_held_D(self) -> np.ndarray:
        """Which documents are held back: every twentieth, but of fewer than 80 four of them, of fewer than 40 two, and
        of fewer than 8 the last one."""
        count = len(self.documents_D2)
        wanted = 4 if count >= LEAST_FOR_FOUR else 2 if count >= LEAST_FOR_TWO else 1
        every = min(HELD_DOCUMENT, count // wanted)
        return np.arange(count) % every == every - 1 if count > 1 else np.zeros(count, bool)


def divide_documents(job: Job) -> dict[str, object]:
    """Divide ``documents`` into sentences and tokenize them with the tokenizer of ``base``, without special tokens.

    Raises DataError for a corpus in which no document has two sentences.
    """
    knobs, tokenizer = job.read(SentencesSlice), load_tokenizer(job.inputs["base"])
    dtype = np.uint16 if len(tokenizer) < 65_536 else np.uint32
    lengths, documents, total, read = list[int](), list[tuple[int, int]](), 0, 0
    with (job.output / TOKEN_FILE).open("wb") as stream:
        for ids in tokenized_documents(job.inputs["documents"], tokenizer):
            read += 1
            if len(ids) < 2:
                continue
            documents.append((len(lengths), len(lengths) + len(ids)))
            for sentence in ids:
                stream.write(np.asarray(sentence, dtype=dtype).tobytes())
                lengths.append(len(sentence))
                total += len(sentence)
            job.progress(min(total, knobs.max_tokens), knobs.max_tokens, unit="tokens")
            if total >= knobs.max_tokens:
                break
    if not documents:
        raise DataError(
            f"no document of the corpus has two sentences, and the order of sentences is learned from two; a sentence "
            f"ends at {RULE}; check corpus.source, where each row is one document, and corpus.text"
        )
    np.save(job.output / OFFSET_FILE, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    np.save(job.output / DOCUMENT_FILE, np.array(documents, dtype=np.int64))
    about = {"dtype": np.dtype(dtype).name, "vocab_size": len(tokenizer), "sentence_end": RULE}
    (job.output / INDEX_FILE).write_text(json.dumps(about, sort_keys=True))
    counts = {"tokens": total, "sentences": len(lengths), "documents": len(documents)}
    return {**counts, "documents_left_out": read - len(documents), "sentence_end": RULE}


def tokenized_documents(documents: Path, tokenizer: Any) -> Iterator[list[list[int]]]:
    """Yield the token ids of the sentences of each document; sentences without tokens are left out."""
    for texts in document_batches(documents, DOCUMENTS_AT_ONCE):
        divided = [split_sentences(text) for text in texts]
        flat = [sentence for sentences in divided for sentence in sentences]
        encoded = tokenizer(flat, add_special_tokens=False, return_attention_mask=False, verbose=False) if flat else {}
        ids = iter(encoded["input_ids"] if flat else ())
        for sentences in divided:
            yield [one for one in (next(ids) for _ in sentences) if one]


def read_divided(folder: Path) -> DividedCorpus:
    """Open a divided corpus without reading its tokens into memory."""
    about = json.loads((folder / INDEX_FILE).read_text())
    ids = np.memmap(folder / TOKEN_FILE, dtype=about["dtype"], mode="r")
    return DividedCorpus(ids, np.load(folder / OFFSET_FILE), np.load(folder / DOCUMENT_FILE))
