"""Mutations of sections that the two recipes of the suite do not have: these recipes are planned, and never run.

A plan in an empty home knows every stage's key but not what stages make, and says the same of each input that is not
made yet. So only the stages that take a knob themselves change, or appear; what lies below them is proved by the
recipes that are run. Which stages take which knob is said here, in tables: by the stage tasks, and not by what is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.cli.runner import planned_records
from flows.home import Home
from tasks.errors import LimbeckError
from tasks.recipe.knobs import is_semantic
from tasks.recipe.recipe import Recipe
from tasks.results.export_formats import EXPORT_FORMATS, is_program
from tests.suites.mutations import FAST, Case, changed, knobs_of, proposals
from tests.task_types.masked_words.tables import write_documents, write_encoder
from tests.task_types.masked_words.test_chain import values_for as encoders
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.seq2seq.test_chain import values_for as translators
from tests.tiny import write_tiny_bert, write_tiny_rows

Keys = dict[str, list[str]]
"""Each stage of a plan with its keys; stages that share a name are told apart by them."""


@dataclass(frozen=True)
class Rule:
    """Which stages take the knobs of a pattern, and what these are set to where any other value will not do."""

    knobs: str
    stages: tuple[str, ...]
    to: Sequence[Any] = ()


@dataclass
class Planned:
    """A recipe that is only planned, with the rules for those of its knobs that are walked; the first that fits
    holds."""

    name: str
    home: Home
    values: dict[str, Any]
    rules: Sequence[Rule]
    kind: str = "run"

    def keys(self, values: dict[str, Any]) -> Keys:
        """Plan a recipe; return its stages with their keys."""
        found: Keys = {}
        for record in planned_records(Recipe.model_validate(values), self.home, self.kind):
            assert record.cache == "miss", (
                f"{record.display_name} is made already: what is below it would change with it"
            )
            found.setdefault(record.display_name, []).append(record.key)
        return {stage: sorted(keys) for stage, keys in found.items()}

    def cases(self) -> Iterator[Case]:
        """Change every knob that a rule speaks of, one at a time; a rule by which none can be changed proves
        nothing."""
        whole, before = Recipe.model_validate(self.values), self.keys(self.values)
        idle = list(self.rules)
        for path, model, declared, value in knobs_of(whole):
            knob = ".".join(map(str, path))
            rule = next((rule for rule in self.rules if fnmatchcase(knob, rule.knobs)), None)
            for other in (rule.to or proposals(path, declared.annotation, value)) if rule else ():
                try:
                    after = self.keys(changed(whole.model_dump(mode="json"), path, other))
                except (ValidationError, LimbeckError):
                    continue  # not legal here
                seen = changed_stages(before, after, renamed=path[-1] == "name")
                expected = stages_of(rule.stages, before | after) if rule and is_semantic(declared) else set[str]()
                where = (model.__name__, str(path[-1]))
                idle = [one for one in idle if one is not rule]
                yield Case(f"{self.name}: {knob}", expected, seen, f"{value} → {other}, planned", where)
                break
        yield from (Case(f"{self.name}: {rule.knobs}", {"no knob could be changed"}, set()) for rule in idle)


def changed_stages(before: Keys, after: Keys, *, renamed: bool) -> set[str]:
    """Return the stages whose keys differ; where a model got another name, those whose keys no stage had."""
    known = {key for keys in before.values() for key in keys}
    if renamed:
        return {stage for stage, keys in after.items() if not set(keys) <= known}
    return {stage for stage, keys in after.items() if keys != before.get(stage)}


def stages_of(patterns: Sequence[str], known: Keys) -> set[str]:
    """Return the stages of some patterns; a pattern that no stage fits is missing itself."""
    return {one for pattern in patterns for one in [s for s in known if fnmatchcase(s, pattern)] or [pattern]}


def planned_bases(home: Home, folder: Path) -> list[Planned]:
    """Write a model and rows, and return the recipes that are only planned; the home must be empty, and stays so."""
    folder.mkdir()
    bert, rows = write_tiny_bert(folder / "bert"), write_tiny_rows(folder)
    values: dict[str, Any] = {
        "task": {"name": "tiny", "text": "text", "metrics": ["accuracy", "f1"]},
        "data": {"source": str(rows), "selection_rows": 20, "holdout_rows": 20},
        "teacher": {"model": str(bert), "floor": 0.0, **FAST},
        "task_distillation": {"prediction": FAST},
        "scoring": {"resamples": 100, "max_length": 16},
    }
    made = {
        "packed": packed(),
        "together": together(bert),
        "ways": ways(),
        "general": general(rows),
        "elsewhere": elsewhere(rows),
        "built": built(),
        "maps": feature_maps(rows),
        "pretrained": pretrained(rows),
        "written": written(folder),
        "hidden": hidden_words(folder),
        "chained": chained(),
        "sweep": swept(),
    }
    found = [Planned(name, home, {"name": name, **values, **own}, rules) for name, (own, rules) in made.items()]
    found[-1].kind = "sweep"
    own, _ = made["sweep"]
    idle = [Rule("sweep.*", (), [["top"], [1], [3], True, 9])]
    return [*found, Planned("a run with a sweep", home, {"name": "run", **values, **own}, idle)]


# --- the recipes, and who takes their knobs ---------------------------------------------------------------------------


def packed() -> tuple[dict[str, Any], list[Rule]]:
    """A student and a labels-only baseline of its size, the student packed, all of it paid for."""
    own = {
        "students": [
            {"name": "half", "layers": 2},
            {"name": "plain", "layers": 2, "role": "baseline", "signal": "labels"},
        ],
        "exports": {"reduce_range": "yes", "formats": ["onnx", "int8", "int8-table4", "four-bit"]},
        "costs": {
            "region": "us-east-1",
            "instance": "g5.xlarge",
            "pue": 1.2,
            "budget": {"dollars": 5.0, "kwh": 5.0, "hours": 5.0},
        },
    }
    graphs, four_bits = "export-onnx/*", "quantize-to-four-bits/*"
    eight_bits = ("quantize-onnx/*", "quantize-to-four-bits/*-int8-table4")
    small = ("quantize-onnx/*", four_bits)
    judged = ("score-model", "score-pooled", "inspect-answers", "measure-speed")
    graphs_of_teacher = [
        f"{stage_task}/teacher-{one}" for stage_task in judged for one in EXPORT_FORMATS if not is_program(one)
    ]
    of_teacher = ["export-onnx/teacher", "quantize-onnx/teacher", "quantize-to-four-bits/teacher-*"]
    of_teacher.append("measure-speed/teacher-* against its fp32")
    rules = [
        Rule("exports.opset", (graphs,)),
        Rule("exports.parity_rows", (graphs,)),
        Rule("exports.ways", eight_bits, [["static"]]),
        Rule("exports.calibration_rows", eight_bits),
        Rule("exports.seed", eight_bits),
        Rule("exports.reduce_range", eight_bits, ["no"]),
        Rule("exports.formats", (), [["onnx"]]),  # what is left out needs no other stage
        Rule("exports.of", (*of_teacher, *graphs_of_teacher), [["half", "teacher"]]),
        Rule("exports.*", ()),  # how far a graph may be off decides what is published, and nothing that is made
        Rule("costs.region", (), ["eu-west-1"]),
        Rule("costs.instance", (), ["g4dn.xlarge"]),
        Rule("costs.*", ()),
        Rule("scoring.max_length", ("score-model/*", graphs, *small)),
        Rule("scoring.flops_length", ("score-model/*",)),
        Rule("scoring.metrics", ("score-metric/auroc",), [["auroc"]]),
        Rule("scoring.*", ("score-model/*", "contrast-models/*", "score-pooled/*")),
        Rule("task.headline", ("prepare-rows", "score-model/*", "contrast-models/*", "score-pooled/*", *small), ["f1"]),
        Rule("gate.split", ("inspect-answers/*",)),
    ]
    return own, rules


def together(bert: Path) -> tuple[dict[str, Any], list[Rule]]:
    """Two teachers, and a student that learns from the mixture of their answers."""
    second = {"model": str(bert), "floor": 0.0, "seed": 1, **FAST}
    rules = [
        Rule("ensemble.combine", ("mix-answers",)),
        Rule("ensemble.teachers.0.weight", ("mix-answers",)),
        Rule("ensemble.teachers.*", ("finetune-teacher/teacher 2",)),
        # Each teacher is softened before they are mixed; what each of them says is asked once for all temperatures.
        Rule("task_distillation.prediction.temperature", ("mix-answers", "distill-predictions/half")),
    ]
    return {"ensemble": {"teachers": [second]}, "students": [{"name": "half", "layers": 2}]}, rules


def ways() -> tuple[dict[str, Any], list[Rule]]:
    """A student for each way to copy a teacher's inside, one with patience, one of other heads."""
    students = [
        {"name": "related", "layers": 2, "intermediate": {**FAST, "method": "relations", "relations": {"layer": 2}}},
        {"name": "looking", "layers": 2, "intermediate": {**FAST, "method": "self-attention"}},
        {"name": "replacing", "layers": 2, "start": "top", "intermediate": {**FAST, "method": "replacing"}},
        {"name": "patient", "layers": 2, "prediction": {**FAST, "patience": {}}},
        {"name": "narrow", "layers": 2, "hidden": 8, "heads": 4, "feed_forward": 16, "start": "random"},
    ]
    last = "distill-predictions/patient"
    rules = [
        *(
            Rule(f"students.{number}.intermediate.*", (f"distill-layers/{student['name']}",))
            for number, student in enumerate(students[:3])
        ),
        Rule("students.3.prediction.patience.layer_map", (last, "answer-rows/patience last, 2 layers")),
        Rule("students.3.prediction.max_length", (last, "answer-rows/patience skip, 2 layers")),
        Rule("students.3.prediction.precision", (last, "answer-rows/patience skip, 2 layers")),
        Rule("students.3.prediction.*", (last,)),
        Rule("students.4.heads", ("distill-predictions/narrow",)),
    ]
    return {"students": students}, rules


