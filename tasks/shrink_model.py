"""Stage tasks that make a trained model smaller; the last ones train it."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.makers.slices import (
    HeadSlice,
    JudgedShapesSlice,
    NeuronSlice,
    PruneRoundSlice,
    QuantizationSlice,
    StaticQuantizationSlice,
    SubNetworkSlice,
    SupernetSlice,
    TicketSlice,
    VocabularySlice,
    WeightSlice,
    WidthSlice,
)
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="checkpoint", engine="vocabulary", threads="branch")
async def trim_vocabulary(
    context: StageContext,
    knobs: VocabularySlice,
    *,
    base: Artifact,
    rows: Artifact,
    transfer: Artifact | None = None,
    corpus: Artifact | None = None,
    pretrained: Artifact | None = None,
) -> None:
    """Keep the pieces of a vocabulary that a text uses."""
    inputs = {"base": base, "rows": rows, "transfer": transfer, "corpus": corpus, "pretrained": pretrained}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="neurons", threads="branch")
async def prune_neurons(context: StageContext, knobs: NeuronSlice, *, base: Artifact, rows: Artifact) -> None:
    """Remove the least important neurons of every feed-forward block."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "rows": rows})


@stage(makes="checkpoint", engine="width", threads="branch")
async def prune_width(context: StageContext, knobs: WidthSlice, *, base: Artifact, rows: Artifact) -> None:
    """Remove the least important dimensions of all hidden states, and attention heads with them."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "rows": rows})


@stage(makes="checkpoint", engine="heads", threads="branch")
async def prune_heads(context: StageContext, knobs: HeadSlice, *, base: Artifact, rows: Artifact) -> None:
    """Set the weights of the least important attention heads to 0."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "rows": rows})


@stage(makes="checkpoint", engine="prune-round", threads="branch")
async def prune_in_rounds(
    context: StageContext, knobs: PruneRoundSlice, *, base: Artifact, first: Artifact, rows: Artifact
) -> None:
    """Remove the part of one round of iterative pruning; ``first`` is the model before the first round."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "first": first, "rows": rows})


@stage(makes="checkpoint", engine="weights", threads="branch")
async def prune_weights(
    context: StageContext,
    knobs: WeightSlice,
    *,
    start: Artifact,
    rows: Artifact,
    teacher: Artifact | None = None,
    answers: Artifact | None = None,
    transfer: Artifact | None = None,
) -> None:
    """Train a model while single weights of it are set to 0."""
    inputs = {"start": start, "rows": rows, "teacher": teacher, "answers": answers, "transfer": transfer}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="ticket", threads="branch")
async def train_ticket(
    context: StageContext,
    knobs: TicketSlice,
    *,
    start: Artifact,
    rows: Artifact,
    dense: Artifact | None = None,
    before: Artifact | None = None,
    teacher: Artifact | None = None,
    answers: Artifact | None = None,
    transfer: Artifact | None = None,
) -> None:
    """Train one round of a lottery: the first one without a mask, each other under a mask that the round ``before``
    leaves, from the weights of an early step of the first one, ``dense``."""
    built = {"start": start, "dense": dense, "before": before}
    inputs = {**built, "rows": rows, "teacher": teacher, "answers": answers, "transfer": transfer}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="quantization", threads="branch")
async def train_quantized(
    context: StageContext,
    knobs: QuantizationSlice,
    *,
    start: Artifact,
    rows: Artifact,
    transfer: Artifact | None = None,
) -> None:
    """Train a model whose weights and states are rounded as in the graph that will serve it; its teacher is the model
    that it starts from."""
    await context.run(knobs.model_dump(mode="json"), inputs={"start": start, "rows": rows, "transfer": transfer})


@stage(makes="checkpoint", engine="static-quantization", threads="branch")
async def train_with_static_ranges(
    context: StageContext,
    knobs: StaticQuantizationSlice,
    *,
    start: Artifact,
    rows: Artifact,
    transfer: Artifact | None = None,
) -> None:
    """Train a model whose weights and states are rounded as in a graph with static ranges, which its folder states."""
    await context.run(knobs.model_dump(mode="json"), inputs={"start": start, "rows": rows, "transfer": transfer})


@stage(makes="checkpoint", engine="supernet", threads="branch")
async def train_supernet(
    context: StageContext,
    knobs: SupernetSlice,
    *,
    base: Artifact,
    rows: Artifact,
    contributions: Artifact | None = None,
    transfer: Artifact | None = None,
) -> None:
    """Train a model so that every shape of a space can be taken out of its weights; its teacher is the model that it
    starts from."""
    inputs = {"base": base, "rows": rows, "contributions": contributions, "transfer": transfer}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="cut-supernet", threads="branch")
async def cut_supernet(context: StageContext, knobs: SubNetworkSlice, *, supernet: Artifact, rows: Artifact) -> None:
    """Take one shape out of a supernet."""
    await context.run(knobs.model_dump(mode="json"), inputs={"supernet": supernet, "rows": rows})


@stage(makes="shapes", engine="judge-shapes", threads="branch")
async def judge_shapes(context: StageContext, knobs: JudgedShapesSlice, *, supernet: Artifact, rows: Artifact) -> None:
    """Score shapes of a supernet on the selection rows."""
    await context.run(knobs.model_dump(mode="json"), inputs={"supernet": supernet, "rows": rows})
