"""Find substitutes for words: by a masked language model for words of one token, by word vectors for the others.

Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351. Unlike in the reference code, all masked places pass through the
model in batches, the states of the masked places are gathered before the vocabulary projection, and repeated sentences
are processed once. Shape letters: P places, B batch, T tokens, V vocabulary, E vector width.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.architectures.known_architectures import vocabulary_head
from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.methods.text.word_substitution import keep_candidates, match_case, replaceable
from tasks.methods.text.word_vectors import nearest_words
from tasks.ports.rows.row_files import read_split
from tasks.recipe.data import Augmentation
from tasks.training.data.batches import by_length
from tasks.training.data.encoded import Encoded, collate, flat
from tasks.training.data.rows import load_tokenizer
from tasks.training.data.substitutes import Options, write_substitutes
from tasks.training.models.students import freeze, load_masked_lm
from tasks.training.precision import arithmetic, device

SPARE = 10  # more than the requested options, because word pieces and the word itself are removed

Found = dict[tuple[str, int], list[str]]
"""Substitutes by (sentence, number of the word)."""


@dataclass(frozen=True)
class Place:
    """One word that may be replaced: its position, and its token id if it is a single token (-1 otherwise)."""

    sentence: str
    word: int
    token: int


def augment(job: Job) -> dict[str, object]:
    """Write substitutes for the replaceable words of the training rows."""
    knobs, rows = job.read(Augmentation), read_split(job.inputs["rows"], "train")
    count = len(rows.texts)
    chosen = np.random.default_rng(knobs.seed).permutation(count)[: knobs.rows or count]
    sides = {"text": rows.texts} | ({"pair": rows.pairs} if rows.pairs is not None else {})
    sentences = sorted({texts[row] for texts in sides.values() for row in chosen})
    found = substitutes(job, knobs, sentences)
    write_substitutes(
        job.output,
        (
            (int(rows.ids[row]), side, words_with_options(texts[row], found))
            for row in sorted(chosen)
            for side, texts in sides.items()
        ),
    )
    return {"rows": len(chosen), "sentences": len(sentences), "words": len(found)}


def words_with_options(sentence: str, found: Found) -> Options:
    """Return the words of a sentence, and the substitutes of each."""
    words = sentence.split(" ")
    return words, [found.get((sentence, index), []) for index in range(len(words))]


def substitutes(job: Job, knobs: Augmentation, sentences: list[str]) -> Found:
    """Find substitutes by each of the job's sources."""
    found: Found = {}
    tokenizer = load_tokenizer(job.inputs["masked_lm" if "masked_lm" in job.inputs else "tokenizer"])
    places = [place for sentence in sentences for place in places_of(sentence, tokenizer, knobs.max_length)]
    single = [place for place in places if place.token >= 0]
    if "masked_lm" in job.inputs and single:
        found |= by_masked_lm(
            freeze(load_masked_lm(job.inputs["masked_lm"], device())), single, tokenizer, knobs, job.progress
        )
    if "word_vectors" in job.inputs:
        rest = [place for place in places if (place.sentence, place.word) not in found]
        found |= by_word_vectors(rest, job.inputs["word_vectors"], knobs)
    return {place: options for place, options in found.items() if options}


def places_of(sentence: str, tokenizer: Any, max_length: int) -> Iterator[Place]:
    """Yield the replaceable words of a sentence that are within the length limit."""
    words = sentence.split(" ")
    pieces = tokenizer([spaced(words)], is_split_into_words=True, truncation=True, max_length=max_length).word_ids(0)
    tokens: dict[int, list[int]] = {}
    for token, word in enumerate(pieces):
        if word is not None:
            tokens.setdefault(word, []).append(token)
    for word, at in tokens.items():
        if replaceable(words[word]):
            yield Place(sentence, word, at[0] if len(at) == 1 else -1)


def spaced(words: list[str]) -> list[str]:
    """Return words with a leading space, except the first: byte-level tokenizers read "good" and " good" as different
    words; other tokenizers ignore the space."""
    return [*words[:1], *(f" {word}" for word in words[1:])]


def word_mark(tokenizer: Any) -> str:
    """Return the prefix that marks the beginning of a word in a vocabulary; byte-level BPE and SentencePiece have
    different ones, and WordPiece has none."""
    return next(
        (mark for mark in ("\u0120", "\u2581") if any(token.startswith(mark) for token in tokenizer.tokenize("a a"))),
        "",
    )


def by_masked_lm(
    model: Any, places: list[Place], tokenizer: Any, knobs: Augmentation, tell: Callable[..., None]
) -> Found:
    """Return the most likely substitutes at each place, by a masked language model."""
    encoded, asked = (
        masked_questions(places, tokenizer, knobs)
        if knobs.mode == "masked"
        else whole_questions(places, tokenizer, knobs)
    )
    found: Found = {}
    done, mark = 0, word_mark(tokenizer)
    for batch in by_length(encoded.lengths_N, size=128, tokens=8192):
        at = [(row, place) for row, question in enumerate(batch) for place in asked[question]]
        top_PK = top_tokens(model, collate(encoded, batch, tokenizer.pad_token_id, model.device), at, knobs)
        for (_, place), tokens in zip(at, top_PK, strict=True):
            words = [
                token.removeprefix(mark) for token in tokenizer.convert_ids_to_tokens(tokens) if token.startswith(mark)
            ]
            found[place.sentence, place.word] = options_of(place, words, knobs.options)
        done += len(batch)
        tell(done, len(asked), unit="questions")
    return found


