"""The inputs of a running stage: bound to the digests in its key until the stage ends.

A run hashes the user's sources at its start, and may read them hours later. So stages read sources from a copy in the
store, and artifacts of other stages are checked again before a stage reads them. A change of either during the stage is
detected before publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.contracts import Artifact
from tasks.errors import ArtifactDamaged, LimbeckError, StoreError
from tasks.ports.store.artifacts import Store, is_safe, is_whole, plain_files

Stamps = dict[str, tuple[int, int, int]]
"""Maps the name in a folder to size in bytes, time of the last write in nanoseconds, and inode."""


class HeldInputs:
    """The input folders of one stage."""

    def __init__(self, store: Store, artifacts: Iterable[Artifact]) -> None:
        """Fetch or copy every input.

        Raises DataError for a changed source, and ArtifactDamaged for a changed artifact.
        """
        self.store = store
        self.roots: dict[Artifact, Path] = {}
        self.stamps: dict[Artifact, Stamps] = {}
        for artifact in artifacts:
            self.hold(artifact)

    def hold(self, artifact: Artifact) -> None:
        """Fetch or copy one input, and record size, time and inode of its files."""
        if artifact not in self.roots:
            self.roots[artifact] = (
                self.store.own_copy(artifact) if artifact.kind == "source" else self.store.folder(artifact)
            )
            self.stamps[artifact] = stamps_of(self.roots[artifact])

    def folder(self, artifact: Artifact) -> Path:
        """Return the path of an input for the stage; a source that is a single file is a path of a file here, too."""
        self.hold(artifact)
        root = self.roots[artifact]
        name = str(artifact.facts.get("file") or Path(artifact.uri).name)
        single = artifact.kind == "source" and is_safe(name) and (root / name).is_file()
        # a folder may contain a file of its own name, beside others
        return root / name if single and [path.name for path in root.iterdir()] == [name] else root

    def require_unchanged(self) -> None:
        """Raise ArtifactDamaged if an input was written to since the stage fetched it, even if it was changed back."""
        for artifact, root in self.roots.items():
            try:
                same = stamps_of(root) == self.stamps[artifact] and is_whole(root, artifact.sha256, remember=True)
            except (StoreError, OSError):
                same = False
            if not same:
                raise ArtifactDamaged(
                    f"the input {display_name(artifact)} was changed in {root} while this stage read it; "
                    "nothing was published; run again"
                )

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Replace the paths of copies in error messages by the names that the user gave to the sources."""
        try:
            yield
        except LimbeckError as error:
            message = str(error)
            for artifact, root in self.roots.items():
                if artifact.kind == "source" and not artifact.uri.startswith("s3://"):
                    message = message.replace(str(self.folder(artifact)), display_name(artifact)).replace(
                        str(root), display_name(artifact)
                    )
                    message = message.replace(artifact.sha256, Path(artifact.uri).name)
            error.args = (message,)
            raise


def stamps_of(root: Path) -> Stamps:
    """Return size, write time and inode of a folder's files, without reading them."""
    states = {name: path.stat() for name, path in plain_files(root)[0].items()}
    return {name: (state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states.items()}


def display_name(artifact: Artifact) -> str:
    """Return the name of an input for messages."""
    return (
        artifact.uri.removeprefix("file://") if artifact.kind == "source" else f"{artifact.kind} {artifact.sha256[:12]}"
    )
