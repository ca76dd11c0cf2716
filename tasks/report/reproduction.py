"""Two manifests side by side: which stages made the same bytes, which did not, and what there is that explains it.
Pure: manifests in, words out.

What a stage measures (speed, memory) is never the same twice, so such stages are shown and not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.ports.code.fingerprint import differences, short

Row = Mapping[str, Any]
EQUAL, DIFFERS, MEASURED, MISSING, NEW = "equal", "differs", "measured", "missing", "new"
BAD = (DIFFERS, MISSING, NEW)
SURROUNDINGS = ("versions", "hardware", "code")
SHOWN = 3  # reasons in one line


def compare(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Hold what was made now against what was made then."""
    around = [
        line for part in SURROUNDINGS for line in differences(now.get(part) or {}, then.get(part) or {}, f"{part}.")
    ]
    stages = [compare_stage(before, after, around) for before, after in pairs(then["stages"], now["stages"])]
    return {
        "equal": not any(stage["verdict"] in BAD for stage in stages),
        "stages": stages,
        "surroundings": around,
        "scores": list(scores(then.get("models") or {}, now.get("models") or {})),
    }


def pairs(then: Sequence[Row], now: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """Say which stage of now is which of then: the one with its key, else the one of its name that differs least. Who
    asks twice counts once."""
    left = {row["key"]: row for row in reversed(now)}
    earlier = {row["key"]: row for row in reversed(then)}
    found: list[tuple[Row | None, Row | None]] = []
    same = {key: left.pop(key) for key in earlier if key in left}
    for key, before in reversed(earlier.items()):
        alike = [row for row in left.values() if key not in same and row["stage"] == before["stage"]]
        nearest = min(
            alike, key=lambda row: len(list(differences(row["explanation"], before["explanation"]))), default=None
        )
        found.append((before, same.get(key) or (left.pop(nearest["key"]) if nearest is not None else None)))
    return [*found, *((None, row) for row in reversed(left.values()))]


def compare_stage(before: Row | None, after: Row | None, around: Sequence[str]) -> dict[str, Any]:
    """Say of one stage whether it made the same bytes, and why not."""
    row = before or after
    assert row is not None
    digests = {"stage": row["stage"], "then": before and before["sha256"], "now": after and after["sha256"]}
    if row["measured"]:
        return {**digests, "verdict": MEASURED, "why": "a measurement is never the same twice"}
    if before is None:
        return {**digests, "verdict": NEW, "why": "it was not part of the run then"}
    if after is None or after["sha256"] is None:
        return {**digests, "verdict": MISSING, "why": "it is not there now"}
    if before["sha256"] == after["sha256"]:
        return {**digests, "verdict": EQUAL, "why": ""}
    return {**digests, "verdict": DIFFERS, "why": "; ".join(explain(before, after, around))}


def explain(before: Row, after: Row, around: Sequence[str]) -> list[str]:
    """Say what explains that a stage made other bytes: its own inputs, knobs, code or libraries; else what is around
    it."""
    own = list(differences(after["explanation"], before["explanation"]))
    counts = [name for name in ("threads", "processes") if name not in (*before["explanation"], *after["explanation"])]
    threads = [f"{name}: {before[name]} → {after[name]}" for name in counts if before.get(name) != after.get(name)]
    inputs = [line for line in own if line.startswith("inputs.")]
    reasons = [line for line in own if line not in inputs] + threads
    if inputs and not reasons:
        return [
            f"it follows from what it was given "
            f"({', '.join(line.removeprefix('inputs.').split(':')[0] for line in inputs)})"
        ]
    if not reasons:
        reasons = list(around)
    return reasons[:SHOWN] or [
        "nothing that is noted explains it: code, knobs, inputs, libraries, machine and threads are the same"
    ]


def scores(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the headline scores of models that both runs have."""
    for name, model in then.items():
        if name in now and model["headline"] == now[name]["headline"]:
            before, after = model["score"], now[name]["score"]
            points = None if before is None or after is None else 100 * (after - before)
            yield {"model": name, "headline": model["headline"], "then": before, "now": after, "points": points}


def summary(found: Mapping[str, Any]) -> list[str]:
    """Say in a few lines what came of it."""
    verdicts = [stage["verdict"] for stage in found["stages"]]
    measured = verdicts.count(MEASURED)
    apart = f"; {measured} measure speed and are not compared" if measured else ""
    lines = [f"{verdicts.count(EQUAL)} of {len(verdicts) - measured} stages made the same bytes{apart}."]
    first = next((stage for stage in found["stages"] if stage["verdict"] in BAD), None)
    if first is not None:
        lines.append(f"The first that did not: {first['stage']}: {first['why']}.")
        lines += [f"Around it, {line}" for line in found["surroundings"]]
        lines += [
            f"{one['model']}: {one['headline']} {figure(one['then'])} then, {figure(one['now'])} "
            f"now{moved(one['points'])}"
            for one in found["scores"]
        ]
    elif found["surroundings"]:
        lines.append(f"Other than then, and without effect: {'; '.join(found['surroundings'])}.")
    return lines


def figure(value: float | None) -> str:
    """Return a score for people."""
    return "—" if value is None else f"{value:.4f}"


def moved(points: float | None) -> str:
    """Say by how much a score moved."""
    return "" if points is None else f" ({points:+.2f} points)"


def row_of(stage: Mapping[str, Any]) -> list[str]:
    """Return one line of the table."""
    return [
        stage["stage"],
        *("—" if stage[when] is None else short(stage[when]) for when in ("then", "now")),
        stage["verdict"],
        stage["why"],
    ]
