"""The page's first screen: the model, its quality, speed, size and cost, and the command to download it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tasks.report.format.numbers import (
    DASH,
    amount,
    bounds,
    count,
    figure,
    megabytes,
    money,
    percent,
    plural,
    signed,
    span,
    times,
)
from tasks.report.format.pareto import number
from tasks.report.format.speeds import format_latency, times_as_fast
from tasks.report.page.charts import interval_strip
from tasks.report.tables.exports_section import facts_of
from tasks.report.tables.results import conditions
from tasks.results.export_formats import EXPORT_FORMATS
from tasks.results.roles import role_of
from tasks.results.row import Cost, Estimate, ResultRow
from tasks.results.run import Registered, RunResult
from tasks.task_types.types import ERROR_METRICS


@dataclass(frozen=True)
class Tile:
    """One of the four figures of the first screen."""

    name: str
    large: str
    unit: str
    lines: list[str]
    chart: Markup | None = None


@dataclass(frozen=True)
class FirstScreen:
    """The content of the first screen."""

    model: ResultRow
    teacher: ResultRow
    title: str
    lead: str
    tiles: list[Tile]
    verdict: str
    reasons: list[str]
    pull: list[str]
    """The commands that download and use the model."""
    aliases: list[str]
    exports: list[str]


def chosen(result: RunResult) -> ResultRow:
    """Return the model that the page is about: the champion, else the best accepted one, else the one with the least
    shortfall, else the best."""
    candidates = [model for model in result.models if role_of(model.role).registered] or list(result.models)
    return min(candidates, key=lambda model: (standing(model), *worth(model, result.split)))


def standing(model: ResultRow) -> int:
    """Return a model's rank at the gate: 0 champion, 1 accepted, 2 closest, 3 any other."""
    accepted = model.gate == "accepted" or model.verdict == "ACCEPT"
    return 0 if model.gate == "champion" else 1 if accepted else 2 if model.closest else 3


def gate_tag(model: ResultRow) -> str:
    """Return a model's standing at the gate in a few words, as a tag; "not evaluated" for a model without a verdict."""
    return (
        STANDINGS[standing(model)]
        if "verdict" in model.model_fields_set or model.gate in ("champion", "accepted", "refused")
        else "not evaluated"
    )


STANDINGS = ("champion", "accepted, not champion", "refused", "refused")


def worth(model: ResultRow, split: str) -> tuple[bool, float]:
    """Return a sort key that is smallest for the best score: on the selection rows if it was measured there, else on
    ``split``; an undefined score comes last."""
    chosen_by = number(model.selection_score)
    if chosen_by is not None:
        return False, -chosen_by
    value = number(model.score(split).value)
    return value is None, 0.0 if value is None else value if model.headline in ERROR_METRICS else -value


UNREGISTERED = Registered(candidate="")
"""Stands for the entry of a model that is not registered."""


def answer(result: RunResult) -> FirstScreen:
    """Return the content of the first screen."""
    model = chosen(result)
    teacher = next((one for one in result.models if one.role == "teacher"), model)
    came = min(standing(model), 2)
    entry = next((one for one in result.registered if one.candidate == model.name), UNREGISTERED)
    return FirstScreen(
        model=model,
        teacher=teacher,
        title=title_of(result, model),
        lead=lead(result, model, first_of(result, model, entry)),
        tiles=[good(result, model, teacher), fast(model), big(model, teacher), price(result, model)],
        verdict=verdict_of(model, entry),
        reasons=list(entry.reasons),
        pull=pull(entry, champion=came == 0, texts=result.texts or "texts.csv"),
        aliases=other_aliases(result, model),
        exports=exports_inside(result, model),
    )


def title_of(result: RunResult, model: ResultRow) -> str:
    """Return the title, the outcome for the model; if the recipe leaves promotion to a person, there may be no
    champion yet."""
    came = min(standing(model), 2)
    nobody = came == 1 and result.promotion is not None and result.promotion.champion is None
    return ("No champion yet; {} was accepted" if nobody else TITLES[came]).format(model.name)