def general(rows: Path) -> tuple[dict[str, Any], list[Rule]]:
    """A student that is taught in general by the three losses of DistilBERT."""
    own = {
        "corpus": {"source": str(rows), "max_tokens": 2000, "max_length": 16},
        "general_distillation": {**FAST, "method": "triple"},
        "students": [{"name": "half", "layers": 2, "start": "distilbert", "origin": "pretrained"}],
    }
    return own, [Rule("general_distillation.*", ("distill-general/2xteacher",))]


def elsewhere(rows: Path) -> tuple[dict[str, Any], list[Rule]]:
    """A judging set beside the rows, and a criterion that names it."""
    own = {
        "task": {"name": "tiny", "text": "text", "pair": "second", "metrics": ["accuracy", "f1"]},
        "data": {"source": str(rows), "selection_rows": 20, "judge": {"others": {"source": str(rows), "rows": 50}}},
        "students": [{"name": "half", "layers": 2}],
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "retained", "at_least": 0.5, "worst_of": ["validation", "others"]}],
        },
    }
    set_, others, scores = (
        "data.judge.others",
        ("prepare-judging-set/others",),
        ("score-model/*", "score-judging-set/*"),
    )
    rules = [
        *(Rule(f"{set_}.{knob}", others, ["other"]) for knob in ("split", "text", "pair", "label", "group")),
        Rule(f"{set_}.labels", others, [["negative", "positive"]]),
        Rule(f"{set_}.classes", others, [{"good": ["positive"]}]),
        Rule(f"{set_}.rows", others, [40]),
        Rule(f"{set_}.overlaps", others, ["leave-out"]),
        Rule("gate.criteria.0.worst_of", ()),
        Rule("scoring.resamples", scores),
        Rule("scoring.confidence", scores),
        Rule("scoring.max_length", scores),
        Rule("scoring.flops_length", ("score-model/*",)),
    ]
    return own, rules


