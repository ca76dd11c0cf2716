"""Heads by importance and by norms of layers, beside the shared oracle; a model without its silent heads computes as
before, and training leaves them silent."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers

from tasks.errors import ModelError, RecipeError
from tasks.methods.pruning.silent_heads import (
    kept_heads,
    leave_out_silent_heads,
    maps_of_heads,
    silence_heads,
    sounding_heads,
)
from tests.methods.oracles import Oracle, reads
from tests.methods.pruning.test_neuron_pruning import reference_model
from tests.methods.pruning.test_width_pruning import on_reference_rows, small_bert

ALL_LH = torch.ones(2, 4, dtype=torch.bool)
IDS_BT = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


@reads("importance", "by_layer_one_batch")
def test_heads_of_several_layers_are_compared_in_units_of_their_layers_norm(oracle: Oracle) -> None:
    """Where layers are divided by their norm, ranks of raw importances and of the reference's are the same."""
    raw = Oracle("importance", "raw_one_batch")
    raw_LH = raw.tensors[raw.content["expected_tensors"]["importance"]]
    expected_LH = oracle.tensors[oracle.content["expected_tensors"]["importance"]]
    torch.testing.assert_close(raw_LH / raw_LH.norm(dim=1, keepdim=True), expected_LH, rtol=1e-6, atol=1e-9)
    best = set(expected_LH.flatten().argsort(descending=True)[:5].tolist())
    kept = kept_heads(raw_LH, ALL_LH, 5 / 8, "global")
    assert {layer * 4 + head for layer, heads in enumerate(kept) for head in heads} == best


@reads("importance", "by_example")
def test_the_heads_that_stay_are_the_most_important_of_the_reference(oracle: Oracle) -> None:
    _, found = on_reference_rows("taylor")
    expected_LH = oracle.tensors[oracle.content["expected_tensors"]["importance"]]
    order_LH = expected_LH.argsort(1, descending=True)
    assert kept_heads(found.of_heads_LH, ALL_LH, 0.5, "layer") == order_LH[:, :2].sort(1).values.tolist()


@reads("importance", "half_width")
def test_half_of_the_heads_computes_what_the_reference_does(oracle: Oracle) -> None:
    """The reference removes half of the neurons, too: here columns of the second maps are set to 0."""
    model, tensors = reference_model()
    inputs = {name: tensors[f"in.{name}"] for name in ("input_ids", "attention_mask")}
    order = Oracle("importance", "dynabert_one_batch").content["order"]
    silence_heads(model, [sorted(heads[:2]) for heads in order["heads"]])
    for layer, neurons in zip(model.bert.encoder.layer, order["neurons"], strict=True):
        layer.output.dense.weight.data[:, neurons[10:]] = 0
    expected_BC = oracle.tensors[oracle.content["expected_tensors"]["logits"]]
    torch.testing.assert_close(model(**inputs).logits, expected_BC, rtol=1e-6, atol=1e-6)
    before = model.bert.encoder.layer[0].attention.self.scaling
    assert leave_out_silent_heads(model) == 2 * (4 * 12 * 24 + 3 * 12)
    assert model.bert.encoder.layer[0].attention.self.scaling == before
    torch.testing.assert_close(model(**inputs).logits, expected_BC, rtol=1e-6, atol=1e-6)


def test_layers_may_keep_different_numbers_of_heads_and_each_keeps_one() -> None:
    importance_LH = torch.tensor([[5.0, 4.0, 3.0, 0.0], [1.0, 0.0, 0.0, 0.1]])
    assert kept_heads(importance_LH, ALL_LH, 0.5, "global") == [[0, 1, 2], [0]]
    assert kept_heads(importance_LH, ALL_LH, 0.5, "layer") == [[0, 1], [0, 3]]
    assert kept_heads(importance_LH, ALL_LH, 0.01, "global") == [[0], [0]]


def test_a_share_is_of_the_heads_that_still_sound_and_silent_ones_never_come_back() -> None:
    sounding_LH = torch.tensor([[True, True, False, True], [True, False, False, False]])
    drawn_LH = torch.tensor([[0.1, 0.2, 0.9, 0.3], [0.1, 0.9, 0.9, 0.9]])
    assert kept_heads(drawn_LH, sounding_LH, 0.75, "global") == [[1, 3], [0]]
    with pytest.raises(RecipeError, match=r"keep: 0.9 of 4 heads is all of them: none would be removed"):
        kept_heads(drawn_LH, sounding_LH, 0.9, "global")


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_training_on_answers_and_hidden_states_leaves_silent_heads_at_exactly_zero(decay: float) -> None:
    model = small_bert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1).train()
    silence_heads(model, [[0], [1, 2]])
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(5):
        outputs = model(input_ids=IDS_BT, output_hidden_states=True, labels=torch.tensor([0, 1]))
        (outputs.loss + outputs.hidden_states[1].square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sounding_heads(model).tolist() == [[True, False, False], [False, True, True]]
    for name, value in model.named_parameters():
        still = (weights[name] == 0) & (value == 0)
        if "attention.self.value" in name or "attention.output.dense.weight" in name:
            assert torch.equal(still, weights[name] == 0), name
    whole = copy.deepcopy(model.eval())
    assert leave_out_silent_heads(model) > 0
    torch.testing.assert_close(model(IDS_BT).logits, whole(IDS_BT).logits, rtol=1e-5, atol=1e-5)


def test_a_model_without_silent_heads_or_with_other_attention_stays_as_it_is() -> None:
    model = small_bert()
    before = {name: id(value) for name, value in model.named_parameters()}
    assert leave_out_silent_heads(model) == 0
    assert {name: id(value) for name, value in model.named_parameters()} == before
    config = transformers.AlbertConfig(vocab_size=20, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    albert = transformers.AlbertForSequenceClassification(config)
    assert leave_out_silent_heads(albert) == 0
    with pytest.raises(
        ModelError, match="heads of a model of type albert cannot be removed alone: its attention is not four"
    ):
        maps_of_heads(albert)
