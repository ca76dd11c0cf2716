"""Checks of models whose layers or inputs are laid out otherwise than an encoder's: what is refused before anything
runs, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tasks.architectures.known_architectures import architecture_of, shape_of
from tasks.errors import ModelError
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.makers.writing import is_model

KNOWN_TO_WORK = (
    "name a model of another type, such as a bert, longformer or big_bird, or for next-words a gpt2 or mamba"
)
STARTS_WITHOUT_LAYERS = ("random", "embeddings")


class PlannedSections(Protocol):
    """The sections of a recipe that depend on the layout of its models."""

    @property
    def planned(self) -> Sequence[CandidateKnobs]:
        """All candidates."""

    @property
    def exports(self) -> object | None:
        """The section of exports."""


def size_or_one_head(config: Mapping[str, object], knob: str) -> object:
    """Return one number of a config's shape; a model whose shape has no heads counts as one head."""
    found = shape_of(config).get(knob)
    return 1 if found is None and knob == "heads" and knob not in architecture_of(config).shape else found


def require_layouts(
    recipe: PlannedSections, config: Mapping[str, object], others: Sequence[Mapping[str, object]]
) -> None:
    """Raise ModelError for a model that batches of any length, or a change of its depth, would break, and for layers
    and graphs of one that has no keys and values; ``config`` is the teacher's, ``others`` are those of students that
    start from a checkpoint of their own."""
    for one in (config, *others):
        why = why_untrained(one)
        if why:
            raise ModelError(f"a model of type {one.get('model_type')} cannot be trained here: {why}; {KNOWN_TO_WORK}")
        if one.get("model_type") == "mamba" and recipe.exports is not None:
            raise ModelError(
                "exports needs models that remember keys and values, and a mamba remembers states, so its graph is not "
                "built; remove the section exports"
            )
    if config.get("model_type") == "mamba":
        require_no_cut(recipe.planned)


def require_no_cut(planned: Sequence[CandidateKnobs]) -> None:
    """Raise ModelError for a candidate that takes whole layers of a Mamba, whose config cannot be cut, and for one by
    another maker than distillation, which nobody has tried."""
    for one in planned:
        maker, start = one.by, one.start_of_layers
        cuts = start not in STARTS_WITHOUT_LAYERS and not (is_model(start) or one.is_follower)
        if maker != "distillation" or cuts:
            way = f"starts from whole layers (start: {start})" if maker == "distillation" else f"is made by {maker}"
            raise ModelError(
                f"{one.name} {way}, and a mamba is only trained as a whole here; write a student with start: random, "
                f"embeddings, or a folder of its own"
            )


def why_untrained(config: Mapping[str, object]) -> str:
    """Return why a model cannot be trained here; empty if it can."""
    model_type, read = config.get("model_type"), config.get("segment_means_seq_len")
    if model_type == "funnel":
        return "it pools texts between its blocks, and states their sizes (block_sizes) in place of a number of layers"
    if model_type == "nystromformer" and config.get("num_landmarks") != read:
        return (
            f"its landmarks are means of texts of exactly {read} tokens (segment_means_seq_len), and batches here are "
            f"as long as their texts"
        )
    if model_type == "rwkv":
        return (
            "transformers divides its weights in place when it is evaluated, so that other ones would be saved, and it "
            "remembers states that are in no cache"
        )
    return ""
