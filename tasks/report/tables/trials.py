"""The answer of a search over recipes: the ways to train one shape that were tried, the best first."""

from __future__ import annotations

from tasks.report.format.numbers import plural
from tasks.report.tables.search import SearchSection, agreement_line, by_round, scored_in_words, search_section
from tasks.results.search import SearchResult
from tasks.results.trials import TrialsResult, TriedRecipe

TRIAL_HEADS = ("way", "start", "method", "rate", "by round", "seconds", "state")


def trial_cells(trial: TriedRecipe, metric: str) -> list[str]:
    """Return the row of one way, whose scores are of a metric."""
    seconds = f"{float(trial.seconds):.1f}" if trial.scores else "—"
    rate = f"{float(trial.learning_rate):g}"
    method = f"{trial.method}, augmented rows" if trial.augmented else trial.method
    return [trial.name, trial.start, method, rate, by_round(trial.scores, metric), seconds, trial.state]


def trials_lines(result: TrialsResult) -> list[str]:
    """Return sentences on a search over recipes: its minutes, its rounds, and how far to trust its answer."""
    steps = ", then ".join(f"{count:,}" for count in result.steps)
    lines = [
        f"{plural(len(result.trials), 'way')} to train the shape, tried in rounds of {steps} steps; {result.spent:g} "
        f"of {result.minutes:g} minutes of training are spent. Half of the steps are on inner layers where a method "
        f"names them."
    ]
    if result.tau is not None:
        chosen = sum(one.state == "candidate" for one in result.trials)
        lines.append(agreement_line("The last round", result.tau, chosen))
    return [*lines, *(f"Note: {note}." for note in result.notes)]


def trials_section(result: TrialsResult) -> SearchSection:
    """Return the sentences and the table of a search over ways to train one shape."""
    rows = [trial_cells(trial, result.scored_by) for trial in result.trials]
    return SearchSection(
        trials_lines(result),
        f"ways to train the shape, the best first{scored_in_words(result.scored_by)}",
        TRIAL_HEADS,
        (0, 1, 2, 4, 6),
        rows,
    )


def section_of_search(search: SearchResult | TrialsResult) -> SearchSection:
    """Return the sentences and the table of any search."""
    return trials_section(search) if isinstance(search, TrialsResult) else search_section(search)
