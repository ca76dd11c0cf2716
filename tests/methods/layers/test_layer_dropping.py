"""Layer dropping: the published sets exactly, and dropped models that reload bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import LimbeckError, ModelError, RecipeError
from tasks.methods.layers.layer_dropping import drop_layers, encoder_layers
from tasks.methods.layers.layer_strategies import STRATEGIES, after_a_round, kept_layers, undefined
from tests.methods.oracles import Oracle, reads

COSINES = [0.5, 0.9, 0.1, 0.9, 0.3, 0.2]
BERT_LIKE = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "num_labels": 3,
}
ARCHITECTURES: dict[str, dict] = {
    "bert": BERT_LIKE,
    "roberta": BERT_LIKE,
    "electra": {**BERT_LIKE, "embedding_size": 8},
    "distilbert": {"vocab_size": 30, "dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 24, "num_labels": 3},
    "deberta-v2": {**BERT_LIKE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "conv_kernel_size": 3},
    "modernbert": {
        **BERT_LIKE,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "local_attention": 4,
    },
    "xlnet": {"vocab_size": 30, "d_model": 16, "n_layer": 4, "n_head": 2, "d_inner": 24, "num_labels": 3},
    "albert": {**BERT_LIKE, "embedding_size": 8},
}


def tiny(model_type: str, **changes: object) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **{**ARCHITECTURES[model_type], **changes})
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():  # zero biases and unit norms would hide a layer that came back wrong
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


@torch.no_grad()
def answers(model: transformers.PreTrainedModel) -> torch.Tensor:
    ids = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 0, 0, 0, 0, 0]])
    return model.eval()(input_ids=ids, attention_mask=(ids != 0).long()).logits


def reloaded(model: transformers.PreTrainedModel, folder: Path) -> transformers.PreTrainedModel:
    model.save_pretrained(folder)
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder)


@pytest.mark.parametrize(
    ("strategy", "layers", "drop", "dropped"),  # counted from 1, as the paper's table
    [
        ("top", 12, 2, [11, 12]),
        ("top", 12, 4, [9, 10, 11, 12]),
        ("top", 12, 6, [7, 8, 9, 10, 11, 12]),
        ("top", 6, 1, [6]),
        ("top", 6, 2, [5, 6]),
        ("top", 6, 3, [4, 5, 6]),
        ("bottom", 12, 2, [1, 2]),
        ("bottom", 12, 4, [1, 2, 3, 4]),
        ("bottom", 12, 6, [1, 2, 3, 4, 5, 6]),
        ("bottom", 6, 1, [1]),
        ("bottom", 6, 2, [1, 2]),
        ("bottom", 6, 3, [1, 2, 3]),
        ("symmetric", 12, 2, [6, 7]),
        ("symmetric", 12, 4, [5, 6, 7, 8]),
        ("symmetric", 12, 6, [4, 5, 6, 7, 8, 9]),
        ("symmetric", 6, 1, [4]),
        ("symmetric", 6, 2, [3, 4]),
        ("symmetric", 6, 3, [3, 4, 5]),
        ("alternate-odd", 12, 2, [9, 11]),
        ("alternate-odd", 12, 4, [5, 7, 9, 11]),
        ("alternate-odd", 12, 6, [1, 3, 5, 7, 9, 11]),
        ("alternate-odd", 6, 1, [5]),
        ("alternate-odd", 6, 2, [3, 5]),
        ("alternate-odd", 6, 3, [1, 3, 5]),
        ("alternate-even", 12, 2, [10, 12]),
        ("alternate-even", 12, 4, [6, 8, 10, 12]),
        ("alternate-even", 12, 6, [2, 4, 6, 8, 10, 12]),
        ("alternate-even", 6, 1, [6]),
        ("alternate-even", 6, 2, [4, 6]),
        ("alternate-even", 6, 3, [2, 4, 6]),
    ],
)
def test_published_sets(strategy: str, layers: int, drop: int, dropped: list[int]) -> None:
    assert kept_layers(strategy, layers, drop) == [i for i in range(layers) if i + 1 not in dropped]


@reads("layer_dropping", "removals")
def test_sets_equal_the_reference(oracle: Oracle) -> None:
    names = {"odd-alternate": "alternate-odd", "even-alternate": "alternate-even"}
    for case in oracle.content:
        strategy, _, drop = case["label"].replace("readme example, top three", "top-3").rpartition("-")
        kept = kept_layers(names.get(strategy, strategy), case["layers"], int(drop))
        assert kept == case["kept_0based"], case["label"]


@reads("layer_dropping", "edge_cases")
def test_odd_lists_of_the_reference_keep_the_same_layers_or_are_refused(oracle: Oracle) -> None:
    """The reference takes the layers that go, in any order; here those that stay are named, in order."""
    refused = {"repeated index", "negative index", "index out of range"}
    for case in oracle.content:
        gone = [int(index) for index in case["remove_argument"].split(",") if index]
        model = tiny("bert", num_hidden_layers=case["layers"])
        if case["label"] in refused:
            with pytest.raises(RecipeError, match="each once, in ascending order"):
                drop_layers(model, gone)
        else:
            drop_layers(model, [layer for layer in range(case["layers"]) if layer not in gone])
            assert model.config.kept_layers == case["kept_0based"], case["label"]


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 30), st.integers(0, 30))
def test_a_defined_cell_keeps_the_right_number_in_order(strategy: str, layers: int, drop: int) -> None:
    measured = list(range(layers - drop)) if strategy == "greedy" else [0.5] * layers
    if undefined(strategy, layers, drop):
        with pytest.raises(RecipeError, match="can drop 0 to"):
            kept_layers(strategy, layers, drop, measured)
    else:
        kept = kept_layers(strategy, layers, drop, measured)
        assert len(kept) == layers - drop > 0
        assert kept == sorted(set(kept)) and set(kept) <= set(range(layers))


def test_undefined_cells_of_a_table() -> None:
    assert [undefined("alternate-even", 6, k) for k in range(7)] == [False] * 4 + [True] * 3
    assert [undefined("alternate-odd", 1, k) for k in range(2)] == [False, True]
    assert [undefined("top", 6, k) for k in (-1, 5, 6)] == [True, False, True]
    assert not undefined("contribution", 6, 5)
    assert [undefined("greedy", 6, k) for k in (1, 5, 6)] == [False, False, True]
    with pytest.raises(RecipeError, match="alternate-even, alternate-odd, bottom"):
        undefined("middle", 6, 1)


def test_contribution_drops_the_highest_cosines_and_of_equals_the_higher_layer() -> None:
    assert kept_layers("contribution", 6, 1, COSINES) == [0, 1, 2, 4, 5]
    assert kept_layers("contribution", 6, 2, COSINES) == [0, 2, 4, 5]
    assert kept_layers("contribution", 6, 3, COSINES) == [2, 4, 5]


@pytest.mark.parametrize("cosines", [None, COSINES[:5], [float("nan")] * 6])
def test_contribution_without_measurements_is_refused(cosines: list[float] | None) -> None:
    with pytest.raises(RecipeError, match="one finite cosine for each of the 6"):
        kept_layers("contribution", 6, 1, cosines)


def test_an_unknown_strategy_lists_the_known() -> None:
    with pytest.raises(
        RecipeError, match="alternate-even, alternate-odd, bottom, contribution, greedy, symmetric, top"
    ):
        kept_layers("middle", 6, 1)


@pytest.mark.parametrize("kept", [[0, 1, 2], [1, 3], [2, 3], [0]])
@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES))
def test_a_dropped_model_reloads_bit_for_bit(model_type: str, kept: list[int], tmp_path: Path) -> None:
    model = tiny(model_type)
    before = answers(model)
    drop_layers(model, kept)
    again = reloaded(model, tmp_path)
    assert not torch.equal(answers(model), before)
    assert torch.equal(answers(again), answers(model))
    assert again.config.num_hidden_layers == len(kept) and again.config.kept_layers == kept
    assert model_type == "albert" or len(encoder_layers(again)) == len(kept)


@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES))
def test_hidden_states_have_the_new_depth(model_type: str) -> None:
    model = tiny(model_type)
    drop_layers(model, [0, 2])
    states = model(input_ids=torch.tensor([[3, 4, 5, 6]]), output_hidden_states=True).hidden_states
    assert len(states) == 3


def test_keeping_every_layer_changes_nothing() -> None:
    model = tiny("bert")
    before = answers(model)
    drop_layers(model, [0, 1, 2, 3])
    assert torch.equal(answers(model), before)


def test_the_kept_layers_are_those_that_were_named() -> None:
    model = tiny("bert")
    layers = list(encoder_layers(model))
    drop_layers(model, [1, 3])
    assert [*encoder_layers(model)] == [layers[1], layers[3]]


def test_a_second_drop_still_names_the_layers_of_the_first_model(tmp_path: Path) -> None:
    model = tiny("roberta")
    drop_layers(model, [0, 2, 3])
    model = reloaded(model, tmp_path)
    drop_layers(model, [1, 2])
    assert model.config.kept_layers == [2, 3]


def test_modernbert_keeps_each_layers_kind_of_attention() -> None:
    model = tiny("modernbert")
    kinds = list(model.config.layer_types)
    drop_layers(model, [1, 3])
    assert model.config.layer_types == [kinds[1], kinds[3]]


def test_albert_groups_drop_only_evenly(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="same number of layers from each group"):
        drop_layers(tiny("albert", num_hidden_groups=2), [0, 2, 3])
    for index, kept in enumerate(([0, 3], [2, 3], [0, 1, 2])):
        model = tiny("albert", num_hidden_groups=2)
        drop_layers(model, kept)
        assert torch.equal(answers(reloaded(model, tmp_path / str(index))), answers(model))


@pytest.mark.parametrize("kept", [[], [1, 1], [-1], [4], [2, 1]])
def test_an_illegal_list_is_refused_and_the_model_left_whole(kept: list[int]) -> None:
    model = tiny("bert")
    before = answers(model)
    with pytest.raises(RecipeError, match="each once, in ascending order"):
        drop_layers(model, kept)
    assert torch.equal(answers(model), before) and model.config.num_hidden_layers == 4


def test_a_model_without_a_stack_is_refused() -> None:
    config = transformers.CTRLConfig(vocab_size=30, n_embd=8, n_layer=2, n_head=2, dff=16)
    with pytest.raises(LimbeckError, match="CTRLModel"):
        encoder_layers(transformers.CTRLModel(config))


def test_a_round_of_the_greedy_search_tries_each_layer_that_is_left_the_topmost_first() -> None:
    assert after_a_round([0, 2, 5]) == [[0, 2], [0, 5], [2, 5]]


def test_the_search_of_the_greedy_strategy_hands_over_what_stays() -> None:
    assert kept_layers("greedy", 6, 3, [5, 0, 2]) == [0, 2, 5]
    for kept in (None, [0, 1], [0, 1, 6], [0, 0, 1]):
        with pytest.raises(RecipeError, match="needs the 3 of 6 layers that its search kept"):
            kept_layers("greedy", 6, 3, kept)


def test_strategies_that_leave_the_same_layers_are_one_training() -> None:
    from tasks.methods.layers.layer_strategies import STRATEGIES, kept_layers, namesake, undefined

    found = {
        (name, drop): namesake(name, 6, drop)
        for name in STRATEGIES
        for drop in range(1, 6)
        if not undefined(name, 6, drop)
    }
    assert {cell for cell, name in found.items() if cell[0] != name} == {("alternate-even", 1), ("symmetric", 5)}
    assert found["alternate-even", 1] == found["symmetric", 5] == "top"
    assert (
        kept_layers("alternate-even", 6, 1) == kept_layers("top", 6, 1) and found["contribution", 1] == "contribution"
    )
