"""A teacher's answer kept as its likeliest words: as good as the whole one where all are kept, never more elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tasks.errors import RecipeError
from tasks.methods.losses.soft_targets import soft_target_loss
from tasks.methods.next_words.divergences import (
    DIVERGENCES,
    forward_kl,
    jensen_shannon,
    reverse_kl,
    skewed_jensen_shannon,
)
from tasks.methods.next_words.kept_words import all_words_loss, kept_words, kept_words_loss, next_word_loss

DRAW = torch.Generator().manual_seed(0)
TEACHER_UV, STUDENT_UV = (3 * torch.randn(40, 50, generator=DRAW) for _ in range(2))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_all_words_kept_are_the_live_teacher(temperature: float) -> None:
    """Loss and gradient, to 1e-6."""
    whole, kept = STUDENT_UV.clone().requires_grad_(), STUDENT_UV.clone().requires_grad_()
    live = soft_target_loss(whole, TEACHER_UV, temperature=temperature).mean()
    ids_UK, logs_UC = kept_words(TEACHER_UV, words=50, temperature=temperature)
    found = kept_words_loss(kept, ids_UK.to(torch.int16), logs_UC, temperature=temperature).mean()
    live.backward()
    found.backward()
    torch.testing.assert_close(found, live, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(kept.grad, whole.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("formula", DIVERGENCES)
def test_fewer_words_never_make_a_divergence_larger(formula: str) -> None:
    """The partition is coarser (data processing)."""
    found = []
    for words in (1, 4, 16, 49, 50):
        ids_UK, logs_UC = kept_words(TEACHER_UV, words=words, temperature=1.0)
        found.append(kept_words_loss(STUDENT_UV, ids_UK, logs_UC, temperature=1.0, formula=formula).mean().item())
    assert found == sorted(found) and found[0] > 0


@pytest.mark.parametrize("formula", DIVERGENCES)
@pytest.mark.parametrize("words", [3, 50])
def test_a_student_like_its_teacher_learns_nothing(formula: str, words: int) -> None:
    own = TEACHER_UV.clone().requires_grad_()
    ids_UK, logs_UC = kept_words(TEACHER_UV, words=words, temperature=2.0)
    loss = kept_words_loss(own, ids_UK, logs_UC, temperature=2.0, formula=formula).mean()
    loss.backward()
    assert own.grad is not None and abs(loss.item()) < 1e-5 and own.grad.abs().max() < 1e-6


def test_the_kept_mass_is_one() -> None:
    _, logs_UC = kept_words(TEACHER_UV, words=5, temperature=1.0)
    torch.testing.assert_close(logs_UC.exp().sum(-1), torch.ones(40))


def test_half_precision_keeps_the_loss() -> None:
    ids_UK, logs_UC = kept_words(TEACHER_UV, words=16, temperature=1.0)
    both = [kept_words_loss(STUDENT_UV, ids_UK, one, temperature=1.0).mean() for one in (logs_UC, logs_UC.half())]
    torch.testing.assert_close(both[0], both[1], rtol=1e-3, atol=1e-3)


def test_the_divergence_between_the_two_is_bounded() -> None:
    apart = (F.log_softmax(one, -1) for one in (torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 50.0]])))
    assert jensen_shannon(*apart).item() == pytest.approx(0.6931, abs=1e-4)


def test_beta_leads_from_the_forward_to_the_reverse_divergence() -> None:
    """Divided by beta, or by what is left of 1, as its limits are; at one half it is the symmetric one."""
    pair = [F.log_softmax(one.double(), -1) for one in (TEACHER_UV, STUDENT_UV)]
    for beta, share, limit in ((1e-7, 1e-7, forward_kl), (1 - 1e-7, 1e-7, reverse_kl), (0.5, 1.0, jensen_shannon)):
        torch.testing.assert_close(skewed_jensen_shannon(*pair, beta=beta) / share, limit(*pair), rtol=1e-3, atol=1e-6)
    mirrored = skewed_jensen_shannon(*reversed(pair), beta=0.1)
    torch.testing.assert_close(DIVERGENCES["jensen-shannon(0.9)"](*pair), mirrored)


def test_rows_that_pad_a_vocabulary_have_no_part() -> None:
    """A teacher of the same family with 4 more rows, which stand for no word."""
    student_UV, teacher_UV = torch.randn(3, 8), torch.randn(3, 8)
    padded_UV = torch.cat([teacher_UV, torch.randn(3, 4)], -1)
    same, padded = (all_words_loss(student_UV, one, temperature=2.0).mean() for one in (teacher_UV, padded_UV))
    torch.testing.assert_close(same, padded)


def live_and_kept(
    student_UV: torch.Tensor, teacher_UV: torch.Tensor, formula: str, *, bits: int = 32
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Return loss and gradient of a student by a live teacher, and by its answers with all words kept."""
    live, kept = student_UV.clone().requires_grad_(), student_UV.clone().requires_grad_()
    ids_UK, logs_UC = kept_words(teacher_UV, words=teacher_UV.shape[-1], temperature=2.0)
    stored_UC = logs_UC.half() if bits == 16 else logs_UC
    losses = [
        all_words_loss(live, teacher_UV, temperature=2.0, formula=formula).mean(),
        kept_words_loss(kept, ids_UK, stored_UC, temperature=2.0, formula=formula).mean(),
    ]
    for loss in losses:
        loss.backward()
    return [*zip(losses, (live.grad, kept.grad), strict=True)]


