"""The content of a run's pages: in Prefect the table, the Pareto chart and links to MLflow and the report; in MLflow
the description above the figures.

None of it can fail a run: if a server rejects it, a message is logged.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

from flows.run.mlflow_run import spared
from tasks.ports.markdown import escaped
from tasks.ports.tracking.tracker import Tracker
from tasks.results.row import ResultRow
from tasks.results.run import RunResult

LARGEST = 500_000  # bytes of a picture within a Prefect page: a chart of 3 candidates has 60,000, one of 33 has 134,000
NO_SERVER = "MLflow: start `limbeck ui` for links."


async def leave_pages(result: RunResult, tracker: Tracker) -> None:
    """Publish a finished run on its pages."""
    from tasks.report.tables.judging_sets import judging_markdown
    from tasks.report.tables.results import results_markdown
    from tasks.report.tables.sizes import size_markdown
    from tasks.report.tables.steps import steps_markdown

    files: dict[str, str] = {}
    async with spared("the report's files"):
        files = await asyncio.to_thread(tracker.report_files)
    table = results_markdown(result.models, headline=result.headline, split=result.split)
    table = "\n".join(
        [
            table,
            *judging_markdown(result.models, result.split),
            *size_markdown(result.models),
            *steps_markdown(result.models, result.split),
        ]
    )
    async with spared("the run's text in MLflow"):
        await asyncio.to_thread(tracker.describe, description_of(result, table, tracker.url_of_candidates()))
    async with spared("the results table"):
        await leave_table(result, table, files)
    async with spared("the report's links"):
        await leave_report(files, tracker)


async def leave_table(result: RunResult, table: str, files: Mapping[str, str]) -> None:
    """Publish the results table in Prefect, with links to everything else."""
    from prefect.artifacts import acreate_markdown_artifact

    text = "\n\n".join([table.rstrip(), *where_lines(result, files)]) + "\n"
    await acreate_markdown_artifact(text, key="results", description="Teacher and every candidate")


async def leave_report(files: Mapping[str, str], tracker: Tracker) -> None:
    """Publish the Pareto chart and a link to the report in Prefect; without an MLflow server there is no link."""
    from prefect.artifacts import acreate_image_artifact, acreate_link_artifact

    if files.get("report.html"):
        await acreate_link_artifact(
            files["report.html"], link_text="Report", key="report", description="The whole run on one page"
        )
    if "pareto.svg" in files:
        beside = f" ([in MLflow]({files['pareto.svg']}))" if files["pareto.svg"] else ""
        picture = await asyncio.to_thread(tracker.report_file, "pareto.svg")
        await acreate_image_artifact(
            shown_as(picture, files["pareto.svg"]),
            key="pareto",
            description=f"Quality against latency, size and energy{beside}",
        )


def shown_as(picture: bytes, link: str) -> str:
    """Return the source of a picture for the Prefect page: the picture itself as a data URL, or its link if it is too
    large for a page and there is a link.

    A link alone displays nothing if MLflow requires a login: the browser requests the picture from another site's page,
    and sends no password.
    """
    if link and len(picture) > LARGEST:
        return link
    return f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"


def where_lines(result: RunResult, files: Mapping[str, str]) -> list[str]:
    """Return lines with links to the MLflow run, the report and the chart; without a server, with their names."""
    link = (result.links or {}).get("run")
    named = {"report.html": "report", "pareto.svg": "Pareto chart"}
    lines = [
        f"[{words}]({files[name]})"
        if files[name]
        else f"{words.capitalize()}: `report/{name}` among the files of the MLflow run"
        for name, words in named.items()
        if name in files
    ]
    return [f"[MLflow run]({link})" if link else NO_SERVER, *lines]


def description_of(result: RunResult, table: str, candidates: str = "") -> str:
    """Return the description that MLflow displays above a run's figures: the outcome, the command to download the
    model, the table, a link to the list of ``candidates``, and the gate's reasons."""
    reasons = [f"- {entry.candidate}: {entry.decision}: {'; '.join(entry.reasons)}" for entry in result.registered]
    link = f"[The candidates of this run, to compare]({candidates})" if candidates else ""
    return "\n\n".join(part for part in (head_of(result), table.rstrip(), link, "\n".join(reasons)) if part)


def about_candidate(model: ResultRow, result: RunResult) -> str:
    """Return the description of a candidate's page in MLflow: its figures in one line, how it was made, the outcome of
    the gate with the reasons, and the command that downloads it."""
    from tasks.register_model import describe
    from tasks.report.format.numbers import DASH, bounds, figure

    score = model.score(result.split)
    made = f", {model.making}" if model.making else ""
    lines = [
        f"**{describe(model, result.split)}**",
        f"A {model.role}{made}: {result.headline} on {result.split} {figure(score.value)} {bounds(score)}".rstrip()
        + ".",
    ]
    if model.gate and model.gate != DASH:
        reasons = f": {'; '.join(map(escaped, model.reasons))}" if model.reasons else ""
        lines.append(f"The gate: {model.gate}{reasons}.")
    versions = [entry for entry in result.registered if entry.candidate == model.name and entry.version]
    lines += [f"`limbeck pull {entry.name}@{entry.version} my-model`" for entry in versions]
    return "\n\n".join(lines)


def head_of(result: RunResult) -> str:
    """Return the outcome of the decisions in one or two sentences; an accepted candidate may still not be champion."""
    from tasks.report.page.headline import chosen, title_of

    if not result.registered:
        return "Nothing was registered."
    champion = next((entry for entry in result.registered if entry.alias == "champion"), None)
    if champion is not None:
        return f"**{champion.candidate}** is champion: `limbeck pull {champion.name}@champion my-model`"
    if not any(entry.decision == "accepted" for entry in result.registered):
        return "**The gate accepted no candidate.**"
    best = chosen(result)
    entry = next(entry for entry in result.registered if entry.candidate == best.name)
    return f"**{title_of(result, best)}**: {entry.why}. `limbeck pull {entry.name}@{entry.version} my-model`"
