"""Students that take layers, and models that lose some, keep their bytes: sha256 over names, shapes and weights.

Weights are filled by counting and only copied, so that the digests are the same on every machine.
"""

from __future__ import annotations

import copy
from hashlib import sha256
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from tasks.methods.layers.layer_dropping import drop_layers
from tasks.recipe.students import Shape
from tasks.training.models.students import build_student
from tests.families import NAMES, SIZES

GOLDEN = {
    "albert": ("08554d0118b6cb0d8b3b078652cfa8e7", "08554d0118b6cb0d8b3b078652cfa8e7"),
    "bert": ("14f86580c5f07ac176c72302faaa1437", "57bf9b1e87c74129b5fd7b8e5a3e9f37"),
    "deberta-v2": ("6dc90425cb7da0be9ce1886534e2f34f", "16564a3a486e95fb3c960bc54223da00"),
    "distilbert": ("3a16b9af7bd3e6343767af4784ae5261", "f31c81fdd3e9ce0fc74394250b8516b8"),
    "electra": ("0161de1c34f26875424e0ac6cc9b9c71", "20dc3dc3783de92bf5592574c30c20b1"),
    "mobilebert": ("7fb78971513f68678192cc2ae84adc9e", "e25e815f0e9f6a9836f3a30b6cc9c42b"),
    "modernbert": ("ea88d07f7632ee04932106bff6be5e48", "af0c848820be32d1479f8d06c6cd4e12"),
    "roberta": ("29e8d1efca20d99b377e18956c738b75", "02b65b2b6a5adcb7351fb22831a7aec7"),
    "xlnet": ("edb5bb8e664b1e85857400f0caa3a325", "92da4a4031fab4857bd02639219bcb14"),
}
"""Of each architecture, a student of two evenly spread layers, and the model that keeps its layers 1 and 3."""
DISTILBERT_OF_BERT = "4ad21214e4bc795997802f933a8e6391"


def counted(name: str) -> Any:
    """Return a tiny classifier whose weights count on from parameter to parameter."""
    config = AutoConfig.for_model(name, vocab_size=40, num_labels=2, **SIZES[name])
    model = AutoModelForSequenceClassification.from_config(config)
    start = 0
    with torch.no_grad():
        for _, value in sorted(model.named_parameters()):
            value.copy_(torch.arange(start, start + value.numel()).reshape(value.shape) % 8191)
            start += value.numel()
    return model


def digest(model: Any) -> str:
    """Return the first half of the sha256 of a model's parameters but its head's, which a start may draw."""
    found = sha256()
    for name, value in sorted(model.base_model.named_parameters()):
        found.update(f"{name} {tuple(value.shape)}".encode() + value.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:32]


@pytest.mark.parametrize("name", NAMES)
def test_layers_that_are_taken_or_left_keep_their_bytes(name: str) -> None:
    model = counted(name)
    student = build_student("teacher", model, Shape(layers=2), seed=0)
    dropped = copy.deepcopy(model)
    drop_layers(dropped, [1, 3])
    assert (digest(student), digest(dropped)) == GOLDEN[name]


def test_a_distilbert_out_of_a_bert_keeps_its_bytes() -> None:
    assert digest(build_student("distilbert", counted("bert"), Shape(layers=2), seed=0)) == DISTILBERT_OF_BERT
