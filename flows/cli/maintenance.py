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
