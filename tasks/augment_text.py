"""Stage task: substitutes for the words of the training rows."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.data import Augmentation
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="candidates", engine="augment", threads="branch")
async def augment_text(
    context: StageContext,
    knobs: Augmentation,
    *,
    rows: Artifact,
    tokenizer: Artifact,
    masked_lm: Artifact | None = None,
    word_vectors: Artifact | None = None,
) -> None:
    """Find substitutes by a masked language model, by word vectors, or by both."""
    inputs = {"rows": rows, "tokenizer": tokenizer, "masked_lm": masked_lm, "word_vectors": word_vectors}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)
