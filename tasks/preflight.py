"""Checks before any computation: students, dropped layers and sweeps against the teacher and the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.architectures import ModelConfig
from tasks.architectures.architecture import UNKNOWN
from tasks.architectures.known_architectures import ARCHITECTURES, architecture_of, model_type_of, shape_of
from tasks.architectures.requirements import require_decoder, require_heads
from tasks.errors import DataError, ModelError, RecipeError
from tasks.ports.files.tokenizer_files import END_OF_WRITTEN, FRAME_OF_READ, require_same_reading, require_template
from tasks.recipe.candidates import DistilledCandidate, DroppedCandidate
from tasks.recipe.chains import depth_of, origins_of
from tasks.recipe.knobs import did_you_mean
from tasks.recipe.makers.bits import QuantizedCandidate, require_served_start
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.makers.layouts import require_layouts, size_or_one_head
from tasks.recipe.makers.writing import require_room_of_model, require_stacks
from tasks.recipe.methods import Sizes, method_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.student_checks import general_phase, own_knobs_apart
from tasks.recipe.students import (
    STRATEGY_NAMES,
    Student,
    general_start,
    other_architectures,
    require_narrow_embedding,
    takes_layers,
)
from tasks.results.facts import RowsFacts
from tasks.task_types.embedding.prompts import require_prompts

WITH_WORDS = ("ForMaskedLM", "ForPreTraining", "LMHeadModel")  # names of classes with a head for words

NOUNS = {"layers": "layers", "hidden": "units", "heads": "heads", "feed_forward": "units in its feed-forward blocks"}
"""The units of a student's knobs, for messages."""


def check_students(recipe: Recipe, base: Path, starts: Mapping[str, Path]) -> None:
    """Reject students and dropped models that cannot be built from this teacher; ``starts`` are the students' own
    starting checkpoints, by student."""
    config = json.loads((base / "config.json").read_text())
    if not recipe.planned:
        raise RecipeError(
            f"there are no candidates: add students, layer_dropping or candidates to {recipe.name}, or run its "
            f"sweep: limbeck sweep"
        )
    require_layouts(recipe, config, [json.loads((one / "config.json").read_text()) for one in starts.values()])
    require_stacks(recipe, config)
    require_room_of_model(recipe, config)
    require_prompts(base, recipe.spec.kind, recipe.spec, recipe.transfer)
    require_template([base, *starts.values()], recipe.spec.kind)
    for student in recipe.new_students:
        own = check_start(recipe, student, starts[student.name], base) if student.name in starts else None
        check_student(recipe, student, config, own)
    check_words(recipe, config)
    check_chains(recipe, config, base, starts)


def check_chains(recipe: Recipe, config: ModelConfig, base: Path, starts: Mapping[str, Path]) -> None:
    """Reject dropped models without enough layers, and followers that cannot be distilled; each is checked after the
    candidate that it is made from."""
    known = {one.name: one for one in recipe.planned}
    for one in sorted(recipe.planned, key=lambda candidate: len(origins_of(candidate, known))):
        behind = known.get(one.made_from)
        layers = layers_of(config) if behind is None else depth_of(behind, known, layers_of(config))
        first = [one, *origins_of(one, known)][-1]
        if isinstance(one, QuantizedCandidate):
            require_served_start(one.name, first.start_of_layers, model_type_of(config))
        elif isinstance(one, DroppedCandidate):
            check_dropping(recipe, one, layers)
        elif isinstance(one, DistilledCandidate) and behind is not None:
            check_follower(recipe, one, layers, config, base, starts.get(first.name))


def check_follower(
    recipe: Recipe, candidate: DistilledCandidate, layers: int, config: ModelConfig, base: Path, start: Path | None
) -> None:
    """Check what a candidate of ``layers`` layers copies of its teacher; ``start`` is the checkpoint of the candidate
    with which its chain begins, if that one brings one."""
    student = recipe.as_student(candidate, layers)
    known = {one.name: one for one in recipe.planned}
    chain = [candidate, *origins_of(candidate, known)]
    shape, own = chain[-1].planned_shape, config
    if start is not None:
        own = json.loads((start / "config.json").read_text())
        check_reading(recipe, student, start, base)
    width, heads = (shape.get(knob) or whole(own, knob) for knob in ("hidden", "heads"))
    for one in reversed(chain):
        width, heads = one.width_and_heads(width, heads)
    check_copying(recipe, student, config, Sizes(layers, width, heads))


