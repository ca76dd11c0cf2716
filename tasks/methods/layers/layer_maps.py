"""Layer maps: which teacher layer each student layer copies, or starts from.

Papers: uniform, Jiao et al. 2019 (TinyBERT), arXiv:1909.10351; last and skip, Sun et al. 2019 (Patient Knowledge
Distillation), arXiv:1908.09355; the starting layers, Sanh et al. 2019 (DistilBERT), arXiv:1910.01108.
Hidden state 0 is the embedding output, hidden state m the output of layer m; attention layers count from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.errors import ModelError, RecipeError


@dataclass(frozen=True)
class LayerMap:
    """Entry m is the teacher's counterpart of the student's m-th hidden state or attention layer.

    A map may end early (``skip`` does): student layers beyond its end copy nothing.
    """

    hidden: tuple[int, ...]
    attention: tuple[int, ...]


def uniform(students: int, teachers: int) -> LayerMap:
    """Spread evenly: hidden state m copies floor(m · N / M), so the last copies the last."""
    _require_depths(students, teachers)
    return _from_hidden([m * teachers // students for m in range(students + 1)])


def divisible(students: int, teachers: int) -> LayerMap:
    """Spread evenly, and refuse depths that do not divide, as the published TinyBERT demands."""
    _require_depths(students, teachers)
    if teachers % students:
        raise RecipeError(
            f"the layer map 'divisible' cannot spread {students} student layers over {teachers} teacher layers; "
            f"choose a student depth that divides {teachers}, or the layer map 'uniform'"
        )
    return uniform(students, teachers)


def last(students: int, teachers: int) -> LayerMap:
    """Copy the teacher's top layers, one for one; the embeddings copy the embeddings."""
    _require_depths(students, teachers)
    return _from_hidden([0, *range(teachers - students + 1, teachers + 1)])


def skip(students: int, teachers: int) -> LayerMap:
    """Spread evenly and leave the student's last layer free, since its output feeds the classifier."""
    if students == 1:
        raise RecipeError("the layer map 'skip' copies no layer for a student of 1 layer; choose 'uniform'")
    full = uniform(students, teachers)
    return LayerMap(full.hidden[:-1], full.attention[:-1])


def of_kept(kept: Sequence[int]) -> LayerMap:
    """Let every layer copy its own original in the teacher: for a student that is its teacher with layers dropped."""
    return _from_hidden([0, *(layer + 1 for layer in kept)])


LAYER_MAPS: dict[str, Callable[[int, int], LayerMap]] = {
    "uniform": uniform,
    "divisible": divisible,
    "last": last,
    "skip": skip,
}


def layer_map(name: str, students: int, teachers: int) -> LayerMap:
    """Return the map called ``name`` for a student of ``students`` and a teacher of ``teachers`` layers."""
    if name not in LAYER_MAPS:
        raise RecipeError(f"unknown layer map {name!r}; choose one of {', '.join(sorted(LAYER_MAPS))}")
    return LAYER_MAPS[name](students, teachers)


def initial_layers(students: int, teachers: int) -> list[int]:
    """Return the 0-based teacher layers a student starts from: evenly spaced, first and last included."""
    _require_depths(students, teachers)
    if students == 1:
        return [0]
    return [round(i * (teachers - 1) / (students - 1)) for i in range(students)]


def _from_hidden(hidden: list[int]) -> LayerMap:
    # The list of attentions has no entry for the embeddings, so the same layer is one lower there.
    return LayerMap(tuple(hidden), tuple(h - 1 for h in hidden[1:]))


def _require_depths(students: int, teachers: int) -> None:
    if not 1 <= students <= teachers:
        raise ModelError(
            f"a student of {students} layers cannot copy a teacher of {teachers}; give it 1 to {teachers} layers"
        )
