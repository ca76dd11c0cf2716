"""The generation config of a finished model that writes: how it is judged, so that whoever loads the folder writes like
that."""

from __future__ import annotations

import shutil

from tasks.engine.job import Job
from tasks.recipe.distillation import Generation
from tasks.task_types.seq2seq.models import AutoModelForSeq2SeqLM, settings_of_writing
from tasks.task_types.units import Writing


def write_generation_config(job: Job) -> dict[str, object]:
    """Write ``base`` with a generation config that says how it is judged; its weights are copied as they are. Return
    what is stated there. Raises ModelError for a model that states no token that begins a text."""
    knobs, base = job.read(Generation), job.inputs["base"]
    model = AutoModelForSeq2SeqLM.from_pretrained(base, local_files_only=True, use_safetensors=True)
    own = settings_of_writing(model, Writing(knobs.beams, knobs.length_penalty, knobs.max_length))
    shutil.copytree(base, job.output, dirs_exist_ok=True)
    own.save_pretrained(job.output)
    return {"beams": own.num_beams, "written_tokens": own.max_new_tokens}