def check_start(recipe: Recipe, student: Student, start: Path, base: Path) -> ModelConfig:
    """Check a student's own starting checkpoint, and return its config: its shape must match the recipe; its tokenizer
    and the place of its summary token must match the teacher's if layers are compared."""
    config: ModelConfig = json.loads((start / "config.json").read_text())
    for knob, there in shape_of(config).items():
        if getattr(student, knob, None) not in (None, there):
            raise ModelError(
                f"student {student.name} starts from {student.start}, which has {there} {NOUNS.get(knob, knob)}, and "
                f"the recipe gives it {getattr(student, knob)}; set {knob}: {there}, or start from another model"
            )
    check_reading(recipe, student, start, base)
    return config


def check_reading(recipe: Recipe, student: Student, start: Path, base: Path) -> None:
    """Check that a checkpoint of the user's own reads and sums up a text as the teacher does, if layers are
    compared."""
    config, theirs = (json.loads((folder / "config.json").read_text()) for folder in (start, base))
    ends = {architecture_of(one).summary_last for one in (config, theirs)}
    if recipe.inner_phase(student) is not None and len(ends) > 1:
        raise ModelError(
            f"student {student.name} starts from {student.start}, whose summary token is at the other end of the "
            f"text than its teacher's; start from a model of the teacher's family, or remove intermediate from its "
            f"stages"
        )
    # Predictions are per text, so a student may use its own tokenizer for them; layers and pieces are compared.
    of_pieces = recipe.task_type.answers_pieces and student.signal == "teacher"
    of_words = of_pieces and recipe.task_type.keeps_words and recipe.task_distillation.answers != "live"
    if recipe.inner_phase(student) is not None or of_pieces:
        instead = "set its signal: labels" if of_pieces else "remove intermediate from its stages"
        instead = "let it learn the teacher's texts (signal: sequence)" if recipe.task_type.written_signals else instead
        kept = () if not of_words else END_OF_WRITTEN if recipe.task_type.writes else FRAME_OF_READ
        require_same_reading(start, base, f"student {student.name} starts from {student.start}", instead, kept)


def check_student(recipe: Recipe, student: Student, config: ModelConfig, own: ModelConfig | None = None) -> None:
    """Check one student's depth, width and heads, and that the teacher exposes the signals to copy; ``own`` is the
    config of the student's own starting checkpoint."""
    layers, width = (whole(config, knob) for knob in ("layers", "hidden"))
    if student.layers > layers:
        raise ModelError(
            f"student {student.name} has {student.layers} layers and its teacher {layers}; give it at most {layers}"
        )
    own_width, own_heads = (getattr(student, knob) or whole(own or config, knob) for knob in ("hidden", "heads"))
    require_heads(own or config, own_width, own_heads, f"student {student.name}")
    if own_width > width and student.start in ("teacher", "embeddings"):
        raise ModelError(
            f"student {student.name} is wider ({own_width}) than its teacher ({width}); make it narrower or use "
            f"start: random"
        )
    check_knobs(student, own or config)
    require_decoder(config, student.decoder_layers, f"student {student.name}")
    require_room_of_model(recipe, own or config, student.positions, student.name)
    check_origin(student, config)
    check_copying(recipe, student, config, Sizes(student.layers, own_width, own_heads))


def check_copying(recipe: Recipe, student: Student, config: ModelConfig, ours: Sizes) -> None:
    """Check that the teacher exposes the signals to copy, and that patience finds two layers or more of one width."""
    theirs = Sizes(*(whole(config, knob) for knob in ("layers", "hidden", "heads")))
    for section, phase in inner_phases(recipe, student):
        method_of(phase).check(f"student {student.name}, {section}", config, ours, theirs)
    last = student.prediction or recipe.task_distillation.prediction
    if last.patience is None or student.signal != "teacher":
        return
    if ours.layers < 2:
        raise ModelError(
            f"student {student.name} has 1 layer, and patience excludes a student's last layer; set 2 or more layers"
        )
    if ours.width != theirs.width:
        raise ModelError(
            f"student {student.name} is {ours.width} wide and its teacher {theirs.width}; patience needs equal "
            "widths: use the teacher's width, or remove patience"
        )