def first_of(result: RunResult, model: ResultRow, entry: Registered) -> str:
    """Return the first sentence of the lead: the kind of model, and the reason why an accepted one is not champion
    (older results do not have one)."""
    came, why = min(standing(model), 2), entry.why or "the champion of an earlier run is preferred"
    return FIRST[came].format(model.name, why=why)


TITLES = ("Use {}", "The champion stays; {} was accepted", "No candidate passed the gate")
FIRST = ("A {{what}}.", "The best of this run is {}, a {{what}}; {why}.", "The closest is {}, a {{what}}.")


def lead(result: RunResult, model: ResultRow, first: str) -> str:
    """Return the lead: the kind of model and its difference to the teacher, in one or two sentences."""
    rows = result.rows.get(result.split)
    where = f"{count(rows)} {result.split} rows" if rows else f"the {result.split} rows"
    what = f"{role_of(model.role).label} for {result.task}"
    gap = model.gap(result.split)
    return first.replace("{what}", what) + gap_sentence(gap, where, model.headline)


def gap_sentence(gap: Estimate, where: str, headline: str) -> str:
    """Return a sentence on the difference of a model's score to its teacher's, with the interval of the difference;
    empty if it is undefined."""
    value = number(gap.value)
    if value is None:
        return ""
    size = f"{abs(value):.3f}"
    how = f"equals its teacher's {headline}" if float(size) == 0 else ""
    how = how or f"is {size} {'above' if value > 0 else 'below'} that of its teacher"
    between = bounds(gap, signed)
    said = f" On {where} its {headline} {how}" if float(size) else f" On {where} it {how}"
    return f"{said} (interval of the difference {between})." if between else f"{said}."


def tile(name: str, large: str, unit: str, lines: Sequence[str], chart: Markup | None = None) -> Tile:
    """Return one of the four figures of the first screen; empty lines are left out."""
    return Tile(name, large, unit, [line for line in lines if line], chart)


def good(result: RunResult, model: ResultRow, teacher: ResultRow) -> Tile:
    """Return the tile on the model's quality, compared with its teacher's."""
    ours, theirs = model.score(result.split), teacher.score(result.split)
    retained = model.share(result.split)
    whose = "of the teacher, which has" if model.headline in ERROR_METRICS else "of the teacher's"
    share = "" if number(retained.value) is None else f"{percent(retained.value)} {whose} {figure(theirs.value)}"
    confidence = f"{100 * result.confidence:g} % interval " if result.confidence else "interval "
    strip = interval_strip([(model.name, model.role, ours), ("teacher", "teacher", theirs)])
    return tile(
        "Quality",
        figure(ours.value),
        model.headline,
        [share, bounds(ours) and confidence + bounds(ours)],
        chart=strip,
    )


def fast(model: ResultRow) -> Tile:
    """Return the tile on the model's speed."""
    latency, _, spread = format_latency(model).partition(" ")
    unit = f"ms {spread}".strip()
    return tile("Latency", latency, unit, [times_as_fast(model), f"median at {conditions(model)}"])


def big(model: ResultRow, teacher: ResultRow) -> Tile:
    """Return the tile on the model's size."""
    memory = number(model.memory_bytes)
    return tile(
        "Size",
        megabytes(model.bytes),
        "MB",
        [
            times(teacher.bytes, model.bytes, "smaller than the teacher"),
            f"{figure(model.parameters, '.2f', 1e-6)} M parameters",
            "" if memory is None else f"{memory * 1e-6:.0f} MB of memory during inference",
        ],
    )


