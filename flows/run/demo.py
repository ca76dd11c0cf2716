"""The demo's sources: a small language that is generated on the machine of the demo, for the command line and for
forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from flows.home import Home
from tasks.recipe.recipe import Recipe
from tasks.results.row import ResultRow
from tasks.results.run import RunResult

DEMO = "demo"
TEXTS = "texts.csv"
STUDENT = "distilled"
BASELINES = {
    "without-teacher": "after the same last phase",
    "without-longer": "after as many steps as all phases together",
}
SECTIONS = ("data", "corpus", "transfer")
"""Sections of the demo's recipe whose source is a part of the language; in the recipe, the source has the section's
name."""


def language_of(home: Home, number: int) -> Path:
    """Return the folder of a generated language; generate it if it is missing."""
    from tasks.ports.rows.demo_language import EDITION, write_examples, write_language

    folder = home.root / "demo" / f"language-{EDITION}-{number}"
    if not (folder / "data").is_dir():
        write_language(folder, seed=number)
    if not (folder / TEXTS).is_file():
        write_examples(folder / TEXTS, seed=number)
    return folder


def texts_to_ask(recipe: Recipe) -> str:
    """Return the file of texts for the suggested commands: the demo's own, or a placeholder for the user's file."""
    examples = Path(recipe.data.source).parent / TEXTS
    return str(examples) if recipe.name == DEMO and examples.is_file() else TEXTS


def with_language(recipe: Recipe, home: Home) -> Recipe:
    """Return the demo's recipe with the paths of its generated sources; a source set by the user stays."""
    values = recipe.model_dump(mode="json", exclude_unset=True)
    own = [name for name in SECTIONS if (values.get(name) or {}).get("source") == name]
    if not own:
        return recipe
    folder = language_of(home, recipe.data.seed)
    for name in own:
        values[name]["source"] = str(folder / name)
    return Recipe.model_validate(values)


# --- the demo's final message -----------------------------------------------------------------------------------------


class DemoGain(TypedDict):
    """The gain of the distilled student over a baseline in points, by seed and as a mean, with the 95 % t interval over
    seeds (None for one seed)."""

    points: list[float]
    mean: float
    low: float | None
    high: float | None


def margins(results: Sequence[RunResult]) -> dict[str, DemoGain]:
    """Return by baseline the gain of the distilled student over the same student without its teacher, in points: by
    seed, mean, and the 95 % t interval over seeds (None for one seed)."""
    import numpy as np
    from scipy import stats

    found: dict[str, DemoGain] = {}
    for baseline in BASELINES:
        points = [100 * (score_of(result, STUDENT) - score_of(result, baseline)) for result in results]
        low, high = None, None
        if len(points) > 1:
            low, high = (
                float(end)
                for end in stats.t.interval(
                    0.95, len(points) - 1, loc=np.mean(points), scale=max(stats.sem(points), 1e-12)
                )
            )
        found[baseline] = {"points": points, "mean": float(np.mean(points)), "low": low, "high": high}
    return found


def last_words(results: Sequence[RunResult]) -> str:
    """Return a summary of the demo's results: scores for one language, gains with an interval for several."""
    last = results[-1]
    if len(results) == 1:
        beside = "; ".join(
            f"{score_of(last, baseline):.3f} {how}{gap_of(last, baseline)}" for baseline, how in BASELINES.items()
        )
        said = (
            f"On {last.rows[last.split]:,} {last.split} rows of a generated language {STUDENT} has "
            f"{score_of(last, STUDENT):.3f}"
        )
        return (
            f"{said}. The same student without its teacher has {beside}. This is one language and one seed; use "
            f"--seeds 5 for an interval."
        )
    parts = [f"{apart(found)} {BASELINES[baseline]}" for baseline, found in margins(results).items()]
    said = f"Over {len(results)} generated languages, compared with the same student without its teacher, {STUDENT} is"
    return f"{said} {', and '.join(parts)}. The table shows the last one."


def gap_of(result: RunResult, baseline: str) -> str:
    """Return the student's gain over a baseline with its verdict; empty if the run did not compare the two."""
    one = (named(result, STUDENT).against or {}).get(baseline, {}).get(result.split)
    if one is None:
        return ""
    return (
        f" ({STUDENT} {100 * (one.value or 0.0):+.1f} points [{100 * (one.low or 0.0):+.1f}, "
        f"{100 * (one.high or 0.0):+.1f}], {one.verdict})"
    )


def apart(found: DemoGain) -> str:
    """Return a sentence part about a gain over seeds, and whether its interval excludes zero."""
    low, high = found["low"], found["high"]
    if low is None or high is None:
        return f"{found['mean']:+.1f} points"
    word = "ahead by" if low > 0 else "behind by" if high < 0 else "not distinguishable, by"
    return f"{word} {found['mean']:+.1f} points [{low:+.1f}, {high:+.1f}]"


def score_of(result: RunResult, name: str) -> float:
    """Return a model's headline score on the rows of the table."""
    value = named(result, name).score(result.split).value
    return math.nan if value is None else float(value)


def named(result: RunResult, name: str) -> ResultRow:
    """Return a model's row by its name."""
    return next(model for model in result.models if model.name == name)