def chained() -> tuple[dict[str, Any], list[Rule]]:
    """A chain of candidates by every maker, a baseline that branches off from it, and a new student beside it."""
    own: dict[str, Any] = {
        "candidates": [
            {"name": "cut", "from": "teacher", "by": "layer-dropping", "strategy": "contribution", "drop": 1, **FAST},
            {"name": "further", "from": "cut", "by": "distillation", "intermediate": KEPT, "prediction": FAST},
            {"name": "again", "from": "further", "by": "layer-dropping", "seeds": [0], "drop": 1, **FAST},
            {"name": "plain", "from": "cut", "by": "distillation", "signal": "labels", "seeds": [0], **BASELINE},
            {"name": "new", "from": "teacher", "by": "distillation", "shape": NARROW, "start": "random"},
            {"name": "trimmed", "from": "teacher", "by": "vocabulary-trimming", "keep": 90},
            {"name": "pruned", "from": "teacher", "by": "neuron-pruning"},
            {"name": "narrowed", "from": "teacher", "by": "width-pruning"},
            {"name": "gradual", "from": "teacher", "by": "neuron-pruning", "rounds": 2, "between": FAST},
            {"name": "sparse", "from": "teacher", "by": "weight-pruning", "prediction": FAST},
            {"name": "ticket", "from": "teacher", "by": "lottery-ticket", "rounds": 2, "prediction": FAST},
            {"name": "few", "from": "teacher", "by": "quantization", "format": "four-bit", "prediction": FAST},
            {"name": "fewer", "from": "teacher", "by": "head-pruning"},
            {"name": "part", "from": "teacher", "by": "supernet", "neurons": 0.5, "supernet": SUPERNET},
            {"name": "static", "from": "teacher", "by": "quantization", "ranges": "trained", "prediction": FAST},
        ]
    }
    trimmed, pruned, plain_answers = "trim-vocabulary/trimmed", "prune-neurons/pruned", "answer-rows"
    narrowed, gradual = "prune-width/narrowed", "prune-in-rounds/*"
    between = "distill-predictions/gradual-round-1"
    sparse, tickets, few = "prune-weights/sparse", "train-ticket/*", "train-quantized/few"
    static = "train-with-static-ranges/static"
    fewer, supernet, part = "prune-heads/fewer", "train-supernet/supernet", "cut-supernet/part"
    cut, again, new = "drop-layers/cut", "drop-layers/again", "distill-predictions/new"
    inner, last, plain = "distill-layers/further", "distill-predictions/further", "distill-predictions/plain"
    rules = [
        Rule("candidates.*.name", ()),
        Rule("candidates.*.role", ()),
        # A follower takes its parent's model of the same seed, and has the parent's seeds unless it states its own.
        Rule("candidates.0.seeds", (seeded(cut), seeded(inner), seeded(last), *scored("cut", "further")), [[0, 1]]),
        Rule("candidates.0.from", (cut, "measure-contributions"), ["pretrained"]),
        Rule("candidates.0.token", ("measure-contributions",)),
        Rule("candidates.0.max_length", (cut, "measure-contributions")),
        Rule("candidates.0.strategy", (cut,), ["bottom"]),
        Rule("candidates.0.drop", (cut,), [2]),
        Rule("candidates.0.*", (cut,)),
        Rule("candidates.1.intermediate.*", (inner,)),
        # The teacher answers once for all students that ask in the same way.
        Rule("candidates.1.prediction.max_length", (last, "answer-rows")),
        Rule("candidates.1.prediction.precision", (last, "answer-rows")),
        Rule("candidates.1.prediction.*", (last,)),
        Rule("candidates.1.stages", (), [["intermediate"]]),  # it is the only optional stage of this recipe
        Rule("candidates.2.token", ()),  # it drops from the top and measures nothing
        Rule("candidates.2.strategy", (again,), ["bottom"]),
        Rule("candidates.2.drop", (again,), [2]),
        Rule("candidates.2.*", (again,)),
        Rule("candidates.3.signal", (plain,), ["teacher"]),
        Rule("candidates.4.shape.*", (new,)),
        Rule("candidates.4.start", (new,), ["embeddings"]),
        Rule("candidates.4.seeds", (seeded(new), *scored("new")), [[0, 1]]),
        Rule("candidates.5.seeds", (seeded(trimmed), *scored("trimmed")), [[0, 1]]),
        Rule("candidates.5.from", (trimmed,), ["pretrained"]),
        Rule("candidates.5.of", (trimmed,), [["transfer"]]),
        Rule("candidates.5.*", (trimmed,)),
        Rule("candidates.6.seeds", (seeded(pruned), *scored("pruned")), [[0, 1]]),
        Rule("candidates.6.from", (pruned,), ["pretrained"]),
        Rule("candidates.6.importance", (pruned,), ["magnitude"]),
        Rule("candidates.6.rounds", in_rounds("pruned"), [2]),
        Rule("candidates.6.*", (pruned,)),
        Rule("candidates.7.seeds", (seeded(narrowed), *scored("narrowed")), [[0, 1]]),
        Rule("candidates.7.from", (narrowed,), ["pretrained"]),
        Rule("candidates.7.importance", (narrowed,), ["magnitude"]),
        Rule("candidates.7.rounds", in_rounds("narrowed"), [2]),
        Rule("candidates.7.*", (narrowed,)),
        Rule("candidates.8.seeds", (seeded(gradual), seeded(between), *scored("gradual")), [[0, 1]]),
        Rule("candidates.8.from", (gradual,), ["pretrained"]),
        Rule("candidates.8.importance", (gradual,), ["magnitude"]),
        Rule("candidates.8.rounds", (gradual, "distill-predictions/gradual-round-2"), [3]),
        Rule("candidates.8.between.max_length", (between, "answer-rows")),
        Rule("candidates.8.between.precision", (between, "answer-rows")),
        Rule("candidates.8.between.*", (between,)),
        Rule("candidates.8.*", (gradual,)),
        Rule("candidates.9.seeds", (seeded(sparse), *scored("sparse")), [[0, 1]]),
        Rule("candidates.9.from", (sparse,), ["pretrained"]),
        Rule("candidates.9.signal", (sparse,), ["labels"]),
        Rule("candidates.9.prediction.max_length", (sparse, "answer-rows")),
        Rule("candidates.9.prediction.precision", (sparse, "answer-rows")),
        Rule("candidates.9.prediction.*", (sparse,)),
        Rule("candidates.9.*", (sparse,)),
        Rule("candidates.10.seeds", ("train-ticket/ticket s*", *scored("ticket")), [[0, 1]]),
        Rule("candidates.10.from", (tickets,), ["pretrained"]),
        Rule("candidates.10.signal", (tickets,), ["teacher"]),
        # The first training has no mask, and a control differs in the last one. That one leaves the same share after
        # more rounds, and a plan does not know that it begins with another model.
        Rule("candidates.10.control", ("train-ticket/ticket",), ["random-mask"]),
        Rule("candidates.10.rounds", ("train-ticket/ticket round ?",), [3]),
        Rule("candidates.10.keep", ("train-ticket/ticket", "train-ticket/ticket round 1")),
        Rule("candidates.10.of", ("train-ticket/ticket round 1",), ["original"]),
        # It learns from labels, and no row of this recipe is made up.
        *(Rule(f"candidates.10.prediction.{knob}", ()) for knob in ("temperature", "hard_weight", "formula")),
        Rule("candidates.10.prediction.sampling.*", ()),
        Rule("candidates.10.*", (tickets,)),
        Rule("candidates.11.seeds", (seeded(few), *scored("few")), [[0, 1]]),
        Rule("candidates.11.prediction.sampling.*", ()),
        Rule("candidates.11.signal", (few,), ["labels"]),
        Rule("candidates.11.format", (few,), ["int8"]),
        Rule("candidates.11.bits", (few,), [2]),
        Rule("candidates.11.rounding", (few,), ["after-training"]),
        Rule("candidates.11.hidden_weight", (few,)),
        Rule("candidates.11.prediction.*", (few,)),
        Rule("candidates.14.ranges", (static,), ["calibrated"]),
        Rule("candidates.14.format", (static,), ["int8-table4"]),
        Rule("candidates.12.seeds", (seeded(fewer), *scored("fewer")), [[0, 1]]),
        Rule("candidates.12.from", (fewer,), ["pretrained"]),
        Rule("candidates.12.importance", (fewer,), ["magnitude"]),
        Rule("candidates.12.scope", (fewer,), ["layer"]),
        Rule("candidates.12.*", (fewer,)),
        Rule("candidates.13.seeds", (seeded(supernet), seeded(part), *scored("part")), [[0, 1]]),
        # A plan does not know that another model is cut; that its layers are measured anew, it knows by their label.
        Rule("candidates.13.from", ("measure-contributions/layers of cut",), ["cut"]),
        Rule("candidates.13.supernet.prediction.sampling.*", ()),
        Rule("candidates.13.supernet.prediction.max_length", (supernet, part, "measure-contributions")),
        Rule("candidates.13.supernet.layers", (supernet,), [[1, 2]]),
        Rule("candidates.13.supernet.width", (supernet,), [[0.5, 0.75, 1.0]]),
        Rule("candidates.13.supernet.neurons", (supernet,), [[0.5, 1.0]]),
        Rule("candidates.13.supernet.importance", (supernet,), ["magnitude"]),
        Rule("candidates.13.supernet.strategy", (supernet,), ["bottom"]),
        Rule("candidates.13.supernet.*", (supernet,)),
        Rule("candidates.13.layers", (part,), [2]),
        Rule("candidates.13.width", (part,), [0.5]),
        Rule("candidates.13.neurons", (part,), [0.25]),
        Rule(
            "task_distillation.prediction.max_length", (new, plain_answers, pruned, narrowed, gradual, trimmed, fewer)
        ),
        Rule("scoring.max_length", ("score-model/*", "measure-texts/*")),
        Rule("speed.threads", ("measure-speed/*", "measure-texts/*")),
        Rule("speed.repeats", ("measure-speed/*", "measure-texts/*")),
        Rule("speed.seconds", ("measure-speed/*", "measure-texts/*")),
        Rule("candidates.4.prediction", (new,), [{**FAST, "steps": 2}]),
    ]
    return own, rules


