"""Models whose last map is also their table of embeddings, in few bits: what is trained is what is saved and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tasks.training.models.fake_quantization import FakeQuantization
from tests.families import write_tiny

GRIDS = [("int8", "8"), ("int8-table4", "8"), ("four-bit", "4"), ("four-bit", "2"), ("four-bit", "ternary")]
IDS_BT = torch.tensor([[2, 9, 12, 30, 7, 3]])


@pytest.fixture
def finder(tmp_path: Path) -> Any:
    """An encoder that finds hidden words, with weights that lie on no grid."""
    torch.manual_seed(0)
    model = transformers.AutoModelForMaskedLM.from_pretrained(write_tiny("bert", tmp_path / "bert")).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    return model


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=IDS_BT, attention_mask=torch.ones_like(IDS_BT)).logits
    return logits


@pytest.mark.parametrize(("served_as", "codes"), GRIDS)
def test_a_tied_map_is_trained_as_it_is_saved(served_as: str, codes: str, finder: Any, tmp_path: Path) -> None:
    trained = FakeQuantization(finder, served_as, codes)
    in_training, weight_VD = logits_of(finder), finder.cls.predictions.decoder.weight.detach().clone()
    trained.finish()
    finder.save_pretrained(tmp_path / "saved")
    saved = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    decoder, table = saved.get_output_embeddings(), saved.get_input_embeddings()
    assert decoder.weight is table.weight
    FakeQuantization(saved, served_as, codes)
    assert torch.allclose(decoder.weight, weight_VD, atol=1e-6)
    if served_as != "four-bit":  # learned steps of other matrices are found again by their graph alone
        assert torch.allclose(logits_of(saved), in_training, atol=1e-4)


def test_a_tied_map_learns_through_its_grid(finder: Any) -> None:
    FakeQuantization(finder, "four-bit", "2")
    finder(input_ids=IDS_BT, labels=IDS_BT).loss.backward()
    assert float(finder.get_input_embeddings().weight.grad.abs().sum()) > 0
