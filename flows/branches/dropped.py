"""The maker of dropped models: the teacher, the pretrained model or another candidate, without some of its layers,
trained again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from flows.branches.candidate import Candidate, SharedArtifacts, label
from flows.branches.teacher_signals import answers_for, contributions_of
from tasks.contracts import Artifact
from tasks.drop_layers import drop_layers
from tasks.recipe.candidates import DroppedCandidate
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContributionSlice, DropSlice

NOT_COPIED = {"strategies", "drop", "after_finetuning", "token", "measured_tokens", "seeds"}


async def make_dropped_candidate(recipe: Recipe, planned: DroppedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a planned candidate, made from the model that it names."""
    section = planned.as_section().model_copy(update={"after_finetuning": planned.made_from == TEACHER})
    behind = await shared.made[planned.made_from] if planned.is_follower else None
    return await make_dropped(
        recipe, section, planned.strategy, planned.drop, shared, shown=planned.name, behind=behind
    )


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
    behind: Candidate | None = None,
) -> Candidate:
    """Return the candidate of one strategy and one number of dropped layers, trained with every seed.

    ``kept`` are the remaining layers if a search found them, and ``shown`` is a name other than the default. ``waits``
    are inputs that a plan cannot know yet; a run has none. ``behind`` is the candidate that this one is made from, seed
    by seed, if it is made from one.
    """
    base = await shared.teacher if dropping.after_finetuning else shared.base
    measured_at = {knob: getattr(dropping, knob) for knob in ("token", "max_length", "measured_tokens")}
    slice_ = ContributionSlice(**measured_at, task_type=recipe.spec.kind)
    signal = dict[str, Artifact]()
    if dropping.signal == "teacher":
        answers = await answers_for(recipe, shared, dropping)
        signal = {"teacher": await shared.teacher, **({} if answers is None else {"answers": answers})}
        signal |= {} if shared.transfer is None else {"transfer": shared.transfer}
    name = shown or f"{strategy}-{drop}"
    common_knobs = {knob: value for knob, value in dict(dropping).items() if knob not in NOT_COPIED}
    common_knobs["task_type"] = recipe.spec.kind
    common_knobs["transfer_alone"] = bool(recipe.transfer and recipe.transfer.alone and dropping.signal == "teacher")
    layers = None if kept is None else tuple(kept)

    async def contributions(seed: int) -> Artifact:
        if behind is not None:
            named = label(behind.name, seed, behind.seeds)
            return await contributions_of(slice_, named, shared, behind.of_seed(seed))
        return await contributions_of(slice_, "finetuned" if dropping.after_finetuning else "pretrained", shared)

    async def one(seed: int) -> Artifact:
        measured = await contributions(seed) if strategy == "contribution" else None
        knobs = DropSlice(**{**common_knobs, "seed": seed}, strategy=strategy, drop=drop, kept=layers)
        return await drop_layers(
            knobs,
            base=base if behind is None else behind.of_seed(seed),
            rows=shared.rows,
            contributions=measured,
            **signal,
            **waits or {},
            label=label(name, seed, dropping.seeds),
        )

    return Candidate(
        name, "dropped", list(await asyncio.gather(*(one(seed) for seed in dropping.seeds))), dropping.seeds
    )