def masked_questions(places: list[Place], tokenizer: Any, knobs: Augmentation) -> tuple[Encoded, list[list[Place]]]:
    """Return one input per place: its sentence with that token masked, either alone or as a pair with the original
    sentence."""
    if tokenizer.mask_token_id is None:
        raise ModelError(
            "the model for augmentation has no mask token; give a masked language model as augmentation.masked_lm"
        )
    second = (lambda words: words) if knobs.context == "beside-original" else (lambda words: None)
    ids, segments = [], []
    for place in places:
        words = spaced(place.sentence.split(" "))
        out = tokenizer(
            words,
            second(words),
            is_split_into_words=True,
            truncation=True,
            max_length=knobs.max_length,
            return_token_type_ids=True,
        )
        masked = list(out["input_ids"])
        masked[place.token] = tokenizer.mask_token_id
        ids.append(masked)
        segments.append(out["token_type_ids"])
    return ragged(ids, segments), [[place] for place in places]


def whole_questions(places: list[Place], tokenizer: Any, knobs: Augmentation) -> tuple[Encoded, list[list[Place]]]:
    """Return one input per sentence, unmasked, with all its places: much cheaper, and a different method."""
    by_sentence: dict[str, list[Place]] = {}
    for place in places:
        by_sentence.setdefault(place.sentence, []).append(place)
    words = [spaced(sentence.split(" ")) for sentence in by_sentence]
    out = tokenizer(
        words, is_split_into_words=True, truncation=True, max_length=knobs.max_length, return_token_type_ids=True
    )
    return ragged(out["input_ids"], out["token_type_ids"]), list(by_sentence.values())


def ragged(ids: list[list[int]], segments: list[list[int]]) -> Encoded:
    """Concatenate token lists."""
    offsets = np.concatenate([[0], np.cumsum([len(values) for values in ids])]).astype(np.int64)
    return Encoded(flat(ids), flat(segments), offsets)


def top_tokens(model: Any, batch: Any, at: list[tuple[int, Place]], knobs: Augmentation) -> list[list[int]]:
    """Return the most likely tokens [P, K] at the given places."""
    rows_P = torch.tensor([row for row, _ in at], device=model.device)
    tokens_P = torch.tensor([place.token for _, place in at], device=model.device)
    with torch.inference_mode(), arithmetic(knobs.precision, model.device):
        logits_PV = place_logits(model, batch, rows_P, tokens_P)
    return logits_PV.float().topk(min(knobs.options + SPARE, logits_PV.shape[-1])).indices.tolist()


def place_logits(model: Any, batch: Any, rows_P: Tensor, tokens_P: Tensor) -> Tensor:
    """Return vocabulary logits [P, V]; if the head is known, only the requested places pass through it."""
    head = vocabulary_head(model)
    if head is None:
        return model(**batch.inputs(model)).logits[rows_P, tokens_P]
    return head(model.base_model(**batch.inputs(model)).last_hidden_state[rows_P, tokens_P])


def options_of(place: Place, tokens: list[str], limit: int) -> list[str]:
    """Turn likely tokens into substitutes in the case of the replaced word."""
    original = place.sentence.split(" ")[place.word]
    return [match_case(token, original) for token in keep_candidates(tokens, original, limit)]


def by_word_vectors(places: list[Place], path: Path, knobs: Augmentation) -> Found:
    """Find the nearest words by cosine; words that are not in the file get none."""
    words, vectors_VE = read_vectors(path, knobs.vocabulary)
    number = {word: index for index, word in enumerate(words)}
    wanted = sorted({word for place in places if (word := place.sentence.split(" ")[place.word].lower()) in number})
    if not wanted:
        return {}
    near = nearest_words(vectors_VE, np.asarray([number[word] for word in wanted]), knobs.options + SPARE)
    by_word = {word: [words[index] for index in row] for word, row in zip(wanted, near, strict=True)}
    found: Found = {}
    for place in places:
        tokens = by_word.get(place.sentence.split(" ")[place.word].lower())
        if tokens:
            found[place.sentence, place.word] = options_of(place, tokens, knobs.options)
    return found


def read_vectors(path: Path, limit: int) -> tuple[list[str], np.ndarray]:
    """Read word vectors in GloVe text format, plain or gzip, scaled to length one [V, E]."""
    words: list[str] = []
    vectors: list[np.ndarray] = []
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in zip(range(1, limit + 1), lines, strict=False):
                word, *values = line.rstrip().split(" ")
                if number > 1 and len(values) != len(vectors[0]):
                    raise DataError(
                        f"{path.name}, line {number}: {len(values)} numbers after the word, {len(vectors[0])} above; "
                        f"use GloVe text format"
                    )
                words.append(word)
                vectors.append(np.asarray(values, dtype=np.float32))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path.name} contains no word vectors; use GloVe text format, plain or gzip: a word and its numbers in "
            f"each line"
        ) from error
    if not words:
        raise DataError(f"{path.name} is empty; use word vectors in GloVe text format")
    vectors_VE = np.stack(vectors)
    return words, vectors_VE / np.maximum(np.linalg.norm(vectors_VE, axis=1, keepdims=True), 1e-9)
