"""SVG drawing without a library: scales, ticks, axes and marks as inline SVG, with every text escaped and every colour
a class of the page's style sheet.

A mark's shape shows the role as well as its colour does, so that nothing depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tasks.results.roles import role_of

Scale = Callable[[float], float]
LETTER = 6.3
"""Width of an average letter at the size of labels, in units of the drawing."""


@dataclass(frozen=True)
class Plot:
    """The area of a chart: its edges and the scales from figures to coordinates."""

    left: float
    right: float
    top: float
    bottom: float
    x: Scale
    y: Scale


def scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Scale:
    """Return the map from figures between ``low`` and ``high`` to coordinates between ``start`` and ``end``."""
    form: Scale = math.log if log else float
    first, span = form(low), form(high) - form(low)
    return lambda value: start + (form(value) - first) / (span or 1.0) * (end - start)


def padded(values: Iterable[float], share: float = 0.08, least: float = 1e-9) -> tuple[float, float]:
    """Return bounds slightly outside of the values, also if all values are equal."""
    found = list(values)
    low, high = min(found), max(found)
    room = max((high - low) * share, least) if high > low else max(abs(high) * 0.05, least, 0.01)
    return low - room, high + room


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most ``most`` round figures between two bounds."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    fitting = [
        factor * power for factor in (0.25, 0.5, 1, 2, 2.5, 5, 10) if len(multiples(low, high, factor * power)) <= most
    ]
    return multiples(low, high, fitting[0])


def multiples(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of a step between two bounds."""
    return [
        round(number * step, 12) for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two bounds; if these are too many, 1 and 3 times, or only the
    powers, or every n-th power."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        inside = [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]
        if 2 <= len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)] if len(inside) > 1 else ticks(low, high, most)


def tick_label(value: float, step: float = 0.0) -> str:
    """Return a tick's figure with as many digits as the distance to the next tick requires."""
    if step:
        return f"{value:,.{min(6, max(0, -math.floor(math.log10(step) + 1e-9) + (0 if is_whole(step) else 1)))}f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def is_whole(step: float) -> bool:
    """Return whether a step has only one significant digit (2.5 has two)."""
    return abs(step / 10.0 ** math.floor(math.log10(step) + 1e-9) % 1) < 1e-6


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """Return a text; ``kind`` is its class."""
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
        short(x), short(y), anchor, kind, words
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line."""
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(
        short(x1), short(y1), short(x2), short(y2), kind
    )


def path(points: Sequence[tuple[float, float]], kind: str, *, stairs: bool = False) -> Markup:
    """Return a line through points; ``stairs`` goes along first and then up or down."""
    if not points:
        return Markup("")
    steps = [f"M{short(points[0][0])} {short(points[0][1])}"]
    for x, y in points[1:]:
        steps.append(f"H{short(x)}V{short(y)}" if stairs else f"L{short(x)} {short(y)}")
    return Markup('<path d="{}" class="{}"/>').format("".join(steps), kind)


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Markup:
    """Return a rectangle; ``title`` is its tooltip."""
    inside = Markup("<title>{}</title>").format(title) if title else ""
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}">{}</rect>').format(
        short(x), short(y), short(max(0.0, width)), short(max(0.0, height)), kind, inside
    )


def mark(x: float, y: float, role: str, title: str, *, size: float = 5.0, more: str = "") -> Markup:
    """Return a role's mark; ``title`` is its tooltip."""
    shape = role_of(role)
    corners = around(shape.corners, shape.turn, shape.reach)
    spots = " ".join(f"{short(x + size * dx)},{short(y + size * dy)}" for dx, dy in corners)
    return Markup('<polygon points="{}" class="mark {} {}"><title>{}</title></polygon>').format(
        spots, role, more, title
    )


def around(count: int, turn: float = 0.0, reach: float = 1.0) -> tuple[tuple[float, float], ...]:
    """Return the corners of a regular polygon."""
    angles = [2 * math.pi * number / count + turn for number in range(count)]
    return tuple((reach * math.sin(angle), -reach * math.cos(angle)) for angle in angles)


def short(value: float) -> str:
    """Return a coordinate with at most one decimal: smaller differences are not visible."""
    return f"{value:.1f}".removesuffix(".0")


def drawing(width: float, height: float, title: str, parts: Iterable[Markup], *, kind: str = "") -> Markup:
    """Return the whole drawing; ``title`` is its description in words."""
    inside = Markup("").join(parts)
    # Readers of screens look for marks with a name of their own in a group, and not in an image.
    role = "group" if 'tabindex="0"' in inside else "img"
    head = Markup('<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" class="chart {2}" role="{3}" aria-label="{4}">')
    return head.format(short(width), short(height), kind, role, title) + inside + Markup("</svg>")


