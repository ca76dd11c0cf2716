"""Head pruning: the importance of every attention head on training rows, and the model with the least important ones
silent; its graph is written without them.

Method: Michel et al. 2019, arXiv:1905.10650. The model is not trained again.
"""

from __future__ import annotations

from tasks.engine.job import Job
from tasks.methods.pruning.silent_heads import kept_heads, maps_of_heads, silence_heads, sounding_heads
from tasks.recipe.makers.slices import HeadSlice
from tasks.training.data.rows import task_and_tokenizer
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import score_of_finished
from tasks.training.shrinking.width_pruning import importance_of_stream


def silence_least_important(job: Job) -> dict[str, object]:
    """Write ``base`` with the least important heads silent; return how many stay, in all and in each layer."""
    knobs = job.read(HeadSlice)
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, device()).eval()
    maps_of_heads(model)  # refuses other attention in its own words
    sounding_LH = sounding_heads(model).cpu()
    importance_LH = importance_of_stream(job, knobs, task, model, tokenizer).of_heads_LH
    kept = kept_heads(importance_LH, sounding_LH, knobs.keep, knobs.scope)
    silence_heads(model, kept)
    save_model(model, tokenizer, job.output)
    counts = [len(heads) for heads in kept]
    return {
        "heads": sum(counts),
        "heads_before": int(sounding_LH.sum()),
        "heads_by_layer": counts,
        "selection_score": score_of_finished(job, knobs, task, model, tokenizer),
        "note": f"{sum(counts)} of {int(sounding_LH.sum())} heads ({', '.join(map(str, counts))} by layer), by "
        f"{knobs.importance}; the others are zeros in the folder, and left out of graphs",
    }
