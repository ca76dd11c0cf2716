"""The cases of rules: which layers, which chance, which words."""

from __future__ import annotations

import numpy as np

from tests.methods.golden import rules
from tests.methods.golden.case import Case


def maps_and_strategies() -> list[Case]:
    """Layer maps, starting layers, and which layers go."""
    depths = tuple(
        {"students": students, "teachers": teachers}
        for students, teachers in ((4, 6), (4, 12), (6, 12), (5, 12), (3, 7), (6, 24), (12, 12))
    )
    even = tuple(depth for depth in depths if depth["teachers"] % depth["students"] == 0)
    named = tuple({"name": name, **depth} for name in ("uniform", "last", "skip") for depth in depths[:3])
    drops = tuple(
        {"layers": layers, "drop": drop}
        for layers, drops in ((12, (2, 4, 6)), (6, (1, 2, 3)), (7, (2, 3)))
        for drop in drops
    )
    by_name = tuple(
        {"strategy": name, "layers": 12, "drop": 4}
        for name in ("top", "bottom", "symmetric", "alternate-odd", "alternate-even")
    )
    cosines = [0.5, 0.9, 0.125, 0.9, 0.25, 0.75]
    tables = {
        "layer_maps.uniform": depths,
        "layer_maps.divisible": even,
        "layer_maps.last": depths,
        "layer_maps.skip": depths,
        "layer_maps.layer_map": named,
        "layer_maps.of_kept": ({"kept": [0, 1, 3, 5]}, {"kept": [2]}),
        "layer_maps.initial_layers": (*depths, {"students": 1, "teachers": 12}),
        "patience.patience_layers": tuple({"name": name, **depth} for name in ("skip", "last") for depth in depths),
        "layer_strategies.top": drops,
        "layer_strategies.bottom": drops,
        "layer_strategies.symmetric": drops,
        "layer_strategies.alternate_odd": drops,
        "layer_strategies.alternate_even": drops,
        "layer_strategies.kept_layers": by_name,
        "layer_strategies.contribution": tuple(
            {"layers": 6, "drop": drop, "contributions": cosines} for drop in (1, 2, 3, 5)
        ),
        "layer_strategies.greedy": ({"layers": 6, "drop": 3, "kept": [5, 0, 2]},),
        "layer_strategies.after_a_round": ({"kept": [0, 2, 5]},),
        "theseus.groups": tuple(depths),
        "theseus.chance": tuple(
            {"step": step, "total": 100, "first": 0.25, "share": share}
            for share in (0.5, 1.0, 0.0)
            for step in (0, 1, 25, 50, 75, 99)
        ),
        "relations.relation_heads": tuple(
            {"student_width": ours, "teacher_width": theirs}
            for ours, theirs in ((384, 768), (312, 768), (312, 384), (7, 5))
        ),
    }
    return [Case(of, "table", getattr(rules, of.split(".")[1]), table=table) for of, table in tables.items()]


