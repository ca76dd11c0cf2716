"""A batch carries its epoch: whatever is planned meanwhile, it is read as the text that it was planned for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tasks.task_types.heads import HEADS
from tasks.training.data import augmented_rows
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.encoded import Encoded, encode
from tasks.training.data.epochs import Epoch, Epochs, Indices, planned
from tasks.training.data.rows import load_tokenizer, read_rows

KNOBS = SimpleNamespace(batch_size=8, batch_tokens=4096, seed=0)


@pytest.fixture(scope="module")
def varied(rows: Path, tiny_bert: Path) -> AugmentedRows:
    """Rows of which half have other words in each epoch."""
    train = read_rows(rows, "train", HEADS["classification"])
    candidates = {
        (int(number), "text"): (text.split(), [["fine", "good", "song"] for _ in text.split()])
        for number, text in zip(train.ids_N, train.texts, strict=True)
    }
    sampling = SimpleNamespace(share=0.5, probability=0.5)
    return AugmentedRows(train, load_tokenizer(tiny_bert), 16, 0, sampling, candidates)


def test_an_epochs_text_does_not_depend_on_what_was_planned_before(varied: AugmentedRows) -> None:
    first, variants = varied.at(1)
    varied.at(2)
    again, same = varied.at(1)
    assert variants is not None and same is not None and variants.texts == same.texts
    assert np.array_equal(first.ids_S, again.ids_S) and not np.array_equal(first.ids_S, varied.at(2)[0].ids_S)
    changed = np.asarray([ours != text for ours, text in zip(variants.texts, varied.rows.texts, strict=True)])
    assert np.array_equal(changed, variants.changed_N) and 0 < changed.sum() < len(changed)


def test_only_variants_are_tokenized_anew_and_the_tokens_are_the_same(
    varied: AugmentedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = replace(varied)
    assert len(fresh.encoded.ids_S)
    seen: list[int] = []
    monkeypatch.setattr(augmented_rows, "encode", lambda *given: seen.append(len(given[1])) or encode(*given))
    for number in range(3):
        found, variants = fresh.at(number)
        assert variants is not None and seen.pop() == variants.changed_N.sum() and not seen
        whole = encode(varied.tokenizer, variants.texts, variants.pairs, 16)
        for name in ("ids_S", "segments_S", "offsets"):
            ours, theirs = getattr(found, name), getattr(whole, name)
            assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype


def test_a_batch_knows_which_of_its_rows_were_changed(varied: AugmentedRows) -> None:
    encoded, variants = varied.at(3)
    epoch = planned(3, encoded, KNOBS, variants=variants)
    assert variants is not None and sum(map(len, epoch.batches)) == len(varied.rows)
    for rows_B in epoch.batches:
        expected = [at for at, row in enumerate(rows_B) if variants.texts[row] != varied.rows.texts[row]]
        assert Indices(epoch, rows_B).changed().tolist() == expected
    assert not len(Indices(replace(epoch, variants=None), epoch.batches[0]).changed())


def test_rows_without_substitutes_are_encoded_once(varied: AugmentedRows) -> None:
    plain = replace(varied, candidates={})
    (first, none), (second, _) = plain.at(0), plain.at(1)
    assert none is None and first is second, "one array of tokens: the rows of an embedding are looked for once"


@pytest.mark.parametrize("ahead", [False, True])
def test_steps_find_their_batches_epoch_by_epoch(ahead: bool) -> None:
    text = Encoded(np.zeros(6), np.zeros(6), np.arange(7))
    planned_epochs: list[int] = []

    def epoch(number: int) -> Epoch:
        planned_epochs.append(number)
        return Epoch(number, text, [np.asarray([number, at]) for at in range(number + 1)])

    epochs = Epochs(epoch, ahead=ahead)
    with epochs:
        found = [epochs.at(step, 6) for step in (0, 1, 2, 4, 5)]
    assert planned_epochs == [0, 1, 2], "each is planned once, and none that has no step"
    assert [(one.epoch.number, *one.rows_B.tolist()) for one in found] == [
        (0, 0, 0),
        (1, 1, 0),
        (1, 1, 1),
        (2, 2, 1),
        (2, 2, 2),
    ]
    assert planned_epochs == [0, 1, 2] and epochs.current is found[-1].epoch
