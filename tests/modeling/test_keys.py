"""The code of models with other attentions counts in the keys of all stages that run one, and of no other stage."""

from __future__ import annotations

import pytest

from tasks.ports.code.fingerprint import program
from tests.stage_tasks import all_specs, changed_stages, edited
from tests.task_types.test_keys import CHOSEN, with_statements

CHANGED = edited(
    {
        name: with_statements(program().sources[name])
        for name in (
            "tasks.modeling.mixers.light",
            "tasks.modeling.mixers.mixer",
            "tasks.modeling.encoder",
            "tasks.modeling.decoder",
            "tasks.modeling.translator",
        )
    }
)


def with_models_of(*architectures: str, kind: str = "classification") -> set[str]:
    """Return the stages whose code is another one after the change, with models of these architectures."""
    task = {"task_type": kind, "task": {"kind": kind}}
    return changed_stages(CHANGED, {**CHOSEN, **task, "architectures": list(architectures)})


@pytest.mark.parametrize(
    ("origin", "own", "kind", "more"),
    [
        ("bert", "limbeck-encoder", "classification", {"drop-layers"}),
        ("gpt2", "limbeck-decoder", "next-words", {"drop-layers"}),
        ("marian", "limbeck-seq2seq", "seq2seq", {"answer-texts"}),
    ],
)
def test_stages_with_a_model_of_the_package_run_again(origin: str, own: str, kind: str, more: set[str]) -> None:
    found = with_models_of(origin, own, kind=kind)
    assert {"distill-predictions", "answer-rows", "score-model", "measure-speed", "export-onnx", *more} <= found
    assert not found & {"tokenize-corpus", "mix-answers", "prepare-rows", "fetch-model", "register-model"}
    with_engine = {spec.name for spec in all_specs() if spec.engine is not None}
    assert found <= with_engine


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        *((name, "classification") for name in ("bert", "albert", "mobilebert")),
        ("gpt2", "next-words"),
        ("marian", "seq2seq"),
    ],
)
def test_no_stage_with_other_models_runs_again(architecture: str, kind: str) -> None:
    assert with_models_of(architecture, kind=kind) == set()
