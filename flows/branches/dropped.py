"""The branch of a dropped model: the teacher, or the pretrained model, without some of its layers, trained again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from flows.branches.candidate import Candidate, SharedArtifacts, label
from flows.branches.teacher_signals import answers_for, contributions_of
from tasks.contracts import Artifact
from tasks.drop_layers import drop_layers
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContributionSlice, DropSlice
from tasks.recipe.students import LayerDropping

NOT_COPIED = {"strategies", "drop", "after_finetuning", "token", "seeds"}


async def make_dropped(
    recipe: Recipe,
    dropping: LayerDropping,
    strategy: str,
    drop: int,
    shared: SharedArtifacts,
    *,
    kept: Sequence[int] | None = None,
    shown: str = "",
    waits: Mapping[str, Artifact] | None = None,
) -> Candidate:
    """Return the candidate of one strategy and one number of dropped layers, trained with every seed.

    ``kept`` are the remaining layers if a search found them, and ``shown`` is a name other than the default. ``waits``
    are inputs that a plan cannot know yet; a run has none.
    """
    base = await shared.teacher if dropping.after_finetuning else shared.base
    measured = None
    if strategy == "contribution":
        looked_at = {"token": dropping.token, "max_length": dropping.max_length}
        slice_ = ContributionSlice(**looked_at, task_type=recipe.spec.kind)
        measured = await contributions_of(slice_, "finetuned" if dropping.after_finetuning else "pretrained", shared)
    signal = (
        {"teacher": await shared.teacher, "answers": await answers_for(recipe, shared, dropping)}
        if dropping.signal == "teacher"
        else {}
    )
    name = shown or f"{strategy}-{drop}"
    common_knobs = {knob: value for knob, value in dict(dropping).items() if knob not in NOT_COPIED}
    common_knobs["task_type"] = recipe.spec.kind
    layers = None if kept is None else tuple(kept)

    async def one(seed: int) -> Artifact:
        knobs = DropSlice(**{**common_knobs, "seed": seed}, strategy=strategy, drop=drop, kept=layers)
        return await drop_layers(
            knobs,
            base=base,
            rows=shared.rows,
            contributions=measured,
            **signal,
            **waits or {},
            label=label(name, seed, dropping.seeds),
        )

    return Candidate(
        name, "dropped", list(await asyncio.gather(*(one(seed) for seed in dropping.seeds))), dropping.seeds
    )
