"""All candidates of a recipe, and the chains in which one is made from another."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tasks.architectures.albert import SHARED_PARTS
from tasks.catalog import TaskSpec
from tasks.modeling.names import OWN_TYPES
from tasks.recipe.candidates import DistilledCandidate, DroppedCandidate
from tasks.recipe.distillation import GeneralDistillation, Intermediate
from tasks.recipe.judging import OF_GRIDS, OF_TEXTS, OF_ZEROS, Exports, Gate
from tasks.recipe.knobs import did_you_mean, require_distinct
from tasks.recipe.makers.bits import QuantizedCandidate
from tasks.recipe.makers.candidate_knobs import PRETRAINED, TEACHER, CandidateKnobs
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.students import Student
from tasks.recipe.training import Ensemble, Pretraining
from tasks.task_types.types import TASK_TYPES

READ_VALUES = ("relations", "self-attention")
"""Methods of a first phase that compare the values of attention heads."""
LEAST_LAYERS = 2
"""Layers of a student whose depth is only known with its teacher's; of these, checks before that assume the best."""


def planned_candidates(
    students: Sequence[Student], dropping: LayerDropping | None, candidates: Sequence[CandidateKnobs]
) -> tuple[CandidateKnobs, ...]:
    """Return all candidates in the order of the results, with their seeds stated; followers without seeds have those of
    the candidate that they are made from."""
    short: list[CandidateKnobs] = [DistilledCandidate.of_student(student) for student in students]
    if dropping is not None:
        short += [
            DroppedCandidate.of_section(dropping, strategy, drop)
            for strategy in dropping.strategies
            for drop in dropping.drop
        ]
    every = [*short, *candidates]
    known = {one.name: one for one in every}
    return tuple(one.model_copy(update={"seeds": seeds_of(one, known)}) for one in every)


def seeds_of(candidate: CandidateKnobs, known: dict[str, CandidateKnobs]) -> tuple[int, ...]:
    """Return a candidate's seeds: its own, or those of the nearest candidate behind it that states them."""
    behind = [candidate, *origins_of(candidate, known)]
    return next((one.seeds for one in behind if one.seeds is not None), (0,))


def origins_of(candidate: CandidateKnobs, known: dict[str, CandidateKnobs]) -> list[CandidateKnobs]:
    """Return the candidates that one is made from, the nearest first; ends at an unknown name, and before a circle
    closes."""
    found: list[CandidateKnobs] = []
    place: CandidateKnobs | None = known.get(candidate.made_from)
    while place is not None and place.name not in (candidate.name, *(one.name for one in found)):
        found.append(place)
        place = known.get(place.made_from)
    return found


def require_teachers_pieces(candidates: Sequence[CandidateKnobs]) -> None:
    """Raise ValueError for a candidate that learns the recipe's teacher's answers to pieces, and is made from one with
    a tokenizer of its own. One that is quantized learns from the model that it is made from."""
    known = {one.name: one for one in candidates}
    for one in candidates:
        trimmed = next((other.name for other in origins_of(one, known) if other.has_own_tokenizer), None)
        learns = one.signal_of_training == "teacher" and not isinstance(one, QuantizedCandidate)
        if trimmed is not None and learns:
            raise ValueError(
                f"candidate {one.name} is made from {trimmed}, whose tokenizer is not its teacher's, so their answers "
                f"to pieces cannot be compared; set signal: labels, or trim the vocabulary afterwards"
            )


def require_comparable_layers(name: str, method: str, behind: Sequence[CandidateKnobs], unlike: str) -> None:
    """Raise ValueError for a first phase by a ``method`` that would train the values of pruned heads, and for one whose
    tokens cannot be compared with the teacher's; ``unlike`` says of a recipe's rows why."""
    silent = next((one.name for one in behind if one.has_silent_heads), None)
    if silent is not None and method in READ_VALUES:
        raise ValueError(
            f"candidate {name} is made from {silent}, whose pruned heads have no values, and method: {method} would "
            f"train values of all heads; use method: layers, or set stages: []"
        )
    trimmed = next((one.name for one in behind if one.has_own_tokenizer), None)
    if trimmed is not None and unlike:
        raise ValueError(
            f"candidate {name} is made from {trimmed}, whose tokenizer is not its teacher's, and rows that {unlike} "
            f"cannot be compared token by token; set stages: [], or trim the vocabulary afterwards"
        )