KEPT: dict[str, Any] = {**FAST, "matching": {"layer_map": "kept", "projection": "none"}}
SUPERNET: dict[str, Any] = {"prediction": FAST, "width": [0.5, 1.0]}
BASELINE: dict[str, Any] = {"role": "baseline", "prediction": FAST}
NARROW: dict[str, Any] = {"layers": 2, "hidden": 8, "heads": 4, "feed_forward": 16}


def in_rounds(name: str) -> tuple[str, ...]:
    """Return the stages of a candidate that is pruned in two rounds instead of at once; the training in between has
    requests of its own to the teacher."""
    return f"prune-in-rounds/{name}*", f"distill-predictions/{name}-round-1", "answer-rows"


def seeded(stage: str) -> str:
    """Return the pattern of a stage that is made once a seed."""
    return f"{stage} s?"


def scored(*candidates: str) -> list[str]:
    """Return the stages that take all seeds of a candidate."""
    return [f"score-model/{name}" for name in candidates]


def built() -> tuple[dict[str, Any], list[Rule]]:
    """A student of each architecture that a recipe can build: ALBERT, MobileBERT, and our own attentions."""
    mobile = {"origin": "pretrained", "bottleneck": 8, "embedding": 8, "feed_forwards": 2, "narrow_attention": True}
    drawn = {"hidden": 8, "heads": 2, "feed_forward": 16, "drawn": True, "positions": 16, "signal": "labels"}
    mixed = {
        "linear": {"mixer": "linear"},
        "favor": {"mixer": "favor", "features": 8},
        "linformer": {"mixer": "linformer", "rank": 8, "positions": 16},
        "local": {"mixer": "local", "window": 4},
        "light": {"mixer": "light", "kernel": 3},
    }
    students: list[dict[str, Any]] = [
        {"name": "albert", "layers": 2, "start": "albert", "share": "all", "embedding": 8},
        {"name": "mobile", "layers": 4, "start": "mobilebert", **mobile},
        *({"name": name, "layers": 4, "start": "limbeck-encoder", **own} for name, own in mixed.items()),
        {"name": "drawn", "layers": 2, "start": "limbeck-encoder", "mixer": "synth-random", **drawn},
    ]
    walked: dict[str, dict[str, list[Any]]] = {
        "albert": {"embedding": [12], "share": ["none"], "merge": ["random"]},
        "mobile": {
            "bottleneck": [12],
            "embedding": [12],
            "feed_forwards": [3],
            "narrow_attention": [False],
            "norm": ["layer_norm"],
            "activation": ["gelu"],
        },
        "linear": {"mixer": ["softmax"], "drawn": [True]},
        "favor": {"features": [9]},
        "linformer": {"rank": [9], "positions": [17]},
        "local": {"window": [5]},
        "light": {"kernel": [7]},
        "drawn": {"heads": [1], "positions": [17]},
    }
    rules = [
        Rule(f"students.{number}.{knob}", (f"distill-predictions/{student['name']}",), to)
        for number, student in enumerate(students)
        for knob, to in walked[student["name"]].items()
    ]
    return {"students": students}, rules