def axes(
    plot: Plot, across: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]], names: tuple[str, str]
) -> Markup:
    """Return grid, tick labels and the names of both axes."""
    parts = [
        line(plot.left, plot.y(at), plot.right, plot.y(at), "grid")
        + text(plot.left - 6, plot.y(at) + 3.5, words, anchor="end", kind="tick")
        for at, words in up
    ]
    parts += [text(plot.x(at), plot.bottom + 15, words, anchor="middle", kind="tick") for at, words in across]
    parts += [line(plot.x(at), plot.bottom, plot.x(at), plot.bottom + 4, "axis") for at, _ in across]
    parts.append(line(plot.left, plot.bottom, plot.right, plot.bottom, "axis"))
    parts.append(text((plot.left + plot.right) / 2, plot.bottom + 31, names[0], anchor="middle", kind="name"))
    parts.append(text(plot.left - 6, plot.top - 9, names[1], anchor="start", kind="name"))
    return Markup("").join(parts)


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return evenly spaced ticks with their labels."""
    step = values[1] - values[0] if len(values) > 1 else 0.0
    return [(value, tick_label(value, step)) for value in values]


def spread_apart(plot: Plot, texts: Sequence[tuple[float, str]], high: float = 11.0) -> list[tuple[float, str]]:
    """Return texts beside a chart with their heights, ``high`` apart from each other and above the bottom."""
    found: list[tuple[float, str]] = []
    for y, words in sorted(texts, key=lambda one: one[0]):
        found.append((max(y, found[-1][0] + high) if found else y, words))
    over = max(0.0, found[-1][0] - plot.bottom) if found else 0.0
    return [(y - over, words) for y, words in found]


Box = tuple[float, float, float, float]
"""A rectangle: left, top, right, bottom."""


@dataclass
class Labels:
    """Places names beside marks, where they cover neither a mark nor another name; a name that does not fit is only in
    the mark's tooltip."""

    plot: Plot
    taken: list[Box]
    lines: Sequence[Box] = ()
    """Drawn lines, which a name covers only if there is no other place."""

    def place(self, x: float, y: float, words: str, kind: str = "label") -> Markup:
        """Return a name beside a mark, with a thin line to the mark if it stands apart; empty if it does not fit."""
        found = self.find(x, y, words)
        if found is None:
            return Markup("")
        dx, dy, anchor = found
        leads = line(x, y, x + dx, y + dy - (9 if dy > 0 else -3), "leader") if abs(dy) > LEADER_FROM else Markup("")
        return leads + text(x + dx, y + dy, words, anchor=anchor, kind=kind)

    def find(self, x: float, y: float, words: str) -> tuple[float, float, str] | None:
        """Return a free position for a mark's name (offset in x and y, and anchor) and reserve it; None if there is
        none."""
        width = LETTER * len(words)
        places = [(self.box_at(x + dx, y + dy, width, anchor), (dx, dy, anchor)) for dx, dy, anchor in BESIDE]
        inside = [one for one in places if self.is_inside(one[0])]
        for others in ([*self.taken, *self.lines], self.taken):
            for place, found in inside:
                if not any(overlap(place, other) for other in others):
                    self.taken.append(place)
                    return found
        return None

    def box_at(self, x: float, y: float, width: float, anchor: str) -> Box:
        """Return the rectangle of a name."""
        start = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        return start, y - 9, start + width, y + 3

    def is_inside(self, place: Box) -> bool:
        """Return whether a name is inside of the chart."""
        left, top, right, bottom = place
        across = self.plot.left - 4 <= left and right <= self.plot.right + 8
        return across and self.plot.top - 8 <= top and bottom <= self.plot.bottom


BESIDE = (
    (9, 4, "start"),
    (-9, 4, "end"),
    (0, -10, "middle"),
    (0, 18, "middle"),
    (8, -8, "start"),
    (-8, -8, "end"),
    (8, 15, "start"),
    (-8, 15, "end"),
    *(
        (dx, dy, anchor)
        for dy in (-28, 34, -44, 50, -60, 66, -76, 82)
        for dx, anchor in ((12, "start"), (-12, "end"), (0, "middle"))
    ),
)
"""Possible positions of a name: offset in x and y from its mark, and the anchor of the text; the near ones first."""
LEADER_FROM = 20
"""Distance in height from which a thin line leads from a name to its mark."""


def overlap(one: Box, other: Box) -> bool:
    """Return whether two rectangles overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def boxes_of_stairs(points: Sequence[tuple[float, float]]) -> list[Box]:
    """Return the rectangles that a step line covers."""
    boxes: list[Box] = []
    for (x, y), (right, top) in zip(points, points[1:], strict=False):
        boxes += [(x, y - 1.5, right, y + 1.5), (right - 1.5, min(y, top), right + 1.5, max(y, top))]
    return boxes
