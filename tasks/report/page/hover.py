"""Values that a chart shows under the pointer or for the keyboard: invisible areas above the drawing, each with a note
that only the style sheet shows, so that the page needs no script and no network."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tasks.report.page.svg import LETTER, Box, Plot, box, short, text

NOTE_LINE, NOTE_PAD = 15.0, 7.0
"""Height of a line of a note, and the space around its lines, in units of the drawing."""
AREA = 11.0
"""Half the width of the area of a mark: easy to hit by a pointer, and by a finger on a phone."""


def spot_note(plot: Plot, x: float, y: float, lines: Sequence[str]) -> Markup:
    """Return the area of a mark with its note."""
    area = Markup('<circle cx="{}" cy="{}" r="{}" class="area"/>').format(short(x), short(y), short(AREA))
    return area_with_note(area, note(plot, x, y, lines), lines)


def band_note(plot: Plot, x: float, width: float, lines: Sequence[str]) -> Markup:
    """Return the area of a step of curves, as high as the chart, with its note and a line at the step."""
    area = box(x - width / 2, plot.top, width, plot.bottom - plot.top, "area")
    at = Markup('<path d="M{} {}V{}" class="at"/>').format(short(x), short(plot.top), short(plot.bottom))
    return area_with_note(area, at + note(plot, x, plot.top + NOTE_LINE, lines))


def box_note(plot: Plot, area: Box, lines: Sequence[str]) -> Markup:
    """Return the area of a bar or a row (left, top, right, bottom) with its note."""
    left, top, right, bottom = area
    spot = box(left, top, right - left, bottom - top, "area")
    return area_with_note(spot, note(plot, (left + right) / 2, (top + bottom) / 2, lines), lines)


def area_with_note(area: Markup, tip: Markup, lines: Sequence[str] = ()) -> Markup:
    """Return an area with what is shown while the pointer is on it; with ``lines`` the Tab key shows it as well, and a
    screen reader reads them.

    Marks and bars have lines; steps of curves have none, since some hundred of them would stand between a reader and
    the rest of the page.
    """
    reached = Markup(' tabindex="0" role="img" aria-label="{}"').format("; ".join(lines)) if lines else ""
    return Markup('<g class="spot"{}>{}<g class="tip">{}</g></g>').format(reached, area, tip)


def note(plot: Plot, x: float, y: float, lines: Sequence[str]) -> Markup:
    """Return lines of text on a ground of their own, beside a place and inside the chart."""
    wide, high = LETTER * max(map(len, lines)) + 2 * NOTE_PAD, NOTE_LINE * len(lines) + NOTE_PAD
    right = x + 12 + wide <= plot.right + 10
    left = max(2.0, x + 12 if right else x - 12 - wide)
    top = min(max(2.0, y - high / 2), plot.bottom - high)
    rows = [
        text(
            left + NOTE_PAD, top + NOTE_LINE * number - 2, line, kind="strong" if number == 1 and len(lines) > 1 else ""
        )
        for number, line in enumerate(lines, 1)
    ]
    return box(left, top, wide, high, "ground") + Markup("").join(rows)
