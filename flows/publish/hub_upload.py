"""The upload of a registered version to the Hugging Face Hub: fetched and verified first, then one commit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tasks.errors import RegistryError
from tasks.ports.hub import address_of, files_to_upload, require_repository_name, require_token, upload
from tasks.ports.tracking.download import FetchedVersion
from tasks.ports.tracking.tracker import Tracker

UNKNOWN_LICENCE = "unknown"


def push_version(
    tracker: Tracker,
    name: str,
    alias: str,
    repo: str,
    *,
    really: bool,
    public: bool,
    licence: str,
    force: bool,
    say: Callable[[str], None],
) -> None:
    """Report the upload of a registered version to a repository, and do it if ``really`` is set.

    Raises RegistryError for a version that the gate refused without ``force``, for a public upload of a model whose
    licence is unknown, and without a token, before anything is fetched.
    """
    require_repository_name(repo)
    require_accepted(tracker, name, alias, force=force)
    if really:
        require_token(repo)
    with tempfile.TemporaryDirectory(prefix="limbeck-push-") as workspace:
        folder = Path(workspace) / "model"
        found = tracker.download(name, alias, folder)
        stated = licensed(folder / "README.md", licence)
        if public and stated == UNKNOWN_LICENCE:
            raise RegistryError(
                f"the licence of {name} version {found['version']} is unknown, and --public would offer it to "
                f"everybody; state it by --licence, for example --licence apache-2.0"
            )
        for line in lines_about(found, folder, repo, public=public, licence=stated):
            say(line)
        if not really:
            say("This was a dry run: nothing was uploaded. Add --upload to upload.")
            return
        message = f"{found['name']} version {found['version']}: {found['description']}"
        say(f"uploaded as {upload(folder, repo, private=not public, message=message)}")


def require_accepted(tracker: Tracker, name: str, alias: str, *, force: bool) -> None:
    """Raise RegistryError for a version that the gate refused, unless it is forced."""
    with tracker.asking(f"find {name}@{alias}"):
        version = tracker.find_version(name, alias)
    if version.tags.get("gate") == "refused" and not force:
        raise RegistryError(
            f"the gate refused {name} version {version.version} (see limbeck show {name}@{version.version}); push an "
            f"accepted one, for example {name}@champion, or add --force"
        )


def licensed(card: Path, licence: str) -> str:
    """Write a licence into the header of a card if one is given; return the licence that the header states."""
    from huggingface_hub import ModelCard

    from tasks.report.hub_header import licence_entries

    found = ModelCard.load(card, ignore_metadata_errors=True)
    if licence:
        found.data.license, found.data.license_name = licence_entries(licence)
        found.save(card)
    return str(found.data.get("license_name") or found.data.get("license") or UNKNOWN_LICENCE)


def lines_about(found: FetchedVersion, folder: Path, repo: str, *, public: bool, licence: str) -> list[str]:
    """Return the description of an upload: the version, the repository, and every file with its size."""
    files = files_to_upload(folder)
    sizes = {name: path.stat().st_size for name, path in files.items()}
    width = max(map(len, sizes))
    return [
        f"{found['name']} version {found['version']} ({found['description']})",
        f"to {address_of(repo)}, {'public' if public else 'private'}, licence: {licence}",
        *(f"  {name:<{width}}  {size:>14,} bytes" for name, size in sizes.items()),
        f"{len(files)} files, {sum(sizes.values()) / 1e6:,.1f} MB, as one commit",
    ]
