"""Importances of heads compared with the shared oracle; a narrower model has the parameters that its numbers name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from tasks.errors import ModelError, RecipeError
from tasks.methods.pruning.importance import most_important
from tasks.methods.pruning.stream_importance import (
    OF_HEADS,
    OF_STREAM,
    activation_of_dimensions,
    activation_of_heads,
    taylor_of_dimensions,
    taylor_of_heads,
)
from tasks.methods.pruning.widths import attention_maps, heads_to_keep, narrowed
from tasks.training.data.encoded import Encoded
from tasks.training.shrinking.width_pruning import importance_of_weights, importance_on_rows
from tests.methods.oracles import Oracle, reads
from tests.methods.pruning.test_neuron_pruning import reference_model


def on_reference_rows(name: str) -> tuple[Any, Any]:
    """Return the oracle's model, and the importance that is measured on the oracle's rows."""
    model, tensors = reference_model()
    ids_BT, mask_BT, labels_B = (tensors[f"in.{one}"] for one in ("input_ids", "attention_mask", "labels"))
    offsets = np.concatenate([[0], np.cumsum(mask_BT.sum(1).numpy())])
    flat = np.concatenate([row[mask.bool()].numpy() for row, mask in zip(ids_BT, mask_BT, strict=True)])

    def loss(chosen: SimpleNamespace) -> SimpleNamespace:
        at = torch.from_numpy(np.asarray(chosen.rows_B))
        width = int(mask_BT[at].sum(1).max())
        logits = model(input_ids=ids_BT[at, :width], attention_mask=mask_BT[at, :width]).logits
        return SimpleNamespace(mean=lambda: nn.functional.cross_entropy(logits, labels_B[at]))

    encoded = Encoded(flat, np.zeros_like(flat), offsets)
    return model, importance_on_rows(name, model, loss, encoded, [np.arange(len(ids_BT))], 0)


@reads("importance", "by_example")
def test_the_first_order_term_of_a_head_is_the_references(oracle: Oracle) -> None:
    _, found = on_reference_rows("taylor")
    expected_LH = oracle.tensors[oracle.content["expected_tensors"]["importance"]]
    torch.testing.assert_close(found.of_heads_LH / 6, expected_LH.float(), rtol=1e-5, atol=1e-7)


def test_the_first_order_term_of_a_dimension_is_the_derivative_by_its_factor() -> None:
    """A factor before a dimension behind all norms, at 1: its derivative of each example, by differences."""
    model, found = on_reference_rows("taylor")
    _, tensors = reference_model()
    ids_BT, mask_BT, labels_B = (tensors[f"in.{one}"] for one in ("input_ids", "attention_mask", "labels"))
    norms = [one for one in model.modules() if isinstance(one, nn.LayerNorm)]

    def losses_B(factor: float) -> torch.Tensor:
        scaled = torch.ones(norms[0].normalized_shape[0], dtype=torch.float64)
        scaled[3] = factor
        hooks = [one.register_forward_hook(lambda module, inputs, output: output * scaled) for one in norms]
        with torch.no_grad():
            logits = model(input_ids=ids_BT, attention_mask=mask_BT).logits
        for hook in hooks:
            hook.remove()
        return nn.functional.cross_entropy(logits, labels_B, reduction="none")

    slopes_B = (losses_B(1 + 1e-4) - losses_B(1 - 1e-4)) / 2e-4
    assert found.of_dimensions_D[3].item() == pytest.approx(slopes_B.abs().sum().item(), rel=1e-4)


def test_examples_do_not_cancel_and_padding_does_not_count() -> None:
    states_BTD = torch.tensor([[[2.0, 1.0], [1.0, 0.0], [9.0, 9.0]], [[1.0, -3.0], [9.0, 9.0], [9.0, 9.0]]])
    gradients_BTD = torch.tensor([[[1.0, 1.0], [-1.0, 5.0], [9.0, 9.0]], [[-1.0, 1.0], [9.0, 9.0], [9.0, 9.0]]])
    mask_BT = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert taylor_of_dimensions([states_BTD], [gradients_BTD], mask_BT).tolist() == [2.0, 4.0]
    assert taylor_of_dimensions([states_BTD] * 2, [gradients_BTD] * 2, mask_BT).tolist() == [4.0, 8.0]
    assert activation_of_dimensions([states_BTD], [gradients_BTD], mask_BT).tolist() == [1.5**2 + 1, 0.5**2 + 9]
    assert taylor_of_heads(states_BTD, gradients_BTD, mask_BT, 1).tolist() == [(2 - 1 + 1) + (1 + 3)]
    assert activation_of_heads(states_BTD, gradients_BTD, mask_BT, 2).tolist() == [1.5**2 + 1, 0.5**2 + 9]
    assert set(OF_STREAM) == set(OF_HEADS) == {"taylor", "activation"}


def small_bert(**changes: Any) -> Any:
    """Return a BERT with random weights, no two of which are equal."""
    config = {"vocab_size": 20, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
    shape = {**config, "intermediate_size": 12, "max_position_embeddings": 12, **changes}
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**shape)).eval()
    for value in model.parameters():
        nn.init.normal_(value)
    return model


def test_a_narrower_model_has_the_named_rows_and_columns_also_where_other_sizes_equal_the_width() -> None:
    model, kept_D, kept_LH = small_bert(), [0, 1, 4, 5, 6, 7, 9, 11], [[0, 2], [1, 2]]
    small = narrowed(model, kept_D, kept_LH)
    assert (small.config.hidden_size, small.config.num_attention_heads, small.config.intermediate_size) == (8, 2, 12)
    for old, new, heads in zip(model.bert.encoder.layer, small.bert.encoder.layer, kept_LH, strict=True):
        inner = [4 * head + number for head in heads for number in range(4)]
        ours, theirs = new.attention.self, old.attention.self
        for name in ("query", "key", "value"):
            assert torch.equal(getattr(ours, name).weight, getattr(theirs, name).weight[inner][:, kept_D])
            assert torch.equal(getattr(ours, name).bias, getattr(theirs, name).bias[inner])
        assert ours.scaling == theirs.scaling == 0.5, "the size of a head stays, and with it the scale of scores"
        assert torch.equal(new.attention.output.dense.weight, old.attention.output.dense.weight[kept_D][:, inner])
        assert torch.equal(new.intermediate.dense.weight, old.intermediate.dense.weight[:, kept_D])
        assert torch.equal(new.output.dense.weight, old.output.dense.weight[kept_D])
        assert torch.equal(new.output.LayerNorm.bias, old.output.LayerNorm.bias[kept_D])
    table, pooler = model.bert.embeddings.position_embeddings.weight, model.bert.pooler.dense.weight
    assert torch.equal(small.bert.embeddings.position_embeddings.weight, table[:, kept_D])
    assert torch.equal(small.bert.pooler.dense.weight, pooler[kept_D][:, kept_D])
    assert torch.equal(small.classifier.weight, model.classifier.weight[:, kept_D])
    assert small(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 2)


def test_dimensions_and_heads_without_weights_are_least_important() -> None:
    model = small_bert()
    with torch.no_grad():
        for name, value in model.bert.named_parameters():
            if value.ndim == 2 and value.shape[1] == 12 and "attention.output" not in name:
                value[:, 5] = 0
            if name.endswith(("attention.output.dense.weight", "output.dense.weight")):
                value[5] = 0
        model.bert.encoder.layer[1].attention.self.value.weight[4:8] = 0
    found = importance_of_weights(model)
    assert most_important(-found.of_dimensions_D, 1) == [5]
    assert found.of_heads_LH[1].argmin() == 1


@pytest.mark.parametrize(("heads", "share", "kept"), [(12, 2 / 3, 8), (12, 0.5, 6), (12, 0.01, 1), (3, 0.5, 2)])
def test_shares_are_whole_heads(heads: int, share: float, kept: int) -> None:
    assert heads_to_keep(heads, share) == kept


def test_what_cannot_be_narrowed_is_refused_in_a_sentence() -> None:
    with pytest.raises(RecipeError, match=r"keep: 0.9 of 2 heads is all of them, .* give a smaller share"):
        heads_to_keep(2, 0.9)
    config = transformers.AlbertConfig(vocab_size=20, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    with pytest.raises(ModelError, match="a model of type albert cannot be made narrower"):
        attention_maps(transformers.AlbertForSequenceClassification(config))
