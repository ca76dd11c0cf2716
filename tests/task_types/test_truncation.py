"""Truncation of pairs: the question stays whole, in training, in a checkpoint and in an export alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.scoring.onnx_models import OnnxModel
from tasks.task_types.texts.truncation import (
    STATED_TRUNCATION,
    batch_of,
    cut_pairs,
    state_truncation,
    stated_truncation,
)
from tasks.training.data.encoded import encode
from tasks.training.data.rows import load_tokenizer

LONG, SHORT = "the film was very good and the song was bad", "was it good"
MOST = 10


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """A model's folder whose tokenizer states that the first text alone is cut."""
    from transformers import AutoConfig

    AutoConfig.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    load_tokenizer(tiny_bert, "first").save_pretrained(tmp_path)
    return tmp_path


def pieces(tokenizer: Any, text: str, pair: str) -> tuple[int, int]:
    """Return how many pieces of each text are left."""
    (segments,) = cut_pairs(tokenizer, [text], [pair], max_length=MOST, return_token_type_ids=True)["token_type_ids"]
    return segments.count(0) - 2, segments.count(1) - 1


def test_only_the_named_text_is_cut(tiny_bert: Path) -> None:
    tokenizer = load_tokenizer(tiny_bert)
    long = "good film good song good plot good"
    assert pieces(tokenizer, LONG, long) == (4, 3)  # the usual way cuts both
    assert pieces(state_truncation(tokenizer, "first"), LONG, SHORT) == (4, 3)
    assert pieces(state_truncation(tokenizer, "second"), SHORT, LONG) == (3, 4)
    assert pieces(tokenizer, "good", LONG) == (1, 6)


def test_a_question_that_fills_the_input_is_cut_the_usual_way(tiny_bert: Path) -> None:
    tokenizer = load_tokenizer(tiny_bert, "first")
    assert pieces(tokenizer, "film film", "was it good bad fine poor") == (1, 6)
    assert pieces(tokenizer, LONG, LONG) == (3, 4)


def test_a_saved_tokenizer_states_it_to_every_later_reader(folder: Path, tiny_bert: Path) -> None:
    assert stated_truncation(load_tokenizer(folder)) == "only_first"
    assert stated_truncation(load_tokenizer(folder, "longest")) is None
    assert STATED_TRUNCATION not in load_tokenizer(tiny_bert).init_kwargs


def test_training_checkpoint_and_export_see_the_same_tokens(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    texts, pairs = [LONG, LONG, "good", LONG], [SHORT, LONG, LONG, "it"]
    encoded = encode(tokenizer, texts, pairs, MOST)
    trained = np.split(encoded.ids_S, encoded.offsets[1:-1])
    batch = batch_of(tokenizer, texts, pairs, max_length=MOST, tensors="np")
    graph = OnnxModel.__new__(OnnxModel)
    from tokenizers import Tokenizer

    graph.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    graph.tokenizer.no_padding()
    pad = {"id": tokenizer.pad_token_id, "token": tokenizer.pad_token, "type_id": 0, "side": "right"}
    graph.card = {"positions": None, "pad": pad, "truncation": "only_first", "inputs": ["input_ids", "attention_mask"]}  # type: ignore[typeddict-item]
    exported = graph.encode(texts, pairs, MOST)
    for row, ids in enumerate(trained):
        assert batch["input_ids"][row][batch["attention_mask"][row] == 1].tolist() == ids.tolist()
        assert exported["input_ids"][row][exported["attention_mask"][row] == 1].tolist() == ids.tolist()
    assert [len(ids) for ids in trained] == [MOST, MOST, MOST, MOST]
