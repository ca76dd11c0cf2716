"""The page of a run: one HTML file without external resources, rendered only from the run's result.

Its first screen names the model to use, its quality, speed, size and cost, and the command to download it; the rest
gives the details. Texts from data are not trusted: templates and charts escape them, and the page forbids the browser
to load or run anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tasks.report.comparison import ComparedRun, comparisons
from tasks.report.format.numbers import plural, share_in_words
from tasks.report.page.charts import DropPoint, drop_chart
from tasks.report.page.error_analysis import ShownTexts, analysis_sections, disagreement_section
from tasks.report.page.headline import answer
from tasks.report.page.palette import DARK, LIGHT
from tasks.report.page.parts import SweepCellPart, SweepRow
from tasks.report.page.sections import (
    Curves,
    curve_parts,
    dropped_section,
    front_parts,
    ledger_section,
    licence_lines,
    lineage_section,
    notes,
    reproduction,
    table_rows,
    view_of,
)
from tasks.report.page.waterfall import steps_section
from tasks.report.tables.held_back import held_back_lines
from tasks.report.tables.judging_sets import judging_section, pooled_section
from tasks.report.tables.results import conditions
from tasks.report.tables.sizes import size_sections
from tasks.report.tables.steps import NO_INTERVAL
from tasks.report.tables.sweep import SIMILAR, answer_lines, row_of
from tasks.report.tables.sweep import notes as sweep_notes
from tasks.report.tables.sweep import title as sweep_title
from tasks.report.tables.trials import section_of_search
from tasks.results.roles import ROLES
from tasks.results.run import RunResult
from tasks.results.sweep import SweepResult

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).resolve().parent
PAGE = "report/report.html"
"""Path of the page among a run's MLflow artifacts."""


def run_page(result: RunResult, *, curves: Curves | None = None, texts: ShownTexts | None = None) -> str:
    """Return the page of a run.

    ``curves`` are the points of its trainings by stage key and figure. ``texts`` are the texts of displayed rows by id;
    None if they are to be left out.
    """
    first = answer(result)
    model, teacher = first.model, first.teacher
    parts = {
        "fronts": front_parts(result),
        "steps": steps_section(result, model.name),
        "no_interval": f"{NO_INTERVAL[0].lower()}{NO_INTERVAL[1:]}",
        "rows": table_rows(result),
        "view": view_of(result),
        "notes": notes(result),
        "conditions": conditions(result.models[0]),
        "share": share_in_words(result.models[0].headline),
        "curves": curve_parts(result, curves, [model.name]),
        "looks": analysis_sections(result, [model] + [teacher] * (teacher is not model)),
        "apart": disagreement_section(result, model, texts),
        "drops": dropped_section(result),
        "lineage": lineage_section(result, model),
        "licences": licence_lines(result),
        "held": held_back_lines(result.held_back),
        "ledger": ledger_section(result),
        "how": reproduction(result),
        "judged": judging_section(result),
        "pooled": pooled_section(result),
        "sizes": size_sections(result),
        "search": section_of_search(result.chosen_by) if result.chosen_by else None,
    }
    return page("page.html", result, answer=first, **parts)


def sweep_page(result: SweepResult) -> str:
    """Return the page of a sweep: the answer first, then the table, the chart, and the change of each layer by
    fine-tuning."""
    shared = RunResult.model_validate({**result, "models": (), "rows": {result["split"]: result["rows"]}})
    parts = {
        "answers": answer_lines(result),
        "title": sweep_title(result),
        "table": sweep_rows(result),
        "marks": sweep_notes(result),
        "chart": sweep_chart(result),
        "similar": SIMILAR,
        "ledger": ledger_section(shared),
        "held": held_back_lines(shared.held_back),
        "how": reproduction(shared),
    }
    return page("sweep.html", shared, sweep=result, **parts)


def compare_page(runs: Sequence[ComparedRun]) -> str:
    """Return the page of a comparison of runs."""
    return page("compare.html", runs[0].result.replaced(links=None), runs=runs, tables=comparisons(runs))


def sweep_rows(result: SweepResult) -> list[SweepRow]:
    """Return a row for each number of dropped layers."""
    return [
        SweepRow(drop, [SweepCellPart(text, bool(cell.get("chosen"))) for cell, text in row_of(result, drop)])
        for drop in result["drop"]
    ]


def sweep_chart(result: SweepResult) -> Markup | None:
    """Return the chart of a sweep, without cells that dropped out or are undefined."""
    scored = [cell for cell in result["cells"] if cell["state"] == "scored"]
    series = {
        name: [
            DropPoint(cell["drop"], **cell["score"], chosen=cell["chosen"])
            for cell in scored
            if cell["strategy"] == name
        ]
        for name in result["strategies"]
    }
    known = {name: sorted(found, key=lambda point: point.drop) for name, found in series.items() if found}
    within = [answer["points"] for answer in result["answer"]]
    across = f"layers dropped of {result['layers']}"
    return drop_chart(known, result["teacher"]["score"]["value"], result["headline"], within, across) if known else None


def page(template: str, result: RunResult, **parts: Any) -> str:
    """Render a template with its parts and the common header."""
    stages, link = result.stages, (result.links or {}).get("run", "")
    head = {
        "recipe": result.recipe,
        "task": result.task,
        "synthetic": result.synthetic,
        "date": result.made.date if result.made else None,
        "stages": plural(len(stages), "stage"),
        "hits": sum(stage.cache == "hit" for stage in stages),
        "link": link
        if str(link).startswith(("http://", "https://"))
        else "",  # only web addresses: other schemes could run code on a click
    }
    return str(environment().get_template(template).render(head=head, split=result.split, stages=stages, **parts))


@cache
def environment() -> Environment:
    """Return the templates' environment: everything is escaped, and an undefined name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals.update(roles=ROLES, light=LIGHT, dark=DARK)
    return made


def report_link(links: Mapping[str, str]) -> str | None:
    """Return the MLflow address of the page of a run, from the links of the run's result; None if MLflow is not a
    server."""
    page, _, query = links.get("run", "").partition("?")
    return f"{page}/artifacts/{PAGE}{'?' if query else ''}{query}" if page else None
