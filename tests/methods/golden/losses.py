"""The losses and measures of ``tasks/methods``, written a second time from their papers, in float64 numpy.

Nothing here comes from ``tasks``, and nothing from torch: an error would have to be made twice, in two libraries, to
pass. All functions also take complex numbers, because their gradients are found by a complex step (``gradient.py``).
Functions are called as those that they check, and so are their arguments.
Shape letters: B batch, T tokens, H heads, K head size, D student width, E teacher width, C classes, V vocabulary,
L layers, M teachers, N rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from tests.methods.golden.gradient import passed
from tests.methods.golden.rules import masks_of, most_important

MASKED_AT = -100.0  # TinyBERT's code takes a score at or below this for a masked one
SMOOTHING = 0.7  # how strongly DistilBERT lets a token's frequency count against it


def log_softmax(values: ndarray, kept: ndarray | bool = True) -> ndarray:
    """Return the logarithm of the softmax over the last axis, of what is kept of it."""
    moved = values - np.max(values.real, axis=-1, keepdims=True)
    return moved - np.log(np.sum(np.exp(moved) * kept, axis=-1, keepdims=True))


def length(values: ndarray) -> ndarray:
    """Return Euclidean lengths along the last axis (numpy's own would take the absolute value of a complex number)."""
    return np.sqrt(np.sum(values * values, axis=-1))


def cosine(first: ndarray, second: ndarray) -> ndarray:
    """Return the cosine along the last axis."""
    return np.sum(first * second, axis=-1) / (length(first) * length(second))


# --- answers: Hinton, Vinyals, Dean 2015, arXiv:1503.02531 ---


def softened_sum(student_BC: ndarray, teacher_BC: ndarray, temperature: float) -> ndarray:
    """T² times the sum over examples of KL(softmax(teacher / T) || softmax(student / T))."""
    ours, theirs = log_softmax(student_BC / temperature), log_softmax(teacher_BC / temperature)
    return temperature**2 * np.sum(np.exp(theirs) * (theirs - ours))


def soft_target_loss(student_BC: ndarray, teacher_BC: ndarray, temperature: float) -> ndarray:
    """The same for each example."""
    return softened_sum(student_BC, teacher_BC, temperature) / len(student_BC)


def soft_cross_entropy_paper(student_BC: ndarray, teacher_BC: ndarray, temperature: float) -> ndarray:
    """TinyBERT's code (arXiv:1909.10351): cross entropy of softened answers, averaged over batch and classes."""
    return -np.mean(np.exp(log_softmax(teacher_BC / temperature)) * log_softmax(student_BC / temperature))


def value_loss(student_B1: ndarray, labels_B: ndarray) -> ndarray:
    """Squared error, averaged over the rows that have a label (not NaN)."""
    known = np.flatnonzero(~np.isnan(labels_B))
    return np.sum((student_B1[known, 0] - labels_B[known]) ** 2) / max(1, len(known))


def class_loss(student_BC: ndarray, labels_B: ndarray) -> ndarray:
    """Cross entropy, averaged over the rows that have a label (not below 0)."""
    known = np.flatnonzero(labels_B >= 0)
    return -np.sum(log_softmax(student_BC)[known, labels_B[known]]) / max(1, len(known))


def class_prediction_loss(
    student_BC: ndarray,
    teacher_BC: ndarray,
    labels_B: ndarray,
    temperature: float,
    hard_weight: float,
    formula: str = "default",
) -> ndarray:
    """The teacher's answers beside the labels; TinyBERT's code takes the answers alone."""
    if formula == "paper":
        return soft_cross_entropy_paper(student_BC, teacher_BC, temperature)
    soft = soft_target_loss(student_BC, teacher_BC, temperature)
    return (1 - hard_weight) * soft + hard_weight * class_loss(student_BC, labels_B)


def sigmoid(x: ndarray) -> ndarray:
    """The probability of log-odds."""
    return 1 / (1 + np.exp(-x))


def label_set_loss(student_BC: ndarray, sets_B: ndarray) -> ndarray:
    """Cross entropy of every label by itself, averaged over labels and the rows that have a set (not below 0)."""
    known = np.flatnonzero(sets_B >= 0)
    true = (sets_B[known, None] >> np.arange(student_BC.shape[1])) & 1
    share = sigmoid(student_BC[known])
    return -np.sum(true * np.log(share) + (1 - true) * np.log(1 - share)) / max(1, true.size)


def soft_label_set_loss(student_BC: ndarray, teacher_BC: ndarray, temperature: float) -> ndarray:
    """T² times the KL of two Bernoulli distributions, averaged over rows and labels."""
    ours, theirs = sigmoid(student_BC / temperature), sigmoid(teacher_BC / temperature)
    divergence = theirs * np.log(theirs / ours) + (1 - theirs) * np.log((1 - theirs) / (1 - ours))
    return temperature**2 * np.mean(divergence)


def label_set_prediction_loss(
    student_BC: ndarray,
    teacher_BC: ndarray,
    sets_B: ndarray,
    temperature: float,
    hard_weight: float,
    formula: str = "default",
) -> ndarray:
    """The teacher's answers beside the labels; with TinyBERT's formula, soft cross entropy alone."""
    if formula == "paper":
        ours, theirs = sigmoid(student_BC / temperature), sigmoid(teacher_BC / temperature)
        return -np.mean(theirs * np.log(ours) + (1 - theirs) * np.log(1 - ours))
    soft = soft_label_set_loss(student_BC, teacher_BC, temperature)
    return (1 - hard_weight) * soft + hard_weight * label_set_loss(student_BC, sets_B)


def mixed_label_sets(logits_MNC: ndarray, weights_MN: ndarray, temperature: float) -> ndarray:
    """The log-odds of the mean probability of several teachers, softened."""
    share = np.sum(weights_MN[..., None] * sigmoid(logits_MNC / temperature), axis=0)
    return temperature * np.log(share / (1 - share))


def value_prediction_loss(
    student_B1: ndarray, teacher_B1: ndarray, labels_B: ndarray, hard_weight: float, formula: str = "default"
) -> ndarray:
    """The teacher's values beside the labels; TinyBERT's code takes the labels alone."""
    hard = value_loss(student_B1, labels_B)
    return (
        hard if formula == "paper" else (1 - hard_weight) * np.mean((student_B1 - teacher_B1) ** 2) + hard_weight * hard
    )


# --- inner layers: Jiao et al. 2019, TinyBERT, arXiv:1909.10351 ---


def projected(student: ndarray, weight_ED: ndarray | None, bias_E: ndarray | None) -> ndarray:
    """Map the student's width to the teacher's."""
    return student if weight_ED is None else student @ weight_ED.T + bias_E


def hidden_state_loss(
    student_BTD: ndarray,
    teacher_BTE: ndarray,
    mask_BT: ndarray,
    weight_ED: ndarray | None = None,
    bias_E: ndarray | None = None,
) -> ndarray:
    """Mean squared difference over the numbers of valid tokens."""
    valid = mask_BT.astype(bool)
    return np.mean((projected(student_BTD, weight_ED, bias_E)[valid] - teacher_BTE[valid]) ** 2)


def hidden_state_loss_paper(
    student_BTD: ndarray, teacher_BTE: ndarray, weight_ED: ndarray | None = None, bias_E: ndarray | None = None
) -> ndarray:
    """The same over all tokens, padding included, as the authors' code has it."""
    return np.mean((projected(student_BTD, weight_ED, bias_E) - teacher_BTE) ** 2)


def attention_score_loss(
    student_BHTT: ndarray, teacher_BHTT: ndarray, mask_BT: ndarray, far_1TT: ndarray | None = None
) -> ndarray:
    """Mean squared difference of scores over heads and pairs of valid tokens that the layer can see."""
    rows = range(len(mask_BT))
    near_TT = np.ones(student_BHTT.shape[2:], bool) if far_1TT is None else far_1TT[0] == 0
    seen = [np.outer(mask_BT[row], mask_BT[row]).astype(bool) & near_TT for row in rows]
    gaps = [(student_BHTT[row] - teacher_BHTT[row])[:, seen[row]] for row in rows]
    return np.sum([np.sum(gap**2) for gap in gaps]) / sum(gap.size for gap in gaps)


def attention_score_loss_paper(student: ndarray, teacher: ndarray) -> ndarray:
    """Mean squared difference over everything, with 0 for each score that the authors' code takes for a masked one."""
    ours, theirs = (np.where(scores.real <= MASKED_AT, 0, scores) for scores in (student, teacher))
    return np.mean((ours - theirs) ** 2)


def intermediate_paper(
    hidden_S: Sequence[ndarray],
    hidden_T: Sequence[ndarray],
    scores_S: Sequence[ndarray],
    scores_T: Sequence[ndarray],
    mask_BT: ndarray,
    weight_ED: ndarray,
    bias_E: ndarray,
) -> ndarray:
    """Sum over mapped layers of a padded batch: scores of padded keys carry -10000, nothing else hides padding."""
    added_B11T = np.where(mask_BT == 0, -10_000.0, 0.0)[:, None, None, :]
    hidden = [
        hidden_state_loss_paper(ours, theirs, weight_ED, bias_E)
        for ours, theirs in zip(hidden_S, hidden_T, strict=True)
    ]
    pairs = zip(scores_S, scores_T, strict=True)
    return np.sum(hidden) + np.sum(
        [attention_score_loss_paper(ours + added_B11T, theirs + added_B11T) for ours, theirs in pairs]
    )


# --- self-attention: Wang et al. 2020, MiniLM, arXiv:2002.10957; MiniLMv2, arXiv:2012.15828 ---


def attention_distribution_loss(student_BHTT: ndarray, teacher_BHTT: ndarray, mask_BT: ndarray) -> ndarray:
    """KL(teacher || student) of attention among valid tokens, averaged over heads and valid tokens."""
    keys_B11T, queries_B1T = mask_BT[:, None, None, :], mask_BT[:, None, :]
    ours, theirs = log_softmax(student_BHTT, keys_B11T), log_softmax(teacher_BHTT, keys_B11T)
    divergence_BHT = np.sum(np.exp(theirs) * (theirs - ours) * keys_B11T, axis=-1)
    return np.sum(divergence_BHT * queries_B1T) / (student_BHTT.shape[1] * np.sum(mask_BT))


def log_shares(scores_BHTT: ndarray, kept_BT: ndarray) -> ndarray:
    """The logarithm of the softmax over valid keys; that of a key that is padding is minus infinity."""
    keys_B11T = kept_BT[:, None, None, :]
    return np.where(keys_B11T == 1, log_softmax(scores_BHTT, keys_B11T), -np.inf)


def relation_scores(states_BHTK: ndarray, heads: int) -> ndarray:
    """XX^T / sqrt(R) for each of the relation heads, which cut the joined attention heads into parts R wide."""
    joined_BTD = np.concatenate(list(np.moveaxis(states_BHTK, 1, 0)), axis=-1)
    size = joined_BTD.shape[-1] // heads
    parts = [joined_BTD[..., head * size : (head + 1) * size] for head in range(heads)]
    return np.stack([part @ np.swapaxes(part, 1, 2) / np.sqrt(size) for part in parts], axis=1)


def relation_loss(student_BHTK: ndarray, teacher_BHTK: ndarray, mask_BT: ndarray, heads: int) -> ndarray:
    """KL(teacher || student) of relations, averaged over relation heads and valid tokens."""
    return attention_distribution_loss(
        relation_scores(student_BHTK, heads), relation_scores(teacher_BHTK, heads), mask_BT
    )


# --- summary tokens: Sun et al. 2019, PKD, arXiv:1908.09355 ---


def patience_loss(student_BLD: ndarray, teacher_BLD: ndarray, normalise: bool) -> ndarray:
    """Mean squared difference of vectors, made one long where ``normalise`` is set."""
    if normalise:
        student_BLD, teacher_BLD = (states / length(states)[..., None] for states in (student_BLD, teacher_BLD))
    return np.mean((student_BLD - teacher_BLD) ** 2)


# --- words: Sanh et al. 2019, DistilBERT, arXiv:1910.01108; draws, Lample, Conneau 2019, XLM, arXiv:1901.07291 ---


def direction_loss(student_ND: ndarray, teacher_ND: ndarray) -> ndarray:
    """1 - cosine, averaged over tokens."""
    return np.mean(1 - cosine(student_ND, teacher_ND))


def masked_word_sum(student_NV: ndarray, targets_N: ndarray) -> ndarray:
    """Cross entropy summed over tokens that are predicted; the others carry -100."""
    asked = np.flatnonzero(targets_N != -100)
    return -np.sum(log_softmax(student_NV)[asked, targets_N[asked]])


def rarity(counts_V: ndarray, specials: Sequence[int]) -> ndarray:
    """A token is drawn in proportion to count^-0.7 (0 is taken for 1), a special one never."""
    return np.array([0.0 if token in specials else max(1, count) ** -SMOOTHING for token, count in enumerate(counts_V)])


# --- several teachers: Hinton et al. 2015, arXiv:1503.02531; means over processes: Li et al. 2020, arXiv:2006.15704 ---


def by_weights(logits_MNC: ndarray, weights_M: Sequence[float]) -> ndarray:
    """The given weights, their sum made 1, for every row."""
    return np.tile((np.array(weights_M) / np.sum(weights_M))[:, None], (1, logits_MNC.shape[1]))


def by_certainty(logits_MNC: ndarray, weights_M: Sequence[float]) -> ndarray:
    """Given weights times 1 - entropy / log C (at least a millionth), their sum over teachers made 1 row by row."""
    logp = log_softmax(logits_MNC)
    certainty_MN = 1 + np.sum(np.exp(logp) * logp, axis=-1) / np.log(logits_MNC.shape[-1])
    weights_MN = np.maximum(certainty_MN, 1e-6) * by_weights(logits_MNC, weights_M)
    return weights_MN / np.sum(weights_MN, axis=0)


def mixed_distributions(logits_MNC: ndarray, weights_MN: ndarray, temperature: float) -> ndarray:
    """T times the logarithm of the weighted mean of softmax(z / T)."""
    softened_MNC = np.exp(log_softmax(logits_MNC / temperature))
    return temperature * np.log(np.sum(weights_MN[..., None] * softened_MNC, axis=0))


def mixed_values(values_MN1: ndarray, weights_MN: ndarray) -> ndarray:
    """The weighted mean."""
    return np.sum(weights_MN[..., None] * values_MN1, axis=0)


def mean_of(parts: Sequence[Sequence[float]]) -> float:
    """The mean over the numbers of all processes; 0 of none."""
    numbers = [number for part in parts for number in part]
    return sum(numbers) / max(1, len(numbers))


# --- layers: Sajjad et al. 2020, arXiv:2004.03844; Kornblith et al. 2019, arXiv:1905.00414 ---


def token_means_BL(values_BLT: ndarray, mask_BT: ndarray, token: str) -> ndarray:
    """The value of a row's first valid token, of its last, or the mean over its valid ones."""
    chosen = {"cls": lambda valid: valid[:1], "last": lambda valid: valid[-1:], "mean": lambda valid: valid}[token]
    return np.stack(
        [
            values_LT[:, chosen(np.flatnonzero(mask))].mean(-1)
            for values_LT, mask in zip(values_BLT, mask_BT, strict=True)
        ]
    )


def cosines_BL(hidden_states: ndarray, mask_BT: ndarray, token: str) -> ndarray:
    """The cosine of what goes into a layer and what comes out, [L + 1, B, T, D] given."""
    return token_means_BL(np.moveaxis(cosine(hidden_states[:-1], hidden_states[1:]), 0, 1), mask_BT, token)


def layer_cosines(hidden_states: ndarray, mask_BT: ndarray, token: str) -> ndarray:
    """Its mean over the batch."""
    return cosines_BL(hidden_states, mask_BT, token).mean(0)


def between_models_BL(before: ndarray, after: ndarray, mask_BT: ndarray, token: str) -> ndarray:
    """The cosine of a state before and after fine-tuning, [L, B, T, D] given."""
    return token_means_BL(np.moveaxis(cosine(before, after), 0, 1), mask_BT, token)


def linear_cka(first_ND: ndarray, second_NE: ndarray) -> float:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of the kernels XX^T and YY^T, centred by matrices."""
    centre_NN = np.eye(len(first_ND)) - 1 / len(first_ND)
    ours, theirs = (centre_NN @ states @ states.T @ centre_NN for states in (first_ND, second_NE))
    return np.sum(ours * theirs) / np.sqrt(np.sum(ours * ours) * np.sum(theirs * theirs))


# --- importance of neurons --------------------------------------------------------------------------------------------


def taylor_terms(activations_BTF: ndarray, gradients_BTF: ndarray, mask_BT: ndarray) -> ndarray:
    """Add up, over examples, the size of the first-order change of the loss without a neuron."""
    return sum(
        np.abs(sum(a_F * g_F for a_F, g_F, real in zip(a_TF, g_TF, mask_T, strict=True) if real))
        for a_TF, g_TF, mask_T in zip(activations_BTF, gradients_BTF, mask_BT, strict=True)
    )


def mean_activations(activations_BTF: ndarray, gradients_BTF: ndarray, mask_BT: ndarray) -> ndarray:
    """Add up, over examples, the squared mean of an activation over real tokens."""
    return sum(np.mean(a_TF[mask_T == 1], axis=0) ** 2 for a_TF, mask_T in zip(activations_BTF, mask_BT, strict=True))


def norms_of_weights(first_FD: ndarray, second_DF: ndarray) -> ndarray:
    """Multiply the length of a neuron's incoming weights by that of its outgoing ones."""
    return length(first_FD) * length(second_DF.T)


# --- importance of the residual stream --------------------------------------------------------------------------------


def taylor_of_dimensions(states_NBTD: ndarray, gradients_NBTD: ndarray, mask_BT: ndarray) -> ndarray:
    """Add up, over examples, the size of the change over all norms and real tokens without a dimension."""
    return np.abs(np.einsum("nbtd,nbtd,bt->bd", states_NBTD, gradients_NBTD, mask_BT)).sum(0)


def activation_of_dimensions(states_NBTD: ndarray, gradients_NBTD: ndarray, mask_BT: ndarray) -> ndarray:
    """Add up the squared mean size over real tokens, of every norm and example."""
    return sum(
        np.mean(np.abs(states_TD[mask_T == 1]), axis=0) ** 2
        for states_BTD in states_NBTD
        for states_TD, mask_T in zip(states_BTD, mask_BT, strict=True)
    )


def taylor_of_heads(context_BTC: ndarray, gradients_BTC: ndarray, mask_BT: ndarray, heads: int) -> ndarray:
    """Add up, over examples, the size of the derivative by a factor before each head."""
    size = context_BTC.shape[2] // heads
    parts = [slice(head * size, (head + 1) * size) for head in range(heads)]
    terms_BTC = context_BTC * gradients_BTC * mask_BT[..., None]
    return np.array([sum(abs(terms_BTC[row, :, part].sum()) for row in range(len(mask_BT))) for part in parts])


def activation_of_heads(context_BTC: ndarray, gradients_BTC: ndarray, mask_BT: ndarray, heads: int) -> ndarray:
    """Add up the squared mean sizes of the numbers of each head over real tokens, of every example."""
    each_C = sum(
        np.mean(np.abs(context_TC[mask_T == 1]), axis=0) ** 2
        for context_TC, mask_T in zip(context_BTC, mask_BT, strict=True)
    )
    return np.array([part.sum() for part in np.split(each_C, heads)])


def norms_of_dimensions(read_MD: ndarray, written_DM: ndarray) -> ndarray:
    """Return the length of all weights that read a dimension and all that write it, in one vector."""
    return length(np.concatenate([read_MD.T, written_DM], axis=1))


def norms_of_heads(values_CD: ndarray, output_DC: ndarray, heads: int) -> ndarray:
    """Multiply the length of all weights into a head by that of all weights out of it."""
    into, out = np.split(values_CD, heads), np.split(output_DC, heads, axis=1)
    return np.array([np.sqrt(np.sum(one**2)) * np.sqrt(np.sum(other**2)) for one, other in zip(into, out, strict=True)])


# --- masks of weights -------------------------------------------------------------------------------------------------


def cubic(step: int, begin: int, end: int, first: float, last: float) -> float:
    """Let the distance to the last value fall as the cube of the steps that are left."""
    left = min(max(end - step, 0), end - begin) / (end - begin)
    return last + (first - last) * left**3


def pressure(first_OI: ndarray, second_OI: ndarray) -> ndarray:
    """Let each matrix count alike, whatever its size."""
    return (np.mean(1 / (1 + np.exp(-first_OI))) + np.mean(1 / (1 + np.exp(-second_OI)))) / 2


def two_of_four(scores_OI: ndarray) -> ndarray:
    """Let the two best of each group stay, one after another; the first one of equals is the better one."""
    mask = np.zeros_like(scores_OI)
    for o, row in enumerate(scores_OI):
        for first in range(0, len(row), 4):
            places = sorted(range(first, first + 4), key=lambda place: (-row[place], place))
            mask[o, places[:2]] = 1.0
    return mask


def masked_weight(weight_OI: ndarray, mask_OI: ndarray, scores_OI: ndarray | None = None) -> ndarray:
    """Let a score have the derivative that a factor before its weight would have, whether the weight stays or not."""
    return weight_OI * (mask_OI if scores_OI is None else passed(scores_OI, mask_OI))


def weight_mask(weight_OI: ndarray, share: float, scores_OI: ndarray | None = None) -> ndarray:
    """Let a share of the weights stay, by their scores, and without scores by their sizes."""
    by_OI = np.abs(weight_OI) if scores_OI is None else scores_OI.real
    [mask_W] = masks_of([by_OI.flatten().tolist()], share, "matrix")
    return masked_weight(weight_OI, np.array(mask_W).reshape(by_OI.shape), scores_OI)


def without_neurons(
    states_ND: ndarray, first_LFD: ndarray, bias_LF: ndarray, second_LDF: ndarray, count: int
) -> ndarray:
    """Outputs of blocks with ReLU, of which all but ``count`` neurons, those with the longest weights, are silent."""
    made = []
    for first_FD, bias_F, second_DF in zip(first_LFD, bias_LF, second_LDF, strict=True):
        stay = most_important(norms_of_weights(first_FD, second_DF).tolist(), count)
        active_NF = np.maximum(states_ND @ first_FD.T + bias_F, 0) * np.isin(np.arange(len(first_FD)), stay)
        made.append(active_NF @ second_DF.T)
    return np.stack(made)


# --- a head that starts at the labels: arXiv:1602.07714 ---


def value_head(states_BD: ndarray, weight_1D: ndarray, bias_1: ndarray, growth_1: ndarray, deviation: float) -> ndarray:
    """Values in units of the labels' deviation; a weight of 0.02 and a scale grow alike."""
    return bias_1 + deviation * np.exp(50 * growth_1) * (states_BD @ weight_1D.T)
