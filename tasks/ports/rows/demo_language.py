"""A small language of its own, for the demo: opinions whose meaning is composed, and plain text to go with them.

Opinion words are invented and drawn by the seed, so nothing can be known beforehand. Negation turns an opinion round,
and where two opinions meet, the one after "but" (or the one that "although" does not introduce) counts. Counting words
is therefore not enough. Documents of plain text keep to one mood, and where an opinion is composed, they often say how
people took it: a masked language model could find out which words go together. The demo's is trained for seconds and
finds out little; its teacher learns from the labels.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from tasks.ports.rows.overlap import NONE, HeldBack, sentences_of
from tasks.ports.rows.tables import write_table

THINGS = (
    "film book song meal hotel phone garden market river train lamp coat school boat chair story road bridge house "
    "play lake tower shop camera radio clock "
    "table window door carpet bicycle tram ferry island castle museum theatre novel poem concert lecture recipe "
    "cake soup tea coffee jacket stove"
).split()
PARTS = (
    "plot end start taste view price sound colour shape service voice cover menu room light seat frame handle "
    "corner surface middle front back top edge "
    "smell weight finish pattern name title size"
).split()
COPULAS = ["is", "was", "seems", "looks", "feels", "remains"]
DEGREES = ["", "", "very", "rather", "truly", "quite", "so"]
NEGATIONS = ["not", "never", "hardly", "by no means"]
OTHERS = ["my friend", "the paper", "a neighbour", "the crowd"]
GLAD, SORRY = "glad happy pleased content".split(), "sorry sad angry upset".split()
FACTS = [
    "the {thing} is near the {other}",
    "we saw the {thing} and the {other}",
    "a {thing} has a {part}",
    "the {thing} came after the {other}",
]
ONSETS, VOWELS, CODAS = (
    "b d f g k l m n p r s t v z br dr fl gr kl pl st tr".split(),
    "a e i o u ai ea ou".split(),
    "l m n r s t x nd rk st".split(),
)
OPINIONS = 40  # invented words of each mood
EDITION = 2  # raised when the same seed writes another language
NOISE = 0.05  # share of training labels that are wrong, as in any real data set; validation labels are right


Drawn = TypeVar("Drawn")


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


def write_language(
    folder: Path, *, seed: int, train: int = 5000, validation: int = 2000, unlabelled: int = 3000, documents: int = 4000
) -> None:
    """Write ``data`` (train and validation rows), ``transfer`` (opinions without labels) and ``corpus`` (plain text)
    under ``folder``.

    The same seed writes the same bytes. Nothing that is learned from overlaps with a validation row, and no plain text
    with a training row, from which rows may be held back.
    """
    random = np.random.default_rng([seed, 7])
    lexicon = make_lexicon(random)
    # Validation is written first, so that more training rows never change what is judged on.
    judging = fresh_opinions(random, lexicon, validation, [])
    learned = fresh_opinions(random, lexicon, train, judging)
    write_rows(folder / "data" / "validation.parquet", judging, random, noise=0.0)
    write_rows(folder / "data" / "train.parquet", learned, random, noise=NOISE)
    rows = [*judging, *learned]
    write_texts(
        folder / "transfer" / "train.parquet",
        [opinion.text for opinion in fresh_opinions(random, lexicon, unlabelled, rows)],
    )
    write_texts(folder / "corpus" / "train.parquet", apart(lambda: document(random, lexicon), str, documents, rows))


def write_examples(path: Path, *, seed: int, count: int = 12) -> None:
    """Write a few opinions of a seed's language as a table with the one column ``text``: something to ask a pulled
    model about."""
    lexicon, random = make_lexicon(np.random.default_rng([seed, 7])), np.random.default_rng([seed, 8])
    texts = [statement(random, lexicon, good=number % 2 == 0).text for number in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])


def make_lexicon(random: np.random.Generator) -> Lexicon:
    """Invent opinion words of two syllables; which are good is chance."""
    words: list[str] = []
    while len(words) < 2 * OPINIONS:
        word = (
            pick(random, ONSETS)
            + pick(random, VOWELS)
            + pick(random, ONSETS)
            + pick(random, VOWELS)
            + pick(random, CODAS)
        )
        if word not in words:
            words.append(word)
    return Lexicon(words[:OPINIONS], words[OPINIONS:])


def fresh_opinions(random: np.random.Generator, lexicon: Lexicon, count: int, others: list[Opinion]) -> list[Opinion]:
    """Draw different opinions that overlap with no other ones."""
    seen: set[str] = set()

    def fresh() -> Opinion:
        while (opinion := statement(random, lexicon, bool(random.random() < 0.5))).text in seen:
            pass
        seen.add(opinion.text)
        return opinion

    return apart(fresh, lambda opinion: opinion.text, count, others)


def apart(draw: Callable[[], Drawn], text_of: Callable[[Drawn], str], count: int, others: list[Opinion]) -> list[Drawn]:
    """Draw texts that overlap with no other ones, as the purge of a run would find them."""
    held, found = HeldBack(sentences_of(opinion.text for opinion in others)), list[Drawn]()
    while len(found) < count:
        drawn = [draw() for _ in range(count - len(found))]
        free = held.overlaps(sentences_of(text_of(one) for one in drawn)) == NONE
        found += [one for one, is_free in zip(drawn, free, strict=True) if is_free]
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
    words = [
        subject(random),
        pick(random, COPULAS),
        pick(random, NEGATIONS) if negated else "",
        pick(random, DEGREES),
        word,
    ]
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
            sentences.append(
                pick(random, FACTS).format(
                    thing=pick(random, THINGS), other=pick(random, THINGS), part=pick(random, PARTS)
                )
            )
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
    wrong = random.random(len(opinions)) < noise
    labels = [int(opinion.good) ^ int(flip) for opinion, flip in zip(opinions, wrong, strict=True)]
    write_table(path, {"sentence": [opinion.text for opinion in opinions], "label": labels})


def write_texts(path: Path, texts: list[str]) -> None:
    """Write plain text."""
    write_table(path, {"text": texts})