def what_layers_share(name: str, known: dict[str, CandidateKnobs], section: Pretraining | None) -> str:
    """Return what layers of a candidate share, as ``share`` says it, because it, or the one that its chain begins with,
    is built as an ALBERT, or of one that the ``section`` on pretraining describes; empty for nothing."""
    if name not in known:
        return ""
    found = [known[name], *origins_of(known[name], known)][-1].sharing(section)
    return "" if found == "none" else found


def mixers_of(name: str, known: dict[str, CandidateKnobs]) -> tuple[str, ...]:
    """Return the mixers of a candidate's layers, in order, where it, or the one that its chain begins with, is built
    with attentions of our own; empty for any other."""
    if name not in known:
        return ()
    return [known[name], *origins_of(known[name], known)][-1].mixers


def require_chains(candidates: Sequence[CandidateKnobs], section: Pretraining | None) -> None:
    """Raise ValueError for names that are taken twice, for candidates that are made from something unknown, from
    each other, or from seeds that are not there, and for changes of layers that share a block; ``section`` says what
    those of pretrained models share."""
    names = [one.name for one in candidates]
    taken = sorted({name for name in names if names.count(name) > 1 or name in (PRETRAINED, TEACHER)})
    if taken:
        raise ValueError(
            f"candidate {taken[0]} is called like another model of this recipe (students and dropped models count); "
            f"give it another name"
        )
    known = {one.name: one for one in candidates}
    for one in candidates:
        require_origin(one, known)
        require_own_blocks(one, known, section)
        require_compared(one, known)
        if one.planned_role == "step" and all(other.made_from != one.name for other in candidates):
            raise ValueError(
                f"candidate {one.name} is a step, and no candidate is made from it; name it as from: {one.name} of "
                f"another one, or leave role out"
            )
    for one in candidates:
        if one.is_follower and not set(one.planned_seeds) <= set(known[one.made_from].planned_seeds):
            raise ValueError(
                f"candidate {one.name} has the seeds {list(one.planned_seeds)}, and {one.made_from}, which it is made "
                f"from seed by seed, has {list(known[one.made_from].planned_seeds)}; give it some of these"
            )


def require_compared(candidate: CandidateKnobs, known: dict[str, CandidateKnobs]) -> None:
    """Raise ValueError for a candidate that is to be compared to itself, or to what the recipe does not make."""
    require_distinct(candidate.compared_to, f"candidate {candidate.name}: compared_to")
    legal = [name for name in known if name != candidate.name]
    for name in candidate.compared_to:
        if name == TEACHER:
            raise ValueError(
                f"candidate {candidate.name} is to be compared to the teacher, to which all candidates are; leave it "
                f"out of compared_to"
            )
        if name not in legal:
            raise ValueError(
                f"candidate {candidate.name} is to be compared to {name!r}, which is no other candidate of this "
                f"recipe; {did_you_mean(name, legal)}legal are {', '.join(legal) or 'none'}"
            )


