"""Hidden tokens: which they are, that no model sees them, and that all readers of a text hide the same ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertForMaskedLM

from tasks.errors import ModelError
from tasks.scoring.windows import outputs_of_checkpoint_units
from tasks.task_types.masked_words.hidden import HIDDEN_TOKENS, drawn_tokens
from tasks.task_types.masked_words.models import AutoModelForMaskedLM
from tasks.task_types.next_words.document import LIKELIHOOD, NATS
from tasks.task_types.units import hidden_id
from tasks.training.data.encoded import encode_windows
from tests.task_types.masked_words.tables import documents, write_encoder


def loaded(folder: Path) -> tuple[Any, Any]:
    return AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def test_a_text_always_has_the_same_hidden_tokens_and_some_share_of_them() -> None:
    found = [drawn_tokens(text, 200) for text in documents(50)]
    assert all((one == drawn_tokens(text, 200)).all() for one, text in zip(found, documents(50), strict=True))
    assert 0.13 < np.mean(found) < 0.17
    assert len({one.tobytes() for one in found}) == 50  # each text has its own
    assert drawn_tokens("a", 0).tolist() == [] and drawn_tokens("a", 1).tolist() == [True]
    assert all(drawn_tokens(text, 2).any() for text in documents(50))


def test_each_token_stands_once_and_those_of_windows_are_those_of_the_text(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(write_encoder(tmp_path / "encoder"))
    texts = documents(6)
    narrow, wide = (encode_windows(tokenizer, texts, length, HIDDEN_TOKENS) for length in (12, 500))
    for encoded in (narrow, wide):
        assert encoded.windows is not None and encoded.windows.unit_S is not None
        assert ((encoded.ids_S < 0) == (encoded.windows.unit_S >= 0)).all()
        own = np.where(encoded.ids_S < 0, hidden_id(encoded.ids_S), encoded.ids_S)
        special = np.isin(own, tokenizer.all_special_ids)
        assert not (special & (encoded.ids_S < 0)).any()
    assert len(narrow.offsets) > len(wide.offsets)
    plain = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
    assert [one for ids in plain for one in ids] == [
        one
        for one in np.where(narrow.ids_S < 0, hidden_id(narrow.ids_S), narrow.ids_S).tolist()
        if one not in tokenizer.all_special_ids
    ]
    assert narrow.ids_S[narrow.ids_S < 0].tolist() == wide.ids_S[wide.ids_S < 0].tolist()


def test_likelihoods_equal_those_of_the_plain_model_whose_tokens_are_masked(tmp_path: Path) -> None:
    folder, text = write_encoder(tmp_path / "encoder"), documents(1)[0]
    model, tokenizer = loaded(folder)
    found = outputs_of_checkpoint_units(model, tokenizer, [text], [NATS], 500, HIDDEN_TOKENS, together=1)
    given = tokenizer(text, return_tensors="pt")
    ids = given["input_ids"][0].clone()
    at = torch.from_numpy(np.flatnonzero(np.r_[False, drawn_tokens(text, len(ids) - 2), False]))
    given["input_ids"][0, at] = tokenizer.mask_token_id
    with torch.inference_mode():
        logp = BertForMaskedLM.from_pretrained(folder).eval()(**given).logits[0].log_softmax(-1)
    expected = -logp[at, ids[at]]
    np.testing.assert_allclose(found[NATS][0], expected.numpy(), rtol=1e-5)
    nats, tokens = found[LIKELIHOOD][0].split()
    assert float(nats) == pytest.approx(float(expected.sum()), rel=1e-5) and int(tokens) == len(at)


def test_the_hidden_word_changes_nothing_that_a_model_sees(tmp_path: Path) -> None:
    model, tokenizer = loaded(write_encoder(tmp_path / "encoder"))
    ids = tokenizer("the good film", return_tensors="pt")["input_ids"]
    both = ids.repeat(2, 1)
    both[:, 2] = hidden_id(torch.tensor([int(ids[0, 2]), int(ids[0, 3])]))
    with torch.inference_mode():
        one, other = model(input_ids=both, attention_mask=torch.ones_like(both)).logits[0]
    assert torch.equal(one, other)


def test_a_tokenizer_without_a_mask_is_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match="no token for a hidden word"):
        AutoModelForMaskedLM.from_pretrained(folder)


@pytest.mark.parametrize("learns", [True, False])
def test_logits_of_hidden_tokens_alone_are_those_among_all(
    learns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = loaded(write_encoder(tmp_path / "encoder"))
    torch.manual_seed(0)
    ids = torch.randint(5, 60, (3, 9))
    is_hidden = torch.rand(3, 9) < 0.3
    given = {"input_ids": torch.where(is_hidden, hidden_id(ids), ids), "attention_mask": torch.ones_like(ids)}
    model.train(learns)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    alone = model(**given)
    monkeypatch.setattr("tasks.task_types.masked_words.models.hidden_places", lambda is_hidden: None)
    whole = model(**given)
    assert alone.logits.shape[:2] == (1, int(is_hidden.sum())) and whole.logits.shape[:2] == (3, 9)
    torch.testing.assert_close(alone.logits[0], whole.logits[is_hidden])
    if not learns:
        torch.testing.assert_close(alone[NATS][is_hidden], whole[NATS][is_hidden])
        assert not alone[NATS][~is_hidden].any()
    gradients = []
    for logits in (alone.logits[0], whole.logits[is_hidden]):
        model.zero_grad()
        logits.square().sum().backward()
        gradients.append([value.grad.clone() for value in model.parameters() if value.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
