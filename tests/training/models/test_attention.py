"""Our attention computes what transformers' computes, at every length, and shows its scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    LlamaConfig,
    LlamaModel,
    RobertaConfig,
    RobertaModel,
)

from tasks.errors import ModelError
from tasks.training.data.encoded import Encoded, collate
from tasks.training.models.attention import FUSED, WRITTEN_OUT, own_attention
from tasks.training.models.dropout import MASKS
from tasks.training.objectives.capture import Capture, check_capture

FAMILIES: dict[str, tuple[Any, Any]] = {
    "bert": (BertModel, BertConfig),
    "roberta": (RobertaModel, RobertaConfig),
    "electra": (ElectraModel, ElectraConfig),
    "distilbert": (DistilBertModel, DistilBertConfig),
    "albert": (AlbertModel, AlbertConfig),
}
SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}
DISTIL = {"vocab_size": 50, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 24, "max_position_embeddings": 64}


def drawn(family: str, **knobs: Any) -> Any:
    torch.manual_seed(0)
    kind, config = FAMILIES[family]
    return kind(config(attn_implementation="eager", **(DISTIL if family == "distilbert" else SIZES) | knobs)).eval()


def inputs(tokens: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    mask = torch.ones(3, tokens, dtype=torch.long)
    mask[0, max(1, tokens // 2) :] = 0
    return {"input_ids": torch.randint(3, 50, (3, tokens)), "attention_mask": mask}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", [3, 15, 16, 21])
def test_outputs_and_gradients_are_those_of_transformers(family: str, tokens: int) -> None:
    theirs, ours = drawn(family), own_attention(drawn(family))
    assert ours.config._attn_implementation == WRITTEN_OUT
    results = []
    for model in (theirs, ours):
        states = model(**inputs(tokens)).last_hidden_state[1:]
        states.square().sum().backward()
        results.append([states, *(value.grad for value in model.parameters() if value.grad is not None)])
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_shows_the_scores_of_every_layer(family: str) -> None:
    asked = inputs(9)
    check_capture(Capture(drawn(family), attention=range(3)), asked, asked["attention_mask"])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_fused_kernel_of_a_gpu_shows_the_same_scores(family: str) -> None:
    """The kernel runs on a CPU too, so that what is around it can be seen here."""
    results = []
    for kernel in (WRITTEN_OUT, FUSED):
        capture = Capture(drawn(family), hidden=[3], attention=[0, 2])
        capture.model.set_attn_implementation(kernel)
        results.append(capture(**inputs(9)))
    torch.testing.assert_close(results[0].hidden[3][1:], results[1].hidden[3][1:], rtol=1e-4, atol=1e-5)
    assert set(results[1].scores) == {0, 2}
    torch.testing.assert_close(results[0].scores, results[1].scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_gpu_a_batch_without_padding_gets_no_mask(family: str) -> None:
    """The kernel is then free to be the fastest, and nobody asks the GPU whether a mask is needed."""
    encoded = Encoded(np.arange(5, 23), np.zeros(18, np.int64), np.asarray([0, 9, 18]))
    padded = Encoded(np.arange(5, 22), np.zeros(17, np.int64), np.asarray([0, 9, 17]))
    model = own_attention(drawn(family))
    model.set_attn_implementation(FUSED)
    batch, shorter = (collate(given, [0, 1], 0, torch.device("cpu")) for given in (encoded, padded))
    assert "attention_mask" not in batch.inputs(model) and "attention_mask" in shorter.inputs(model)
    masked = {**batch.inputs(model), "attention_mask": batch.mask_BT}
    whole, again = (model(**given).last_hidden_state for given in (batch.inputs(model), masked))
    torch.testing.assert_close(whole, again, rtol=1e-4, atol=1e-5)
    first = model(**shorter.inputs(model)).last_hidden_state[0]
    torch.testing.assert_close(first, whole[0], rtol=1e-4, atol=1e-5)


def test_a_model_of_another_build_keeps_its_own_attention() -> None:
    sizes = {
        "vocab_size": 50,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 24,
    }
    model = LlamaModel(LlamaConfig(attn_implementation="eager", **sizes))
    assert own_attention(model).config._attn_implementation == "eager"
    with pytest.raises(
        ModelError,
        match="cannot be read from a model of type llama, because its attention looks back alone, and no check of that "
        "exists here; set matching.attention: 0 .* use one of albert, bert",
    ):
        Capture(model, attention=[0])


def test_a_batch_without_padding_needs_no_mask() -> None:
    ids = inputs(9)["input_ids"]
    torch.testing.assert_close(
        own_attention(drawn("bert"))(ids).last_hidden_state, drawn("bert")(ids).last_hidden_state
    )


def test_dropout_of_attention_is_drawn_here() -> None:
    model = own_attention(drawn("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)).train()
    outs = []
    for step in (0, 1, 0):
        MASKS.start(0, step)
        outs.append(model(**inputs(9)).last_hidden_state)
    assert torch.equal(outs[0], outs[2]) and not torch.equal(outs[0], outs[1])


def test_a_saved_model_names_no_attention_of_ours(tmp_path: Path) -> None:
    own_attention(drawn("bert")).save_pretrained(tmp_path)
    assert "limbeck" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
