"""The comparison of two manifests: the stages with the same bytes, the stages with different bytes, and the possible
reasons. Pure: manifests in, text out.

Measurements (speed, memory) are never the same twice, so measuring stages are listed but not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tasks.ports.code.fingerprint import differences, short
from tasks.results.record import ManifestModel, Reproduction, RunManifest, ScoreComparison, StageComparison
from tasks.results.record import ManifestStage as Row

EQUAL, DIFFERS, MEASURED, MISSING, NEW = "equal", "differs", "measured", "missing", "new"
BAD = (DIFFERS, MISSING, NEW)
SHOWN = 3  # reasons in one line


def compare(then: RunManifest, now: RunManifest) -> Reproduction:
    """Compare the stages, surroundings and scores of a new run with those of an earlier one."""
    before, after = surroundings(then), surroundings(now)
    around = [line for part in before for line in differences(after[part], before[part], f"{part}.")]
    stages = [compare_stage(earlier, later, around) for earlier, later in pairs(then.stages, now.stages)]
    return Reproduction(
        equal=not any(stage.verdict in BAD for stage in stages),
        stages=tuple(stages),
        surroundings=tuple(around),
        scores=tuple(scores(then.models, now.models)),
    )


def surroundings(manifest: RunManifest) -> dict[str, Mapping[str, object]]:
    """Return the facts that all stages of a run share."""
    return {"versions": manifest.versions, "hardware": manifest.hardware, "code": manifest.code.as_json()}


def pairs(then: Sequence[Row], now: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """Return pairs of corresponding stages of both runs: by equal key, else the stage of the same name that differs
    least. A stage requested more than once counts once."""
    left = {row.key: row for row in reversed(now)}
    earlier = {row.key: row for row in reversed(then)}
    found: list[tuple[Row | None, Row | None]] = []
    same = {key: left.pop(key) for key in earlier if key in left}
    for key, before in reversed(earlier.items()):
        alike = [row for row in left.values() if key not in same and row.stage == before.stage]
        nearest = min(alike, key=lambda row: len(list(differences(row.explanation, before.explanation))), default=None)
        found.append((before, same.get(key) or (left.pop(nearest.key) if nearest is not None else None)))
    return [*found, *((None, row) for row in reversed(left.values()))]


def compare_stage(before: Row | None, after: Row | None, around: Sequence[str]) -> StageComparison:
    """Return the digests of one stage in both runs, the verdict on them, and its reason."""
    row = before or after
    assert row is not None
    verdict, why = verdict_on(before, after, around)
    then, now = (None if one is None else one.sha256 for one in (before, after))
    return StageComparison(stage=row.stage, then=then, now=now, verdict=verdict, why=why)


def verdict_on(before: Row | None, after: Row | None, around: Sequence[str]) -> tuple[str, str]:
    """Return the verdict on one stage in both runs, and its reason."""
    if before.measured if before is not None else after is not None and after.measured:
        return MEASURED, "measurements vary between runs"
    if before is None:
        return NEW, "the first run did not have this stage"
    if after is None:
        return MISSING, "the second run does not have this stage"
    if after.sha256 is None:  # of a plan, which runs nothing
        return MISSING, "not in the store: today it has another key, or a stage before it has"
    if before.sha256 == after.sha256:
        return EQUAL, ""
    return DIFFERS, "; ".join(difference_reasons(before, after, around))


def difference_reasons(before: Row, after: Row, around: Sequence[str]) -> list[str]:
    """Return possible reasons for a stage's different bytes: its own inputs, knobs, code, libraries or threads; if
    there are none, differences between the machines, versions and code of the two runs."""
    own = list(differences(after.explanation, before.explanation))
    counts = {"threads": (before.threads, after.threads), "processes": (before.processes, after.processes)}
    known = (*before.explanation, *after.explanation)
    threads = [f"{name}: {one} → {two}" for name, (one, two) in counts.items() if one != two and name not in known]
    inputs = [line for line in own if line.startswith("inputs.")]
    reasons = [line for line in own if line not in inputs] + threads
    if inputs and not reasons:
        return [f"its inputs differ ({', '.join(line.removeprefix('inputs.').split(':')[0] for line in inputs)})"]
    if not reasons:
        reasons = list(around)
    return reasons[:SHOWN] or [
        "no recorded difference: code, knobs, inputs, libraries, machine and threads are the same"
    ]


def scores(then: Mapping[str, ManifestModel], now: Mapping[str, ManifestModel]) -> Iterator[ScoreComparison]:
    """Yield the headline scores of the models in both runs."""
    for name, model in then.items():
        if name in now and model.headline == now[name].headline:
            before, after = model.score, now[name].score
            points = None if before is None or after is None else 100 * (after - before)
            yield ScoreComparison(model=name, headline=model.headline, then=before, now=after, points=points)


def summary(found: Reproduction) -> list[str]:
    """Return the result of the comparison in a few lines."""
    verdicts = [stage.verdict for stage in found.stages]
    measured = verdicts.count(MEASURED)
    apart = f"; {measured} measure speed and are not compared" if measured else ""
    lines = [f"{verdicts.count(EQUAL)} of {len(verdicts) - measured} stages produced the same bytes{apart}."]
    first = next((stage for stage in found.stages if stage.verdict in BAD), None)
    if first is not None:
        lines.append(f"The first different stage: {first.stage}: {first.why}.")
        lines += [f"Environment: {line}" for line in found.surroundings]
        lines += [
            f"{one.model}: {one.headline} {figure(one.then)} in the first run, {figure(one.now)} in the "
            f"second{moved(one.points)}"
            for one in found.scores
        ]
    elif found.surroundings:
        lines.append(f"Different, but without effect: {'; '.join(found.surroundings)}.")
    return lines


def figure(value: float | None) -> str:
    """Return a score as text, or a dash."""
    return "—" if value is None else f"{value:.4f}"


def moved(points: float | None) -> str:
    """Return the change of a score in words; empty if unknown."""
    return "" if points is None else f" ({points:+.2f} points)"


def row_of(stage: StageComparison) -> list[str]:
    """Return one line of the table."""
    return [
        stage.stage,
        *("—" if digest is None else short(digest) for digest in (stage.then, stage.now)),
        stage.verdict,
        stage.why,
    ]
