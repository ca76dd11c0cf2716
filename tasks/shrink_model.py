"""Stage tasks that make a trained model smaller without training it."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import NeuronSlice, PruneRoundSlice, VocabularySlice, WidthSlice
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


@stage(makes="checkpoint", engine="prune-round", threads="branch")
async def prune_in_rounds(
    context: StageContext, knobs: PruneRoundSlice, *, base: Artifact, first: Artifact, rows: Artifact
) -> None:
    """Remove the part of one round of iterative pruning; ``first`` is the model before the first round."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "first": first, "rows": rows})