def shares_that_stay() -> list[Case]:
    """Shares of weights, neurons and heads, with equal scores at the cut, and silent heads."""
    scores = [[0.5, -2.0, 0.5, 3.0, 0.5], [0.0, 0.5, -1.0], [2.1875]]
    heads = [[5.0, 4.0, 3.0, 0.5], [0.0625, 0.0, 0.25, 0.0625], [2.0, 2.0, 2.0, 9.0]]
    sounding = [[1, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 0]]
    both = {"importance_LH": heads, "sounding_LH": sounding}
    trained = [[0.0, -1.0, 0.25, 0.0], [0.25, 0.0, -3.0]]
    tables = {
        "importance.most_important": tuple({"importance_F": scores[0], "count": count} for count in (0, 1, 2, 3, 5)),
        "weight_masks.largest": tuple({"scores": scores, "count": count} for count in (0, 1, 3, 5, 9)),
        "weight_masks.masks_of": tuple(
            {"scores": scores, "share": share, "scope": scope}
            for scope in ("global", "matrix")
            for share in (0.0, 0.5, 0.7, 1.0)
        ),
        "weight_masks.share_above": tuple({"scores": scores, "threshold": bound} for bound in (0.0, 0.1, 0.5, 0.9)),
        "tickets.ticket": tuple({"trained": trained, "share": share} for share in (0.1, 0.4, 0.5, 0.9)),
        "silent_heads.kept_heads": tuple(
            {**both, "share": share, "scope": scope}
            for scope in ("layer", "global")
            for share in (0.01, 0.4, 0.5, 0.65, 0.8)
        ),
        "neurons.neurons_to_keep": tuple(
            {"neurons": neurons, "share": share}
            for neurons, share in ((3072, 0.5), (3072, 0.26), (312, 0.55), (80, 0.6), (64, 0.01), (63, 0.5), (20, 0.01))
        ),
        "widths.heads_to_keep": tuple(
            {"heads": heads, "share": share} for heads, share in ((12, 2 / 3), (12, 0.375), (12, 0.01), (3, 0.5))
        ),
        "sub_networks.flops_of_token": tuple(
            {"layers": layers, "heads": heads, "neurons": neurons, "head_size": 64}
            for layers, heads, neurons in ((12, 12, 3072), (4, 6, 768), (1, 1, 32))
        ),
    }
    return [Case(of, "table", getattr(rules, of.split(".")[1]), table=table) for of, table in tables.items()]


def texts() -> list[Case]:
    """Words that may be swapped, and what they are swapped for."""
    asked = [
        "movie",
        "MOVIE",
        "The",
        "not",
        "won",
        "very",
        "don't",
        "café",
        "3d",
        "film-maker",
        "I",
        "which",
        "plot",
        "s",
        "u.s.",
    ]
    cases = [
        ("movie", "film"),
        ("movie", "Film"),
        ("movie", "FILM"),
        ("you", "I"),
        ("Paris", "town"),
        ("ldn", "A1"),
        ("", "Film"),
    ]
    tokens = ["Film", "##s", "[UNK]", "movie", "Movie", "3d", ".", "", "story", "café", "plot", "story"]
    words, options = (
        ["A", "good", "film", ",", "dull"],
        [[], ["fine", "bad", "great"], ["movie", "story"], [], ["slow", "grey"]],
    )
    draws = [
        (0.5, 1, 2, 3, "text"),
        (0.5, 1, 2, 4, "text"),
        (0.5, 1, 2, 3, "pair"),
        (0.5, 7, 0, 0, "text"),
        (1.0, 1, 2, 3, "text"),
        (0.0, 1, 2, 3, "text"),
    ]
    names = ("probability", "seed", "example", "epoch", "field")
    vectors = np.array([[0.6, 0.8], [1.0, 0.0], [0.8, -0.6], [1.0, 0.0], [-0.8, 0.6], [0.0, 1.0]])
    return [
        Case(
            "word_substitution.replaceable", "table", rules.replaceable, table=tuple({"word": word} for word in asked)
        ),
        Case(
            "word_substitution.match_case",
            "table",
            rules.match_case,
            table=tuple({"candidate": word, "original": first} for word, first in cases),
        ),
        Case(
            "word_substitution.keep_candidates",
            "table",
            rules.keep_candidates,
            table=tuple({"tokens": tokens, "original": "FILM", "limit": limit} for limit in (0, 2, 9)),
        ),
        Case(
            "word_substitution.sample_variant",
            "table",
            rules.sample_variant,
            table=tuple({"words": words, "options": options, **dict(zip(names, draw, strict=True))} for draw in draws),
        ),
        Case(
            "word_vectors.nearest_words",
            "a double",
            rules.nearest_words,
            {"vectors_VE": vectors, "rows": np.array([0, 1, 3, 5])},
            {"k": 3},
        ),
    ]