def require_origin(candidate: CandidateKnobs, known: dict[str, CandidateKnobs]) -> None:
    """Raise ValueError if the model that a candidate is made from is not made by the recipe, or is made from it."""
    if not candidate.is_follower:
        return
    if candidate.made_from not in known:
        legal = (PRETRAINED, TEACHER, *(name for name in known if name != candidate.name))
        near = get_close_matches(candidate.made_from, legal, 1)
        raise ValueError(
            f"candidate {candidate.name} is made from {candidate.made_from!r}, which this recipe does not make; "
            f"{f'did you mean {near[0]!r}? ' if near else ''}legal are {', '.join(legal)}"
        )
    behind = origins_of(candidate, known)
    zeros = [one.name for one in behind if one.has_zeros]
    if zeros and candidate.signal_of_training:
        raise ValueError(
            f"candidate {candidate.name} trains {zeros[0]} again, and its weights would be 0 no longer; let "
            f"{zeros[0]} be made from {candidate.name}, not the reverse"
        )
    patterns = [one.name for one in behind if one.has_pattern]
    if patterns and candidate.takes_columns:
        raise ValueError(
            f"candidate {candidate.name} takes columns out of the matrices of {patterns[0]}, whose groups of four "
            f"weights would be others (pattern: 2:4); let {patterns[0]} be made from {candidate.name}, not the reverse"
        )
    grids = [one.name for one in behind if one.grid]
    if grids and not candidate.grid:
        raise ValueError(
            f"candidate {candidate.name} changes the weights of {grids[0]}, which would leave the grid for which they "
            f"are trained; let {grids[0]} be made from {candidate.name}, not the reverse"
        )
    if known[candidate.made_from] is candidate or behind[-1].made_from == candidate.name:
        circle = " from ".join([candidate.name, *(one.name for one in behind), candidate.name])
        raise ValueError(
            f"candidates are made in a circle, {circle}; let one of them be made from pretrained, teacher or another "
            f"candidate"
        )


def require_own_blocks(
    candidate: CandidateKnobs, known: dict[str, CandidateKnobs], section: Pretraining | None
) -> None:
    """Raise ValueError for a candidate whose maker changes layers one by one, where all of them share one block."""
    first = [candidate, *origins_of(candidate, known)][-1]
    if candidate.changes_each_layer and first.sharing(section) in SHARED_PARTS:
        whose = first.made_from if first is candidate else first.name
        raise ValueError(
            f"candidate {candidate.name} changes layers one by one, and all layers of {whose} share one block, "
            f"which would be changed once for each of them; give {whose} share: none, all or groups:K"
        )


def start_behind(candidate: CandidateKnobs, known: dict[str, CandidateKnobs]) -> str:
    """Return the ``start`` from which a candidate's layers come: that of the first candidate of its chain."""
    return [candidate, *origins_of(candidate, known)][-1].start_of_layers


def depth_of(candidate: CandidateKnobs, known: dict[str, CandidateKnobs], layers: int) -> int:
    """Return a candidate's number of layers, of a teacher with ``layers``."""
    for one in reversed([candidate, *origins_of(candidate, known)]):
        layers = one.depth(layers)
    return layers


def require_made(gate: Gate, candidates: Sequence[CandidateKnobs], exports: Exports | None, *, elsewhere: bool) -> None:
    """Reject criteria on figures that no candidate of the run has: of texts where none has a tokenizer of its own,
    those ``elsewhere`` without judging sets, packed bytes where no weight is 0, and bits where none is trained for few
    and no graph has few. Raises ValueError."""
    metrics = [criterion.metric for criterion in gate.criteria]
    of_texts = [metric for metric in metrics if metric in OF_TEXTS]
    if of_texts and not any(one.has_own_tokenizer for one in candidates):
        raise ValueError(
            f"gate: {of_texts[0]} is measured where a candidate has a tokenizer of its own, and none has; remove "
            f"the criterion, or add a candidate by vocabulary-trimming"
        )
    of_zeros = [metric for metric in metrics if metric in OF_ZEROS]
    if of_zeros and not any(one.has_zeros for one in candidates):
        raise ValueError(
            f"gate: {of_zeros[0]} is measured where a candidate has zeros, and none has; remove the criterion, or "
            f"add a candidate by weight-pruning"
        )
    if set(metrics) & set(OF_GRIDS) and not ((exports and exports.quantized) or any(one.grid for one in candidates)):
        raise ValueError(
            "gate: bits are known where a candidate is trained for few, or is exported in few, and none is; remove the "
            "criterion, or add a candidate by quantization, or an export in int8"
        )
    if "fertility_elsewhere" in of_texts and not elsewhere:
        raise ValueError("gate: fertility_elsewhere is measured on judging sets; add one to data.judge")


def check_ensemble(ensemble: Ensemble | None, spec: TaskSpec, candidates: Sequence[CandidateKnobs]) -> None:
    """Reject an ensemble that cannot be mixed, or from which no model learns."""
    if ensemble is None:
        return
    if ensemble.combine == "certainty" and not TASK_TYPES[spec.kind].has_certainty:
        raise ValueError(
            f"ensemble.combine: certainty needs classes, and {spec.name} is a task of {spec.kind}; use combine: weights"
        )
    if "teacher" not in {one.signal_of_training for one in candidates}:
        raise ValueError(
            "no student learns from the ensemble's predictions; set a student's signal to teacher, or remove the "
            "ensemble"
        )


