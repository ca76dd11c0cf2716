"""Importances of neurons compared with the shared oracle, and blocks without some of their neurons compared with blocks
whose other neurons are silent."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from tasks.errors import ModelError, RecipeError
from tasks.methods.pruning.importance import OF_ROWS, OF_WEIGHTS, mean_activations, most_important, taylor_terms
from tasks.methods.pruning.neurons import feed_forward_maps, keep_neurons, neurons_to_keep
from tasks.training.data.encoded import Encoded
from tasks.training.shrinking.neuron_pruning import measured_on
from tests.methods.oracles import Oracle, reads, shared_file


def reference_model() -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the oracle's model in float64 and its inputs."""
    from safetensors.torch import load_file

    about = json.loads(shared_file("oracles/importance.json").read_text())["model"]
    tensors = load_file(shared_file("oracles/importance.safetensors"))
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**about["config"])).double().eval()
    prefix = "in.weight."
    model.load_state_dict({n.removeprefix(prefix): v.double() for n, v in tensors.items() if n.startswith(prefix)})
    return model, tensors


@reads("importance", "neurons_by_example")
def test_the_first_order_term_of_each_example_is_the_references(oracle: Oracle) -> None:
    model, tensors = reference_model()
    ids_BT, mask_BT, labels_B = (tensors[f"in.{name}"] for name in ("input_ids", "attention_mask", "labels"))
    offsets = np.concatenate([[0], np.cumsum(mask_BT.sum(1).numpy())])
    flat = np.concatenate([row[mask.bool()].numpy() for row, mask in zip(ids_BT, mask_BT, strict=True)])
    encoded = Encoded(flat, np.zeros_like(flat), offsets)

    def loss(chosen: SimpleNamespace) -> SimpleNamespace:
        at = torch.from_numpy(np.asarray(chosen.rows_B))
        width = int(mask_BT[at].sum(1).max())
        logits = model(input_ids=ids_BT[at, :width], attention_mask=mask_BT[at, :width]).logits
        return SimpleNamespace(mean=lambda: nn.functional.cross_entropy(logits, labels_B[at]))

    found = measured_on(taylor_terms, model, loss, encoded, [np.arange(len(ids_BT))], 0)
    expected_LF = oracle.tensors[oracle.content["expected_tensors"]["importance"]]
    torch.testing.assert_close(torch.stack(found) / len(ids_BT), expected_LF.float(), rtol=1e-5, atol=1e-7)


@reads("importance", "half_width")
def test_half_of_the_neurons_computes_what_the_reference_does(oracle: Oracle) -> None:
    """The reference removes half of the heads, too: here their columns of the output maps are set to 0."""
    model, tensors = reference_model()
    expected = {name: oracle.tensors[place] for name, place in oracle.content["expected_tensors"].items()}
    inputs = {name: tensors[f"in.{name}"] for name in ("input_ids", "attention_mask")}
    torch.testing.assert_close(model(**inputs).logits, expected["logits of the whole model"], rtol=1e-6, atol=1e-6)
    order = Oracle("importance", "dynabert_one_batch").content["order"]
    for layer, heads in zip(model.bert.encoder.layer, order["heads"], strict=True):
        gone = [6 * head + number for head in heads[2:] for number in range(6)]
        layer.attention.output.dense.weight.data[:, gone] = 0
    keep_neurons(model, [sorted(neurons[:10]) for neurons in order["neurons"]])
    assert model.config.intermediate_size == 10
    torch.testing.assert_close(model(**inputs).logits, expected["logits"], rtol=1e-6, atol=1e-6)


def test_examples_do_not_cancel_and_padding_does_not_count() -> None:
    activations_BTF = torch.tensor([[[2.0, 1.0], [1.0, 0.0], [9.0, 9.0]], [[1.0, -3.0], [9.0, 9.0], [9.0, 9.0]]])
    gradients_BTF = torch.tensor([[[1.0, 1.0], [-1.0, 5.0], [9.0, 9.0]], [[-1.0, 1.0], [9.0, 9.0], [9.0, 9.0]]])
    mask_BT = torch.tensor([[1, 1, 0], [1, 0, 0]])
    # Neuron 0: |2 - 1| + |-1|; neuron 1: |1 + 0| + |-3|. Means of activations: 1.5 and 1; 0.5 and -3.
    assert taylor_terms(activations_BTF, gradients_BTF, mask_BT).tolist() == [2.0, 4.0]
    assert mean_activations(activations_BTF, gradients_BTF, mask_BT).tolist() == [1.5**2 + 1, 0.5**2 + 9]


def test_importances_of_weights() -> None:
    first_FD, second_DF = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[2.0, 5.0], [0.0, 12.0]])
    generator = torch.Generator().manual_seed(0)
    assert OF_WEIGHTS["magnitude"](first_FD, second_DF, generator).tolist() == [10.0, 13.0]
    drawn = [OF_WEIGHTS["random"](first_FD, second_DF, generator) for _ in range(2)]
    assert not torch.equal(*drawn), "each block has draws of its own"
    assert set(OF_ROWS) | set(OF_WEIGHTS) == {"taylor", "activation", "magnitude", "random"}


def test_the_most_important_keep_their_order_and_of_equals_the_first_stay() -> None:
    assert most_important(torch.tensor([1.0, 5.0, 5.0, 2.0, 5.0]), 2) == [1, 2]
    assert most_important(torch.tensor([9.0, 1.0, 8.0]), 2) == [0, 2]


@pytest.mark.parametrize(
    ("neurons", "share", "kept"),
    [(3072, 0.5, 1536), (3072, 0.26, 800), (1536, 0.25, 384), (64, 0.6, 32), (20, 0.5, 10), (20, 0.01, 1)],
)
def test_shares_are_rounded_to_what_kernels_multiply(neurons: int, share: float, kept: int) -> None:
    assert neurons_to_keep(neurons, share) == kept


def test_what_cannot_be_pruned_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        RecipeError, match=r"keep: 0.995 of 3,072 neurons is 3,072, in steps of 32: none would be removed"
    ):
        neurons_to_keep(3072, 0.995)
    config = transformers.ModernBertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, pad_token_id=0
    )
    with pytest.raises(
        ModelError, match="neurons of a model of type modernbert cannot be removed: its feed-forward blocks are not two"
    ):
        feed_forward_maps(transformers.ModernBertForSequenceClassification(config))
