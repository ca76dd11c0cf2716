"""Pairs of texts that belong together, such as a query and the passage that answers it: among all passages of a batch,
each query finds its own.

Papers: Henderson et al. 2017, "Efficient Natural Language Response Suggestion for Smart Reply", arXiv:1705.00652
(section 4.4, multiple negatives); Karpukhin et al. 2020, DPR, arXiv:2004.04906, for passages that are known not to
answer. On cosines, as sentence encoders are trained (Reimers and Gurevych 2019, arXiv:1908.10084). Shape letters in
this file: B texts of a batch, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.methods.losses.means import Loss, in_full, mean_of

SCALE = 20.0
"""Multiplies cosines, which span 2 at most, before the softmax."""


def in_batch_loss(vectors_BD: Tensor, pair_B: Tensor, text_B: Tensor, is_second_B: Tensor, answers_B: Tensor) -> Loss:
    """Return the cross entropy of each query's passage among the passages of the batch, averaged over queries.

    ``pair_B`` numbers the pairs (-1: a text of none), and both texts of a pair are in the batch; ``is_second_B`` tells
    passages from queries, ``answers_B`` whether the passage of the pair answers its query: another one is a passage
    beside those of others, and its query asks nothing. Equal numbers in ``text_B`` are equal texts: a passage that
    answers the query of another row with the same text, or that is the same as its own, is no wrong one.
    """
    # All of it has the shape [B, B], row: the query that asks, column: a passage. A GPU then repeats one captured step.
    unit_BD = F.normalize(in_full(vectors_BD), dim=-1)
    scores_BB = SCALE * unit_BD @ unit_BD.T
    is_query_B = (pair_B >= 0) & ~is_second_B
    is_own_BB = (pair_B[:, None] == pair_B) & is_query_B[:, None] & is_second_B
    asks_B = is_query_B & answers_B & is_own_BB.any(1)
    passage_B, asked_B = (is_own_BB * text_B).sum(1), (is_own_BB * text_B[:, None]).sum(0)
    is_same_BB = passage_B[:, None] == text_B
    answers_too_BB = (text_B[:, None] == asked_B) & answers_B
    is_wrong_BB = is_second_B & (pair_B >= 0) & ~is_same_BB & ~answers_too_BB
    # A row that asks nothing has its own score alone: a softmax over nothing has no gradient.
    alone_BB = torch.eye(len(pair_B), dtype=torch.bool, device=pair_B.device) & ~asks_B[:, None]
    legal_BB = torch.where(asks_B[:, None], is_own_BB | is_wrong_BB, alone_BB)
    whole_B = scores_BB.masked_fill(~legal_BB, -torch.inf).logsumexp(1)
    own_B = (scores_BB * is_own_BB).sum(1)
    return mean_of(torch.where(asks_B, whole_B - own_B, 0.0).sum(), asks_B.sum())
