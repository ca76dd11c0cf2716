"""A part of a task type counts in the keys of its own type's stages alone."""

from __future__ import annotations

import ast

import pytest

from tasks.ports.code.fingerprint import program
from tasks.ports.code.program import Program
from tests.stage_tasks import changed_stages, edited

DICTS = {"head": ("tasks.task_types.heads", "HEADS")}
"""The dict of each part that stages in keys choose from, by the name of the part's file."""
LEARNING = {
    "finetune-teacher",
    "answer-rows",
    "answer-texts",
    "mix-answers",
    "record-signals",
    "tune-thresholds",
    "distill-layers",
    "distill-predictions",
    "measure-contributions",
    "measure-similarity",
    "drop-layers",
    "trim-vocabulary",
    "prune-neurons",
    "prune-width",
    "prune-heads",
    "prune-in-rounds",
    "prune-weights",
    "train-ticket",
    "train-quantized",
    "train-with-static-ranges",
    "train-supernet",
    "cut-supernet",
    "judge-shapes",
}
LOADING = {
    "score-model",
    "score-judging-set",
    "export-onnx",
    "export-executorch",
    "quantize-to-trained-ranges",
    "measure-speed",
    "measure-texts",
}
"""Further stages that load a model by the class that its type's head names."""
CHOSEN = {"start": "teacher", "method": "layers", "strategy": "top", "layer_map": "uniform", "combine": "weights"}


def remade(there: Program, task_type: str, **more: object) -> set[str]:
    """Return the stages of a task type whose code is another one in an edited program, with ``more`` knobs."""
    knobs = {**CHOSEN, "architectures": ["bert"], "task_type": task_type, "task": {"kind": task_type}, **more}
    return changed_stages(there, knobs)


