"""How many numbers about a vocabulary are there at once: few windows of long documents, and the same figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.scoring import predict, windows
from tasks.task_types.common_head import words_at_a_token
from tasks.training.data.batches import tokens_at_once, without_gradients
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import load_encoder
from tests.families import write_tiny
from tests.task_types.next_words.tables import documents, write_decoder

CPU = torch.device("cpu")


def outputs_and_largest(folder: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, int]:
    """Return the likelihoods of texts, and the most numbers that a call returned about the vocabulary."""
    model, tokenizer = predict.load(folder, "next-words")
    seen: list[int] = []
    model.get_output_embeddings().register_forward_hook(lambda module, given, out: seen.append(out.numel()))
    with monkeypatch.context() as patch:
        patch.setattr(predict, "load", lambda *given: (model, tokenizer))
        found = predict.outputs_of(folder, texts, None, 16, task_type="next-words")
    return found["likelihood"], max(seen)


def test_long_documents_are_read_in_few_windows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, texts = write_decoder(tmp_path / "decoder"), [" ".join(documents(12)), *documents(3)]
    load_tokenizer(decoder).save_pretrained(decoder)  # as a stage saves it, with a token that pads
    whole, most = outputs_and_largest(decoder, texts, monkeypatch)
    words = words_at_a_token(predict.load(decoder, "next-words")[0])
    monkeypatch.setattr(windows, "NUMBERS_AT_ONCE", 3 * 16 * words)
    bounded, least = outputs_and_largest(decoder, texts, monkeypatch)
    assert least <= 3 * 16 * words < most
    monkeypatch.setattr(windows, "NUMBERS_AT_ONCE", 1)
    single, one = outputs_and_largest(decoder, texts, monkeypatch)
    assert one == 16 * words, "a window is read whole"
    for other in (bounded, single):
        nats = [[float(value) for value in text.split()] for found in (whole, other) for text in found]
        np.testing.assert_allclose(nats[: len(texts)], nats[len(texts) :], rtol=1e-6)


def test_a_pass_of_a_training_reads_fewer_tokens_where_each_has_many_words(tmp_path: Path) -> None:
    lengths_N = np.full(40, 512)
    assert max(len(batch) for batch in without_gradients(lengths_N, CPU)) == 16_384 // 512
    batches = without_gradients(lengths_N, CPU, 8_000)
    assert max(len(batch) for batch in batches) == 2**25 // 8_000 // 512 and sum(map(len, batches)) == 40
    assert [len(batch) for batch in without_gradients(lengths_N, CPU, 10**9)] == [1] * 40
    assert [tokens_at_once(8192, CPU, words) for words in (1, 4096, 32_768)] == [8192, 8192, 1024]
    assert words_at_a_token(load_encoder(write_tiny("bert", tmp_path / "bert"), CPU)) == 1
