"""The command that writes units of systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import out
from flows.home import Home


def units(
    worker: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A worker of another machine's servers: the file of limbeck workers add."),
    ] = None,
    pool: Annotated[str, typer.Option(help="The work pool of that worker.")] = "gpu-local",
    worker_user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="User of that worker, for root; by default limbeck."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the unit; by default limbeck, or of the pool.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the unit; by default that of systemd for this user.")
    ] = None,
) -> None:
    """Write a unit of systemd, so that the servers, or a worker, are there after a reboot. Nothing is started; the
    commands that do so are printed."""
    import os

    from flows.stack.operation.units import stack_unit, unit_folder, worker_unit, write_unit
    from flows.stack.setup.worker_user import USUAL_WORKER_USER

    home = Home.from_environment()
    if worker is None:
        unit = stack_unit(home, name or "limbeck")
    else:
        user = worker_user or (USUAL_WORKER_USER if os.geteuid() == 0 else "")
        unit = worker_unit(home, worker.absolute(), pool, user, name or "")
    file = write_unit(unit, folder or unit_folder())
    for line in (f"wrote {file}; now run, once:", *(f"  {command}" for command in unit.commands)):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
