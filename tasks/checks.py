"""What is checked before anything is spent, and the floor that a teacher must clear before anything is distilled from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.errors import GateError, ModelError, RecipeError
from tasks.recipe import Matching, Recipe, Student, Teacher

MARGIN = 0.05  # points above guessing that any teacher worth copying clears
CORRELATED = 0.3  # least correlation of a regression teacher


def require_floor(knobs: Teacher, facts: Mapping[str, Any]) -> None:
    """Refuse a teacher whose score on the selection rows is below the floor."""
    if knobs.floor is not None:
        score, floor, source = facts["selection_score"], knobs.floor, "teacher.floor"
    elif "selection_accuracy" in facts:
        score, floor, source = facts["selection_accuracy"], min(0.999, facts["majority"] + MARGIN), "the majority class plus 5 points"
    else:
        score, floor, source = facts["selection_score"], CORRELATED, "the least correlation of a regression teacher"
    if score < floor:
        raise GateError(
            f"the teacher scores {score:.3f} on the selection rows and the floor is {floor:.3f} ({source}); "
            "check the label column and label order, train it longer, or set teacher.floor"
        )


def check_students(recipe: Recipe, base: Path, starts: Mapping[str, Path]) -> None:
    """Refuse students and dropped models that cannot be built from this teacher; ``starts`` are checkpoints that students bring, by student."""
    config = json.loads((base / "config.json").read_text())
    for student in recipe.students:
        check_student(recipe, student, config)
        if student.name in starts:
            check_start(student, starts[student.name], base)
    if recipe.layer_dropping is not None:
        check_dropping(recipe, layers_of(config))


def check_start(student: Student, start: Path, base: Path) -> None:
    """Check a checkpoint that a student brings: its depth is what the recipe says, and its tokenizer is the teacher's."""
    layers = layers_of(json.loads((start / "config.json").read_text()))
    if layers != student.layers:
        raise ModelError(f"student {student.name} starts from {student.start}, which has {layers} layers, and the recipe gives it {student.layers}; "
                         f"set layers: {layers}, or start from another model")  # fmt: skip
    if vocabulary(start) != vocabulary(base):
        raise ModelError(
            f"student {student.name} starts from {student.start}, whose tokenizer is not its teacher's: the teacher's answers are about other ids; "
            "start from a model with the same tokenizer, or use start: teacher or random"
        )


def vocabulary(folder: Path) -> Any:
    """Return what a tokenizer makes of text, as far as its files say: tokens and ids, and how text is cut and normalised before."""
    if (folder / "tokenizer.json").is_file():
        values = json.loads((folder / "tokenizer.json").read_text())
        return {name: values.get(name) for name in ("model", "normalizer", "pre_tokenizer")}
    return (folder / "vocab.txt").read_text(encoding="utf-8").splitlines() if (folder / "vocab.txt").is_file() else None


def check_student(recipe: Recipe, student: Student, config: Mapping[str, Any]) -> None:
    """Check one student's depth, width and heads."""
    layers, width, heads = layers_of(config), config.get("hidden_size", config.get("dim")), heads_of(config)
    if student.layers > layers:
        raise ModelError(f"student {student.name} has {student.layers} layers and its teacher {layers}; give it at most {layers}")
    own_width, own_heads = student.hidden or width, student.heads or heads
    if own_width % own_heads:
        raise ModelError(f"student {student.name}: width {own_width} does not divide by {own_heads} heads; choose heads that divide it")
    if own_width > width and student.start in ("teacher", "embeddings"):
        raise ModelError(f"student {student.name} is wider ({own_width}) than its teacher ({width}); make it narrower or use start: random")
    for section, matching in matchings(recipe, student):
        check_matching(f"student {student.name}, {section}", matching, (student.layers, own_width, own_heads), (layers, width, heads))


def matchings(recipe: Recipe, student: Student) -> list[tuple[str, Matching]]:
    """Return the matching knobs that apply to a student, by section."""
    found = []
    if recipe.takes(student, "general") and recipe.general_distillation is not None:
        found.append(("general_distillation", recipe.general_distillation.matching))
    phase = student.intermediate or recipe.task_distillation.intermediate
    if recipe.takes(student, "intermediate") and phase is not None:
        found.append(("task_distillation.intermediate", phase.matching))
    return found


def check_matching(where: str, matching: Matching, student: tuple[int, int, int], teacher: tuple[int, int, int]) -> None:
    """Check layers, width and heads where inner signals are compared."""
    if matching.attention and student[2] != teacher[2]:
        raise ModelError(f"{where}: {student[2]} heads against the teacher's {teacher[2]}; attention scores need equal heads, or set matching.attention: 0")
    if matching.projection == "none" and student[1] != teacher[1]:
        raise ModelError(f"{where}: projection none needs equal widths, here {student[1]} and {teacher[1]}; use projection: shared")
    if matching.layer_map == "divisible" and teacher[0] % student[0]:
        raise ModelError(f"{where}: {teacher[0]} teacher layers do not divide by {student[0]}; use layer_map: uniform")


def check_dropping(recipe: Recipe, layers: int) -> None:
    """Refuse unknown strategies, repeats, and numbers of layers that leave nothing."""
    from tasks.methods.layer_strategies import STRATEGIES, undefined

    assert recipe.layer_dropping is not None
    for strategy in recipe.layer_dropping.strategies:
        if strategy not in STRATEGIES:
            raise RecipeError(f"unknown layer-dropping strategy {strategy!r}; choose one of {', '.join(sorted(STRATEGIES))}")
        for drop in recipe.layer_dropping.drop:
            if drop >= layers or undefined(strategy, layers, drop):
                raise RecipeError(f"{strategy} cannot drop {drop} of {layers} layers; choose fewer")


def layers_of(config: Mapping[str, Any]) -> int:
    """Return a config's depth, whatever its family calls it."""
    return int(config.get("num_hidden_layers", config.get("n_layers", config.get("n_layer"))))


def heads_of(config: Mapping[str, Any]) -> int:
    """Return a config's attention heads, whatever its family calls them."""
    return int(config.get("num_attention_heads", config.get("n_heads", config.get("n_head"))))