def require_parts_of_words(name: str, kind: str, pretraining: object, general: object, formats: Sequence[str]) -> None:
    """Reject the sections that are about other models, or are not built, for a task of words. Raises ValueError."""
    continues = TASK_TYPES[kind].continues_texts
    without = {
        "pretraining": (
            pretraining if continues else None,
            "trains an encoder, which sees the words that it should predict",
        ),
        "general_distillation": (general, "copies layers on general text; documents of any kind are rows of this task"),
    }
    given = next((section for section, (there, _) in without.items() if there is not None), None)
    if given is not None:
        raise ValueError(f"{given} {without[given][1]}, and {name} is of type {kind}; remove the section {given}")
    if continues or TASK_TYPES[kind].writes:
        require_memory(name, kind, formats)


def require_memory(name: str, kind: str, formats: Sequence[str]) -> None:
    """Raise ValueError for exports that cannot write a text word by word."""
    if programs := [one for one in formats if one.startswith("executorch")]:
        raise ValueError(
            f"exports.formats: programs for phones have no memory, so they write no texts, and {name} is of type "
            f"{kind}; remove {programs[0]}"
        )


def require_kept_answers(name: str, kind: str, answers: str) -> None:
    """Raise ValueError for a teacher that answers beside its students where whole answers are stored anyway."""
    if answers == "live" and not TASK_TYPES[kind].keeps_words:
        those = " or ".join(one for one, task_type in TASK_TYPES.items() if task_type.keeps_words)
        raise ValueError(
            f"task_distillation.answers is live, and {name} is of type {kind}, whose answers are stored whole and read "
            f"by all students; remove answers, which is for tasks of type {those}"
        )


def require_turns(name: str, share: str | None, layers: int, phase: Intermediate | GeneralDistillation) -> None:
    """Raise ValueError for feature maps of layers that share weights (``share``, of an ALBERT), which cannot take
    turns, and for too few steps: each layer that takes its turn needs one, and the words after them on general text."""
    if phase.method != "feature-maps":
        return
    if share not in (None, "none"):
        raise ValueError(
            f"student {name} shares weights between its layers (share: {share}), and method: feature-maps copies one "
            f"layer after another; use method: layers, or set share: none"
        )
    knobs, steps = phase.feature_maps, phase.steps
    has_words = isinstance(phase, GeneralDistillation) and bool(knobs.predictions)
    if steps is None or knobs.transfer == "auxiliary":
        return
    first = round(steps * knobs.share) if has_words else steps
    least = layers if knobs.transfer == "progressive" else 1
    if first < least or (has_words and first == steps):
        of_words = f" of the {knobs.share:.0%} that feature_maps.share gives them, and words one" if has_words else ""
        raise ValueError(
            f"student {name}: {steps:,} steps of feature-maps are too few, as its layers need {least} at least"
            f"{of_words}; give the phase more steps{', or set transfer: joint' if least > 1 else ''}"
        )


def require_method_of_start(name: str, start: str, inner: Intermediate) -> None:
    """Raise ValueError for a first phase that reads the attention of a student which has another, and for the phase of
    such students for any other."""
    has_mixers = start in OWN_TYPES
    if inner.method == "attention-outputs" and not has_mixers:
        raise ValueError(
            f"student {name} starts from {start}, and method: attention-outputs trains other attentions; set start: "
            f"{' or '.join(OWN_TYPES)} and a mixer, or another method"
        )
    weights = {"layers": inner.matching.attention, "feature-maps": inner.feature_maps.attention}
    reads_attention = inner.method in ("relations", "self-attention") or weights.get(inner.method, 0.0) > 0
    if has_mixers and reads_attention:
        raise ValueError(
            f"student {name} has other attentions (start: {start}), so scores, queries, keys and values are not "
            f"compared; use method: attention-outputs, or layers with matching.attention: 0"
        )