def feature_maps(rows: Path) -> tuple[dict[str, Any], list[Rule]]:
    """A student that is taught in general by the outputs and the attention of each layer."""
    own = {
        "corpus": {"source": str(rows), "max_tokens": 2000, "max_length": 16},
        "general_distillation": {**FAST, "method": "feature-maps", "feature_maps": {}},
        "students": [
            {"name": "mobile", "layers": 4, "start": "mobilebert", "origin": "pretrained", "bottleneck": 8},
        ],
    }
    return own, [Rule("general_distillation.feature_maps.*", ("distill-general/4xteacher",))]


def pretrained(rows: Path) -> tuple[dict[str, Any], list[Rule]]:
    """An ALBERT that is pretrained here, and two more beside it: of another shape, and pretrained further."""
    shape = {"family": "albert", "layers": 2, "hidden": 16, "heads": 4, "feed_forward": 32, "vocabulary": 100}
    large = {"batch_size": 1024, "batch_tokens": 2**15}  # for which LAMB is
    own = {
        "corpus": {"source": str(rows), "max_tokens": 2000, "max_length": 16},
        "pretraining": {**FAST, **shape, "embedding": 8, "share": "all", "order": "none", "ngrams": 2, **large},
        "teacher": {"floor": 0.0, **FAST},
        "candidates": [
            {"name": "wide", "from": "pretrained", "by": "pretraining", "embedding": 16, "share": "none"},
            {"name": "ordered", "from": "pretrained", "by": "pretraining", "start": "pretrained", "order": "sop"},
        ],
    }
    first, wide, ordered = "pretrain-encoder", "pretrain-encoder/wide", "pretrain-encoder/ordered"
    rules = [
        Rule("pretraining.seed", (first,)),  # candidates have seeds of their own
        Rule("pretraining.vocabulary", (first, wide, ordered, "learn-vocabulary")),
        Rule("pretraining.embedding", (first, ordered)),
        Rule("pretraining.share", (first, ordered), ["none"]),
        Rule("pretraining.order", (first, wide), ["sop"]),
        Rule("pretraining.optimizer", (first, wide, ordered), ["lamb"]),
        Rule("pretraining.*", (first, wide, ordered)),
        Rule("candidates.?.name", ()),
        Rule("candidates.?.role", ()),
        Rule("candidates.0.seeds", (seeded(wide), seeded("distill-predictions/wide"), *scored("wide")), [[0, 1]]),
        Rule("candidates.0.family", (), ["albert"]),  # it is one already
        Rule("candidates.0.layers", (wide,), [3]),
        Rule("candidates.0.embedding", (wide,), [12]),
        Rule("candidates.0.share", (wide,), ["all"]),
        Rule("candidates.1.start", (ordered,), ["random"]),
        Rule("candidates.0.ngrams", (wide,), [3]),
        Rule("candidates.0.steps", (wide,), [4]),
        Rule("candidates.0.signal", ("distill-predictions/wide", "answer-rows"), ["teacher"]),
        Rule("candidates.1.order", (ordered,), ["nsp"]),
    ]
    return own, rules