def check_knobs(student: Student, config: ModelConfig) -> None:
    """Refuse knobs of a shape that the student's architecture does not have; ``config`` is of its teacher, or of the
    checkpoint that it brings."""
    name = student.start if student.start in other_architectures() else model_type_of(config)
    legal = ARCHITECTURES.get(name, UNKNOWN).shape
    other = [knob for knob in own_knobs_apart(student) if knob not in legal]
    if other:
        raise ModelError(
            f"student {student.name}: a model of type {name} has no {', '.join(other)}; remove that, its shape has the "
            f"knobs {', '.join(legal)}"
        )
    require_narrow_embedding(student, whole(config, "hidden"))


def check_origin(student: Student, config: ModelConfig) -> None:
    """Reject a start from whole layers with other widths than theirs, a strategy that cannot leave the student's number
    of layers, and an architecture that is not built from the teacher's."""
    layers = layers_of(config)
    if student.start in STRATEGY_NAMES:
        require_strategy(student.start, layers, layers - student.layers)
    if not takes_layers(student.start):
        return
    target = ARCHITECTURES[student.start] if student.start in other_architectures() else None
    other = [
        knob
        for knob, there in shape_of(config).items()
        if knob not in ("layers", "decoder_layers") and getattr(student, knob, None) not in (None, there)
    ]
    if other and (target is None or not target.own_widths):
        raise ModelError(
            f"student {student.name} starts from whole layers (start: {student.start}), so it has its teacher's "
            f"widths; remove {', '.join(other)}, or use start: embeddings or random"
        )
    if target is not None and model_type_of(config) not in target.from_teachers:
        raise ModelError(
            f"student {student.name}: start: {student.start} copies the layers of a model among "
            f"{', '.join(target.from_teachers)}, and the teacher is of type {model_type_of(config)}; use start: teacher"
        )
    if target is not None:
        target.check_shape(shape_of(config), student)


def inner_phases(recipe: Recipe, student: Student) -> list[tuple[str, Any]]:
    """Return the phases in which a student copies more than predictions, by section."""
    general = general_phase(recipe, student)
    found: list[tuple[str, Any]] = [("general_distillation", general)] if general and general_start(student) else []
    phase = recipe.inner_phase(student)
    return [*found, ("task_distillation.intermediate", phase)] if phase is not None else found


def check_dropping(recipe: Recipe, candidate: DroppedCandidate, layers: int) -> None:
    """Reject an unknown strategy, greedy (for sweeps only), and more layers than the strategy can drop of
    ``layers``."""
    check_strategies([candidate.strategy])
    if candidate.strategy == "greedy":
        own = candidate.name in {one.name for one in recipe.candidates}
        where = f"candidate {candidate.name}" if own else "layer_dropping"
        raise RecipeError(
            f"the strategy 'greedy' searches by many short trainings, which only limbeck sweep runs; remove it from "
            f"{where}"
        )
    require_strategy(candidate.strategy, layers, candidate.drop)


def require_strategy(strategy: str, layers: int, drop: int) -> None:
    """Reject an unknown strategy, and a number of layers that it cannot drop."""
    from tasks.methods.layers.layer_strategies import undefined

    check_strategies([strategy])
    if drop >= layers or undefined(strategy, layers, drop):
        raise RecipeError(f"{strategy} cannot drop {drop} of {layers} layers; choose fewer")


def check_strategies(names: Sequence[str]) -> None:
    """Reject a strategy that does not exist, and suggest the most similar one."""
    from tasks.methods.layers.layer_strategies import STRATEGIES

    for name in names:
        if name not in STRATEGIES:
            raise RecipeError(
                f"unknown layer-dropping strategy {name!r}; {did_you_mean(name, STRATEGIES)}choose one of "
                f"{', '.join(sorted(STRATEGIES))}"
            )


