"""Vocabulary trimming: the tokenizer keeps the pieces that a text uses, and the embeddings keep their rows.

Source: Abdaoui et al. 2020, arXiv:2010.05609. Nothing is trained, and nothing is computed anew: texts whose pieces are
all kept have the same logits, bit by bit. The rows that judge a model are not read, since they would choose its
vocabulary. Chats are counted as the template of the tokenizer writes them.
Shape letters: V pieces, S tokens of all texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.vocabulary.tokenizer_files import Document, ids_to_keep, with_pieces
from tasks.recipe.makers.slices import VocabularySlice
from tasks.task_types.texts.as_read import texts_as_read
from tasks.training.data.corpora import read_corpus
from tasks.training.data.encoded import encode
from tasks.training.data.rows import Task, load_tokenizer, read_rows, task_and_tokenizer
from tasks.training.models.pieces import keep_pieces
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import score_of_finished

TEXTS_AT_ONCE = 1000
ROWS_PER_CORPUS = 10
"""How often a piece of the rows counts beside one of the corpus: the task's own words come first."""
NO_LIMIT = 10**9  # no text is truncated where pieces are counted


def keep_used_pieces(job: Job) -> dict[str, object]:
    """Write ``base`` with fewer pieces; return their number and that of before."""
    knobs = job.read(VocabularySlice)
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, device())
    own = texts_as_read(task.head.units, learned_texts(job.inputs["rows"], task), tokenizer)
    transfer = texts_as_read(task.head.units, transfer_texts(job, task), tokenizer)
    counted = [*(own if knobs.train else []), *transfer]
    document, counts_V = document_of(tokenizer), piece_counts(job, counted, tokenizer, model)
    kept = ids_to_keep(document, counts_V, most=None if knobs.keep == "used" else knobs.keep, floor=knobs.floor)
    keep_pieces(model, kept)
    save_model(model, tokenizer, job.output)
    (job.output / "tokenizer.json").write_text(json.dumps(with_pieces(document, kept), ensure_ascii=False))
    smaller = load_tokenizer(job.output)
    return {
        "pieces": len(kept),
        "pieces_before": len(counts_V),
        "cut_alike": share_cut_alike(own, tokenizer, smaller, kept),
        "selection_score": score_of_finished(job, knobs, task, model, smaller),
        "note": f"{len(kept):,} of {len(counts_V):,} pieces",
    }


def document_of(tokenizer: Any) -> Document:
    """Return a tokenizer's ``tokenizer.json``; raise ModelError for a tokenizer that has none."""
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer is a {type(tokenizer).__name__} without tokenizer.json, of which no pieces can be removed; "
            f"name a model that has this file"
        )
    document: Document = json.loads(tokenizer.backend_tokenizer.to_str())
    return document


def piece_counts(job: Job, texts: Sequence[str], tokenizer: Any, model: Any) -> np.ndarray:
    """Return how often each row of the embeddings is used [V], in some texts and in the corpus, if there is one."""
    table = model.get_input_embeddings().num_embeddings
    counts_V = np.zeros(table, np.int64)
    for some in in_portions(texts):
        counts_V += np.bincount(encode(tokenizer, some, None, NO_LIMIT).ids_S, minlength=table)
    if "corpus" not in job.inputs:
        return counts_V
    require_tokenizer_of_corpus(job, tokenizer)
    return counts_V * ROWS_PER_CORPUS + np.bincount(read_corpus(job.inputs["corpus"]).ids_S, minlength=table)


def transfer_texts(job: Job, task: Task) -> list[str]:
    """Return the user's own text, if there is any."""
    return learned_texts(job.inputs["transfer"], task) if "transfer" in job.inputs else []


def learned_texts(folder: Path, task: Task) -> list[str]:
    """Return all texts of one folder of rows; no split but train is read."""
    rows = read_rows(folder, "train", task.head)
    return rows.texts + (rows.pairs or [])


def in_portions(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield some texts at once."""
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        yield texts[start : start + TEXTS_AT_ONCE]


def require_tokenizer_of_corpus(job: Job, tokenizer: Any) -> None:
    """Raise ModelError if the corpus was tokenized with another vocabulary than the model's: its numbers would be those
    of other pieces."""
    corpus = load_tokenizer(job.inputs["pretrained"])
    if corpus.get_vocab() != tokenizer.get_vocab():
        raise ModelError(
            f"the corpus is tokenized with the pretrained model's {len(corpus):,} pieces, and this model has "
            f"{len(tokenizer):,} of its own; set of: [train], or trim the model that it is made from"
        )


def share_cut_alike(texts: Sequence[str], before: Any, after: Any, kept: Sequence[int]) -> float | None:
    """Return the share of texts that both tokenizers divide into the same pieces, among those whose pieces are all
    kept: 1 for WordPiece and BPE; None if there is no such text."""
    old_ids, alike, asked = np.asarray(kept), 0, 0
    for some in in_portions(texts):
        old_and_new = (tokenizer(list(some), verbose=False)["input_ids"] for tokenizer in (before, after))
        for old, new in zip(*old_and_new, strict=True):
            if np.isin(old, old_ids).all():
                asked, alike = asked + 1, alike + (old == old_ids[new].tolist())
    return alike / asked if asked else None
