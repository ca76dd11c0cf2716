"""The search over the words of a text equals ``generate`` of transformers, whatever a generation config sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tasks.errors import ModelError
from tasks.scoring.writing.beam_search import likeliest_text, words_that_repeat
from tasks.scoring.writing.rules import rules_of
from tasks.task_types.heads import HEADS
from tasks.task_types.seq2seq.models import first_token, written_ids
from tasks.task_types.units import Writing
from tests.task_types.seq2seq.tables import config_of

PIECES, ENDS = 40, 1
SOURCES = ([5, 6, 7, ENDS], [9, 8, 30, 31, 12, ENDS], [20, ENDS])


class Rereading:
    """A model that reads the whole of each text again for every word."""

    def __init__(self, model: Any, source: Sequence[int]) -> None:
        self.model, self.source, self.texts = model, torch.tensor([source]), [list[int]()]

    def next_words(self, words_K: Sequence[int]) -> np.ndarray:
        """Return the logits of the next word of each text [K, V]."""
        self.texts = [[*text, word] for text, word in zip(self.texts, words_K, strict=True)]
        ids = self.source.expand(len(self.texts), -1)
        with torch.inference_mode():
            logits = self.model(input_ids=ids, decoder_input_ids=torch.tensor(self.texts)).logits
        found: np.ndarray = logits[:, -1].numpy()
        return found

    def keep(self, texts_K: Sequence[int]) -> None:
        """Go on with copies of these texts."""
        self.texts = [self.texts[text] for text in texts_K]


@pytest.fixture(scope="module", params=[0, 1, 2])
def model(request: pytest.FixtureRequest) -> Any:
    """A translator with random weights, whose texts end at different places, and whose likeliest text is not the one
    of the likeliest words."""
    torch.manual_seed(request.param)
    made = HEADS["seq2seq"].auto_class().from_config(config_of("bart", PIECES, 1)).eval()
    with torch.no_grad():
        for value in made.parameters():
            value.mul_(2.0)
        made.final_logits_bias[0, ENDS] = 1.0
    return made


@pytest.mark.parametrize(
    ("writing", "settings"),
    [
        (Writing(1, 1.0, 12), {}),
        (Writing(2, 1.0, 12), {}),
        (Writing(5, 0.0, 12), {}),
        (Writing(5, 2.0, 12), {}),
        (Writing(4, 2.0, 9), {"bad_words_ids": [[0], [17]], "renormalize_logits": True}),
        (Writing(3, -1.0, 9), {"no_repeat_ngram_size": 2}),
        (Writing(1, 1.0, 9), {"no_repeat_ngram_size": 1}),
        (Writing(3, 1.0, 7, least=5), {"forced_bos_token_id": 22, "forced_eos_token_id": ENDS}),
        (Writing(1, 1.0, 12), {"repetition_penalty": 1.7}),
        (Writing(3, 1.0, 9), {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}),
        (Writing(2, 1.0, 9), {"eos_token_id": [ENDS, 33, 34], "suppress_tokens": [30]}),
        # a minimum of the model's own is followed by nobody, since a graph and a recipe know none
        (Writing(1, 1.0, 12), {"min_length": 12}),
        (Writing(2, 1.0, 12), {"min_new_tokens": 11}),
    ],
)
def test_texts_are_those_of_generate(model: Any, writing: Writing, settings: dict[str, Any]) -> None:
    before = model.generation_config.to_dict()
    try:
        model.generation_config.update(**settings)
        rules = rules_of(model.generation_config, first_token(model))
        for source in SOURCES:
            ids = torch.tensor([source])
            (theirs,) = written_ids(model, ids, torch.ones_like(ids), writing).tolist()
            ours = likeliest_text(Rereading(model, source), rules, writing)
            assert ours == [word for word in theirs if word not in (*rules["ends"], 0)], (source, theirs)
    finally:
        model.generation_config.update(**{name: before.get(name) for name in settings})


def test_a_setting_that_is_not_built_is_named(model: Any) -> None:
    from transformers import GenerationConfig

    with pytest.raises(ModelError, match="sets encoder_repetition_penalty, which graphs do not follow; remove it"):
        rules_of(GenerationConfig(encoder_repetition_penalty=1.2), 0)
    for setting in ({"stop_strings": ["."]}, {"max_time": 2.0}, {"penalty_alpha": 0.6}):
        with pytest.raises(ModelError, match=f"sets {[*setting][0]}, which graphs do not follow"):
            rules_of(GenerationConfig(**setting), 0)
    with pytest.raises(ModelError, match="sets bad_words_ids with several tokens"):
        rules_of(GenerationConfig(bad_words_ids=[[3, 4]]), 0)


def test_what_a_config_asks_for_beside_the_words_is_left_out(model: Any) -> None:
    """The words are those of the same model without these settings."""
    ids = torch.tensor([SOURCES[0]])
    asked = {"return_dict_in_generate": True, "output_scores": True, "num_return_sequences": 2, "do_sample": True}
    plain = written_ids(model, ids, torch.ones_like(ids), Writing(2, 1.0, 12))
    before = model.generation_config.to_dict()
    try:
        model.generation_config.update(**asked)
        assert written_ids(model, ids, torch.ones_like(ids), Writing(2, 1.0, 12)).tolist() == plain.tolist()
    finally:
        model.generation_config.update(**{name: before.get(name) for name in asked})


@pytest.mark.parametrize("setting", [{"stop_strings": ["."]}, {"penalty_alpha": 0.6}, {"num_beam_groups": 2}])
def test_a_setting_with_which_no_model_writes_is_named(model: Any, setting: dict[str, Any]) -> None:
    ids, (name,) = torch.tensor([SOURCES[0]]), setting
    before = model.generation_config.to_dict()
    try:
        model.generation_config.update(**setting)
        with pytest.raises(ModelError, match=f"of the model sets {name}, with which no model writes here; remove it"):
            written_ids(model, ids, torch.ones_like(ids), Writing(2, 1.0, 12))
    finally:
        model.generation_config.update(**{name: before.get(name)})


def test_words_that_would_repeat_a_run() -> None:
    assert words_that_repeat([1, 2, 3, 1, 2], 3) == [3] and words_that_repeat([1, 2], 3) == []
    assert words_that_repeat([1, 2], 0) == [] and words_that_repeat([1, 2], 1) == [1, 2]
