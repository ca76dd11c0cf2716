"""Layer dropping: remove whole layers, then train the remaining ones.

Method: Sajjad et al. 2020, Poor Man's BERT, arXiv:2004.03844. Which layers change most during fine-tuning: Kornblith et
al. 2019, arXiv:1905.00414. Shape letters: B batch, T tokens, D width, L layers, N rows or tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of, summary_token
from tasks.engine.job import Job
from tasks.methods.layers.contribution import cosines_BL
from tasks.methods.layers.layer_dropping import drop_layers
from tasks.methods.layers.layer_similarity import Moments, between_models_BL, linear_cka_of, moments_of
from tasks.methods.layers.layer_strategies import kept_layers
from tasks.recipe.slices import ContributionSlice, DropSlice
from tasks.task_types.common_head import words_at_a_token
from tasks.task_types.units import is_framed
from tasks.training.data.batches import by_length, tokens_at_once
from tasks.training.data.contributions import write_contributions
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.measured_texts import first_tokens
from tasks.training.data.rows import TaskHead, join, read_rows, task_and_tokenizer
from tasks.training.distill import TeacherStudent, contributions, train_with_teacher
from tasks.training.finetune import train_with_labels
from tasks.training.models.students import freeze, load_classifier, save_model
from tasks.training.precision import device, make_deterministic

SAMPLE = 500
"""Rows on which the contribution of a layer is measured; its mean cosine converges with far fewer."""
SAMPLED_TOKENS = 100_000
"""Tokens of documents and chats on which it is measured: rows differ in their length by orders of magnitude."""


def measure_contributions(job: Job) -> dict[str, object]:
    """Measure, for each layer of ``base``, the mean cosine between its input and its output on texts of the task."""
    knobs, tokens = job.read(ContributionSlice), 0
    token, parts = token_of(job, knobs), list[np.ndarray]()
    for (states,), mask_BT in hidden_states(job, knobs, ("base",)):
        parts.append(cosines_BL(states, mask_BT, token=token).cpu().numpy())
        tokens += int(mask_BT.sum())
    cosines = [float(value) for value in np.concatenate(parts).mean(0)]
    write_contributions(job.output, cosines, knobs.token)
    return {"cosines": cosines, "tokens": tokens}


def measure_similarity(job: Job) -> dict[str, object]:
    """Compare ``base`` with ``teacher``, which was fine-tuned from it, layer by layer on the selection rows; the first
    figure is that of the embeddings."""
    moments: list[Moments] = []
    knobs = job.read(ContributionSlice)
    cosines, token = [], token_of(job, knobs)
    for (before, after), mask_BT in hidden_states(job, knobs, ("base", "teacher")):
        valid_BT = mask_BT.bool()
        found = [
            moments_of(first_BTD[valid_BT], second_BTD[valid_BT])
            for first_BTD, second_BTD in zip(before, after, strict=True)
        ]
        moments = [one + other for one, other in zip(moments, found, strict=True)] if moments else found
        cosines.append(between_models_BL(before, after, mask_BT, token=token).cpu().numpy())
    facts = {
        "cka": [linear_cka_of(each) for each in moments],
        "cosines": [float(value) for value in np.concatenate(cosines).mean(0)],
        "tokens": moments[0].rows,
        "rows": sum(map(len, cosines)),
        "token": knobs.token,
    }
    (job.output / "similarity.json").write_text(json.dumps(facts))
    return facts


def token_of(job: Job, knobs: ContributionSlice) -> str:
    """Return the token at which layers are compared; ``cls`` means the summary token of the family, which is the last
    token in XLNet."""
    config = json.loads((job.inputs["base"] / "config.json").read_text())
    return summary_token(config) if knobs.token == "cls" else knobs.token


def hidden_states(
    job: Job, knobs: ContributionSlice, names: Sequence[str]
) -> Iterator[tuple[list[list[Tensor]], Tensor]]:
    """Yield the hidden states of the named models on the same batches, with their mask."""
    place = device()
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, names[0])
    models = [freeze(load_classifier(job.inputs[name], task, place)) for name in names]
    encoded = measured_texts(job, knobs, task.head, tokenizer)
    tokens = tokens_at_once(8192, place, max(words_at_a_token(model) for model in models))
    for batch in by_length(encoded.lengths_N, size=32, tokens=tokens):
        inputs = collate(encoded, batch, tokenizer.pad_token_id, place)
        with torch.inference_mode():
            states = [states_of(model, inputs.inputs(model)) for model in models]
        yield states, inputs.mask_BT


def measured_texts(job: Job, knobs: ContributionSlice, head: TaskHead, tokenizer: Any) -> Encoded:
    """Return the tokens of selection rows, or of train rows if none are held back. Of documents and chats, and where a
    number of tokens is asked for, so many windows of selection rows and of train rows behind them."""
    held, learned = (read_rows(job.inputs["rows"], split, head) for split in ("selection", "train"))
    if knobs.measured_tokens is None and not is_framed(head.units):
        return (held if len(held) else learned).texts_alone(tokenizer, knobs.max_length, SAMPLE)
    return first_tokens(join(held, learned), tokenizer, knobs.max_length, knobs.measured_tokens or SAMPLED_TOKENS)


def states_of(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the hidden states as the layers output them, before a norm that follows the last layer: this norm is not
    part of a layer's contribution."""
    path, raw = architecture_of(model.config).last_norm, list[Tensor]()
    hook = (
        model.base_model.get_submodule(path).register_forward_pre_hook(lambda module, given: raw.append(given[0]))
        if path
        else None
    )
    states = list(model(**inputs, output_hidden_states=True).hidden_states)
    if hook is not None:
        hook.remove()
    return [*states[:-1], *raw] if raw else states


def drop_and_train(job: Job) -> dict[str, object]:
    """Drop layers of ``base`` by a strategy, then train with labels or with the answers of the fine-tuned teacher."""
    knobs, place = job.read(DropSlice), device()
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, place, seed=knobs.seed)
    kept = kept_layers(knobs.strategy, model.config.num_hidden_layers, knobs.drop, contributions(job) or knobs.kept)
    drop_layers(model, kept)
    job.log(f"{knobs.strategy}: layers {kept} of {model.config.num_hidden_layers + knobs.drop} remain (counted from 0)")
    note = architecture_of(model.config).on_dropping
    if note:
        job.log(note)
    if knobs.steps == 0:  # scored as it was cut, beside what a training gives back
        facts: dict[str, object] = {"steps": 0, "train_seconds": 0.0}
    elif knobs.signal == "teacher":
        teacher = freeze(load_classifier(job.inputs["teacher"], task, place))
        facts = train_with_teacher(job, knobs, TeacherStudent(task, teacher, tokenizer, model, tokenizer))
    else:
        facts = train_with_labels(job, knobs, model, task, tokenizer)
    save_model(model, tokenizer, job.output)
    return facts | {"kept_layers": kept} | ({"note": note} if note else {})
