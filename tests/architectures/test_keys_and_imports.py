"""An architecture counts in the keys of its own stages alone, and a recipe is checked without torch."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from tasks.architectures.known_architectures import ARCHITECTURES
from tasks.contracts import Artifact
from tasks.modeling.names import OWN_TYPES
from tasks.ports.code.fingerprint import program
from tasks.ports.code.program import Program
from tasks.ports.files.sources import resolve_model
from tasks.ports.store.open import open_store
from tasks.recipe.slices import AnswerSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.keys import architectures_of
from tasks.stage.orders import InputNote, artifacts_of
from tasks.stage.session import Session, use_session
from tests.architecture.sources import ROOT
from tests.stage_tasks import all_specs, edited, narrowed
from tests.tiny import write_tiny_bert

KNOWN, BERT = "tasks.architectures.known_architectures", "tasks.architectures.bert"
KNOBS = {"start": "teacher", "method": "layers", "strategy": "top", "layer_map": "uniform", "combine": "weights"}


def with_rembert() -> Program:
    """Return the package with a further architecture: its file, and its line and import in the dict."""
    source = program().sources[KNOWN]
    lined = source.replace('    "xlnet": XLNET,\n', '    "rembert": REMBERT,\n    "xlnet": XLNET,\n')
    imported = "from tasks.architectures.rembert import REMBERT\nfrom tasks.architectures.roberta import"
    lined = lined.replace("from tasks.architectures.roberta import", imported)
    assert lined.count("REMBERT") == 2
    own = program().sources[BERT].replace("BERT = Architecture(", "REMBERT = Architecture(", 1)
    return edited({KNOWN: lined, "tasks.architectures.rembert": own})


def test_a_further_architecture_changes_the_code_of_no_stage_of_others() -> None:
    further, asking = with_rembert(), 0
    for spec in all_specs():
        narrowings = [(one, narrowed(one, spec.roots)) for one in (program(), further)]

        def digests(narrowings: Any = narrowings, roots: Any = spec.roots, **beside: Any) -> set[str]:
            return {one.digest(roots, narrowing.entries(KNOBS | beside)) for one, narrowing in narrowings}

        asks = any(name == "ARCHITECTURES" for _, name in narrowings[0][1].asks)
        asking += asks
        for others in ([], ["bert"], ["distilbert", "roberta"]):
            assert len(digests(architectures=others)) == 1, f"{spec.name} of {others} would be made again"
        assert len(digests(architectures=["rembert"])) == 1 + asks and len(digests()) == 1 + asks
    assert asking >= 14


def test_every_architecture_of_transformers_that_is_listed_is_one() -> None:
    from transformers import CONFIG_MAPPING

    assert set(ARCHITECTURES) - set(OWN_TYPES) <= set(CONFIG_MAPPING)


def checkpoint(**facts: Any) -> Artifact:
    """Return a checkpoint with these facts."""
    return Artifact("checkpoint", "0" * 64, "", 0, facts)


def test_architectures_are_those_of_all_models_and_unknown_where_one_is() -> None:
    bert, xlnet = checkpoint(architecture="bert"), checkpoint(architecture="xlnet")
    rows = Artifact("rows", "0" * 64, "", 0, {"rows": {"train": 3}})
    assert architectures_of({"base": bert, "rows": rows, "teacher": None, "models": [xlnet, bert]}) == ["bert", "xlnet"]
    assert architectures_of({"rows": rows}) == []
    assert architectures_of({"base": bert, "teacher": checkpoint()}) is None, "a plan does not know it yet"
    assert architectures_of({"model": Artifact("export", "0" * 64, "", 0), "teacher": bert}) is None


@stage(makes="checkpoint")
async def small_model(context: StageContext, knobs: AnswerSlice) -> None:
    """Write a config."""
    (context.output / "config.json").write_text(json.dumps({"model_type": "xlnet"}))


def test_a_model_that_a_person_brings_or_a_stage_makes_states_its_architecture(
    prefect_server: None, tmp_path: Path
) -> None:
    assert resolve_model(str(write_tiny_bert(tmp_path / "bert")), None).facts == {"architecture": "bert"}
    session = Session(open_store(str(tmp_path / "store"), tmp_path / "cache"), 1, 1)

    @flow
    async def run() -> Artifact:
        with use_session(session):
            return await small_model(AnswerSlice(task_type="classification"))

    made = asyncio.run(run())
    note = InputNote(kind=made.kind, sha256=made.sha256, bytes=made.bytes)
    ordered = artifacts_of(session.store, {"base": note})
    assert architectures_of({"base": made}) == architectures_of(ordered) == ["xlnet"], "a worker makes the same key"


@pytest.mark.parametrize(
    "module", ["tasks.architectures.known_architectures", "tasks.recipe.recipe", "tasks.preflight"]
)
def test_what_an_architecture_says_is_read_without_torch(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('torch', 'transformers', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
