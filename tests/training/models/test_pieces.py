"""Models that answer about a vocabulary, with some of its pieces: the logits of these are what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.errors import ModelError
from tasks.training.models.pieces import keep_pieces
from tests.families import write_tiny
from tests.task_types.next_words.tables import write_decoder


def loaded(name: str, folder: Path) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    if name in ("llama", "gpt2"):
        return AutoModelForCausalLM.from_pretrained(write_decoder(folder, name)).eval()
    return AutoModelForMaskedLM.from_pretrained(write_tiny(name, folder)).eval()


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "roberta", "distilbert", "electra"])
def test_logits_of_the_kept_pieces_are_what_they_were(name: str, tmp_path: Path) -> None:
    model = loaded(name, tmp_path / name)
    count = model.config.vocab_size
    kept = [*range(6), *range(10, count, 2)]
    ids = torch.tensor([[2, 10, 12, 3]])
    with torch.no_grad():
        for _, value in model.named_parameters():
            value.add_(torch.randn_like(value) * 0.1)
        before = model(input_ids=ids).logits
        keep_pieces(model, kept)
        numbers = torch.tensor([[kept.index(int(one)) for one in ids[0]]])
        assert torch.equal(model(input_ids=numbers).logits, before[..., kept])
        model.save_pretrained(tmp_path / "smaller")
        again = type(model).from_pretrained(tmp_path / "smaller").eval()
        assert torch.equal(again(input_ids=numbers).logits, before[..., kept])
    tied = again.get_output_embeddings().weight is again.get_input_embeddings().weight
    assert tied == (name != "llama") and again.config.vocab_size == len(kept)


def test_a_further_table_of_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a model of type mobilebert has a further table of its vocabulary"):
        keep_pieces(loaded("mobilebert", tmp_path / "mobilebert"), range(12))


def test_a_decoder_of_fewer_pieces_still_knows_its_end(tmp_path: Path) -> None:
    """The settings by which it writes kept the old number, so it never stopped."""
    model = loaded("gpt2", tmp_path / "gpt2")
    old, last = model.config.vocab_size - 1, model.config.vocab_size - 3
    model.config.eos_token_id, model.generation_config.eos_token_id = old, [old, last]
    kept = [0, 1, 2, 3, last, old]
    keep_pieces(model, kept)
    assert model.config.eos_token_id == 5 and model.generation_config.eos_token_id == [5, 4]
    model.save_pretrained(tmp_path / "smaller")
    assert type(model).from_pretrained(tmp_path / "smaller").generation_config.eos_token_id == [5, 4]
