"""The formula, the count and the literature agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.architectures.known_architectures import architecture_of
from tasks.scoring.speed.counted_products import further_products
from tasks.scoring.speed.flops import counted_flops, flops_of, forward_flops, parameters_of, read_config, weight_bytes
from tests.scoring.small import write_classifier

KIND = "classification"
BERT = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100}
DISTILBERT = {"dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 96, "vocab_size": 100}
FAMILIES = {
    "bert": BERT,
    "roberta": BERT,
    "mpnet": BERT,
    "distilbert": DISTILBERT,
    "albert": BERT | {"embedding_size": 16},
    "electra": BERT | {"embedding_size": 16},
}


def write_config(family: str, folder: Path, **values: int) -> Path:
    """Write a config folder of one family."""
    from transformers import AutoConfig

    AutoConfig.for_model(family, **values).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_the_formula_is_the_count(family: str, tmp_path: Path) -> None:
    folder = write_config(family, tmp_path, **FAMILIES[family])
    assert architecture_of({"model_type": family}).plain and forward_flops(read_config(folder), 24) == pytest.approx(
        counted_flops(folder, 24, KIND), rel=0.01
    )


def test_what_the_formula_does_not_know_is_counted(tmp_path: Path) -> None:
    """MobileBERT's bottlenecks cost little more than half of what its width suggests."""
    folder = write_config("mobilebert", tmp_path, num_hidden_layers=2, vocab_size=100)
    assert flops_of(folder, 24, KIND) == counted_flops(folder, 24, KIND) < 0.7 * forward_flops(read_config(folder), 24)


def test_a_head_over_a_vocabulary_counts(tmp_path: Path) -> None:
    """Its product alone is 2 T V D; the formula of a plain encoder had left it out."""
    folder = write_config("bert", tmp_path, **BERT | {"vocab_size": 5000, "mask_token_id": 4})
    encoder, found = flops_of(folder, 24, KIND), flops_of(folder, 24, "masked-words")
    assert found == counted_flops(folder, 24, "masked-words")
    assert found == pytest.approx(encoder + 2 * 24 * 48 * (5000 + 48), rel=0.01)


@pytest.mark.parametrize(
    ("mixer", "products"),
    [
        ("dynamic", 2 * 30 * 24 * 48),  # one of 31 places after the first, of each token and channel
        ("synth-dense-factorized", 4 * 24 * 5 * 5),  # by head and token, for 25 places where 24 are asked for
    ],
)
def test_products_that_are_no_matrix_products_count(mixer: str, products: int, tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForSequenceClassification

    from tasks.modeling.configuration import LimbeckEncoderConfig
    from tasks.modeling.registration import register_classes

    register_classes()
    config = LimbeckEncoderConfig(**BERT | {"max_position_embeddings": 24, "num_hidden_layers": 1}, mixer=mixer)
    config.mixer_kernels = [31]
    config.save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    ids_BT = torch.ones(1, 24, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
    with FlopCounterMode(display=False, custom_mapping=further_products()) as every, torch.inference_mode():
        model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
    assert every.get_total_flops() - counter.get_total_flops() == products
    assert flops_of(tmp_path, 22, KIND) > 0


def test_parameters_and_bytes_are_those_of_the_model(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    folder = write_classifier(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert parameters_of(folder) == sum(weight.numel() for weight in model.parameters())
    assert weight_bytes(folder) == pytest.approx(4 * parameters_of(folder), rel=0.3)
