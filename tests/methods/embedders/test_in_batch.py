"""Queries that find their passage among those of the batch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.methods.embedders.in_batch import SCALE, in_batch_loss
from tasks.task_types.heads import HEADS
from tasks.task_types.retrieval.head import pair_targets


def of_texts(vectors_BD: Tensor, texts: list[str], marks: list[float | None]) -> Tensor:
    """Return the loss of rows of the type retrieval."""
    targets_B = torch.from_numpy(pair_targets(texts, marks))
    return HEADS["retrieval"].label_loss({"sentence_embedding": vectors_BD}, targets_B).mean()


def test_three_pairs_by_hand() -> None:
    """With unit vectors of a plane, cosines are those of the angles between them."""
    angles = torch.tensor([0.0, 20.0, 15.0, 40.0, 60.0, 30.0]).deg2rad()
    vectors_BD = 3.0 * torch.stack([angles.cos(), angles.sin()], -1)
    found = of_texts(vectors_BD, ["q", "p", "r", "s", "t", "u"], [1.0] * 6)
    each = []
    for query, own in ((0, 20), (15, 40), (60, 30)):
        scores = [20.0 * math.cos(math.radians(query - passage)) for passage in (20, 40, 30)]
        right = 20.0 * math.cos(math.radians(query - own))
        each.append(math.log(sum(map(math.exp, scores))) - right)
    assert found.item() == pytest.approx(sum(each) / 3, rel=1e-5)


def test_it_is_the_cross_entropy_of_the_diagonal_wherever_the_rows_stand() -> None:
    """The loss of Henderson et al. 2017: row k of the queries belongs to column k of the passages."""
    torch.manual_seed(3)
    queries_PD, passages_PD = (torch.randn(7, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    scores_PP = SCALE * F.normalize(queries_PD, dim=-1) @ F.normalize(passages_PD, dim=-1).T
    expected = F.cross_entropy(scores_PP, torch.arange(7))
    rows_BD, pair_B = torch.cat([queries_PD, passages_PD]), torch.arange(7).repeat(2)
    is_second_B, order_B = torch.arange(14) >= 7, torch.randperm(14)
    given = (pair_B, torch.arange(14), is_second_B, torch.ones(14, dtype=torch.bool))
    found = in_batch_loss(rows_BD[order_B], *(one[order_B] for one in given)).mean()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, queries_PD, retain_graph=True)[0] for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_passage_that_answers_is_no_wrong_one_whoever_brings_it() -> None:
    """Two questions of one passage, and one question with two passages: neither is the other's mistake."""
    torch.manual_seed(4)
    vectors_BD = torch.randn(6, 4, dtype=torch.float64)
    same_passage = ["q1", "p", "q2", "p", "q3", "other"]
    vectors_BD[3] = vectors_BD[1]
    unit_BD = F.normalize(vectors_BD, dim=-1)
    scores_BB = SCALE * unit_BD @ unit_BD.T
    by_hand = [
        scores_BB[query, [own, *wrong]].logsumexp(0) - scores_BB[query, own]
        for query, own, wrong in ((0, 1, [5]), (2, 3, [5]), (4, 5, [1, 3]))
    ]
    assert of_texts(vectors_BD, same_passage, [1.0] * 6).item() == pytest.approx(float(sum(by_hand)) / 3)
    same_query = ["q", "p1", "q", "p2", "r", "other"]
    vectors_BD[2] = vectors_BD[0]
    scores_BB = SCALE * (unit_BD := F.normalize(vectors_BD, dim=-1)) @ unit_BD.T
    by_hand = [
        scores_BB[query, [own, *wrong]].logsumexp(0) - scores_BB[query, own]
        for query, own, wrong in ((0, 1, [5]), (2, 3, [5]), (4, 5, [1, 3]))
    ]
    assert of_texts(vectors_BD, same_query, [1.0] * 6).item() == pytest.approx(float(sum(by_hand)) / 3)


def test_a_passage_marked_0_is_one_more_and_its_query_asks_nothing() -> None:
    torch.manual_seed(5)
    vectors_BD = torch.randn(6, 4, dtype=torch.float64)
    unit_BD = F.normalize(vectors_BD, dim=-1)
    scores_BB = SCALE * unit_BD @ unit_BD.T
    found = of_texts(vectors_BD, ["q", "right", "q", "hard one", "r", "other"], [1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    by_hand = [scores_BB[query, [1, 3, 5]].logsumexp(0) - scores_BB[query, own] for query, own in ((0, 1), (4, 5))]
    assert found.item() == pytest.approx(float(sum(by_hand)) / 2)


def test_texts_of_no_pair_change_nothing_and_a_batch_of_them_is_0() -> None:
    torch.manual_seed(6)
    vectors_BD = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    paired = of_texts(vectors_BD[:4], ["q", "p", "r", "s"], [1.0] * 4)
    more = of_texts(vectors_BD, ["q", "p", "r", "s", "free", "text", "q"], [1.0] * 4 + [None] * 3)
    assert more.item() == paired.item() > 0.0
    nothing = of_texts(vectors_BD, list("abcdefg"), [None] * 7)
    (gradient_BD,) = torch.autograd.grad(nothing, vectors_BD)
    assert nothing.item() == 0.0 and not gradient_BD.any()


def test_a_weight_mixes_it_with_the_teachers_vectors() -> None:
    torch.manual_seed(7)
    ours, theirs = ({"sentence_embedding": torch.randn(6, 4)} for _ in range(2))
    targets_B = torch.from_numpy(pair_targets(list("abcdef"), [1.0] * 6))

    def loss(weight: float, kind: str = "retrieval") -> float:
        knobs = {"temperature": 1.0, "hard_weight": weight, "formula": "default"}
        return HEADS[kind].teacher_loss(ours, theirs, targets_B, **knobs).mean().item()

    assert loss(0.0) == loss(0.0, "embedding") and loss(1.0) == HEADS["retrieval"].label_loss(ours, targets_B).mean()
    assert loss(0.25) == pytest.approx(0.75 * loss(0.0) + 0.25 * loss(1.0), rel=1e-6)
