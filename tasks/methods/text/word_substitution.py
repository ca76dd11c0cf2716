"""Word substitution: new training sentences by swapping content words for likely others.

Paper: Jiao et al. 2019, "TinyBERT: Distilling BERT for Natural Language Understanding", arXiv:1909.10351.
Candidates are stored once per sentence; a variant is drawn anew for each epoch, and the same draw always gives the same
text. Words are the parts of ``text.split(" ")``, so that joining them restores the original spacing.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence

from tasks.errors import DataError, RecipeError

LETTERS = re.compile(r"[a-z]*", re.ASCII)

_LISTED = (
    # articles, conjunctions, negation
    "a an the and but or nor if because as until while than so not no only "
    # pronouns and determiners
    "i me my mine myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers "
    "herself it its itself they them their theirs themselves this that these those what which who "
    "all any both each few more most other some such same own "
    # prepositions and adverbs of place, time and degree
    "about above after again against at before below between by down during for from further here how in into just "
    "now of off on once out over there through then to too under up very when where why with "
    # auxiliaries
    "am is are was were be been being have has had having do does did doing can will should shall "
    # pieces of contractions after tokenization
    "ain aren couldn d didn doesn don hadn hasn haven isn ll m ma mightn mustn needn o re s shan shouldn t ve wasn "
    "weren won wouldn y"
)
FUNCTION_WORDS = frozenset(_LISTED.split())
"""English words that carry the grammar; swapping one usually breaks the sentence or changes its meaning."""


def replaceable(word: str) -> bool:
    """Tell whether ``word`` may be swapped: letters a to z only, in either case, and not a function word."""
    lowered = word.lower()
    return LETTERS.fullmatch(lowered) is not None and lowered not in FUNCTION_WORDS


def match_case(candidate: str, original: str) -> str:
    """Return ``candidate`` in capitals or with a capital if ``original`` is written so."""
    if len(original) > 1 and original.isupper():
        return candidate.upper()
    if original[:1].isupper():
        return candidate[:1].upper() + candidate[1:]
    return candidate


def keep_candidates(tokens: Sequence[str], original: str, limit: int) -> list[str]:
    """Return the first ``limit`` of ``tokens`` that are whole words, distinct, and not ``original`` in any case."""
    seen = {original.lower()}
    kept: list[str] = []
    for token in tokens:
        # Word pieces ("##ing"), special tokens ("[UNK]", "<s>"), numbers and punctuation all contain non-letters.
        if len(kept) < limit and token.isalpha() and token.lower() not in seen:
            seen.add(token.lower())
            kept.append(token)
    return kept


def sample_variant(
    words: Sequence[str],
    options: Sequence[Sequence[str]],
    *,
    probability: float,
    seed: int,
    example: int,
    epoch: int,
    field: str,
) -> str:
    """Return the text with each word that has options swapped with ``probability``, the same on every machine."""
    if not 0.0 <= probability <= 1.0:
        raise RecipeError(f"the probability of a substitution is {probability}; it must lie between 0 and 1")
    if len(words) != len(options):
        raise DataError(
            f"{len(words)} words came with {len(options)} lists of options; there must be one list per word"
        )
    draw = _generator(seed, example, epoch, field)
    return " ".join(_swap(word, choices, probability, draw) for word, choices in zip(words, options, strict=True))


def _swap(word: str, choices: Sequence[str], probability: float, draw: random.Random) -> str:
    if not len(choices) or draw.random() >= probability:
        return word
    return choices[int(draw.random() * len(choices))]


def _generator(seed: int, example: int, epoch: int, field: str) -> random.Random:
    # Python's own hash of a string differs from process to process; a digest does not.
    name = f"{int(seed)}/{int(example)}/{int(epoch)}/{field}"
    return random.Random(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big"))
