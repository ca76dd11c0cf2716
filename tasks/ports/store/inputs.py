"""The inputs of a stage under way: bound to the digests in its key until the last byte is read.

A run hashes what the user names when it begins, and may read it hours later. So stages read sources from a copy in the
store's own place, and what other stages made is checked once more before it is read. An edit of either while the stage
works is found before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.contracts import Parcel
from tasks.errors import ArtifactDamaged, LimbeckError, StoreError
from tasks.ports.store.artifacts import Store, is_safe, is_whole, plain_files

Stamps = dict[str, tuple[int, int, int]]
"""Name in a folder to size, time of the last write in nanoseconds, and inode."""


class HeldInputs:
    """The folders that one stage reads."""

    def __init__(self, store: Store, parcels: Iterable[Parcel]) -> None:
        """Fetch or copy every input.

        Raises DataError for a source that has changed, ArtifactDamaged for a result that has.
        """
        self.store = store
        self.roots: dict[Parcel, Path] = {}
        self.stamps: dict[Parcel, Stamps] = {}
        for parcel in parcels:
            self.hold(parcel)

    def hold(self, parcel: Parcel) -> None:
        """Fetch or copy one input, and note how its files look."""
        if parcel not in self.roots:
            self.roots[parcel] = self.store.own_copy(parcel) if parcel.kind == "source" else self.store.folder(parcel)
            self.stamps[parcel] = stamps_of(self.roots[parcel])

    def folder(self, parcel: Parcel) -> Path:
        """Return where a stage reads an input; a source that is one file is a file here, too."""
        self.hold(parcel)
        root = self.roots[parcel]
        name = str(parcel.facts.get("file") or Path(parcel.uri).name)
        return root / name if parcel.kind == "source" and is_safe(name) and (root / name).is_file() else root

    def require_unchanged(self) -> None:
        """Raise ArtifactDamaged where an input was written to since it was held, also where it was changed back."""
        for parcel, root in self.roots.items():
            try:
                same = stamps_of(root) == self.stamps[parcel] and is_whole(root, parcel.sha256, remember=True)
            except (StoreError, OSError):
                same = False
            if not same:
                raise ArtifactDamaged(
                    f"the input {shown(parcel)} was changed in {root} while this stage read it; "
                    "nothing was published; run again"
                )

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Let errors name a source as the user does, not the copy that was read."""
        try:
            yield
        except LimbeckError as error:
            message = str(error)
            for parcel, root in self.roots.items():
                if parcel.kind == "source" and not parcel.uri.startswith("s3://"):
                    message = message.replace(str(self.folder(parcel)), shown(parcel)).replace(str(root), shown(parcel))
                    message = message.replace(parcel.sha256, Path(parcel.uri).name)
            error.args = (message,)
            raise


def stamps_of(root: Path) -> Stamps:
    """Return how a folder's files look without reading them."""
    states = {name: path.stat() for name, path in plain_files(root)[0].items()}
    return {name: (state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states.items()}


def shown(parcel: Parcel) -> str:
    """Return what a person calls an input."""
    return parcel.uri.removeprefix("file://") if parcel.kind == "source" else f"{parcel.kind} {parcel.sha256[:12]}"
