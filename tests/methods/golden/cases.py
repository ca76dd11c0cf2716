"""The cases of losses and measures, and the list of all cases.

Inputs are small, drawn from fixed seeds; a float holds them exactly and a file shows them in few letters.
"""

from __future__ import annotations

import numpy as np

from tests.methods.golden import losses
from tests.methods.golden.case import Case, drawn, pair
from tests.methods.golden.feature_maps import feature_maps
from tests.methods.golden.lists import lists
from tests.methods.golden.next_words import next_words
from tests.methods.golden.pretraining import pretraining
from tests.methods.golden.quantization import grids, learned_steps, three_values
from tests.methods.golden.tables import maps_and_strategies, shares_that_stay, texts
from tests.methods.golden.vectors import vectors

MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
SHORT = np.array([[1, 1, 1], [1, 0, 0]])
LEFT = np.array([[0, 0, 1, 1], [1, 1, 1, 1]])  # as XLNet is padded


def answers() -> list[Case]:
    """Soft targets, and labels beside them."""
    student, teacher = pair(1, 4, 3)
    values, theirs = pair(3, 4, 1)
    both = {"student_BC": student, "teacher_BC": teacher}
    numbers = {"student_B1": values, "teacher_B1": theirs, "labels_B": np.array([0.5, np.nan, -1.25, 2.0])}
    classes = {**both, "labels_B": np.array([2, -1, 0, 1])}
    learned = ("student_BC",)
    made = []
    for function in ("soft_target_loss", "softened_sum", "soft_cross_entropy_paper"):
        for temperature in (1.0, 2.0, 8.0):
            made.append(
                Case(
                    f"soft_targets.{function}",
                    f"T{temperature:g}",
                    getattr(losses, function),
                    both,
                    {"temperature": temperature},
                    learned,
                )
            )
    for of, inputs, softening in (("class", classes, {"temperature": 2.0}), ("value", numbers, {})):
        labels = {name: tensor for name, tensor in inputs.items() if not name.startswith("teacher")}
        learned = (next(iter(inputs)),)
        made.append(Case(f"soft_targets.{of}_loss", "labels", getattr(losses, f"{of}_loss"), labels, {}, learned))
        for formula in ("default", "paper"):
            loss, knobs = f"{of}_prediction_loss", {**softening, "hard_weight": 0.25, "formula": formula}
            made.append(Case(f"soft_targets.{loss}", formula, getattr(losses, loss), inputs, knobs, learned))
    return made


def label_sets() -> list[Case]:
    """Several labels a row: each is a Bernoulli distribution of its own; the second row has no label."""
    student, teacher = pair(71, 4, 3)
    inputs = {"student_BC": student, "teacher_BC": teacher, "sets_B": np.array([5, -1, 0, 2])}
    alone = {name: inputs[name] for name in ("student_BC", "sets_B")}
    both = {name: inputs[name] for name in ("student_BC", "teacher_BC")}
    learned = ("student_BC",)
    made = [Case("label_sets.label_set_loss", "labels", losses.label_set_loss, alone, {}, learned)]
    for temperature in (1.0, 4.0):
        name, knobs = "soft_label_set_loss", {"temperature": temperature}
        made.append(Case(f"label_sets.{name}", f"T{temperature:g}", losses.soft_label_set_loss, both, knobs, learned))
    for formula in ("default", "paper"):
        knobs = {"temperature": 2.0, "hard_weight": 0.25, "formula": formula}
        loss = losses.label_set_prediction_loss
        made.append(Case("label_sets.label_set_prediction_loss", formula, loss, inputs, knobs, learned))
    mixed = {"logits_MNC": drawn(72, 2, 3, 2), "weights_MN": np.array([[0.25, 0.5, 1 / 16], [0.75, 0.5, 15 / 16]])}
    made.append(Case("label_sets.mixed_label_sets", "T2", losses.mixed_label_sets, mixed, {"temperature": 2.0}))
    return made


