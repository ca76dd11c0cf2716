"""The command line. Heavy modules are imported inside the commands, so that ``limbeck --help`` is fast."""

from __future__ import annotations

import gc as garbage
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from flows.cli import maintenance, make_models, past_runs, registered_models, team_servers
from flows.cli.output_files import OF_THE_DISK, disk_sentence
from flows.cli.shared import STOPPED
from flows.cli.team import accounts as team_accounts
from flows.cli.team import rotation as team_rotation
from flows.cli.team import units as team_units
from tasks.errors import LimbeckError

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Make small models": (
        make_models.demo,
        make_models.init,
        make_models.shelf,
        make_models.knobs,
        make_models.run,
        make_models.sweep,
        make_models.search,
        make_models.plan,
        make_models.validate,
        make_models.resume,
    ),
    "Inspect runs": (
        past_runs.results,
        past_runs.runs,
        past_runs.explain,
        past_runs.ledger,
        past_runs.report,
        past_runs.compare,
        past_runs.leaderboard,
        past_runs.reproduce,
        past_runs.ui,
    ),
    "Maintenance": (
        maintenance.verify,
        maintenance.gc,
        maintenance.janitor,
        maintenance.deploy,
        maintenance.site,
        maintenance.version,
    ),
    "Choose, pull and promote": (
        registered_models.models,
        registered_models.pull,
        registered_models.push,
        registered_models.show,
        registered_models.promote,
        registered_models.rollback,
        registered_models.delete,
        registered_models.predict,
    ),
    "Run the servers of a team": (
        team_servers.up,
        team_servers.down,
        team_servers.env,
        team_servers.doctor,
        team_servers.backup,
        team_servers.restore,
        team_accounts.worker,
        team_units.units,
        team_rotation.rotate,
    ),
}
"""Commands by their heading in --help; groups of commands are added in ``new_app``."""
NO_NUMBER = re.compile("is not a valid (float|int|integer)( range)?")
"""The words of typer's copy of click."""
PLACE_VARIABLES = ("LIMBECK_HOME", "LIMBECK_STORE", "MLFLOW_TRACKING_URI", "PREFECT_API_URL")
"""Variables that name a folder or a server; an empty one would be this folder."""
PACE = 50_000  # new objects between two garbage collections; Python's default is 700


def print_version(asked: bool) -> None:
    """Print the version and exit, for the option ``--version``."""
    if asked:
        maintenance.version()
        raise typer.Exit()


def new_app() -> typer.Typer:
    """Return the Typer app with every command under its heading."""
    app = typer.Typer(
        name="limbeck",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(common_options)
    for heading, commands in PANELS.items():
        for command in commands:
            app.command(rich_help_panel=heading, short_help=first_paragraph(command))(command)
    app.add_typer(maintenance.metrics, name="metrics", rich_help_panel="Make small models")
    app.add_typer(team_accounts.users, name="users", rich_help_panel="Run the servers of a team")
    app.add_typer(team_accounts.worker_accounts, name="workers", rich_help_panel="Run the servers of a team")
    return app


def common_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Make big transformer language models small: cached Prefect stages in, registered small models out."""


def first_paragraph(command: Callable[..., None]) -> str:
    """Return the first paragraph of a command's docstring as one line, for the list of commands."""
    return " ".join((command.__doc__ or "").split("\n\n")[0].split())


app = new_app()


def main() -> None:
    """Run a command; a user's mistake is reported in one sentence, never as a traceback."""
    # Importing Prefect and MLflow creates a quarter of a million permanent objects; with Python's default, garbage
    # collection takes a fifth of the import time.
    garbage.set_threshold(PACE)
    for name in PLACE_VARIABLES:
        if not os.environ.get(name, "unset"):
            del os.environ[name]
    logging.getLogger("limbeck").setLevel(logging.WARNING)
    try:
        status = typer.main.get_command(app).main(standalone_mode=False, prog_name="limbeck")
        if status == STOPPED:  # typer turns Ctrl-C into a status of its own
            raise KeyboardInterrupt
        raise SystemExit(status if isinstance(status, int) else 0)
    except LimbeckError as error:
        Console(stderr=True, width=10_000).print(f"limbeck: {error}", highlight=False, markup=False)
        raise SystemExit(1) from None
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in OF_THE_DISK:
            raise
        print(f"limbeck: {disk_sentence(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, typer.Abort):
        print("limbeck: stopped; run the same command again to continue from there", file=sys.stderr)
        raise SystemExit(STOPPED) from None
    except Exception as error:
        # A wrong command line: typer contains a copy of click, whose exceptions have no public name but a method that
        # prints them.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        vars(error)["message"] = NO_NUMBER.sub("is not a number", str(getattr(error, "message", "")))
        error.show()
        raise SystemExit(error.exit_code) from None
