"""The Hugging Face Hub: the upload of a model's folder to a repository, as one commit.

The token comes from the environment (``HF_TOKEN``) or from huggingface_hub's own store (``hf auth login``), never from
an argument or a recipe.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.errors import RegistryError

REPOSITORY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
LONGEST_REPOSITORY = 96
"""Names of repositories at the Hub: their form and their greatest length, without a double dash or dot."""
OFFLINE = "HF_HUB_OFFLINE is set, so {} cannot be written; unset it and try again"
HUB_LOGIN = "log in by `hf auth login`, or set HF_TOKEN to a token with write access"


def require_repository_name(repo: str) -> None:
    """Raise RegistryError unless a name is OWNER/NAME in the Hub's letters."""
    if not REPOSITORY.fullmatch(repo) or len(repo) > LONGEST_REPOSITORY or "--" in repo or ".." in repo:
        raise RegistryError(
            f"{repo!r} is not the name of a repository at the Hugging Face Hub; give OWNER/NAME, of letters, digits, "
            f"'-', '_' and '.', for example ann/small-bert"
        )


def address_of(repo: str) -> str:
    """Return the address of a model's page."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{repo}"


def files_to_upload(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their path in the repository."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def require_token(repo: str) -> None:
    """Raise RegistryError without a token, and where the Hub may not be asked; nothing is sent."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise RegistryError(OFFLINE.format(address_of(repo)))
    if not get_token():
        raise RegistryError(f"there is no token for the Hugging Face Hub, so {repo} cannot be written; {HUB_LOGIN}")


def upload(folder: Path, repo: str, *, private: bool, message: str) -> str:
    """Upload a folder to a model repository as one commit, and create the repository if there is none; return the
    commit's address.

    Raises RegistryError without a token or a connection, if the Hub refuses, and for a private upload to a repository
    that is public already.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    require_repository_name(repo)
    require_token(repo)
    hub = HfApi(library_name="limbeck")
    with asking_the_hub(repo):
        hub.create_repo(repo, repo_type="model", private=private, exist_ok=True)
        if private and not hub.repo_info(repo, repo_type="model").private:
            raise RegistryError(
                f"{repo} is public, and an upload is private unless you say otherwise; nothing was uploaded: add "
                f"--public, or name another repository"
            )
        adds = [CommitOperationAdd(name, str(path)) for name, path in files_to_upload(folder).items()]
        commit: Any = hub.create_commit(repo, adds, commit_message=message, repo_type="model")
    return str(commit.commit_url)


@contextlib.contextmanager
def asking_the_hub(repo: str) -> Iterator[None]:
    """Convert errors of the Hub and of the network into a RegistryError with one sentence."""
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    place = address_of(repo)
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise RegistryError(OFFLINE.format(place)) from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        why = {
            401: f"the token is not valid (status 401); {HUB_LOGIN}",
            403: f"the token may not write there (status 403); {HUB_LOGIN}, or name a repository of your own",
        }.get(status, f"{first_line(error)}; try again, or name another repository")
        raise RegistryError(f"the Hub refused {place}: {why}") from error
    except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
        raise RegistryError(
            f"{place} could not be written ({first_line(error)}); the last commit of the repository is as it was"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
