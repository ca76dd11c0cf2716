"""The lineage chart of a model: its stages as boxes by level, edges without redundant ones and with few crossings."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tasks.report.page.charts import clipped
from tasks.report.page.svg import box, drawing, short, text
from tasks.results.record import LineageNode

BOX_WIDE, BOX_HIGH, APART, BELOW = 164.0, 44.0, 14.0, 34.0


def lineage_chart(nodes: Sequence[LineageNode], edges: Sequence[Sequence[str]]) -> Markup:
    """Draw stages as boxes, each below all of its inputs."""
    edges = without_shortcuts(edges)
    levels = levels_of([node.id for node in nodes], edges)
    rows: dict[int, list[LineageNode]] = {}
    for node in nodes:
        rows.setdefault(levels[node.id], []).append(node)
    ordered = crossings_undone([rows[level] for level in sorted(rows)], edges)
    wide = max(len(row) for row in ordered) * (BOX_WIDE + APART) + APART
    places = {
        node.id: (
            (wide - len(row) * (BOX_WIDE + APART) + APART) / 2 + column * (BOX_WIDE + APART),
            8 + level * (BOX_HIGH + BELOW),
        )
        for level, row in enumerate(ordered)
        for column, node in enumerate(row)
    }
    parts = [thread(places[first], places[second]) for first, second in edges]
    parts += [stage_box(node, *places[node.id]) for row in ordered for node in row]
    said = "; ".join(f"{node.name} {node.label}".strip() for node in nodes)
    return drawing(
        wide,
        16 + len(ordered) * (BOX_HIGH + BELOW) - BELOW,
        f"from sources to the model: {said}",
        parts,
        kind="lineage",
    )


def without_shortcuts(edges: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the edges without those for which a longer path leads to the same stage (transitive reduction): nearly
    every stage reads the rows and the teacher."""
    after: dict[str, set[str]] = {}
    for first, second in edges:
        after.setdefault(first, set()).add(second)

    def reached(name: str) -> set[str]:
        found, ahead = set[str](), set(after.get(name, ()))
        while ahead - found:
            found |= ahead
            ahead = {later for one in ahead for later in after.get(one, ())}
        return found

    beyond = {name: reached(name) for name in {name for edge in edges for name in edge}}
    return [
        (first, second)
        for first, second in edges
        if not any(second in beyond[other] for other in after[first] - {second})
    ]


def levels_of(names: Sequence[str], edges: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return each stage's level, the length of the longest path to it, so that a stage is below all of its inputs."""
    levels = dict.fromkeys(names, 0)
    for _ in names:  # the longest path has fewer edges than there are stages
        moved = [(second, levels[first] + 1) for first, second in edges if levels[second] <= levels[first]]
        if not moved:
            break
        for name, level in moved:
            levels[name] = max(levels[name], level)
    return levels


def crossings_undone(rows: Sequence[Sequence[LineageNode]], edges: Sequence[Sequence[str]]) -> list[list[LineageNode]]:
    """Return the rows with each stage sorted by the mean position of its inputs, so that fewer edges cross."""
    place: dict[str, float] = {}
    done = []
    for row in rows:
        above = {
            node.id: [place[first] for first, second in edges if second == node.id and first in place] for node in row
        }
        middles = {name: sum(found) / len(found) if found else 0.5 for name, found in above.items()}
        kept = [node for _, node in sorted(((middles[node.id], node) for node in row), key=lambda one: one[0])]
        place |= {node.id: (column + 0.5) / len(kept) for column, node in enumerate(kept)}
        done.append(kept)
    return done


def thread(first: tuple[float, float], second: tuple[float, float]) -> Markup:
    """Draw an edge: a curve from the bottom of one box to the top of another."""
    x1, y1, x2, y2 = first[0] + BOX_WIDE / 2, first[1] + BOX_HIGH, second[0] + BOX_WIDE / 2, second[1]
    half = (y2 - y1) / 2
    return Markup('<path d="M{} {}C{} {} {} {} {} {}" class="thread"/>').format(
        *(short(value) for value in (x1, y1, x1, y1 + half, x2, y2 - half, x2, y2))
    )


def stage_box(node: LineageNode, x: float, y: float) -> Markup:
    """Draw one stage: its name, its label, its cache status, and the first digits of its key."""
    kind = node.cache
    first = clipped(node.name, 25)
    second = " · ".join(part for part in (clipped(node.label, 12), kind, node.id[:6]) if part)
    title = f"{node.name} {node.label}: {kind}, {node.id}"
    return (
        box(x, y, BOX_WIDE, BOX_HIGH, f"stage {kind}", title)
        + text(x + BOX_WIDE / 2, y + 18, first, anchor="middle", kind="label strong")
        + text(x + BOX_WIDE / 2, y + 34, second, anchor="middle", kind="tick")
    )
