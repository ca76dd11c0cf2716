"""Charts of the page as files of their own, for MLflow, Prefect and ``--plot``: the same drawings, with their style
sheet inside and the colours of light ground, so that viewers without variables of CSS show them, too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from tasks.report.format.pareto import fronts
from tasks.report.page.charts import front_chart
from tasks.report.page.page import environment, sweep_chart
from tasks.report.page.palette import LIGHT
from tasks.report.page.svg import LETTER, box, short, text
from tasks.results.run import RunResult
from tasks.results.sweep import SweepResult

HEAD, MARGIN = 34.0, 12.0
"""Height of a picture's title, and the space around its charts, in units of the drawing."""
BOLD = 1.2
"""Width of a bold letter in that of a plain one, at most."""
SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def pareto_picture(result: RunResult) -> str:
    """Return ``pareto.svg``: all fronts with known figures, side by side; equal results give equal text."""
    drawn = [front_chart(one, result.headline) for one in fronts(result) if one.points]
    title = f"{result.recipe}: {result.headline} on {result.split}; line: Pareto front, ring: champion"
    return picture(title if drawn else f"{result.recipe}: no cost of a model is known", drawn)


def sweep_picture(result: SweepResult) -> str:
    """Return the plot of a sweep: score against dropped layers by strategy; equal results give equal text."""
    chart = sweep_chart(result)
    about = f"{len(result['seeds'])} seeds, {100 * result['confidence']:g} % intervals" if chart else "nothing scored"
    title = f"{result['recipe']} on {result['split']}: {about}; thick rim: chosen on the selection rows"
    return picture(title, [chart] if chart else [])


def picture(title: str, charts: Sequence[Markup]) -> str:
    """Return charts side by side below a title as the text of an SVG file."""
    sizes = [tuple(map(float, found.groups())) for one in charts if (found := SIZE.search(one))]
    wide = max(2 * MARGIN + BOLD * LETTER * len(title), MARGIN + sum(width + MARGIN for width, _ in sizes))
    high = HEAD + max((height for _, height in sizes), default=0.0) + MARGIN
    parts = [box(0, 0, wide, high, "paper"), text(MARGIN, 22, title, kind="strong")]
    left = MARGIN
    for one, (width, _) in zip(charts, sizes, strict=True):
        parts.append(Markup('<g transform="translate({} {})">{}</g>').format(short(left), short(HEAD), one))
        left += width + MARGIN
    opened = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" class="chart picture">'
        "<title>{2}</title><style>{3}</style>"
    ).format(short(wide), short(high), title, Markup(style()))
    return f"{opened}{Markup('').join(parts)}</svg>\n"


def style() -> str:
    """Return the style sheet of charts, with colours instead of their names."""
    rules = environment().get_template("charts.css").render()
    return re.sub(r"var\(--([\w-]+)\)", lambda found: LIGHT[found[1]], rules)
