"""The command that gives a stack new secrets."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.shared import print_lines
from flows.home import Home


def rotate(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names in secrets.json; by default all.")
    ] = None,
) -> None:
    """Give the servers of `limbeck up` new secrets, and start them again; runs that this interrupts go on.

    The servers are away for about a minute. A rotation that was interrupted is completed by running it again.
    """
    from flows.stack.operation.rotation import rotate_secrets

    needed = rotate_secrets(Home.from_environment(), names or [], print_lines)
    print_lines("the stack has new secrets, and every program knows them", *needed)
