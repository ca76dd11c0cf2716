"""An ALBERT of which all layers share one block, with zeros, as a ticket and in few bits: a shared matrix has one mask
and one grid, and is counted once; the folder holds equal copies of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tasks.architectures.albert import SHARED_PARTS, is_copied_part
from tasks.methods.quantization.grids import as_blocks
from tasks.methods.quantization.learned_ranges import STATED_RANGES
from tasks.scoring.predict import outputs_of
from tasks.training.models.fake_quantization import linear_maps
from tasks.training.models.snapshots import read_snapshot
from tasks.training.shrinking.quantization import train_on_grid
from tasks.training.shrinking.tickets import train_round
from tasks.training.shrinking.weight_pruning import matrices_of, prune_while_training
from tests.families import write_tiny
from tests.training.shrinking.test_quantization import job as job_of_grid
from tests.training.shrinking.test_quantization import loaded
from tests.training.shrinking.test_static_ranges import stated, trained
from tests.training.shrinking.test_tickets import IDLE
from tests.training.shrinking.test_tickets import job as job_of_ticket
from tests.training.shrinking.test_vocabulary import classifier, texts_in
from tests.training.shrinking.test_weight_pruning import job as job_of_zeros

WIDTH, INNER, LAYERS = 32, 64, 4
ATTENTION, FEED_FORWARD = 4 * WIDTH * WIDTH, 2 * WIDTH * INNER
"""Weights of the matrices of a block."""
DISTINCT = {"attention": ATTENTION + LAYERS * FEED_FORWARD, "ffn": LAYERS * ATTENTION + FEED_FORWARD}
"""Weights of all matrices of the layers, by what these share."""


@pytest.fixture(scope="module", params=list(SHARED_PARTS))
def shared(request: pytest.FixtureRequest, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What layers share, and the folder of such a classifier."""
    folder = tmp_path_factory.mktemp(request.param)
    shape = {"hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_groups": LAYERS}
    base = write_tiny("albert", folder / "albert", **shape, limbeck_sharing=request.param)
    return request.param, classifier(base, rows, folder / "whole")


def copies_and_first(folder: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return each copy that a folder holds, with the tensor of which it is one."""
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    stored = load_file(folder / "model.safetensors")
    return [
        (value, stored[f"albert.encoder.albert_layer_groups.0.{name.split('.', 4)[4]}"])
        for name, value in stored.items()
        if is_copied_part(config, name)
    ]


def require_equal_copies(folder: Path, rows: Path) -> None:
    """Copies are equal, and a program without our code gets the same answers from them."""
    copies = copies_and_first(folder)
    assert copies and all(torch.equal(*both) for both in copies)
    texts = texts_in(rows)[:4]
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        found = [
            plain(**tokenizer([text], truncation=True, max_length=32, return_tensors="pt")).logits[0] for text in texts
        ]
    ours = outputs_of(folder, texts, None, 32, task_type="classification")["logits"]
    torch.testing.assert_close(torch.stack(found), torch.from_numpy(ours), atol=1e-5, rtol=0)


@pytest.mark.parametrize("scores", ["magnitude", "movement", "soft-movement"])
def test_a_shared_matrix_has_one_mask_and_is_counted_once(
    scores: str, shared: tuple[str, Path], rows: Path, tmp_path: Path
) -> None:
    sharing, whole = shared
    facts = prune_while_training(job_of_zeros(tmp_path / "a", {"scores": scores}, start=whole, rows=rows))
    assert (facts["weights_before"], facts["weights_left"]) == (DISTINCT[sharing], DISTINCT[sharing] // 4)
    require_equal_copies(tmp_path / "a", rows)
    model = loaded(tmp_path / "a", rows)
    assert sum(int((one.weight != 0).sum()) for one in matrices_of(model)) == facts["weights_left"]


def test_two_of_every_four_weights_of_a_shared_matrix_stay(
    shared: tuple[str, Path], rows: Path, tmp_path: Path
) -> None:
    sharing, whole = shared
    knobs = {"pattern": "2:4", "keep": 0.5, "scores": "magnitude"}
    facts = prune_while_training(job_of_zeros(tmp_path / "a", knobs, start=whole, rows=rows))
    assert facts["weights_left"] == DISTINCT[sharing] // 2
    require_equal_copies(tmp_path / "a", rows)
    for one in matrices_of(loaded(tmp_path / "a", rows)):
        assert set((one.weight != 0).unflatten(1, (-1, 4)).sum(-1).flatten().tolist()) == {2}


def test_a_ticket_of_a_shared_matrix_begins_with_its_early_weights(
    shared: tuple[str, Path], rows: Path, tmp_path: Path
) -> None:
    sharing, whole = shared
    train_round(job_of_ticket(tmp_path / "dense", {"rewind_to": 2}, start=whole, rows=rows))
    given = {"start": whole, "dense": tmp_path / "dense", "before": tmp_path / "dense", "rows": rows}
    facts = train_round(job_of_ticket(tmp_path / "ticket", {**IDLE, "rewind_to": 2}, **given))
    assert (facts["weights_before"], facts["weights_left"]) == (DISTINCT[sharing], DISTINCT[sharing] // 4)
    early, trained_ones = read_snapshot(tmp_path / "dense", "rewound"), loaded(tmp_path / "dense", rows).state_dict()
    for name, value in loaded(tmp_path / "ticket", rows).state_dict().items():
        there, own = value != 0, early if name.startswith("albert.") else trained_ones
        assert torch.equal(value[there], own[name][there]), name
    require_equal_copies(tmp_path / "ticket", rows)


@pytest.mark.parametrize(("bits", "values"), [(2, 4), ("ternary", 3)])
def test_a_shared_matrix_has_one_grid(
    bits: Any, values: int, shared: tuple[str, Path], rows: Path, tmp_path: Path
) -> None:
    sharing, whole = shared
    train_on_grid(job_of_grid(tmp_path / "a", {"format": "four-bit", "bits": bits}, start=whole, rows=rows))
    require_equal_copies(tmp_path / "a", rows)
    model = loaded(tmp_path / "a", rows)
    assert sum(one.weight.numel() for one in matrices_of(model)) == DISTINCT[sharing]
    for one in linear_maps(model, "four-bit"):
        blocks = as_blocks(one.weight.detach()).flatten(0, -2)
        assert max(len(block.unique()) for block in blocks) <= values


def test_a_shared_matrix_has_one_range_for_all_that_it_reads(
    shared: tuple[str, Path], rows: Path, tmp_path: Path
) -> None:
    trained(tmp_path / "a", shared[1], rows)
    require_equal_copies(tmp_path / "a", rows)
    model = loaded(tmp_path / "a", rows)
    assert len(stated(tmp_path / "a")) == len(linear_maps(model, "int8"))
    assert getattr(model.config, STATED_RANGES) == stated(tmp_path / "a")
