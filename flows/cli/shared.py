"""Code that several commands share: common options, the home folder, the start of a run."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console

from flows.cli.output_files import writable
from flows.home import Home
from flows.run.environment import prepare_environment
from tasks.errors import RecipeError

WRITTEN = ("--json", "--plot")


STOPPED = 130  # the exit status of a command ended by Ctrl-C, as in shells


out = Console(width=None if sys.stdout.isatty() else 120, markup=False)  # names may contain square brackets


written = partial(typer.Option, callback=writable)
"""An option for an output file, which is checked before the command does anything else."""


Sets = Annotated[
    list[str],
    typer.Option("--set", metavar="a.b=value", help="Change one knob of the recipe; can be repeated."),
]


JsonFile = Annotated[
    Path | None, written("--json", metavar="FILE", help="Write stages, models and registered versions as JSON.")
]


RegisteredName = Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")]


Reason = Annotated[str, typer.Option(help="The reason, for the history.")]


RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a recipe on the shelf.")]


def print_lines(*lines: str, to: Console = out) -> None:
    """Print lines as they are: without markup, highlighting or wrapping."""
    for line in lines:
        to.print(line, highlight=False, markup=False, soft_wrap=True)


def start(recipe: Any, json_file: Path | None, force: list[str], kind: str = "run", plot: Path | None = None) -> None:
    """Run a recipe, or its sweep, with progress on the console, and print the results."""
    home = open_home_for_a_run()
    if force:  # before a server is started, which takes longer than a second plan
        from flows.cli.runner import planned_session, require_stages

        require_stages(force, planned_session(recipe, home, kind))
    from flows.servers.local import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows.cli.console import show_results, show_sweep
        from flows.cli.runner import watched_run

        result = watched_run(
            recipe,
            home=home,
            console=out,
            ready=ready,
            force=frozenset(force),
            json_path=json_file,
            command=typed(sys.argv[1:]),
            kind=kind,
        )
    if kind != "sweep":
        from tasks.results.run import RunResult

        return show_results(out, RunResult.model_validate(result))
    from tasks.report.page.picture import sweep_picture
    from tasks.results.sweep import read_sweep

    sweep = read_sweep(result)
    if plot is not None:
        plot.write_text(sweep_picture(sweep), encoding="utf-8")
    show_sweep(out, sweep)


def typed(words: list[str]) -> str:
    """Return a command as it was typed, without its output files; empty for ``resume``, because the original command
    is not recorded."""
    kept = [
        word for before, word in zip(["", *words], words, strict=False) if before not in WRITTEN and word not in WRITTEN
    ]
    return (
        shlex.join(["limbeck", *(word for word in kept if word.split("=")[0] not in WRITTEN)])
        if words[:1] != ["resume"]
        else ""
    )


def open_home() -> Home:
    """Create the home folder and set the environment before Prefect or MLflow is imported."""
    home = open_environment()
    return home.create()


def open_environment() -> Home:
    """Set the environment before Prefect or MLflow is imported; the home folder may not exist yet."""
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        try:
            _ = urlsplit(os.environ.get(name, "")).port
        except ValueError as error:  # Prefect could not even be imported
            raise RecipeError(f"{name} is not an address ({error}); correct it, or remove it") from error
    home = Home.from_environment()
    prepare_environment(home)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    logging.raiseExceptions = False  # Prefect would print every log line that its server does not accept
    return home


def open_home_for_a_run() -> Home:
    """Do the same as ``open_home``, and refuse an unreachable MLflow before anything starts."""
    home = open_home()
    from tasks.ports.tracking.client import require_reachable

    require_reachable(home.tracking_uri)
    announce_databases(home)
    return home


def announce_databases(home: Home) -> None:
    """State on stderr that a new home gets its databases, which takes seconds without any other output."""
    database = home.tracking_uri.removeprefix("sqlite:///")
    if database == home.tracking_uri:
        return
    file = Path(database)
    if not file.exists() or not file.stat().st_size:  # a new home has empty files, which only its owner may read
        print(f"preparing the databases of {home.root}, once; this takes some seconds", file=sys.stderr)


def tracker() -> Any:
    """Return a read-only tracker."""
    home = open_home()
    announce_databases(home)
    from tasks.ports.tracking.tracker import Tracker

    return Tracker(home.tracking_uri, home.artifacts)
