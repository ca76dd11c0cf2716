"""DistilBERT's three losses: the reference's numbers, and how the masked tokens are drawn."""

from __future__ import annotations

import pytest
import torch

from tasks.errors import ModelError
from tasks.methods.losses.soft_targets import softened_sum
from tasks.methods.losses.triple_loss import direction_loss, draw_targets, masked_inputs, masked_word_sum, rarity
from tests.methods.oracles import EXACT, Oracle, reads


@reads("distilbert", "triple_loss", "triple_loss_ddp_weights")
def test_equals_the_reference(oracle: Oracle) -> None:
    name, t, knobs = oracle.name, oracle.tensors, oracle.knobs
    kept = t["in.attention_mask"].bool()
    logits, hidden = t["in.student_logits"].requires_grad_(), t["in.student_last_hidden"].requires_grad_()
    soft = softened_sum(logits[kept], t["in.teacher_logits"][kept], temperature=knobs.temperature) / kept.sum()
    words = masked_word_sum(logits[kept], t["in.mlm_labels"][kept]) / (t["in.mlm_labels"] != -100).sum()
    direction = direction_loss(hidden[kept], t["in.teacher_last_hidden"][kept]).mean()
    loss = knobs.alpha_ce * soft + knobs.alpha_mlm * words + knobs.alpha_cos * direction
    loss.backward()
    expected = oracle.scalars
    assert [x.item() for x in (loss, soft, words, direction)] == pytest.approx(
        [expected[x] for x in ("loss", "ce", "mlm", "cosine")], rel=1e-9
    )
    torch.testing.assert_close(logits.grad, t[f"grad.{name}.student_logits"], **EXACT)
    torch.testing.assert_close(hidden.grad, t[f"grad.{name}.student_last_hidden"], **EXACT)


@reads("distilbert", "restricted_to_mlm_targets_with_mse")
def test_equals_the_reference_on_masked_words_alone(oracle: Oracle) -> None:
    """Soft targets of predicted tokens alone, and squared logits, are options that no knob offers here; the parts
    are."""
    t, knobs, expected = oracle.tensors, oracle.knobs, oracle.scalars
    asked, logits = t["in.mlm_labels"] != -100, t["in.student_logits"].requires_grad_()
    ours, theirs = logits[asked], t["in.teacher_logits"][asked]
    soft = softened_sum(ours, theirs, temperature=knobs.temperature) / asked.sum()
    words = masked_word_sum(ours, t["in.mlm_labels"][asked]) / asked.sum()
    squares = (ours - theirs).square().sum() / asked.sum()
    loss = knobs.alpha_ce * soft + knobs.alpha_mlm * words + knobs.alpha_mse * squares
    loss.backward()
    found = {"loss": loss.item(), "ce": soft.item(), "mlm": words.item(), "mse": squares.item()}
    assert found == pytest.approx(expected, rel=1e-9)
    torch.testing.assert_close(logits.grad, t[f"grad.{oracle.name}.student_logits"], **EXACT)


@reads("relation_kl", "hidden_cosine")
def test_the_direction_equals_another_reference(oracle: Oracle) -> None:
    t = oracle.tensors
    student = t["in.student_hidden"].requires_grad_()
    loss = direction_loss(student.flatten(0, 1), t["in.teacher_hidden"].flatten(0, 1)).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, t["grad.hidden_cosine.student_hidden"], **EXACT)


@reads("distilbert", "student_initialisation")
def test_the_start_takes_every_parameter_that_the_reference_takes(oracle: Oracle) -> None:
    from tasks.architectures.distilbert import parameter_map

    golden = oracle.content
    assert dict(parameter_map(golden["teacher_layers_0based"])) == golden["student_parameter_from_teacher_parameter"]


def test_a_share_of_the_batch_is_drawn_and_never_a_special_or_padded_token() -> None:
    torch.manual_seed(0)
    ids, mask = torch.randint(5, 50, (4, 20)), torch.ones(4, 20, dtype=torch.long)
    ids[:, 0], mask[3, 10:] = 2, 0
    weights = rarity(torch.bincount(ids.flatten(), minlength=50), specials=[0, 1, 2, 3, 4])
    for _ in range(20):
        drawn = draw_targets(ids, mask, weights, share=0.15)
        assert int(drawn.sum()) == 11  # ceil(0.15 * 70), over the whole batch, not per row
        assert not drawn[:, 0].any() and not drawn[3, 10:].any()


def test_rare_tokens_are_drawn_more_often() -> None:
    weights = rarity(torch.tensor([0, 1000, 10]), specials=[])
    assert float(weights[2] / weights[1]) == pytest.approx(100**0.7) and weights[0] == 1


def test_a_batch_with_nothing_to_draw_has_no_targets() -> None:
    ids = torch.zeros(1, 3, dtype=torch.long)
    assert not draw_targets(ids, torch.ones_like(ids), rarity(torch.ones(5), specials=[0]), share=0.15).any()
    assert float(masked_word_sum(torch.zeros(3, 5), torch.full((3,), -100))) == 0


def test_most_targets_are_masked_some_shown_some_replaced() -> None:
    torch.manual_seed(0)
    ids = torch.full((100, 100), 7)
    drawn = torch.rand(100, 100) < 0.5
    seen = masked_inputs(ids, drawn, mask_token=4, vocabulary=1000)
    assert torch.equal(seen[~drawn], ids[~drawn])
    shares = [float((seen[drawn] == token).float().mean()) for token in (4, 7)]
    assert shares == pytest.approx([0.8, 0.1], abs=0.02)


def test_directions_of_two_widths_are_refused() -> None:
    with pytest.raises(ModelError, match="set the weight of the direction to 0"):
        direction_loss(torch.zeros(3, 8), torch.zeros(3, 12))