def check_sweep(
    recipe: Recipe, strategies: Sequence[str], drops: Sequence[int], dropping: LayerDropping, layers: int
) -> None:
    """Reject a sweep that cannot give a result: unknown strategies, no layer left, nothing to try, or no score to
    choose by."""
    from tasks.methods.layers.layer_strategies import undefined
    from tasks.metrics.metrics import is_error

    check_strategies(strategies)
    if layers < 2:
        raise RecipeError(f"the teacher has {layers} layer, and a sweep keeps at least one; use a deeper teacher")
    for drop in drops:
        if drop >= layers:
            raise RecipeError(f"dropping {drop} of {layers} layers leaves none; at most {layers - 1} can be dropped")
    if all(undefined(strategy, layers, drop) for strategy in strategies for drop in drops):
        raise RecipeError(
            f"{', '.join(strategies)} cannot drop {', '.join(map(str, drops))} of {layers} layers: there are no "
            f"candidates; alternate strategies drop at most half, so name fewer layers or another strategy"
        )
    if is_error(recipe.spec.headline):
        raise RecipeError(
            f"a sweep counts points below the teacher, and {recipe.spec.headline} is an error; set task.headline to a "
            f"score if the task has one, or list strategies in layer_dropping and use limbeck run"
        )
    if not recipe.data.selection_rows or not dropping.evaluations:
        raise RecipeError(
            "a sweep chooses strategies by their score on the selection rows; "
            "set data.selection_rows and layer_dropping.evaluations to at least 1"
        )


def require_selection(facts: RowsFacts) -> None:
    """Reject rows of which none could be held back for choosing strategies; accept a plan, which has not counted them
    yet."""
    if facts.rows and not facts.rows.get("selection"):
        raise DataError(
            "a sweep chooses strategies on selection rows, at most a tenth of train, and train is too small for "
            "one; add rows"
        )


def require_rows_for_int8(recipe: Recipe, facts: RowsFacts) -> None:
    """Reject rows of which none could be held back for judging quantized graphs; accept a plan, which has not counted
    them yet."""
    wanted = recipe.exports.quantized if recipe.exports else ()
    if wanted and facts.rows and not facts.rows.get("selection"):
        raise DataError(
            f"{wanted[0]} is evaluated on selection rows, at most a tenth of train, and train is too small for one; "
            "add rows, or set exports.formats: [onnx]"
        )


def check_words(recipe: Recipe, config: ModelConfig) -> None:
    """Reject recipes that need word predictions from a teacher that has no masked language model of its kind, or was
    saved without its head."""
    words = recipe.augmentation
    if words is not None and words.masked_lm == "teacher" and not architecture_of(config).has_masked_lm:
        raise ModelError(
            f"augmentation.masked_lm: teacher needs a masked language model, and {config.get('model_type')} is not "
            f"one; name another model, or use augmentation.word_vectors only"
        )
    saved = config.get("architectures") or []
    if words_asked(recipe) and saved and not any(str(name).endswith(WITH_WORDS) for name in saved):
        raise ModelError(
            f"{words_asked(recipe)} needs word predictions of the teacher, which was saved as {', '.join(saved)}, "
            f"without a masked-LM head; name a teacher with such a head, or remove this setting"
        )


def words_asked(recipe: Recipe) -> str:
    """Return the section that needs word predictions of the pretrained teacher; empty if none does."""
    if recipe.augmentation is not None and recipe.augmentation.masked_lm == "teacher":
        return "augmentation.masked_lm: teacher"
    for student in recipe.new_students:
        phase = general_phase(recipe, student)
        if phase is not None and general_start(student) and phase.predicts_words:
            return f"general_distillation.method: {phase.method}"
    return ""


def layers_of(config: ModelConfig) -> int:
    """Return a config's depth, under any family's name for it."""
    return whole(config, "layers")


def whole(config: ModelConfig, knob: str) -> int:
    """Return one number of a config's shape, by the name of a student's knob; raise ModelError if it is missing."""
    found = size_or_one_head(config, knob)
    if not isinstance(found, int):
        of = f"the config of this {config.get('model_type', 'model')}"
        raise ModelError(f"{of} does not contain its {knob}; use a BERT-like encoder")
    return found
