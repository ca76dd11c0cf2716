"""Commands for finished and current runs, and for the pages about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import out, tracker, written
from flows.home import Home
from flows.run.environment import prepare_environment
from tasks.errors import RecipeError
from tasks.report.format.durations import duration


def results(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of the page and its files, for example deployments/results."),
    ],
    add: Annotated[
        Path | None,
        typer.Option("--add", metavar="OUT.json", help="A file written by --json for a finished run or sweep."),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A note on the added run, in one sentence.")] = "",
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="FILE", help="Print one file of the folder as a short table, as in the README."
        ),
    ] = None,
) -> None:
    """Write the results page of a folder from its files, one per finished run; --add adds a run first."""
    from flows.publish.results_folder import add_result, table_of, write_page

    if table is not None and (note or add is not None):
        raise RecipeError("--table only prints an existing file; remove --add and --note")
    if table is not None:
        typer.echo(table_of(folder, table))
        return
    if note and add is None:
        raise RecipeError("--note requires an added run; name its file with --add")
    if add is not None:
        out.print(f"wrote {add_result(folder, add, note)}", highlight=False, markup=False)
    out.print(f"wrote {write_page(folder)}", highlight=False, markup=False)


def runs(limit: Annotated[int, typer.Option(min=1, max=1000)] = 20) -> None:
    """List the newest runs."""
    from flows.cli.console import runs_table

    found = tracker().runs(limit)
    if not found:
        return out.print("no runs yet; start one: limbeck demo, or limbeck run RECIPE (limbeck shelf lists some)")
    out.print(runs_table(found))


def explain(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest.")
    ] = None,
) -> None:
    """Show the stages of a past run: whether each was cached or computed, and why."""
    from rich.table import Table

    from flows.run.history import find_run

    mlflow = tracker()
    found = find_run(mlflow, run)
    title = f"{found['kind']} {found['run'][:8]} of {found['recipe']}: {found['status']}"
    table = Table("stage", "cache", "reason", "time", "key", title=title, title_justify="left")
    for row in mlflow.logged_stages(found["run"]):
        made = (
            f"computed by run {row['made_by_run'][:8]}"
            if row["made_by_run"]
            else "computed before"
            if row["cache"] == "hit"
            else row["why"]
        )
        table.add_row(
            row["stage"],
            row["cache"] if row["cache"] == "hit" else row["state"],
            made,
            duration(row["seconds"]),
            row["key"][:12],
        )
    out.print(table)


def ledger(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest.")
    ] = None,
    json_file: Annotated[
        Path | None, written("--json", metavar="FILE", help="Write every figure with its origin as JSON.")
    ] = None,
) -> None:
    """Show the cost of a past run, stage by stage, in time, kWh, CO2e and dollars, and the savings of the cache."""
    mlflow = tracker()
    from flows.publish.results_folder import write_json
    from flows.run.history import find_run
    from tasks.report.tables.ledger import LEGEND, counted_lines, ledger_table
    from tasks.results.record import Ledger

    found = find_run(mlflow, run)
    noted = mlflow.recall(found["run"], "ledger")
    shown = Ledger.model_validate(noted)
    out.print(ledger_table(shown, f"{found['kind']} {found['run'][:8]} of {found['recipe']}: cost"))
    for line in [*counted_lines(shown), LEGEND]:
        out.print(line, highlight=False, markup=False)
    if json_file is not None:
        write_json(json_file, noted)


def report(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest finished one."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    output: Annotated[
        Path | None,
        written("--output", "-o", metavar="FILE.html", help="File of the report; by default in the home folder."),
    ] = None,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Omit the texts on which student and teacher disagree.")
    ] = False,
) -> None:
    """Write the report of a past run: one HTML file that recommends a model, with its quality, speed and size and the
    reasons."""
    mlflow = tracker()
    from flows.publish.report import open_page, past_report, place_of_report, write_page
    from flows.run.history import find_run

    home, found = Home.from_environment(), find_run(mlflow, run, () if run else ("FINISHED",))
    path = place_of_report(output, found["run"], home)
    write_page(past_report(mlflow, found, home=home, texts=not no_texts), path)
    out.print(str(path), highlight=False, markup=False, soft_wrap=True)
    if show and not open_page(path):
        out.print("no browser was found; open the file manually", highlight=False)


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN", help="Finished runs, as `limbeck runs` shows them.")],
    output: Annotated[
        Path | None, written("--output", "-o", metavar="FILE.html", help="Write the comparison as one HTML file, too.")
    ] = None,
) -> None:
    """Compare finished runs side by side: the knobs that differ, the figures of their models, and their costs."""
    if len(set(runs)) < 2:
        raise RecipeError(f"{' '.join(runs)} is one run; name two or more, as limbeck runs shows them")
    mlflow = tracker()
    from flows.cli.console import show_comparison
    from flows.publish.compared_runs import compared_run
    from flows.publish.report import write_page
    from flows.run.history import find_run

    found = [compared_run(mlflow, find_run(mlflow, run)) for run in runs]
    show_comparison(out, found)
    if output is not None:
        from tasks.report.page.page import compare_page

        write_page(compare_page(found), output)
        out.print(f"wrote {output}", highlight=False, markup=False, soft_wrap=True)


def leaderboard(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="A task; by default that of the newest run.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Candidates in a table.")] = 20,
) -> None:
    """List the candidates of all runs of a task, the best score first; scores on other rows are in other tables."""
    mlflow = tracker()
    from tasks.report.tables.leaderboard import boards, leaderboard_table

    newest = next((row["experiment"].split("/")[0] for row in mlflow.runs(1)), None)
    if task is None and newest is None:
        return out.print("no runs yet, so there is no leaderboard; start one: limbeck demo, or limbeck run RECIPE")
    found = mlflow.candidates_of(task or newest)
    if not found:
        known = ", ".join(mlflow.tasks()) or "none: run a recipe first"
        raise RecipeError(f"there are no candidates of the task {task or newest!r}; known tasks are {known}")
    for place, entries in boards(found).items():
        out.print(leaderboard_table(place, entries, limit))


def reproduce(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A finished run, as `limbeck runs` shows it; by default the newest."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FOLDER", help="Keep the results of the second run in a new folder."),
    ] = None,
    from_cache: Annotated[
        bool, typer.Option("--from-cache", help="Compare the cached results, without running stages.")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Continue although a source has changed since.")] = False,
    json_file: Annotated[Path | None, written("--json", metavar="FILE", help="Write the comparison as JSON.")] = None,
) -> None:
    """Repeat a past run without the cache, in a home of its own, and compare the artifacts of all stages byte by byte.

    Ends with status 0 if all digests are equal, and with 3 if some differ; measurements of speed are not compared.
    """
    before = dict(os.environ)  # the second run gets the environment of this command, without settings for this home
    mlflow = tracker()
    from flows.cli.console import show_reproduction
    from flows.cli.reproduce import DIFFERENT
    from flows.cli.reproduce import reproduce as run_twice
    from flows.publish.results_folder import write_json
    from flows.run.history import find_run

    found = find_run(mlflow, run, ("FINISHED",))
    if not from_cache:
        out.print(
            f"running {found['recipe']} again, in a separate home folder: without the cache and without changes to "
            f"your registry",
            highlight=False,
        )
    compared = run_twice(
        mlflow, found, home=Home.from_environment(), environment=before, keep=keep, from_cache=from_cache, anyway=anyway
    )
    if json_file is not None:
        write_json(json_file, compared.as_json())
    show_reproduction(out, compared)
    if not compared.equal:
        raise typer.Exit(DIFFERENT)


def ui(
    prefect_port: Annotated[int, typer.Option(min=1024, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(min=1024, max=65535)] = 5000,
) -> None:
    """Serve Prefect and MLflow on this machine until Ctrl-C; runs started meanwhile use them."""
    from flows.servers.local import serve

    home = Home.from_environment().create()
    prepare_environment(home)
    serve(home, prefect_port, mlflow_port, out)
