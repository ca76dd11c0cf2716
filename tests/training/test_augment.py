"""Substitutes are words, whatever a vocabulary calls them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tasks.errors import ModelError
from tasks.training.augment import by_masked_lm, places_of, word_mark
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import freeze, load_masked_lm
from tests.families import AS_ROBERTA, NAMES, write_tiny
from tests.tiny import WORDS

CPU = torch.device("cpu")
SENTENCE = "the film was good and the plot was poor"
KNOBS = SimpleNamespace(mode="masked", context="alone", options=5, precision="fp32", max_length=32)


def write_byte_roberta(folder: Path) -> Path:
    """Write a random RoBERTa whose tokenizer counts bytes, as the real one's does."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    named = {"special_tokens": [*AS_ROBERTA.values()], "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    made.train_from_iterator([" ".join(["", *WORDS])] * 9, trainers.BpeTrainer(vocab_size=500, **named))
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **AS_ROBERTA)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "initializer_range": 0.5,
        "type_vocab_size": 1,
    }
    transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)
    ).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("mode", ["masked", "one-pass"])
def test_words_of_a_byte_vocabulary_are_found_in_their_place_and_lose_their_mark(tmp_path: Path, mode: str) -> None:
    folder = write_byte_roberta(tmp_path)
    tokenizer = load_tokenizer(folder)
    assert word_mark(tokenizer) == "\u0120"
    places = list(places_of(SENTENCE, tokenizer, 32))
    whole = tokenizer(SENTENCE)["input_ids"]
    assert [
        (place.word, tokenizer.convert_ids_to_tokens(whole[place.token])) for place in places if place.token >= 0
    ] == [(1, "\u0120film"), (3, "\u0120good"), (6, "\u0120plot"), (8, "\u0120poor")]
    knobs = SimpleNamespace(**KNOBS.__dict__ | {"mode": mode, "options": 60})
    found = by_masked_lm(freeze(load_masked_lm(folder, CPU)), places, tokenizer, knobs, lambda *told, **named: None)
    options = [option for several in found.values() for option in several]
    assert len(options) >= 8 and all(
        option.isascii() and f"\u0120{option}" in tokenizer.get_vocab() for option in options
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "xlnet"])
def test_every_family_but_xlnet_gives_words(name: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_tiny(name, tmp_path))
    places = [place for place in places_of(SENTENCE, tokenizer, 32) if place.token >= 0]
    found = by_masked_lm(freeze(load_masked_lm(tmp_path, CPU)), places, tokenizer, KNOBS, lambda *told, **named: None)
    assert word_mark(tokenizer) == "" and len(found) == len(places) == 4 and all(several for several in found.values())


def test_a_model_without_a_head_for_words_is_refused(tmp_path: Path) -> None:
    folder = write_tiny("electra", tmp_path)
    transformers.AutoModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(ModelError, match="has no masked-LM head .generator_.* is missing"):
        load_masked_lm(folder, CPU)