def inner_layers() -> list[Case]:
    """Hidden states, attention scores, and where attention looks."""
    student, teacher = drawn(11, 2, 3, 3), drawn(12, 2, 3, 4)
    states = {
        "student_BTD": student,
        "teacher_BTE": teacher,
        "weight_ED": drawn(13, 4, 3, reach=1),
        "bias_E": drawn(14, 4, reach=1),
    }
    of_states = ("student_BTD", "weight_ED", "bias_E")
    scores = dict(zip(("student_BHTT", "teacher_BHTT"), pair(15, 2, 2, 4, 4), strict=True))
    far = np.array([[[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]])
    hidden = np.where(MASK == 0, -10_000.0, 0.0)[:, None, None, :]
    edge = {
        "student": np.array([-99.9375, -100.0, -100.0625, 1.5, -200.0, 0.25]),
        "teacher": np.array([-100.0, -99.9375, 2.0, -300.0, -150.0, -1.0]),
    }
    masked = {"student": scores["student_BHTT"] + hidden, "teacher": scores["teacher_BHTT"] + hidden}
    learned = ("student_BHTT",)
    return [
        Case(
            "hidden_states.hidden_state_loss",
            "one width",
            losses.hidden_state_loss,
            {"student_BTD": teacher, "teacher_BTE": drawn(17, 2, 3, 4), "mask_BT": SHORT},
            {},
            ("student_BTD",),
        ),
        Case(
            "hidden_states.hidden_state_loss",
            "projected",
            losses.hidden_state_loss,
            {**states, "mask_BT": SHORT},
            {},
            of_states,
        ),
        Case(
            "hidden_states.hidden_state_loss_paper", "projected", losses.hidden_state_loss_paper, states, {}, of_states
        ),
        Case(
            "attention_scores.attention_score_loss",
            "padded",
            losses.attention_score_loss,
            {**scores, "mask_BT": MASK},
            {},
            learned,
        ),
        Case(
            "attention_scores.attention_score_loss",
            "local layer",
            losses.attention_score_loss,
            {**scores, "mask_BT": MASK, "far_1TT": far},
            {},
            learned,
        ),
        Case(
            "attention_scores.attention_score_loss_paper",
            "padded",
            losses.attention_score_loss_paper,
            masked,
            {},
            ("student",),
        ),
        Case(
            "attention_scores.attention_score_loss_paper",
            "at the threshold",
            losses.attention_score_loss_paper,
            edge,
            {},
            ("student",),
        ),
        Case(
            "attention_distributions.attention_distribution_loss",
            "padded",
            losses.attention_distribution_loss,
            {**scores, "mask_BT": MASK},
            {},
            learned,
        ),
        Case(
            "attention_distributions.log_shares",
            "padded",
            losses.log_shares,
            {"scores_BHTT": scores["student_BHTT"], "kept_BT": MASK},
        ),
    ]


def relations_and_patience() -> list[Case]:
    """Relations of states, whose widths and heads differ, and summary tokens."""
    narrow, wide = drawn(21, 2, 2, 4, 4, reach=1), drawn(22, 2, 4, 4, 3, reach=1)
    states = {"student_BHTK": narrow, "teacher_BHTK": wide, "mask_BT": MASK}
    summaries = dict(zip(("student_BLD", "teacher_BLD"), pair(23, 2, 3, 4), strict=True))
    made = [
        Case(
            "relations.relation_loss",
            f"{heads} relation heads",
            losses.relation_loss,
            states,
            {"heads": heads},
            ("student_BHTK",),
        )
        for heads in (1, 4)
    ]
    made.append(Case("relations.relation_scores", "wide", losses.relation_scores, {"states_BHTK": wide}, {"heads": 2}))
    for normalise in (True, False):
        name = "of length one" if normalise else "as they are"
        made.append(
            Case(
                "patience.patience_loss",
                name,
                losses.patience_loss,
                summaries,
                {"normalise": normalise},
                ("student_BLD",),
            )
        )
    return made


def words_and_teachers() -> list[Case]:
    """DistilBERT's terms, mixtures of teachers, means over processes."""
    directions = dict(zip(("student_ND", "teacher_ND"), pair(31, 4, 5), strict=True))
    words = {"student_NV": drawn(33, 5, 6), "targets_N": np.array([-100, 3, 0, -100, 5])}
    logits, values = {"logits_MNC": drawn(34, 3, 4, 3)}, {"values_MN1": drawn(35, 3, 4, 1)}
    weights = {"weights_M": [1.0, 0.5, 2.5]}
    by_row = {"weights_MN": np.array([[4, 2, 8, 1], [8, 2, 4, 1], [4, 12, 4, 14]]) / 16}
    return [
        Case("triple_loss.direction_loss", "tokens", losses.direction_loss, directions, {}, ("student_ND",)),
        Case("triple_loss.masked_word_sum", "three of five", losses.masked_word_sum, words, {}, ("student_NV",)),
        Case(
            "triple_loss.rarity",
            "counts",
            losses.rarity,
            {"counts_V": np.array([7, 0, 1, 2, 1000, 33])},
            {"specials": [0, 5]},
        ),
        Case("ensembles.by_weights", "classes", losses.by_weights, logits, weights),
        Case("ensembles.by_certainty", "classes", losses.by_certainty, logits, weights),
        *(
            Case(
                "ensembles.mixed_distributions",
                f"T{temperature:g}",
                losses.mixed_distributions,
                logits | by_row,
                {"temperature": temperature},
            )
            for temperature in (1.0, 4.0)
        ),
        Case("ensembles.mixed_values", "values", losses.mixed_values, values | by_row),
        Case("means.mean_of", "three processes", losses.mean_of, {}, {"parts": [[1.5, -2.0, 4.25], [], [8.0]]}),
        Case("means.mean_of", "nothing", losses.mean_of, {}, {"parts": [[], []]}),
    ]


def layers_measured() -> list[Case]:
    """Contributions and similarities of layers."""
    states, after = pair(41, 4, 2, 4, 3)
    ours, theirs = drawn(43, 7, 3), drawn(44, 7, 2)
    made = []
    for token, mask in (("cls", MASK), ("last", MASK), ("mean", MASK), ("cls", LEFT), ("last", LEFT)):
        side = "padded left" if mask is LEFT else "padded right"
        knobs, inputs = {"token": token}, {"hidden_states": states, "mask_BT": mask}
        made.append(Case("contribution.cosines_BL", f"{token}, {side}", losses.cosines_BL, inputs, knobs))
    made.append(
        Case(
            "contribution.layer_cosines",
            "mean",
            losses.layer_cosines,
            {"hidden_states": states, "mask_BT": MASK},
            {"token": "mean"},
        )
    )
    made.append(
        Case(
            "contribution.token_means_BL",
            "last",
            losses.token_means_BL,
            {"values_BLT": drawn(45, 2, 3, 4), "mask_BT": MASK},
            {"token": "last"},
        )
    )
    for token in ("cls", "mean"):
        both = {"before": states, "after": after, "mask_BT": MASK}
        made.append(Case("layer_similarity.between_models_BL", token, losses.between_models_BL, both, {"token": token}))
    rows = {"first_ND": ours, "second_NE": theirs}
    made.append(Case("layer_similarity.linear_cka", "two widths", losses.linear_cka, rows))
    made.append(
        Case(
            "layer_similarity.linear_cka_of",
            "in two batches",
            lambda first_ND, second_NE, cut: losses.linear_cka(first_ND, second_NE),
            rows,
            {"cut": 3},
        )
    )
    return made


def neurons() -> list[Case]:
    """The importance of the neurons of a feed-forward block."""
    seen = {"activations_BTF": drawn(61, 2, 3, 4), "gradients_BTF": drawn(62, 2, 3, 4), "mask_BT": SHORT}
    weights = {"first_FD": drawn(63, 4, 3), "second_DF": drawn(64, 3, 4)}
    blocks = {
        "states_ND": drawn(141, 3, 4, reach=1),
        "first_LFD": drawn(142, 2, 5, 4),
        "bias_LF": drawn(143, 2, 5, reach=1),
        "second_LDF": drawn(144, 2, 4, 5),
    }
    blocks["first_LFD"][0, 4], blocks["second_LDF"][0, :, 4] = blocks["first_LFD"][0, 1], blocks["second_LDF"][0, :, 1]
    return [
        Case("importance.taylor_terms", "padded", losses.taylor_terms, seen, {}),
        Case("importance.mean_activations", "padded", losses.mean_activations, seen, {}),
        Case("importance.norms_of_weights", "both maps", losses.norms_of_weights, weights, {}),
        Case("neurons.keep_neurons", "three of five", losses.without_neurons, blocks, {"count": 3}),
    ]


def stream() -> list[Case]:
    """The importance of dimensions of the residual stream, and of heads."""
    states = {"states_NBTD": drawn(65, 2, 2, 3, 4), "gradients_NBTD": drawn(66, 2, 2, 3, 4), "mask_BT": SHORT}
    context = {"context_BTC": drawn(67, 2, 3, 6), "gradients_BTC": drawn(68, 2, 3, 6), "mask_BT": SHORT}
    maps, of = {"values_CD": drawn(69, 6, 4), "output_DC": drawn(70, 4, 6)}, "stream_importance."
    sides = {"read_MD": drawn(71, 5, 4), "written_DM": drawn(72, 4, 3)}
    made = [
        Case(f"{of}{name}", "two norms", getattr(losses, name), states)
        for name in ("taylor_of_dimensions", "activation_of_dimensions")
    ]
    made += [
        Case(f"{of}{name}", f"{heads} heads", getattr(losses, name), context, {"heads": heads})
        for name in ("taylor_of_heads", "activation_of_heads")
        for heads in (2, 3)
    ]
    made.append(Case(f"{of}norms_of_dimensions", "both sides", losses.norms_of_dimensions, sides))
    made.append(Case(f"{of}norms_of_heads", "two heads", losses.norms_of_heads, maps, {"heads": 2}))
    return made


def weights() -> list[Case]:
    """Masks of single weights."""
    steps = tuple(
        {"step": step, "begin": 4, "end": 14, "first": 1.0, "last": 0.25} for step in (0, 4, 5, 9, 13, 14, 20)
    )
    scores = {"first_OI": drawn(73, 2, 3), "second_OI": drawn(74, 4, 2)}
    matrix, half = {"weight_OI": drawn(151, 3, 3)}, {"share": 0.5}
    by_scores, above = {**matrix, "scores_OI": np.round(drawn(152, 3, 3))}, drawn(153, 3, 3, reach=1)
    both = ("weight_OI", "scores_OI")
    groups = np.vstack([drawn(75, 1, 8), [[0.5, 0.5, 0.5, 0.5, 2.0, 1.0, 2.0, 2.0]]])
    return [
        Case("semi_structured.two_of_four", "drawn, and equals", losses.two_of_four, {"scores_OI": groups}),
        Case("weight_masks.cubic", "steps", losses.cubic, table=steps),
        Case("weight_masks.pressure", "two sizes", losses.pressure, scores, {}, ("first_OI", "second_OI")),
        Case("weight_masks.WeightMask", "by scores", losses.weight_mask, by_scores, half, both, upstream=above),
        Case("weight_masks.WeightMask", "by size", losses.weight_mask, matrix, half, ("weight_OI",), upstream=above),
    ]


def values() -> list[Case]:
    """A head of one output that starts at the labels."""
    given = {"states_BD": drawn(161, 4, 3), "weight_1D": drawn(162, 1, 3) / 64, "bias_1": np.array([2.5])}
    given["growth_1"] = np.array([0.015625])
    learned, upstream = tuple(given), drawn(163, 4, 1)
    knobs = {"deviation": 1.5}
    return [Case("value_head.ValueHead", "grown", losses.value_head, given, knobs, learned, upstream=upstream)]


def all_cases() -> list[Case]:
    """Return every case, those of one file of ``tasks/methods`` behind each other."""
    groups = (
        answers,
        label_sets,
        inner_layers,
        feature_maps,
        lists,
        next_words,
        pretraining,
        relations_and_patience,
        words_and_teachers,
        layers_measured,
        neurons,
        stream,
        weights,
        values,
        grids,
        learned_steps,
        three_values,
        maps_and_strategies,
        shares_that_stay,
        texts,
        vectors,
    )
    return sorted((case for group in groups for case in group()), key=lambda case: case.of)