def with_statements(source: str) -> str:
    """Return a source in which every function does one thing more."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(0, ast.parse("assert True").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("part", DICTS)
def test_a_change_in_one_type_remakes_nothing_of_another(part: str) -> None:
    name = f"tasks.task_types.regression.{part}"
    there = edited({name: with_statements(program().sources[name])})
    assert remade(there, "classification") == set()
    assert remade(there, "regression") == LEARNING


def test_a_change_in_tags_remakes_nothing_of_classes_and_values() -> None:
    name = "tasks.task_types.tokens.sentence"
    there = edited({name: with_statements(program().sources[name])})
    assert remade(there, "classification") == remade(there, "regression") == set()
    assert {*LEARNING, "score-model", "export-onnx"} - {"mix-answers"} <= remade(there, "tokens")


def test_a_change_in_options_remakes_nothing_of_words_and_classes() -> None:
    name = "tasks.task_types.choices.options"
    there = edited({name: with_statements(program().sources[name])})
    assert remade(there, "classification") == remade(there, "tokens") == set()
    assert {*LEARNING, "score-model", "export-onnx"} - {"mix-answers"} <= remade(there, "choices")


def test_a_change_in_answers_of_passages_remakes_nothing_of_others() -> None:
    """A mutation of the head, and one of what is concluded from logits: students are trained anew by the first alone,
    scores are computed anew by the second."""
    for module, remakes in (
        ("tasks.task_types.spans.head", LEARNING - {"mix-answers"}),
        ("tasks.task_types.spans.passage", {"finetune-teacher", "tune-thresholds", "score-model", "export-onnx"}),
        ("tasks.task_types.spans.thresholds", {"tune-thresholds"}),
    ):
        there = edited({module: with_statements(program().sources[module])})
        assert remade(there, "classification") == remade(there, "tokens") == set()
        assert remakes <= remade(there, "spans")


@pytest.mark.parametrize("part", DICTS)
def test_a_further_type_remakes_nothing(part: str) -> None:
    module, family = DICTS[part]
    here, own = program().sources, f"tasks.task_types.further.{part}"
    lined = here[module].replace('"regression": REGRESSION', '"regression": REGRESSION, "further": FURTHER')
    first = f"from tasks.task_types.classification.{part} import"
    lined = lined.replace(first, f"from tasks.task_types.further.{part} import {part.upper()} as FURTHER\n{first}")
    assert lined.count("FURTHER") == 2 and family in lined
    further = {module: lined, own: with_statements(here[f"tasks.task_types.classification.{part}"])}
    there = edited(further)
    assert remade(there, "classification") == remade(there, "regression") == set()
    timed = {"measure-latencies"} if part == "head" else set()  # of models with random weights
    assert remade(there, "further") == LEARNING | LOADING | timed


def test_the_losses_and_the_pooling_of_embedders_count_for_embedders_alone() -> None:
    """A mutation of each: a stage of classification that runs again is a false one, and a training that does not is a
    stale one."""
    for module, always in (
        ("tasks.methods.embedders.vectors", {"distill-predictions", "drop-layers"}),
        ("tasks.task_types.embedding.pooled", LEARNING | LOADING),
    ):
        there = edited({module: with_statements(program().sources[module])})
        assert remade(there, "classification") == set()
        for name in ("embedding", "retrieval"):
            assert always - {"mix-answers"} <= remade(there, name)


def test_how_a_model_writes_counts_for_models_that_write_alone() -> None:
    for module, remakes in (
        ("tasks.task_types.seq2seq.models", {"finetune-teacher", "answer-texts", "score-model", "measure-speed"}),
        ("tasks.task_types.seq2seq.target", {"finetune-teacher", "score-model"}),
    ):
        there = edited({module: with_statements(program().sources[module])})
        for other in ("classification", "next-words"):  # what states how a text is written is a stage of no other type
            assert remade(there, other) <= {"set-generation-config"}
        assert remakes <= remade(there, "seq2seq", metrics=["bleu"])


@pytest.mark.parametrize(
    ("module", "own", "remakes"),
    [
        ("ranking.head", "ranking", {"finetune-teacher", "distill-predictions"}),
        ("ranking.answers", "ranking", {"finetune-teacher", "score-model", "score-judging-set"}),
        ("multi_label.head", "multi-label", {"finetune-teacher", "tune-thresholds", "distill-predictions"}),
        ("multi_label.answers", "multi-label", {"finetune-teacher", "score-model", "score-judging-set"}),
        ("retrieval.answers", "retrieval", {"finetune-teacher", "score-model", "score-judging-set"}),
    ],
)
def test_losses_and_decisions_of_lists_labels_and_ranks_count_for_their_type(
    module: str, own: str, remakes: set[str]
) -> None:
    """A mutation of each: its own stages that learn or judge run again, and none of classification does."""
    name = f"tasks.task_types.{module}"
    there = edited({name: with_statements(program().sources[name])})
    assert remade(there, "classification") == set()
    assert remakes <= remade(there, own)


@pytest.mark.parametrize(
    ("module", "own", "remakes"),
    [
        ("tasks.task_types.next_words.head", ("next-words",), {"answer-rows", "distill-predictions", "score-model"}),
        ("tasks.task_types.chats.turns", ("chats",), {"answer-rows", "distill-predictions", "score-model"}),
        (
            "tasks.methods.next_words.kept_words",
            ("next-words", "chats", "masked-words", "seq2seq"),
            {"answer-rows", "distill-predictions", "drop-layers"},
        ),
        ("tasks.methods.next_words.divergences", ("next-words", "chats"), {"distill-predictions", "drop-layers"}),
    ],
)
def test_how_words_are_learned_counts_for_models_of_words_alone(
    module: str, own: tuple[str, ...], remakes: set[str]
) -> None:
    there = edited({module: with_statements(program().sources[module])})
    for other in {"classification", "regression", "spans"}:
        assert remade(there, other) == set()
    for name in own:
        assert remakes <= remade(there, name)
    assert module != "tasks.task_types.chats.turns" or remade(there, "next-words") == set()
