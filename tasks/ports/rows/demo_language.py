"""An artificial language for the demo: opinions with a compositional meaning, and plain text in the same language.

Opinion words are invented from the seed, so no model can know them in advance. Negation inverts an opinion, and of two
opinions in a sentence, the one after "but" (or the one that is not introduced by "although") counts. So a bag of words
is not enough. Documents of plain text mostly have one sentiment, and after a composed opinion they often state people's
reaction: a masked language model can learn from this which words belong together. The demo's own is trained for seconds
and learns little; its teacher learns from the labels.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from tasks.ports.rows.overlap import NONE, HeldBack, sentences_of
from tasks.ports.rows.table_files import write_table

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
OPINIONS = 40  # invented words of each sentiment
EDITION = 2  # incremented when the same seed produces another language
NOISE = 0.05  # share of wrong training labels, as in real data sets; validation labels are correct


Drawn = TypeVar("Drawn")


@dataclass(frozen=True)
class Lexicon:
    """The opinion words of one seed."""

    good: list[str]
    bad: list[str]


@dataclass(frozen=True)
class Opinion:
    """A sentence and its label: True for good."""

    text: str
    good: bool


def write_language(
    folder: Path, *, seed: int, train: int = 5000, validation: int = 2000, unlabelled: int = 3000, documents: int = 4000
) -> None:
    """Write ``data`` (train and validation rows), ``transfer`` (opinions without labels) and ``corpus`` (plain text)
    under ``folder``.

    The same seed writes the same bytes. No training data overlap with a validation row, and no plain text overlaps with
    a training row, because a run may hold back training rows.
    """
    random = np.random.default_rng([seed, 7])
    lexicon = make_lexicon(random)
    # Validation rows are drawn first, so that the number of training rows does not change them.
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
    """Write a few opinions of a seed's language as a CSV table with one column ``text``, as example inputs for a pulled
    model."""
    lexicon, random = make_lexicon(np.random.default_rng([seed, 7])), np.random.default_rng([seed, 8])
    texts = [statement(random, lexicon, good=number % 2 == 0).text for number in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])


def make_lexicon(random: np.random.Generator) -> Lexicon:
    """Return invented opinion words of two syllables, divided at random into good and bad."""
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
    """Draw distinct opinions that do not overlap with ``others``."""
    seen: set[str] = set()

    def fresh() -> Opinion:
        while (opinion := statement(random, lexicon, bool(random.random() < 0.5))).text in seen:
            pass
        seen.add(opinion.text)
        return opinion

    return apart(fresh, lambda opinion: opinion.text, count, others)


def apart(draw: Callable[[], Drawn], text_of: Callable[[Drawn], str], count: int, others: list[Opinion]) -> list[Drawn]:
    """Draw texts that do not overlap with ``others``, by the same measure as the purge of a run."""
    held, found = HeldBack(sentences_of(opinion.text for opinion in others)), list[Drawn]()
    while len(found) < count:
        drawn = [draw() for _ in range(count - len(found))]
        free = held.overlaps(sentences_of(text_of(one) for one in drawn)) == NONE
        found += [one for one, is_free in zip(drawn, free, strict=True) if is_free]
    return found


def statement(random: np.random.Generator, lexicon: Lexicon, good: bool) -> Opinion:
    """Draw a sentence with a given label: one clause, or two clauses of which one determines the label."""
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
    """Draw a clause with a given label, sometimes with a negation."""
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
    """Draw the subject of a clause."""
    thing = pick(random, THINGS)
    return f"the {thing}" if random.random() < 0.6 else f"the {pick(random, PARTS)} of the {thing}"


def document(random: np.random.Generator, lexicon: Lexicon) -> str:
    """Draw a few sentences of mostly one sentiment, with facts between them."""
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
    """Draw an opinion for plain text: a simple one, or a composed one that is mostly followed by people's reaction."""
    if random.random() < 0.4:
        mood = lexicon.good if good else lexicon.bad
        return f"{subject(random)} {pick(random, COPULAS)} {pick(random, mood)} and {pick(random, mood)}"
    text = statement(random, lexicon, good).text
    if random.random() < 0.8:
        text += f" , so {pick(random, OTHERS)} was {pick(random, GLAD if good else SORRY)}"
    return text


def pick(random: np.random.Generator, choices: list[str]) -> str:
    """Draw one of several choices."""
    return choices[int(random.integers(len(choices)))]


def write_rows(path: Path, opinions: list[Opinion], random: np.random.Generator, *, noise: float) -> None:
    """Write labelled rows; a share ``noise`` of the labels is turned round."""
    wrong = random.random(len(opinions)) < noise
    labels = [int(opinion.good) ^ int(flip) for opinion, flip in zip(opinions, wrong, strict=True)]
    write_table(path, {"sentence": [opinion.text for opinion in opinions], "label": labels})


def write_texts(path: Path, texts: list[str]) -> None:
    """Write plain text."""
    write_table(path, {"text": texts})
