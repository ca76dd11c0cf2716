"""Commands for the servers of a team, and their messages."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import out, print_lines
from flows.home import Home

if TYPE_CHECKING:
    from flows.stack.settings import Stack, StackOptions

WorkerUser = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="User that runs the workers if root starts the stack; by default limbeck."),
]


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
    worker_user: WorkerUser = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS with your certificate: its file (PEM), with the whole chain after it.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The file with the key of --certificate (PEM, no password).")] = None,
    local_authority: Annotated[
        bool, typer.Option("--local-authority", help="TLS with a certificate of an authority made for this stack.")
    ] = False,
) -> None:
    """Start the servers of a team as supervised processes: PostgreSQL, Redis, S3, Prefect, MLflow, workers. If some
    are running, start the others."""
    home = Home.from_environment().create()
    from flows.stack.bringup import up as bring_up
    from flows.stack.setup.certificates import TlsOptions

    wanted: StackOptions = {
        "host": host,
        "prefect_port": prefect_port,
        "mlflow_port": mlflow_port,
        "s3": s3,
        "buckets": buckets,
        "pools": None if pools is None else tuple(pools.split(",")),
        "worker_user": worker_user,
    }
    stack = bring_up(home, wanted, print_lines, TlsOptions(certificate, key, local_authority))
    print_lines(addresses_and_logins(stack))


def down() -> None:
    """Stop every server that `limbeck up` started; their data stays."""
    from flows.stack.bringup import down as bring_down

    stopped = bring_down(Home.from_environment(), print_lines)
    out.print(
        "stopped; all data remains, and limbeck up continues with it"
        if stopped
        else "no servers of this home are running",
        highlight=False,
    )


def env() -> None:
    """Print the settings, with passwords, that other programs need to use the servers: eval "$(limbeck env)"."""
    print(exports(Home.from_environment()))


def doctor() -> None:
    """Check this machine for missing, wrong or unsafe parts of the stack, and print a remedy for each. Ends with
    status 1 if the stack could not work."""
    from flows.stack.checks.finding import BAD
    from flows.stack.doctor import examine

    findings = examine(Home.from_environment())
    for finding in findings:
        out.print(
            f"{finding.state:<8} {finding.subject:<18} {finding.details}", highlight=False, markup=False, soft_wrap=True
        )
        if finding.remedy:  # on a line of its own, so that it can be copied
            out.print(f"{'':<27} → {finding.remedy}", highlight=False, markup=False, soft_wrap=True)
    if any(finding.state == BAD for finding in findings):
        raise typer.Exit(1)


def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER|FILE.tar.gz", help="A new folder or file. It will contain passwords.")
    ],
) -> None:
    """Back up the running stack: databases, models, results and secrets."""
    from flows.stack.backup import backup as save

    contents = save(Home.from_environment(), target, print_lines)
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
    worker_user: WorkerUser = None,
) -> None:
    """Create a new stack from a backup, in a home that has none, and start it."""
    from flows.stack.backup import restore as bring_back

    wanted: StackOptions = {
        "prefect_port": prefect_port,
        "mlflow_port": mlflow_port,
        "s3": s3,
        "worker_user": worker_user,
    }
    stack = bring_back(Home.from_environment().create(), source, wanted, print_lines)
    print_lines(addresses_and_logins(stack))


# --- messages ---------------------------------------------------------------------------------------------------------


def addresses_and_logins(stack: Stack) -> str:
    """Return a summary of addresses, logins and next steps."""
    from flows.stack.credentials import PERSON

    s3 = {"folder": f"none: results are in {stack.store}", "aws": f"AWS, {stack.store}"}.get(
        stack.settings.s3, f"{stack.endpoint}, {stack.store}"
    )
    lines = [
        "",
        f"Prefect   {stack.prefect_url}   log in with one line: {PERSON}:<LIMBECK_PREFECT_PASSWORD>",
        f"MLflow    {stack.mlflow_url}   user {PERSON}, password <LIMBECK_MLFLOW_PASSWORD>; choose 'Model training'",
        f"S3        {s3}",
        f"metrics   {stack.metrics_url}   for Prometheus: user {PERSON}, password <LIMBECK_METRICS_PASSWORD>",
        f"pools     {', '.join(stack.settings.pools)}, one worker each",
        f"secrets   {stack.secrets_file} holds the passwords, under these names",
        f"logs      {stack.logs}",
        *how_to_trust(stack),
        "",
        "limbeck commands of this home use these servers automatically. For prefect, mlflow and your own programs:",
        '  eval "$(limbeck env)"',
        "Next: limbeck deploy, which sets up pools, deployments and automations. Check with limbeck doctor, stop "
        "with limbeck down.",
    ]
    return "\n".join([*lines, *warnings(stack)])


def how_to_trust(stack: Stack) -> list[str]:
    """Return how a colleague's programs learn to trust the certificate."""
    from flows.stack.setup.certificates import AUTHORITY, days_left, fingerprint

    if not stack.settings.tls:
        return []
    lines = [f"TLS       a certificate for {stack.settings.host}, valid for {days_left(stack):.0f} more days"]
    if stack.settings.tls == AUTHORITY:
        lines += [
            f"          {stack.tls / 'authority.crt'} is its authority, which vouches for this host alone. Colleagues "
            f"import it into their browser,",
            f"          after comparing its SHA-256 fingerprint: {fingerprint(stack.tls / 'authority.crt')}",
        ]
    return lines


def warnings(stack: Stack) -> list[str]:
    """Return warnings about settings that do not suit production."""
    from flows.stack.programs import SOFTWARE

    found = []
    for key, is_missing in (("ceph", stack.settings.s3 == "folder"), ("nginx", not stack.settings.proxy)):
        if is_missing:
            software = SOFTWARE[key]
            found.append(f"! This stack was created without {software.name}: {software.without}.")
    if stack.settings.worker_user == "root" and stack.settings.pools:
        found.append("! The workers run as root: anyone who may deploy has all rights on this machine.")
    return ["", *found] if found else []


def exports(home: Home) -> str:
    """Return shell commands that export the client settings of a running ``limbeck ui``, else of the stack."""
    from flows.servers.access import client_of, running_servers
    from flows.stack import credentials
    from flows.stack.services import client_environment
    from flows.stack.settings import Stack
    from tasks.errors import StackError

    stack = Stack.of(home)
    found: dict[str, str] = {}
    for name, access in running_servers(home.servers_file).items():
        found |= client_of(name, access)
    if not found and stack.is_new:
        starts = "start the servers of one person with limbeck ui, those of a team with limbeck up"
        raise StackError(f"no servers of {home.root} are running, and it has no stack; {starts}")
    found = found or client_environment(stack, credentials.load(stack.secrets_file))
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items())