@pytest.mark.parametrize("formula", DIVERGENCES)
def test_kept_rows_that_pad_the_teacher_have_no_part(formula: str) -> None:
    """With all 50 words and 4 padding rows kept, the loss and its gradient are those of the live teacher."""
    padded_UV = torch.cat([TEACHER_UV, 3 * torch.randn(40, 4, generator=DRAW)], -1)
    live, kept = live_and_kept(STUDENT_UV, padded_UV, formula)
    torch.testing.assert_close(kept[0], live[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept[1], live[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("formula", DIVERGENCES)
def test_rows_that_pad_the_student_have_no_part_where_all_words_are_kept(formula: str) -> None:
    """The loss and its gradient are those of the live teacher, whose vocabulary has 4 rows fewer."""
    padded_UV = torch.cat([STUDENT_UV, 3 * torch.randn(40, 4, generator=DRAW)], -1)
    live, kept = live_and_kept(padded_UV, TEACHER_UV, formula, bits=16)
    torch.testing.assert_close(kept[0], live[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(kept[1], live[1], rtol=1e-2, atol=1e-4)


def test_padding_rows_among_few_kept_words() -> None:
    """Their mass is divided among the other kept words and the rest; nothing kept but padding is finite, too."""
    logits_UV = torch.tensor([[2.0, 1.0, 0.0, -1.0, 3.0], [-9.0, -9.0, -9.0, -9.0, 90.0]])
    ids_UK, logs_UC = kept_words(logits_UV, words=3, temperature=1.0)
    plain_UK, plain_UC = kept_words(logits_UV[:1, :4], words=2, temperature=1.0)
    student_UV = torch.randn(2, 4).requires_grad_()
    found = kept_words_loss(student_UV[:1], ids_UK[:1], logs_UC[:1], temperature=1.0).mean()
    torch.testing.assert_close(found, kept_words_loss(student_UV[:1], plain_UK, plain_UC, temperature=1.0).mean())
    kept_words_loss(student_UV, ids_UK, logs_UC, temperature=1.0).mean().backward()
    assert student_UV.grad is not None and student_UV.grad.isfinite().all()


def test_illegal_knobs_are_refused_in_a_sentence() -> None:
    ids_UK, logs_UC = kept_words(TEACHER_UV, words=2, temperature=1.0)
    with pytest.raises(RecipeError, match="choose one of default, reverse, jensen-shannon"):
        kept_words_loss(STUDENT_UV, ids_UK, logs_UC, temperature=1.0, formula="paper")
    with pytest.raises(RecipeError, match="between 0"):
        next_word_loss(STUDENT_UV, TEACHER_UV, torch.zeros(40, dtype=torch.long), temperature=1.0, hard_weight=2.0)
    with pytest.raises(RecipeError, match="cannot be kept"):
        kept_words(TEACHER_UV, words=0, temperature=1.0)
