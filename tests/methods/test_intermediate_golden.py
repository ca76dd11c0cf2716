"""Hidden states and attention scores together equal TinyBERT's published intermediate loss, gradients included."""

from __future__ import annotations

import pytest
import torch

from tasks.methods.layers.layer_maps import divisible
from tasks.methods.losses.attention_scores import attention_score_loss, attention_score_loss_paper
from tasks.methods.losses.hidden_states import Projections, hidden_state_loss, hidden_state_loss_paper
from tests.methods.oracles import EXACT, Oracle, reads


@reads("tinybert", "intermediate", "intermediate_without_padding")
def test_equals_the_reference(oracle: Oracle) -> None:
    name, t = oracle.name, oracle.tensors
    hidden, scores, mask = t["in.student_hidden"].requires_grad_(), t["in.student_scores"].requires_grad_(), None
    projections = Projections(4, 12, 24).double()
    projections.of(0).weight.data, projections.of(0).bias.data = t["in.fit_dense_weight"], t["in.fit_dense_bias"]
    mask, layers = t["in.attention_mask"], divisible(3, 6)
    hidden_terms, attention_terms = [], []
    for m, layer in enumerate(layers.hidden):
        pair = hidden[m], t["in.teacher_hidden"][layer]
        masked = hidden_state_loss(*pair, mask, projections.of(m)).mean()
        hidden_terms.append(masked if "without" in name else hidden_state_loss_paper(*pair, projections.of(m)).mean())
    for m, layer in enumerate(layers.attention):
        pair = scores[m], t["in.teacher_scores"][layer]
        attention_terms.append(
            attention_score_loss(*pair, mask).mean() if "without" in name else attention_score_loss_paper(*pair).mean()
        )
    loss = torch.stack(hidden_terms).sum() + torch.stack(attention_terms).sum()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(torch.stack(hidden_terms), t[f"out.{name}.hidden_terms"], **EXACT)
    torch.testing.assert_close(torch.stack(attention_terms), t[f"out.{name}.attention_terms"], **EXACT)
    torch.testing.assert_close(hidden.grad, t[f"grad.{name}.student_hidden"], **EXACT)
    torch.testing.assert_close(scores.grad, t[f"grad.{name}.student_scores"], **EXACT)
    torch.testing.assert_close(projections.of(3).weight.grad, t[f"grad.{name}.fit_dense_weight"], **EXACT)
    torch.testing.assert_close(projections.of(3).bias.grad, t[f"grad.{name}.fit_dense_bias"], **EXACT)


@reads("tinybert", "threshold_edge")
def test_the_threshold_edge_equals_the_reference(oracle: Oracle) -> None:
    t = oracle.tensors
    student = t["in.edge_student"].requires_grad_()
    loss = attention_score_loss_paper(student, t["in.edge_teacher"]).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, t["grad.threshold_edge.edge_student"], **EXACT)
