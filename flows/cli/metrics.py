"""``limbeck metrics``: Limbeck's metrics, and your own on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import open_home, out
from flows.home import Home

commands = typer.Typer(
    no_args_is_help=True,
    help="Metrics: those of Limbeck, and your own on this machine, which are modules of evaluate and own/NAME in "
    "scoring.metrics of a recipe.",
)


@commands.command("add")
def add_metric(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A file NAME.py, or a folder NAME with NAME.py: a module of evaluate."),
    ],
    task: Annotated[str, typer.Option(help="The type of its tasks: classification or regression.")] = "classification",
    better: Annotated[str, typer.Option(help="Which values are better: higher or lower.")] = "higher",
    about: Annotated[str, typer.Option(help="One sentence about it.")] = "",
    resamples: Annotated[
        int,
        typer.Option(
            min=100, max=100_000, help="The most resamples of an interval: it is called once a model for each."
        ),
    ] = 1000,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the registered metric of that name.")] = False,
) -> None:
    """Try a metric in a process of its own, and register a copy of its files on this machine.

    Its code runs here whenever a recipe names it: register only files that you have read. It may import the standard
    library, numpy, scipy, scikit-learn, evaluate and datasets.
    """
    home = open_home()
    from flows.recipes.own_metrics import add

    for line in add(home, path, task=task, better=better, about=about, resamples=resamples, replace=replace):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


@commands.command("list")
def list_metrics() -> None:
    """List Limbeck's metrics, and those that are registered on this machine."""
    from rich.table import Table

    from flows.recipes.own_metrics import limbeck_metrics, module_of_metrics
    from tasks.ports.own_metrics import registered_metrics

    found = registered_metrics(Home.from_environment().root)
    table = Table("metric", "task", "better", "reads", "registered from", "about", box=None, pad_edge=False)
    for known in limbeck_metrics():
        table.add_row(*known)
    for one in found:
        table.add_row(f"own/{one.name}", one.task, one.better, one.reads, one.source, one.about)
    out.print(table, highlight=False, markup=False)
    lines = [f'Limbeck\'s metrics in Python: evaluate.load("{module_of_metrics()}", NAME)']
    if not found:
        lines.append("no metric of your own is registered; register one: limbeck metrics add PATH")
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)


@commands.command("copy")
def copy_metrics(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write Limbeck's metrics as a module of evaluate that needs no Limbeck, for other programs and machines."""
    from flows.recipes.plain_metrics import write_plain_metrics

    out.print(
        f'wrote {folder}; use it by evaluate.load("{write_plain_metrics(folder)}", NAME)',
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@commands.command("remove")
def remove_metric(name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, with or without own/.")]) -> None:
    """Remove a registered metric; results that have its figures keep them."""
    from tasks.ports.own_metrics import forget_metric

    own = name.removeprefix("own/")
    forget_metric(Home.from_environment().root, own)
    out.print(f"removed own/{own}", highlight=False, markup=False)