def written(folder: Path) -> tuple[dict[str, Any], list[Rule]]:
    """Students of a translator: of its words, of its texts, and of the true ones."""
    values = translators(write_translator(folder / "translator"), write_sentences(folder / "sentences"))
    mixing = {
        "name": "mixing",
        "layers": 2,
        "start": "limbeck-seq2seq",
        "mixer": "lsra",
        "kernel": 3,
        "signal": "labels",
    }
    values["students"] = [*values["students"], mixing]
    of_mixing, place = "distill-predictions/mixing", f"students.{len(values['students']) - 1}"
    rules = [
        Rule(f"{place}.mixer", (of_mixing,), ["light"]),
        Rule(f"{place}.kernel", (of_mixing,), [7]),
        Rule(f"{place}.decoder_layers", (of_mixing,), [1]),
        Rule("generation.beams", ("answer-texts", "set-generation-config/*", "score-model/*"), [3]),
        Rule("generation.length_penalty", ("answer-texts", "set-generation-config/*", "score-model/*"), [0.5]),
        Rule("generation.max_length", ("answer-texts", "set-generation-config/*", "score-model/*"), [17]),
        Rule("task_distillation.kept_words", ("answer-rows",), [9]),
        Rule("students.0.decoder_layers", ("distill-predictions/words",), [2]),
    ]
    return {name: value for name, value in values.items() if name not in ("name", "resources")}, rules


