"""Layer dropping: remove whole layers, then train what is left.

Method: Sajjad et al. 2020, Poor Man's BERT, arXiv:2004.03844.
Shape letters: L layers, N rows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from tasks.job import Job
from tasks.methods.contribution import cosines_BL
from tasks.methods.layer_dropping import drop_layers
from tasks.methods.layer_strategies import kept_layers
from tasks.training.batches import by_length
from tasks.training.distill import Cast, contributions, train_with_teacher
from tasks.training.finetune import train_with_labels
from tasks.training.precision import device, make_deterministic
from tasks.training.rows import collate, encode, load_tokenizer, read_rows, read_task
from tasks.training.students import freeze, load_classifier, save_model

SAMPLE = 500  # rows behind the contribution of a layer; its mean cosine settles long before


def measure_contributions(job: Job) -> dict[str, Any]:
    """Measure, for each layer of ``base``, the mean cosine between its input and its output on the selection rows."""
    task, place = read_task(job.inputs["rows"]), device()
    tokenizer, model = load_tokenizer(job.inputs["base"]), freeze(load_classifier(job.inputs["base"], task, place))
    rows = read_rows(job.inputs["rows"], "selection", task.kind)
    rows = rows if len(rows) else read_rows(job.inputs["rows"], "train", task.kind)
    pairs = None if rows.pairs is None else rows.pairs[:SAMPLE]
    encoded = encode(tokenizer, rows.texts[:SAMPLE], pairs, job.knobs.max_length)
    parts = []
    for batch in by_length(encoded.lengths_N, size=32, tokens=8192):
        inputs = collate(encoded, batch, tokenizer.pad_token_id, place)
        with torch.inference_mode():
            states = model(**inputs.inputs(model), output_hidden_states=True).hidden_states
        parts.append(cosines_BL(states, inputs.mask_BT, token=job.knobs.token).cpu().numpy())
    cosines = [float(value) for value in np.concatenate(parts).mean(0)]
    (job.output / "contributions.json").write_text(json.dumps({"cosines": cosines, "token": job.knobs.token}))
    return {"cosines": cosines}


def drop_and_train(job: Job) -> dict[str, Any]:
    """Drop layers of ``base`` by a strategy, then train with labels or with the fine-tuned teacher's answers."""
    knobs, place = job.knobs, device()
    make_deterministic(knobs.seed)
    task, tokenizer = read_task(job.inputs["rows"]), load_tokenizer(job.inputs["base"])
    model = load_classifier(job.inputs["base"], task, place, seed=knobs.seed)
    kept = kept_layers(knobs.strategy, model.config.num_hidden_layers, knobs.drop, contributions(job))
    drop_layers(model, kept)
    job.log(f"{knobs.strategy}: layers {kept} of {model.config.num_hidden_layers + knobs.drop} stay (counted from 0)")
    if knobs.signal == "teacher":
        teacher = freeze(load_classifier(job.inputs["teacher"], task, place))
        facts = train_with_teacher(job, knobs, Cast(task, teacher, tokenizer, model, tokenizer))
    else:
        facts = train_with_labels(job, knobs, model, task, tokenizer)
    save_model(model, tokenizer, job.output)
    return facts | {"kept_layers": kept}
