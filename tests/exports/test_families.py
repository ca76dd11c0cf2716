"""Every family of encoders as a graph: the same answers as its checkpoint, alone and padded, on the side where the
family pads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import tied
from tests.exports.test_exports import EXPORT, QUANTIZE, do, write_rows
from tests.exports.test_four_bits import FORMATS_OF_FOUR_BITS
from tests.families import NAMES, write_tiny
from tests.scoring.small import logits_of, sentences


def write_family(name: str, folder: Path, **changes: int) -> Path:
    """Write a random classifier of a family, as a stage would leave it."""
    base = write_tiny(name, folder / "base", **changes)
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(base)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    tied(model).save_pretrained(folder / "model")
    load_tokenizer(base).save_pretrained(folder / "model")
    return folder / "model"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "xlnet" else [pytest.mark.slow]) for name in NAMES]
)
def test_a_family_answers_as_its_checkpoint(name: str, tmp_path: Path) -> None:
    fewer = {"n_layer": 2} if name == "xlnet" else {}  # the time of a trace grows with the layers
    model, rows = write_family(name, tmp_path, **fewer), write_rows(tmp_path / "rows", train=20, selection=20)
    found = do("export", tmp_path / "full" / "output", EXPORT, model=model, rows=rows)
    assert found["made"] and found["largest_difference"] < 1e-4 and found["equal_answers"] == 1
    texts = sentences(24)
    assert logits_of(tmp_path / "full" / "output", texts, None, 32) == pytest.approx(
        logits_of(model, texts, None, 32), abs=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_quantized_to_eight_and_four_bits(name: str, tmp_path: Path) -> None:
    # MobileBERT's tiny matrices are so many and so small that their scales and nodes take more than their bits save.
    room = 1.25 if name == "mobilebert" else 1
    model, rows = write_family(name, tmp_path), write_rows(tmp_path / "rows", train=20, selection=20)
    found = do("export", tmp_path / "full" / "output", EXPORT, model=model, rows=rows)
    small = do("quantize", tmp_path / "small" / "output", QUANTIZE, export=tmp_path / "full" / "output", rows=rows)
    assert small["made"] and all("loss" in way for way in small["ways"].values())
    assert small["bytes"] < room * found["bytes"]
    for name, ways in FORMATS_OF_FOUR_BITS.items():
        given = {"export": tmp_path / "full" / "output", "rows": rows}
        small = do("quantize-to-four-bits", tmp_path / name / "output", QUANTIZE | {"ways": ways}, **given)
        assert small["made"] and all("loss" in way for way in small["ways"].values()), small
        assert small["bytes"] < room * found["bytes"]
