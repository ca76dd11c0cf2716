"""Augmentation: our batched questions beside one masked-LM call per word, as the published code makes them.

Sentences have SST-2's lengths. With a real masked language model (``MASKED_LM=folder SENTENCES=file.txt``) the bench
also says how many of the substitutes agree; with random weights all logits are nearly equal, so that only float32 is
compared, ties aside. Shape letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.methods.text.word_substitution import keep_candidates, match_case
from tasks.recipe.data import Augmentation
from tasks.training.augment import SPARE, Found, Place, by_masked_lm, places_of
from tests.benchmarks.measure import Contestant, Figure, Lap, interleave, timed
from tests.benchmarks.models import SHAPES
from tests.benchmarks.sentences import quantiles
from tests.benchmarks.setting import Setting

ASKED, VOCABULARY, TIE = 32, 30_522, 1e-4
WAYS: dict[str, tuple[int, float | None, dict[str, Any]]] = {
    "batched fp32": (2, 2.0, {"precision": "fp32", "context": "beside-original"}),
    "batched bf16": (4, 4.5, {"precision": "bf16", "context": "beside-original"}),
    "masked sentence alone": (6, 9.0, {"precision": "bf16"}),
    "one pass": (12, 25.0, {"precision": "bf16", "mode": "one-pass"}),
}
"""Each way of asking: how many times the sentences of the slow way it gets, its target, and its knobs."""


def word(number: int) -> str:
    """Spell a number in letters."""
    letters = ""
    for _ in range(4):
        letters, number = "bcdfghklmnprstvz"[number % 16] + "aeiou"[number // 16 % 5] + letters, number // 80
    return letters


def write_random_model(folder: Path) -> Path:
    """Write a 6 x 384 masked language model with random weights, whose words are made of letters."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [word(number) for number in range(VOCABULARY - len(tokens))]
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **SHAPES["6x384"])).save_pretrained(folder)
    BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}).save_pretrained(folder)
    return folder


def random_sentences(count: int) -> list[str]:
    """Return sentences of SST-2's lengths."""
    random = np.random.default_rng(0)
    lengths = random.permutation(quantiles(count)) - 2
    return [" ".join(word(int(number)) for number in random.integers(0, VOCABULARY - 5, length)) for length in lengths]


def evenly(texts: list[str], count: int) -> list[str]:
    """Return sentences at even distances of a list that is sorted by length: however many, they are as long on
    average."""
    return [texts[int((place + 0.5) * len(texts) / count)] for place in range(count)] if texts else []


def word_by_word(
    model: Any, tokenizer: Any, places: list[Place], options: int
) -> tuple[Found, dict[tuple[str, int], torch.Tensor]]:
    """Ask as the published code does: one call a word, the masked sentence beside the original, logits over the
    vocabulary for every token."""
    found, logits = {}, {}
    for place in places:
        words = place.sentence.split(" ")
        question = tokenizer(
            words, words, is_split_into_words=True, truncation=True, max_length=128, return_tensors="pt"
        )
        question["input_ids"][0, place.token] = tokenizer.mask_token_id
        with torch.inference_mode():
            logits_V = model(**question).logits[0, place.token]
        tokens = tokenizer.convert_ids_to_tokens(logits_V.topk(options + SPARE).indices.tolist())
        original = words[place.word]
        found[place.sentence, place.word] = [
            match_case(token, original) for token in keep_candidates(tokens, original, options)
        ]
        logits[place.sentence, place.word] = logits_V
    return found, logits


def contestant(ask: Callable[[list[Place]], Any], tokenizer: Any, sentences: list[str]) -> Contestant:
    """Return a contestant that asks about all words of sentences; a unit is a sentence."""
    places = single_pieces(sentences, tokenizer)

    def once() -> Lap:
        with timed(len(sentences)) as lap:
            ask(places)
        return lap

    return once


def single_pieces(sentences: list[str], tokenizer: Any) -> list[Place]:
    """Return the words that the masked language model is asked about."""
    return [
        place
        for sentence in dict.fromkeys(sentences)
        for place in places_of(sentence, tokenizer, 128)
        if place.token >= 0
    ]


def augmentation(setting: Setting) -> list[Figure]:
    """Time every way of asking, and count agreeing substitutes."""
    from transformers import AutoModelForMaskedLM

    from tasks.training.data.rows import load_tokenizer
    from tasks.training.models.students import freeze, load_masked_lm

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(os.environ["MASKED_LM"]) if "MASKED_LM" in os.environ else write_random_model(Path(scratch))
        model, tokenizer = freeze(load_masked_lm(folder, torch.device("cpu"))), load_tokenizer(folder)
        as_loaded = AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    texts = sorted(Path(os.environ["SENTENCES"]).read_text().splitlines(), key=len) if "SENTENCES" in os.environ else []
    of = {
        times: evenly(texts, ASKED * times) or random_sentences(ASKED * times)
        for times in {1, *(times for times, _, _ in WAYS.values())}
    }
    knobs = {way: Augmentation(masked_lm="teacher", **values) for way, (_, _, values) in WAYS.items()}
    options = knobs["one pass"].options
    contestants = {
        "word by word": contestant(lambda places: word_by_word(as_loaded, tokenizer, places, options), tokenizer, of[1])
    }
    for way, (times, _, _) in WAYS.items():
        contestants[way] = contestant(
            lambda places, way=way: batched(model, tokenizer, places, knobs[way]), tokenizer, of[times]
        )  # type: ignore[misc]
    contest = interleave(contestants, setting.repeats, tell=setting.tell)
    speed = [
        contest.figure(f"augmentation 6x384, {way}", of=way, against="word by word", target=target)
        for way, (_, target, _) in WAYS.items()
    ]
    return speed + agreements(
        as_loaded, model, tokenizer, single_pieces(of[1], tokenizer), knobs, real="MASKED_LM" in os.environ
    )


def batched(model: Any, tokenizer: Any, places: list[Place], knobs: Augmentation) -> Found:
    """Ask as the product does."""
    return by_masked_lm(model, places, tokenizer, knobs, lambda *_, **__: None)


def agreements(
    as_loaded: Any, model: Any, tokenizer: Any, places: list[Place], knobs: dict[str, Augmentation], *, real: bool
) -> list[Figure]:
    """Count the substitutes that the slow way finds too; of those that float32 misses, say whether they are ties."""
    slow, logits = word_by_word(as_loaded, tokenizer, places, knobs["one pass"].options)
    figures = []
    for way, target in (("batched fp32", 1.0), ("batched bf16", 0.98)) if real else (("batched fp32", 1.0),):
        fast = batched(model, tokenizer, places, knobs[way])
        shares = [
            share(slow[place], fast[place], logits[place], tokenizer, TIE if way.endswith("fp32") else 0.0)
            for place in slow
        ]
        mean = sum(shares) / len(shares)
        figures.append(
            Figure(
                f"augmentation 6x384, {way}: same substitutes",
                way,
                "word by word",
                [mean],
                "cpu",
                target,
                unit=" share",
            )
        )
    return figures


def share(slow: list[str], fast: list[str], logits_V: torch.Tensor, tokenizer: Any, tie: float) -> float:
    """Return the share of substitutes in common; one whose logit is within ``tie`` of the last that was kept counts as
    common."""
    if not slow:
        return 1.0
    tokens = {text: logits_V[tokenizer.convert_tokens_to_ids(text.lower())] for text in {*slow, *fast}}
    last = min(tokens[text] for text in slow)
    same = [text for text in slow if text in fast or tokens[text] - last <= tie]
    return len(same) / len(slow)
