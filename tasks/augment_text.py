"""Stage task: substitutes for the words of the training rows."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.data import Augmentation
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="candidates", engine="augment", threads="branch")
async def augment_text(
    bench: Bench,
    knobs: Augmentation,
    *,
    rows: Parcel,
    tokenizer: Parcel,
    masked_lm: Parcel | None = None,
    word_vectors: Parcel | None = None,
) -> None:
    """Find substitutes by a masked language model, by word vectors, or by both."""
    inputs = {"rows": rows, "tokenizer": tokenizer, "masked_lm": masked_lm, "word_vectors": word_vectors}
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs)
