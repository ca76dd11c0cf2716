"""Asking a finished model: the same answer alone and in company, and no answer from a model that has none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification

from tasks.architectures.judged_inputs import write_judged_inputs
from tasks.architectures.known_architectures import longest
from tasks.errors import DataError, ModelError
from tasks.scoring.predict import predict_texts, truncated_share
from tests.families import tiny_tokenizer
from tests.scoring.small import logits_of, sentences, write_classifier


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("classifier"))


def test_an_answer_does_not_depend_on_its_company(folder: Path) -> None:
    texts = sentences(150)
    together_NC = logits_of(folder, texts, None, 32)
    alone_NC = np.concatenate([logits_of(folder, [text], None, 32) for text in texts[:12]])
    assert together_NC[:12] == pytest.approx(alone_NC, abs=1e-4) and np.ptp(together_NC[:, 0]) > 0.1


def test_a_decoder_without_a_token_to_pad_with_reads_rows_one_by_one(tmp_path: Path) -> None:
    """A folder of the user's: as of GPT-2, neither its tokenizer nor its config knows a token to pad with."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer("roberta")
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "num_labels": 2}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **sizes)
    model = GPT2ForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    texts = ["the film was good", "bad", "the plot of the film was bad"]
    with torch.inference_mode():
        expected = [model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1).max() for text in texts]
    answers = predict_texts(tmp_path, texts)
    assert [answer["score"] for answer in answers] == pytest.approx([float(one) for one in expected], abs=1e-6)


def test_rows_keep_their_order(folder: Path) -> None:
    texts = sentences(100)
    assert logits_of(folder, texts[::-1], None, 32)[::-1] == pytest.approx(logits_of(folder, texts, None, 32), abs=1e-4)


def test_the_second_text_counts(folder: Path) -> None:
    one, other = (logits_of(folder, ["the film"], [pair], 32) for pair in ("was good", "was bad"))
    assert np.abs(one - other).max() > 1e-3


def test_a_model_is_asked_for_as_many_texts_as_it_has_learned_from(folder: Path, tmp_path: Path) -> None:
    """A classifier of pairs answered one text alone, by a label that looked like any other."""
    asked: dict[bool | None, Path] = {None: folder}  # a checkpoint that states nothing reads what it is given
    for pairs in (True, False):
        asked[pairs] = tmp_path / str(pairs)
        shutil.copytree(folder, asked[pairs])
        write_judged_inputs(asked[pairs], asked[pairs], length=16, pairs=pairs)
    for pairs in (True, None):
        assert predict_texts(asked[pairs], ["the film"], ["was good"], 16)
    for pairs in (False, None):
        assert predict_texts(asked[pairs], ["the film"], None, 16)
    with pytest.raises(DataError, match="from pairs of texts, and one text is given; name the second one by --pair"):
        predict_texts(asked[True], ["the film"])
    with pytest.raises(DataError, match="from single texts, and two are given; name one column by --text"):
        predict_texts(asked[False], ["the film"], ["was good"])


def test_a_text_longer_than_the_model_is_cut_not_a_crash(folder: Path) -> None:
    text = "good " * 10_000
    assert np.isfinite(logits_of(folder, [text], None, 128)).all()
    assert truncated_share(folder, [text, "good"], None, 128) == 0.5
    assert (
        truncated_share(folder, ["good " * 31, "good " * 30], None, 128) == 0.5
    )  # 32 positions, two of them taken by [CLS] and [SEP]


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    """transformers would fill the head with random numbers and only warn."""
    from tests.tiny import write_tiny_bert

    with pytest.raises(ModelError, match="lacks the weights .*fine-tuned"):
        predict_texts(write_tiny_bert(tmp_path), ["good"])


def test_a_diverged_model_is_refused(folder: Path, tmp_path: Path) -> None:
    """The class of NaN is 0: a broken model would get a score."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    model.classifier.bias.data.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="not finite"):
        logits_of(tmp_path, ["good"], None, 32)


def test_labels_and_values_for_people(folder: Path, tmp_path: Path) -> None:
    first = predict_texts(folder, ["good", "bad"])[0]
    assert first["label"] in ("LABEL_0", "LABEL_1") and 0.5 <= first["score"] <= 1
    assert list(predict_texts(write_classifier(tmp_path, num_labels=1), ["good"])[0]) == ["value"]


def test_roberta_keeps_two_positions_for_itself() -> None:
    from transformers import BertConfig, RobertaConfig

    assert longest(RobertaConfig(max_position_embeddings=514, pad_token_id=1), 1000) == 512
    assert longest(BertConfig(max_position_embeddings=512), 1000) == 512 and longest(BertConfig(), 8) == 8
