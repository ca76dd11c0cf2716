"""Commands for the servers of a team."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import out
from flows.home import Home


def up(
    host: Annotated[
        str | None,
        typer.Option(help="Address or name of this machine to listen on; by default 127.0.0.1, this machine alone."),
    ] = None,
    prefect_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 4200.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 5000.")] = None,
    s3: Annotated[
        str | None, typer.Option(help="radosgw, folder, aws, or the URL of an endpoint; by default AWS_ENDPOINT_URL.")
    ] = None,
    buckets: Annotated[
        str | None, typer.Option(help="Prefix of the names of both buckets; by default limbeck.")
    ] = None,
    pools: Annotated[
        str | None, typer.Option(help="Work pools with a worker on this machine; by default cpu,gpu-local.")
    ] = None,
) -> None:
    """Start the servers of a team as supervised processes: PostgreSQL, Redis, S3, Prefect, MLflow, workers. If some
    are running, start the others."""
    home = Home.from_environment().create()
    from flows.stack.bringup import up as bring_up
    from flows.stack.messages import how_to_use, tell

    wanted = {
        "host": host,
        "prefect_port": prefect_port,
        "mlflow_port": mlflow_port,
        "s3": s3,
        "buckets": buckets,
        "pools": pools and tuple(pools.split(",")),
    }
    stack = bring_up(home, wanted, tell(out))
    out.print(how_to_use(stack), highlight=False, markup=False, soft_wrap=True)


def down() -> None:
    """Stop every server that `limbeck up` started; their data stays."""
    from flows.stack.bringup import down as bring_down
    from flows.stack.messages import tell

    stopped = bring_down(Home.from_environment(), tell(out))
    out.print(
        "stopped; all data remains, and limbeck up continues with it"
        if stopped
        else "no servers of this home are running",
        highlight=False,
    )


def env() -> None:
    """Print the settings, with passwords, that other programs need to use the servers: eval "$(limbeck env)"."""
    from flows.stack.messages import exports

    print(exports(Home.from_environment()))


def doctor() -> None:
    """Check this machine for missing, wrong or unsafe parts of the stack, and print a remedy for each. Ends with
    status 1 if the stack could not work."""
    from flows.stack.doctor import BAD, examine

    findings = examine(Home.from_environment())
    for finding in findings:
        out.print(
            f"{finding.state:<8} {finding.what:<18} {finding.said}", highlight=False, markup=False, soft_wrap=True
        )
        if finding.mend:  # on a line of its own, so that it can be copied
            out.print(f"{'':<27} → {finding.mend}", highlight=False, markup=False, soft_wrap=True)
    if any(finding.state == BAD for finding in findings):
        raise typer.Exit(1)


def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER|FILE.tar.gz", help="A new folder or file. It will contain passwords.")
    ],
) -> None:
    """Back up the running stack: databases, models, results and secrets."""
    from flows.stack.backup import backup as save
    from flows.stack.messages import tell

    contents = save(Home.from_environment(), target, tell(out))
    out.print(
        f"wrote {target}: {len(contents['files'])} files; store it as safely as passwords",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER|FILE.tar.gz", help="The folder or file written by limbeck backup.")
    ],
    prefect_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 4200.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 5000.")] = None,
    s3: Annotated[
        str | None,
        typer.Option(help="An S3 server that replaces that of the backup: radosgw, aws, or the URL of an endpoint."),
    ] = None,
) -> None:
    """Create a new stack from a backup, in a home that has none, and start it."""
    from flows.stack.backup import restore as bring_back
    from flows.stack.messages import how_to_use, tell

    wanted = {"prefect_port": prefect_port, "mlflow_port": mlflow_port, "s3": s3}
    stack = bring_back(Home.from_environment().create(), source, wanted, tell(out))
    out.print(how_to_use(stack), highlight=False, markup=False, soft_wrap=True)
