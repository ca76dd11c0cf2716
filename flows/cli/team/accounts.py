"""Commands for the accounts of a team's servers: people, and workers on other machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.shared import print_lines
from flows.home import Home

if TYPE_CHECKING:
    from flows.stack.settings import Stack

AccountName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the account.")]
users = typer.Typer(no_args_is_help=True, help="Personal accounts in MLflow of the servers that `limbeck up` started.")
worker_accounts = typer.Typer(
    no_args_is_help=True, help="Workers on other machines, each with a token and an account of its own."
)


def stack_here() -> Stack:
    """Return the stack of this home."""
    from flows.stack.settings import Stack

    return Stack.of(Home.from_environment())


@users.command("add")
def add_account(
    name: AccountName,
    admin: Annotated[bool, typer.Option("--admin", help="May manage accounts and delete models.")] = False,
) -> None:
    """Create a personal account in MLflow, and print its password, once."""
    from flows.stack.people.users import add_user

    stack = stack_here()
    made = add_user(stack, name, admin=admin)
    print_lines(f"{name} can log in to {stack.mlflow_url} with the password {made}")
    print_lines("It is stored nowhere in the clear; limbeck users password NAME makes a new one.")


@users.command("password")
def new_password(name: AccountName) -> None:
    """Give an account a new password, and print it, once."""
    from flows.stack.people.users import renew_password

    print_lines(f"the new password of {name} is {renew_password(stack_here(), name)}")


@users.command("list")
def list_accounts() -> None:
    """List the accounts of MLflow."""
    from flows.stack.people.users import list_users

    for name, admin in list_users(stack_here()):
        print_lines(f"{name}{'   administrator' if admin else ''}")


@users.command("remove")
def remove_account(name: AccountName) -> None:
    """Remove an account; its runs and decisions stay."""
    from flows.stack.people.users import remove_user

    remove_user(stack_here(), name)
    print_lines(f"{name} cannot log in any more")


@worker_accounts.command("add")
def add_worker(
    name: AccountName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for that machine. It contains passwords.")],
) -> None:
    """Create the accounts of a worker on another machine, and write the file that starts it there."""
    from flows.stack.people.machines import add_machine

    add_machine(stack_here(), name, file)
    print_lines(f"wrote {file} (mode 0600); copy it to the other machine over ssh, and there run:")
    print_lines(f"  limbeck worker {file.name}")


@worker_accounts.command("list")
def list_workers() -> None:
    """List the workers on other machines."""
    from flows.servers.worker_tokens import read_tokens

    names = sorted(read_tokens(stack_here().worker_tokens))
    for name in names or ["no workers on other machines; add one: limbeck workers add NAME FILE"]:
        print_lines(name)


@worker_accounts.command("remove")
def remove_worker(name: AccountName) -> None:
    """Take token and account away from a worker; its next request is refused."""
    from flows.stack.people.machines import remove_machine

    remove_machine(stack_here(), name)
    print_lines(f"{name} is refused from now on; the keys to the bucket, which all workers share, stay as they are")


def worker(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file written by limbeck workers add.")],
    pool: Annotated[str, typer.Option(help="The work pool that it serves.")] = "gpu-local",
    as_root: Annotated[
        bool, typer.Option("--as-root", help="Run as root, for a container or machine that has nothing else.")
    ] = False,
) -> None:
    """Run a worker of another machine's servers, until it is stopped, with a clean environment; root is refused."""
    from flows.stack.people.machines import start_worker

    start_worker(Home.from_environment().create(), file.absolute(), pool, as_root=as_root)
