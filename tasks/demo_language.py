"""A small language of its own, for the demo: opinions whose meaning is composed, and plain text to go with them.

Opinion words are invented and drawn by the seed, so nothing can be known beforehand. Negation turns an opinion round,
and where two opinions meet, the one after "but" (or the one that "although" does not introduce) counts. Counting words is therefore not enough.
Documents of plain text keep to one mood, and where an opinion is composed, they often say how people took it: a masked language model
could find out which words go together. The demo's is trained for seconds and finds out little; its teacher learns from the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

THINGS = "film book song meal hotel phone garden market river train lamp coat school boat chair story road bridge house play".split()
PARTS = "plot end start taste view price sound colour shape service voice cover menu room light seat".split()
COPULAS = ["is", "was", "seems"]
DEGREES = ["", "", "very", "rather", "truly", "quite", "so"]
NEGATIONS = ["not", "never", "hardly", "by no means"]
OTHERS = ["my friend", "the paper", "a neighbour", "the crowd"]
GLAD, SORRY = "glad happy pleased content".split(), "sorry sad angry upset".split()
FACTS = ["the {thing} is near the {other}", "we saw the {thing} and the {other}", "a {thing} has a {part}", "the {thing} came after the {other}"]
ONSETS, VOWELS, CODAS = "b d f g k l m n p r s t v z br dr fl gr kl pl st tr".split(), "a e i o u ai ea ou".split(), "l m n r s t x nd rk st".split()
OPINIONS = 40  # invented words of each mood
NOISE = 0.05  # share of training labels that are wrong, as in any real data set; validation labels are right


@dataclass(frozen=True)
class Lexicon:
    """The opinion words of one seed."""

    good: list[str]
    bad: list[str]


@dataclass(frozen=True)
class Opinion:
    """A sentence and what it means: True for good."""

    text: str
    good: bool


def write_language(folder: Path, *, seed: int, train: int = 5000, validation: int = 2000, unlabelled: int = 3000, documents: int = 4000) -> None:
    """Write ``data`` (train and validation rows), ``transfer`` (opinions without labels) and ``corpus`` (plain text) under ``folder``.

    The same seed writes the same bytes.
    """
    random = np.random.default_rng([seed, 7])
    lexicon = make_lexicon(random)
    seen: set[str] = set()
    # Validation is written first, so that more training rows never change what is judged on.
    write_rows(folder / "data" / "validation.parquet", fresh_opinions(random, lexicon, validation, seen), random, noise=0.0)
    write_rows(folder / "data" / "train.parquet", fresh_opinions(random, lexicon, train, seen), random, noise=NOISE)
    write_texts(folder / "transfer" / "train.parquet", [opinion.text for opinion in fresh_opinions(random, lexicon, unlabelled, seen)])
    write_texts(folder / "corpus" / "train.parquet", [document(random, lexicon) for _ in range(documents)])


def make_lexicon(random: np.random.Generator) -> Lexicon:
    """Invent opinion words of two syllables; which are good is chance."""
    words: list[str] = []
    while len(words) < 2 * OPINIONS:
        word = pick(random, ONSETS) + pick(random, VOWELS) + pick(random, ONSETS) + pick(random, VOWELS) + pick(random, CODAS)
        if word not in words:
            words.append(word)
    return Lexicon(words[:OPINIONS], words[OPINIONS:])


def fresh_opinions(random: np.random.Generator, lexicon: Lexicon, count: int, seen: set[str]) -> list[Opinion]:
    """Draw opinions that were not drawn before."""
    found: list[Opinion] = []
    while len(found) < count:
        opinion = statement(random, lexicon, bool(random.random() < 0.5))
        if opinion.text not in seen:
            seen.add(opinion.text)
            found.append(opinion)
    return found


def statement(random: np.random.Generator, lexicon: Lexicon, good: bool) -> Opinion:
    """Draw a sentence of a given meaning: one clause, or two of which one counts."""
    form, main = random.random(), clause(random, lexicon, good)
    if form < 0.4:
        return Opinion(main, good)
    side = clause(random, lexicon, not good if random.random() < 0.6 else good)
    if form < 0.65:
        return Opinion(f"{side} , but {main}", good)
    if form < 0.85:
        return Opinion(f"although {side} , {main}", good)
    return Opinion(f"{pick(random, OTHERS)} says that {side} , yet {main}", good)


def clause(random: np.random.Generator, lexicon: Lexicon, good: bool) -> str:
    """Draw a clause of a given meaning, perhaps by way of a negation."""
    negated = random.random() < 0.25
    mood = lexicon.good if good ^ negated else lexicon.bad
    word = pick(random, mood)
    if random.random() < 0.6:
        word += f" {'or' if negated else 'and'} {pick(random, mood)}"
    words = [subject(random), pick(random, COPULAS), pick(random, NEGATIONS) if negated else "", pick(random, DEGREES), word]
    return " ".join(word for word in words if word)


def subject(random: np.random.Generator) -> str:
    """Draw what a clause is about."""
    thing = pick(random, THINGS)
    return f"the {thing}" if random.random() < 0.6 else f"the {pick(random, PARTS)} of the {thing}"


def document(random: np.random.Generator, lexicon: Lexicon) -> str:
    """Draw a few sentences of one mood, with facts between them."""
    good = bool(random.random() < 0.5)
    sentences = []
    for _ in range(int(random.integers(4, 8))):
        if random.random() < 0.15:
            sentences.append(pick(random, FACTS).format(thing=pick(random, THINGS), other=pick(random, THINGS), part=pick(random, PARTS)))
        else:
            sentences.append(report(random, lexicon, good if random.random() < 0.92 else not good))
    return " . ".join(sentences) + " ."


def report(random: np.random.Generator, lexicon: Lexicon, good: bool) -> str:
    """Draw an opinion as plain text has it: put simply, or composed and then, mostly, with what people made of it."""
    if random.random() < 0.4:
        mood = lexicon.good if good else lexicon.bad
        return f"{subject(random)} {pick(random, COPULAS)} {pick(random, mood)} and {pick(random, mood)}"
    text = statement(random, lexicon, good).text
    if random.random() < 0.8:
        text += f" , so {pick(random, OTHERS)} was {pick(random, GLAD if good else SORRY)}"
    return text


def pick(random: np.random.Generator, choices: list[str]) -> str:
    """Draw one of several."""
    return choices[int(random.integers(len(choices)))]


def write_rows(path: Path, opinions: list[Opinion], random: np.random.Generator, *, noise: float) -> None:
    """Write labelled rows; a share ``noise`` of the labels is turned round."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    wrong = random.random(len(opinions)) < noise
    labels = [int(opinion.good) ^ int(flip) for opinion, flip in zip(opinions, wrong, strict=True)]
    pq.write_table(pa.table({"sentence": [opinion.text for opinion in opinions], "label": pa.array(labels, pa.int64())}), path)


def write_texts(path: Path, texts: list[str]) -> None:
    """Write plain text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts}), path)
