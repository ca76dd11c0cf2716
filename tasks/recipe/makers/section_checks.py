"""Checks of the sections of a recipe that its candidates need: texts in which pieces are counted, and exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasks.recipe.data import CorpusText, Data, TransferText
from tasks.recipe.judging import Exports
from tasks.recipe.makers.candidate_knobs import TEACHER, CandidateKnobs
from tasks.recipe.makers.shrinking import TrimmedCandidate


class Sections(Protocol):
    """The sections that candidates read, or that read candidates."""

    @property
    def data(self) -> Data:
        """The rows."""

    @property
    def corpus(self) -> CorpusText | None:
        """General text."""

    @property
    def transfer(self) -> TransferText | None:
        """The user's text without labels."""

    @property
    def exports(self) -> Exports | None:
        """Graphs."""

    @property
    def planned(self) -> Sequence[CandidateKnobs]:
        """All candidates."""


def check_counted_texts(recipe: Sections) -> None:
    """Reject a smaller vocabulary that is counted in no text. Raises ValueError."""
    sections = {"train": recipe.data, "transfer": recipe.transfer, "corpus": recipe.corpus}
    there = [name for name, section in sections.items() if section is not None]
    for one in recipe.planned:
        if isinstance(one, TrimmedCandidate) and not set(one.of) & set(there):
            raise ValueError(
                f"candidate {one.name} counts pieces in of: [{', '.join(one.of)}], and the recipe has no section "
                f"{' and no section '.join(one.of)}; add {'the section' if len(one.of) == 1 else 'one'}, or set of: "
                f"[train]"
            )


def check_exports(recipe: Sections) -> None:
    """Reject exports of unknown models or under taken names, quantized graphs that no held-back rows judge, and graphs
    with fixed ranges of models that were trained with those of each text. Raises ValueError."""
    exports = recipe.exports
    if exports is None:
        return
    made = [TEACHER, *(one.name for one in recipe.planned)]
    if unknown := [name for name in exports.of if name not in made]:
        raise ValueError(
            f"exports.of names {unknown[0]!r}, which is not a model of this recipe; its models are {', '.join(made)}"
        )
    taken = [f"{name}-{way}" for name in made for way in exports.formats if f"{name}-{way}" in made]
    if taken:
        raise ValueError(f"the student name {taken[0]!r} is also the name of an export; give it another name")
    if (small := exports.quantized) and not recipe.data.selection_rows:
        raise ValueError(
            f"{small[0]} is evaluated on selection rows, and data.selection_rows is 0; set data.selection_rows, or "
            "set exports.formats: [onnx]"
        )
    check_ways(exports, recipe.planned)


def check_ways(exports: Exports, planned: Sequence[CandidateKnobs]) -> None:
    """Reject ways that leave out the one in which a model is exported on the grid for which it was trained. Raises
    ValueError."""
    chosen = [
        one
        for one in planned
        if (one.name in exports.of if exports.of else one.planned_role not in ("baseline", "step"))
    ]
    for one in chosen:
        if one.grid not in exports.formats or one.grid == "four-bit":
            continue
        way, kind = ("static", "ranges of its own") if one.has_static_ranges else ("dynamic", "ranges of each text")
        if way not in exports.ways:
            raise ValueError(
                f"exports.ways is [{', '.join(exports.ways)}], and candidate {one.name} is trained for {one.grid} with "
                f"{kind}, as {way} graphs have them; add {way} to exports.ways, or name the models without it in "
                f"exports.of"
            )