def price(result: RunResult, model: ResultRow) -> Tile:
    """Return the tile on the cost of computing the model: money if it is known, else time, with energy below; unknown
    figures are named as unknown."""
    cost = model.cost or Cost()
    dollars, energy, carbon = map(number, (cost.dollars_on_demand, cost.kwh, cost.co2e_kg))
    seconds = number(cost.seconds) or sum(number(one) or 0.0 for one in model.train_seconds or ()) or None
    behind = number(cost.ancestors.seconds) if cost.ancestors else None
    energy_said = spent(cost, energy, carbon)
    unknown = [
        name
        for name, known in (("dollars", dollars), ("energy", energy_said or None), ("CO2e", carbon))
        if known is None
    ]
    lines = [
        energy_said,
        "stages of this model only, all seeds; shared stages are in the ledger"
        if model.cost
        else "training of all seeds, without shared stages",
        f"the candidates that it is made from: {span(behind)} more" if behind is not None else "",
        f"{', '.join(unknown)}: unknown" if unknown else "",
    ]
    if dollars is not None:
        return tile(
            "Training cost",
            money(dollars),
            "on demand",
            ["" if seconds is None else f"{span(seconds)} of computation", *lines],
        )
    return tile("Training cost", span(seconds), "", ["of computation" if seconds else "", *lines])


def spent(cost: Cost, energy: float | None, carbon: float | None) -> str:
    """Return the energy used, or a lower bound of it, in words; empty if unknown."""
    if energy is not None:
        return f"{amount(energy)} kWh" + ("" if carbon is None else f", {amount(carbon)} kg CO2e")
    least = number(cost.kwh.at_least) if cost.kwh else None
    return f"at least {amount(least)} kWh" if least else ""


def verdict_of(model: ResultRow, entry: Registered) -> str:
    """Return the gate's verdict on a model."""
    return model.verdict or entry.verdict or WORDS.get(model.gate or "", model.gate or DASH)


WORDS = {"champion": "accepted", "—": DASH}


def pull(entry: Registered, *, champion: bool, texts: str) -> list[str]:
    """Return the commands that download the model and use it; empty if it was not registered."""
    if not entry.name:
        return []
    wanted = f"{entry.name}@{'champion' if champion else entry.version}"
    return [f"limbeck pull {quoted(wanted)} my-model", f"limbeck predict my-model {quoted(texts)}"]


def quoted(words: str) -> str:
    """Return a word quoted for a shell."""
    return words if re.fullmatch(r"[\w./@+-]+", words) else "'" + words.replace("'", "'\\''") + "'"


def exports_inside(result: RunResult, model: ResultRow) -> list[str]:
    """Return a line with figures for each published export in the model's folder: the same model for ONNX Runtime."""
    published = [
        one for one in result.models if one.role == "export" and one.of == model.name and one.gate == "published"
    ]
    return [
        f"onnx/{EXPORT_FORMATS[facts_of(one).format].file}: {figure(one.score(result.split).value)} {one.headline}, "
        f"{format_latency(one)} ms, {megabytes(one.bytes)} MB"
        for one in published
    ]


def other_aliases(result: RunResult, model: ResultRow) -> list[str]:
    """Return a line for each other alias with its model; candidates with identical weights share a version."""
    found: dict[str, list[str]] = {}
    for entry in result.registered:
        for alias in aliases_of(entry):
            if (alias, entry.candidate) != ("champion", model.name):
                found.setdefault(f"{entry.name}@{alias}", []).append(entry.candidate)
    return [f"{name} is {' and '.join(candidates)}" for name, candidates in found.items()]


def aliases_of(entry: Registered) -> list[str]:
    """Return an entry's aliases, given as one, as several, or as none."""
    one = (entry.alias,) if isinstance(entry.alias, str) else entry.alias or ()
    return list(entry.aliases or one)


def seeds_sentence(model: ResultRow) -> str:
    """Return the number of seeds of a mean, in words."""
    seeds = len(model.seeds or ()) or max(
        (len(values) for found in model.per_seed.values() for values in found.values()), default=1
    )
    return plural(seeds, "seed")
