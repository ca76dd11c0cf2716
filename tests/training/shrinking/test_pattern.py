"""Real models that lose two of every four weights while they are trained, in the form that sparse tensor cores read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.sparse import _semi_structured_conversions as packing
from torch.sparse import to_sparse_semi_structured

from tasks.errors import ModelError
from tasks.methods.pruning.semi_structured import two_of_four
from tasks.training.data.rows import read_task
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.weight_pruning import matrices_of, prune_while_training
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier
from tests.training.shrinking.test_weight_pruning import job

PATTERN: dict[str, Any] = {"pattern": "2:4", "keep": 0.5}
WIDE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128}
"""Torch packs maps whose sides are multiples of 32 and 64."""
SPARSE_CORES = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
NO_CORES = "NO GPU OF COMPUTE CAPABILITY 8.0 HERE: products by sparse tensor cores were not tried"


def weights_in(folder: Path, rows: Path) -> list[Tensor]:
    """Return the matrices of the layers of a written model."""
    model = load_classifier(folder, read_task(rows, "classification"), torch.device("cpu"))
    return [matrix.weight.detach() for matrix in matrices_of(model)]


def most_in_a_group(weights: list[Tensor]) -> int:
    """Return how many weights of a group of four are not 0, at most."""
    return max(int((one.reshape(-1, 4) != 0).sum(-1).max()) for one in weights)


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    return classifier(write_tiny("bert", folder / "bert", **WIDE), rows, folder / "whole")


@pytest.fixture(scope="module")
def trained(whole: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with the pattern, after trainings steps without and with its final mask."""
    folder = tmp_path_factory.mktemp("trained")
    prune_while_training(job(folder / "made", PATTERN, start=whole, rows=rows))
    return folder / "made"


@pytest.mark.parametrize("more", [{}, {"scores": "random"}, {"scope": "matrix"}, {"begin": 0.5, "end": 1.0}])
def test_no_group_of_four_has_three_weights_after_the_training(
    more: dict[str, Any], whole: Path, rows: Path, tmp_path: Path
) -> None:
    facts = prune_while_training(job(tmp_path / "made", {**PATTERN, **more}, start=whole, rows=rows))
    assert facts["weights_left"] == facts["weights_before"] // 2
    assert str(facts["note"]).endswith(f"by {more.get('scores', 'magnitude')}, two of every four in a row")
    assert most_in_a_group(weights_in(tmp_path / "made", rows)) == 2


def test_without_the_pattern_as_many_zeros_leave_whole_groups(whole: Path, rows: Path, tmp_path: Path) -> None:
    facts = prune_while_training(job(tmp_path / "made", {"keep": 0.5}, start=whole, rows=rows))
    assert facts["weights_left"] == facts["weights_before"] // 2 and "in a row" not in str(facts["note"])
    assert most_in_a_group(weights_in(tmp_path / "made", rows)) == 4


def test_the_largest_of_each_group_stay_and_at_random_others(whole: Path, rows: Path, tmp_path: Path) -> None:
    """Weights hardly move at this rate, so those of the start say which ones are the largest."""
    still = {**PATTERN, "learning_rate": 1e-12}
    largest = [two_of_four(one.abs()) for one in weights_in(whole, rows)]
    for scores, equal in (("magnitude", True), ("random", False)):
        prune_while_training(job(tmp_path / scores, {**still, "scores": scores}, start=whole, rows=rows))
        found = [one != 0 for one in weights_in(tmp_path / scores, rows)]
        assert all(map(torch.equal, found, largest)) is equal


def test_weights_that_stay_go_on_learning(whole: Path, trained: Path, rows: Path) -> None:
    before, after = weights_in(whole, rows), weights_in(trained, rows)
    assert all(bool((new[new != 0] != old[new != 0]).any()) for old, new in zip(before, after, strict=True))


def test_torch_packs_each_matrix_without_loss(whole: Path, trained: Path, rows: Path) -> None:
    """Half of the values, and two bits for each; a matrix without the pattern comes back as another one."""
    for dense, sparse in zip(weights_in(whole, rows), weights_in(trained, rows), strict=True):
        values, places = packing.sparse_semi_structured_from_dense_cutlass(sparse.bfloat16())
        assert values.numel() == sparse.numel() // 2 and places.nbytes == values.numel() // 4
        assert torch.equal(packing.sparse_semi_structured_to_dense_cutlass(values, places), sparse.bfloat16())
        other = packing.sparse_semi_structured_from_dense_cutlass(dense.bfloat16())
        assert not torch.equal(packing.sparse_semi_structured_to_dense_cutlass(*other), dense.bfloat16())


def test_shared_layers_have_the_pattern(rows: Path, tmp_path: Path) -> None:
    start = classifier(write_tiny("albert", tmp_path / "albert"), rows, tmp_path / "whole")
    prune_while_training(job(tmp_path / "made", {**PATTERN, "steps": 3, "every": 1}, start=start, rows=rows))
    assert most_in_a_group(weights_in(tmp_path / "made", rows)) == 2


def test_rows_that_four_does_not_divide_are_refused_in_a_sentence(rows: Path, tmp_path: Path) -> None:
    start = classifier(write_tiny("bert", tmp_path / "bert", intermediate_size=30), rows, tmp_path / "whole")
    with pytest.raises(ModelError, match="a linear map of this bert has 30 inputs; use the pattern unstructured"):
        prune_while_training(job(tmp_path / "made", PATTERN, start=start, rows=rows))


@pytest.mark.skipif(not SPARSE_CORES, reason=NO_CORES)
def test_sparse_tensor_cores_give_the_same_product(trained: Path, rows: Path) -> None:
    for weight in weights_in(trained, rows):
        dense = weight.cuda().half()
        given = torch.randn(64, dense.shape[1], generator=torch.Generator().manual_seed(0)).cuda().half()
        product = torch.nn.functional.linear(given, to_sparse_semi_structured(dense))
        torch.testing.assert_close(product, torch.nn.functional.linear(given, dense), rtol=1e-2, atol=1e-2)
