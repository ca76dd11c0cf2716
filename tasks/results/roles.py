"""The roles of models in a run: how each is drawn and named, and whether it is exported, judged and registered.

A maker of candidates with a role of its own adds one entry to ``ROLES``. Results may have a role that is not listed, of
another release: it is treated as a student, under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi


@dataclass(frozen=True)
class Role:
    """The properties of a role."""

    label: str
    """Its name in a sentence, after the article "a"."""
    corners: int
    """Corners of its mark on the page, a regular polygon; 16 look like a circle."""
    colour: str
    """Its colour on light ground; a chart in a file of its own has this one."""
    colour_on_dark: str
    order: int
    """Its place among models of equal size on the results page, where 0 is the plain baseline."""
    reach: float = 1.0
    """The distance of the mark's corners from its centre, so that all marks look equally large."""
    turn: float = 0.0
    """The rotation of the mark, in radians."""
    exported: bool = False
    """Whether its models are exported unless the recipe names others."""
    registered: bool = False
    """Whether its models get a version, and may become champion."""
    judged: bool = True
    """Whether the gate gives a verdict on it."""
    tag: str = "distillation"
    """The method in the tags of its model card."""
    by_layers: bool = False
    """Whether the page has a chart of these models by their number of dropped layers."""


ROLES = {
    "teacher": Role("teacher", 4, "#6a4aa3", "#b79bec", order=1, reach=1.35),
    "student": Role("distilled student", 16, "#0b6b66", "#4fc4b8", order=1, exported=True, registered=True),
    "dropped": Role(
        "model with layers removed",
        3,
        "#b1520c",
        "#f0a05a",
        order=3,
        reach=1.3,
        exported=True,
        registered=True,
        tag="layer-dropping",
        by_layers=True,
    ),
    "trimmed": Role(
        "model with a smaller vocabulary",
        5,
        "#8a2f6b",
        "#e08cc3",
        order=3,
        reach=1.2,
        exported=True,
        registered=True,
        tag="vocabulary-trimming",
    ),
    "pruned": Role(
        "model with fewer neurons",
        6,
        "#5d6d12",
        "#b5c95a",
        order=3,
        reach=1.2,
        exported=True,
        registered=True,
        tag="neuron-pruning",
    ),
    "narrowed": Role(
        "model of a smaller width",
        8,
        "#9a3d3d",
        "#ef9a9a",
        order=3,
        reach=1.15,
        exported=True,
        registered=True,
        tag="width-pruning",
    ),
    "fewer-heads": Role(
        "model with fewer attention heads",
        5,
        "#7a5a1e",
        "#d9b56b",
        order=3,
        reach=1.2,
        turn=pi,
        exported=True,
        registered=True,
        tag="head-pruning",
    ),
    "sparse": Role(
        "model with zeros",
        4,
        "#3f6f8f",
        "#8fc1e3",
        order=3,
        reach=1.2,
        turn=pi / 8,
        exported=True,
        registered=True,
        tag="weight-pruning",
    ),
    "quantized": Role(
        "model trained for few bits",
        3,
        "#2f6b3a",
        "#86c795",
        order=3,
        reach=1.3,
        turn=pi,
        exported=True,
        registered=True,
        tag="quantization",
    ),
    "sub-network": Role(
        "part of a supernet",
        7,
        "#6a4fb0",
        "#b8a4ec",
        order=3,
        reach=1.2,
        turn=pi / 6,
        exported=True,
        registered=True,
        tag="supernet",
    ),
    "baseline": Role("baseline", 4, "#6b727b", "#a2a9b1", order=2, reach=1.2, turn=pi / 4, judged=False),
    "step": Role("step on the way to another model", 8, "#7a6f5d", "#b8ad9a", order=2, turn=pi / 8, judged=False),
    "export": Role("exported model", 6, "#2560b8", "#7fb0f5", order=4, reach=1.15, turn=pi / 6),
}
"""By name; the style sheet has their colours in this order."""


def role_of(name: str) -> Role:
    """Return a role by its name; one that is not listed is like a student, under its own name."""
    return ROLES.get(name) or replace(ROLES["student"], label=name)
