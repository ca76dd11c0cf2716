"""Commands that maintain the store, the deployments and the installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import open_home, open_home_for_a_run, out, tracker
from flows.home import Home


def verify() -> None:
    """Recompute all hashes of the store; damaged results are set aside, so that the next run computes them again."""
    home = open_home()
    from flows.run.history import verify_store

    good = bad = 0
    for result in verify_store(home):
        good, bad = good + (result.problem is None), bad + (result.problem is not None)
        if result.problem:
            out.print(f"{result.stage} {result.key[:12]}: {result.problem}", highlight=False, markup=False)
    out.print(f"{good} results are intact, {bad} are damaged.", highlight=False)
    if bad:
        raise typer.Exit(1)


def gc(
    keep_days: Annotated[float, typer.Option(min=0, help="Always keep results younger than this.")] = 30,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the results to remove, without removing them.")
    ] = False,
) -> None:
    """Remove results that no registered model, no running stage and no recent result depends on."""
    mlflow = tracker()
    from flows.run.history import collect

    swept = collect(Home.from_environment(), mlflow, keep_days=keep_days, dry=dry_run)
    for stage, key in swept.results:
        out.print(f"{stage} {key[:12]}", highlight=False, markup=False)
    for name in swept.leftovers:
        out.print(f"left over: {name}", highlight=False, markup=False)
    verb = "would be removed" if dry_run else "removed"
    out.print(
        f"{len(swept.results)} results and {swept.bytes / 1e6:,.1f} MB {verb}; {swept.kept} results remain.",
        highlight=False,
    )


def janitor() -> None:
    """End runs that crashed workers left open, in MLflow and Prefect, and remove their unfinished files."""
    home = open_home_for_a_run()
    from flows.servers.local import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows.janitor import janitor as sweep_up
        from flows.servers import watch as server_watch

        ready()
        swept = server_watch.run(sweep_up())
    for run in swept["ended"]:
        out.print(f"ended run {run[:8]}: its process no longer exists", highlight=False)
    counts = (
        f"{len(swept['ended'])} runs ended, {len(swept['pending'])} unfinished models and {len(swept['leftovers'])} "
        f"leftover files removed"
    )
    out.print(counts, highlight=False)


def deploy(
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Site variables of the pools: image, cluster, roles, secrets, hardware."
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Maximum number of GPU stages at once. Without a pool that names its hardware, the pool gpu-local is "
            "created for this machine.",
        ),
    ] = None,
    gpu_pool: Annotated[
        str | None,
        typer.Option(metavar="POOL", help="The work pool for GPU stages; by default one that names its hardware."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Maximum number of runs at once in the pool cpu.")
    ] = None,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset", help="Discard changes made in the Prefect UI: parameters, schedules, defaults of pools."
        ),
    ] = False,
) -> None:
    """Set up work pools, limits, deployments and automations on the Prefect server; a second run changes nothing.

    The server is that of PREFECT_API_URL, else that of a running limbeck up or ui. Settings that people changed in the
    Prefect UI are kept.
    """
    open_home()
    import asyncio

    from flows.deploy.deploy import DeployOptions
    from flows.deploy.deploy import deploy as set_up
    from flows.deploy.pools import read_site

    lines = asyncio.run(set_up(DeployOptions(read_site(site), gpus, runs, gpu_pool, reset)))
    for line in lines:
        out.print(f"{line.kind:18} {line.name:38} {line.done}", highlight=False, markup=False, soft_wrap=True)
    changed = sum(line.done != "unchanged" for line in lines)
    out.print(f"{changed} of {len(lines)} changed." if changed else f"All {len(lines)} unchanged.", highlight=False)


def site(
    target: Annotated[
        Path, typer.Argument(metavar="FILE.yaml", help="The site file to write, or to bring up to date.")
    ],
    image: Annotated[str, typer.Option(metavar="TAG", help="Tag of the GPU image; its digest is written.")],
    stage: Annotated[str, typer.Option(help="The stage of the stacks: dev or prod.")] = "dev",
    project: Annotated[str, typer.Option(help="The first part of the stacks' names.")] = "limbeck",
) -> None:
    """Write the site file of `limbeck deploy --site` from the outputs of the CloudFormation stacks on AWS.

    Secrets are written by reference. Other variables and pools in the file stay. Needs the usual AWS settings and the
    right to read the stacks' outputs and the repository.
    """
    from flows.deploy.site_file import from_stacks, write_site

    values = from_stacks(project, stage, image)
    write_site(target, values)
    out.print(f"wrote {target}: {len(values)} variables of the pool ecs-gpu", highlight=False, soft_wrap=True)


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    out.print(f"limbeck {installed('limbeck')}", highlight=False)


metrics = typer.Typer(
    no_args_is_help=True,
    help="Metrics: those of Limbeck, and your own on this machine, which are modules of evaluate and own/NAME in "
    "scoring.metrics of a recipe.",
)


@metrics.command("add")
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


@metrics.command("list")
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


@metrics.command("copy")
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


@metrics.command("remove")
def remove_metric(name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, with or without own/.")]) -> None:
    """Remove a registered metric; results that have its figures keep them."""
    from tasks.ports.own_metrics import forget_metric

    own = name.removeprefix("own/")
    forget_metric(Home.from_environment().root, own)
    out.print(f"removed own/{own}", highlight=False, markup=False)
