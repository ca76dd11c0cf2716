"""A teacher's answer kept as its likeliest words, with the mass of all others as one more outcome.

The divergence of teacher and student is then that of a coarser partition of the vocabulary: never above the whole one,
and equal to it where all words are kept (Cover and Thomas 2006, Elements of Information Theory, theorem 2.8.1). To
divide the kept probabilities by their sum instead would teach sharper answers than the teacher's. Soft targets: Hinton
et al. 2015, arXiv:1503.02531. Shape letters: U predicted tokens, V vocabulary, K kept words, C = K + 1 outcomes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import RecipeError
from tasks.methods.losses.means import Loss, in_full, mean_of
from tasks.methods.losses.soft_targets import class_loss
from tasks.methods.next_words.divergences import divergence

LEAST_LOG = -1e4
"""The logarithm of a probability that is 0; half precision has it, and its exponential is 0."""
MOST_ABSENT = 1 - 1e-6
"""The most mass that is taken from words that a student does not have."""


def kept_words(logits_UV: Tensor, *, words: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the ids of the likeliest words [U, K] and the logarithms of their probabilities at a temperature, behind
    them that of all other words together [U, K + 1]; of a smaller vocabulary all words are kept."""
    if not temperature > 0.0 or words < 1:
        raise RecipeError(f"{words} words at temperature {temperature} cannot be kept; both must be greater than 0")
    logp_UV = F.log_softmax(in_full(logits_UV) / temperature, dim=-1)
    top_UK, ids_UK = logp_UV.topk(min(words, logp_UV.shape[-1]), dim=-1)
    return ids_UK, torch.cat([top_UK, rest_of(logp_UV, ids_UK)], -1).clamp(min=LEAST_LOG)


def rest_of(logp_UV: Tensor, ids_UK: Tensor) -> Tensor:
    """Return the logarithm of the probability of all words that are not kept [U, 1]."""
    words = logp_UV.shape[-1]
    # One column more, for kept ids that this vocabulary does not have.
    is_kept_UV = torch.zeros(len(logp_UV), words + 1, dtype=torch.bool, device=logp_UV.device)
    is_kept_UV = is_kept_UV.scatter_(-1, ids_UK.clamp(max=words), value=True)[:, :words]
    # A sum of small numbers, as 1 minus the kept ones would lose their digits.
    others_UV = logp_UV.masked_fill(is_kept_UV, 2 * LEAST_LOG)
    return others_UV.logsumexp(-1, keepdim=True).clamp(min=LEAST_LOG)


def kept_words_loss(
    student_UV: Tensor, ids_UK: Tensor, teacher_UC: Tensor, *, temperature: float, formula: str = "default"
) -> Loss:
    """Return T² times a divergence from a teacher's kept answers at the same temperature, in nats a token. Kept ids
    beyond the student's vocabulary are of rows that pad the teacher's and stand for no word: those are left out, and so
    is what the student has besides all words of the teacher, where all are kept."""
    logp_UV = F.log_softmax(in_full(student_UV) / temperature, dim=-1)
    ids_UK, last = ids_UK.long(), logp_UV.shape[-1] - 1
    is_absent_UK = ids_UK > last
    ours_UK = logp_UV.gather(-1, ids_UK.clamp(max=last)).masked_fill(is_absent_UK, LEAST_LOG)
    ours_UC = only_kept(torch.cat([ours_UK, rest_of(logp_UV, ids_UK)], -1), teacher_UC[:, -1:] <= LEAST_LOG)
    theirs_UC = without_absent(in_full(teacher_UC.detach()).to(ours_UC.dtype), is_absent_UK)
    found_U = divergence(formula)(theirs_UC, ours_UC)
    return mean_of(found_U.sum() * temperature**2, len(student_UV))


def only_kept(logs_UC: Tensor, is_whole_U1: Tensor) -> Tensor:
    """Return the logarithms of a student's answers [U, C] with no mass at other words than the kept ones, where the
    teacher has no others; those of any other answer, and of a student without others, keep their bits."""
    kept_UK, rest_U1 = logs_UC[:, :-1], logs_UC[:, -1:]
    has_more_U1 = is_whole_U1 & (rest_U1 > LEAST_LOG)
    mass_U1 = kept_UK.logsumexp(-1, keepdim=True).masked_fill(~has_more_U1, 0.0)
    return torch.cat([kept_UK - mass_U1, rest_U1.masked_fill(has_more_U1, LEAST_LOG)], -1)


def without_absent(logs_UC: Tensor, is_absent_UK: Tensor) -> Tensor:
    """Return the logarithms of kept answers [U, C] with no mass at absent words; that of all others, also of the rest,
    grows to 1. Answers without absent words keep their bits."""
    is_absent_UC = F.pad(is_absent_UK, (0, 1))
    mass_U1 = logs_UC.exp().masked_fill(~is_absent_UC, 0.0).sum(-1, keepdim=True)
    # Bounded, as sums of rounded numbers may reach 1.
    return (logs_UC - torch.log1p(-mass_U1.clamp(max=MOST_ABSENT))).masked_fill(is_absent_UC, LEAST_LOG)


def all_words_loss(student_UV: Tensor, teacher_UV: Tensor, *, temperature: float, formula: str = "default") -> Loss:
    """Return T² times a divergence from a teacher's whole answers at the same temperature, in nats a token. Models of
    one family may pad their vocabulary by different numbers of rows, which stand for no word: those are left out."""
    words = min(student_UV.shape[-1], teacher_UV.shape[-1])
    ours_UV, theirs_UV = (
        F.log_softmax(in_full(one[..., :words]) / temperature, dim=-1) for one in (student_UV, teacher_UV.detach())
    )
    found_U = divergence(formula)(theirs_UV, ours_UV)
    return mean_of(found_U.sum() * temperature**2, len(student_UV))


def next_word_loss(
    student_UV: Tensor,
    teacher_UC: Tensor,
    next_U: Tensor,
    *,
    ids_UK: Tensor | None = None,
    temperature: float,
    hard_weight: float,
    formula: str = "default",
) -> Loss:
    """Return the loss against a teacher's answers, mixed with that on the words of the text by ``hard_weight``. With
    ``ids_UK`` the answers are kept ones, logarithms of probabilities; without, logits of all words, C = V.

    Raises RecipeError for an unknown formula or an illegal weight.
    """
    if not 0.0 <= hard_weight <= 1.0:
        raise RecipeError(f"hard_weight is {hard_weight}; it must lie between 0 (teacher only) and 1 (labels only)")
    if ids_UK is None:
        soft = all_words_loss(student_UV, teacher_UC, temperature=temperature, formula=formula)
    else:
        soft = kept_words_loss(student_UV, ids_UK, teacher_UC, temperature=temperature, formula=formula)
    if hard_weight == 0.0:
        return soft
    return (1.0 - hard_weight) * soft + hard_weight * class_loss(student_UV, next_U)
