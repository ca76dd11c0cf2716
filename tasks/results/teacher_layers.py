"""The choice of a run on the inner layers of its teacher, for each layer map: stored once, or computed in training."""

from __future__ import annotations

from tasks.results.row import Number, Stated


class TeacherLayers(Stated):
    """One decision, with its grounds; sizes are in bytes."""

    label: str
    """The stage that stores them, without its name."""
    kept: bool
    why: str
    reads: Number | None = None
    """How often all trainings of the run read a row's own text, on average; None if the rows are not known yet."""
    bits: int = 16
    sizes: dict[str, int] = {}
    """Size by bits of a value; empty if the tokens are not known yet."""
    room: int = 0
    """Largest size that the disk and the recipe allow."""

    @property
    def size(self) -> int | None:
        """The size with the recipe's bits; None if it is not known yet."""
        return self.sizes.get(str(self.bits))
