"""The comparison of two manifests: the stages with the same bytes, the stages with different bytes, and the possible
reasons. Pure: manifests in, text out.

Measurements (speed, memory) are never the same twice, so measuring stages are listed but not compared.
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
    """Compare the stages, surroundings and scores of a new run with those of an earlier one."""
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
    """Return pairs of corresponding stages of both runs: by equal key, else the stage of the same name that differs
    least. A stage requested more than once counts once."""
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
    """Return the digests of one stage in both runs, the verdict on them, and its reason."""
    row = before or after
    assert row is not None
    digests = {"stage": row["stage"], "then": before and before["sha256"], "now": after and after["sha256"]}
    if row["measured"]:
        return {**digests, "verdict": MEASURED, "why": "measurements vary between runs"}
    if before is None:
        return {**digests, "verdict": NEW, "why": "the first run did not have this stage"}
    if after is None or after["sha256"] is None:
        return {**digests, "verdict": MISSING, "why": "the second run does not have this stage"}
    if before["sha256"] == after["sha256"]:
        return {**digests, "verdict": EQUAL, "why": ""}
    return {**digests, "verdict": DIFFERS, "why": "; ".join(difference_reasons(before, after, around))}


def difference_reasons(before: Row, after: Row, around: Sequence[str]) -> list[str]:
    """Return possible reasons for a stage's different bytes: its own inputs, knobs, code, libraries or threads; if
    there are none, differences between the machines, versions and code of the two runs."""
    own = list(differences(after["explanation"], before["explanation"]))
    counts = [name for name in ("threads", "processes") if name not in (*before["explanation"], *after["explanation"])]
    threads = [f"{name}: {before[name]} → {after[name]}" for name in counts if before.get(name) != after.get(name)]
    inputs = [line for line in own if line.startswith("inputs.")]
    reasons = [line for line in own if line not in inputs] + threads
    if inputs and not reasons:
        return [f"its inputs differ ({', '.join(line.removeprefix('inputs.').split(':')[0] for line in inputs)})"]
    if not reasons:
        reasons = list(around)
    return reasons[:SHOWN] or [
        "no recorded difference: code, knobs, inputs, libraries, machine and threads are the same"
    ]


def scores(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the headline scores of the models in both runs."""
    for name, model in then.items():
        if name in now and model["headline"] == now[name]["headline"]:
            before, after = model["score"], now[name]["score"]
            points = None if before is None or after is None else 100 * (after - before)
            yield {"model": name, "headline": model["headline"], "then": before, "now": after, "points": points}


def summary(found: Mapping[str, Any]) -> list[str]:
    """Return the result of the comparison in a few lines."""
    verdicts = [stage["verdict"] for stage in found["stages"]]
    measured = verdicts.count(MEASURED)
    apart = f"; {measured} measure speed and are not compared" if measured else ""
    lines = [f"{verdicts.count(EQUAL)} of {len(verdicts) - measured} stages produced the same bytes{apart}."]
    first = next((stage for stage in found["stages"] if stage["verdict"] in BAD), None)
    if first is not None:
        lines.append(f"The first different stage: {first['stage']}: {first['why']}.")
        lines += [f"Environment: {line}" for line in found["surroundings"]]
        lines += [
            f"{one['model']}: {one['headline']} {figure(one['then'])} in the first run, {figure(one['now'])} in the "
            f"second{moved(one['points'])}"
            for one in found["scores"]
        ]
    elif found["surroundings"]:
        lines.append(f"Different, but without effect: {'; '.join(found['surroundings'])}.")
    return lines


def figure(value: float | None) -> str:
    """Return a score as text, or a dash."""
    return "—" if value is None else f"{value:.4f}"


def moved(points: float | None) -> str:
    """Return the change of a score in words; empty if unknown."""
    return "" if points is None else f" ({points:+.2f} points)"


def row_of(stage: Mapping[str, Any]) -> list[str]:
    """Return one line of the table."""
    return [
        stage["stage"],
        *("—" if stage[when] is None else short(stage[when]) for when in ("then", "now")),
        stage["verdict"],
        stage["why"],
    ]