def hidden_words(folder: Path) -> tuple[dict[str, Any], list[Rule]]:
    """An encoder that finds hidden words, and a student of its stored answers."""
    values = encoders(write_encoder(folder / "encoder"), write_documents(folder / "documents"))
    half = "distill-predictions/half"
    rules = [
        Rule("task_distillation.answers", (half, "drop-layers/top-1"), ["live"]),
        Rule("task_distillation.kept_words", ("answer-rows",), [9]),
    ]
    return {name: value for name, value in values.items() if name not in ("name", "resources")}, rules


def swept() -> tuple[dict[str, Any], list[Rule]]:
    """Two strategies at two numbers of layers, the greedy one among them."""
    own = {
        "layer_dropping": FAST,
        "sweep": {"strategies": ["top", "greedy"], "drop": [1, 2], "seeds": [0, 1], "try_steps": 2},
    }
    tries, cells = "drop-layers/greedy-* try without *", ("drop-layers/*-? s0", "drop-layers/*-? s1")
    third = [
        f"{stage_task}/{way}-3{seed}"
        for way in ("top", "greedy")
        for stage_task, seed in (("drop-layers", " s0"), ("drop-layers", " s1"), ("score-model", ""))
    ]
    rules = [
        Rule("sweep.strategies", ("drop-layers/bottom-*", "score-model/bottom-?"), [["top", "bottom", "greedy"]]),
        Rule("sweep.drop", ("drop-layers/greedy-3 try without *", *third), [[1, 2, 3]]),
        Rule("sweep.seeds", ("drop-layers/*-? s2", "score-model/*-?"), [[0, 1, 2]]),
        Rule("sweep.halving", ("drop-layers/*-? first rung", *cells)),  # who goes on is not known before
        Rule("sweep.try_steps", (tries,)),
    ]
    return own, rules
