"""A further architecture is one file and one line: RemBERT (Chung et al. 2020, arXiv:2010.12821) is registered from
here alone, and goes from teacher to student, through layer dropping and scores to an export.

What is below stands for ``tasks/architectures/rembert.py``, and ``registered`` for its line in
``known_architectures.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.architectures.architecture import HIDDEN, STATES, Architecture, as_bias
from tasks.architectures.known_architectures import ARCHITECTURES, shape_of, vocabulary_head
from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import LimbeckError, ModelError, RecipeError
from tasks.exports.jobs import JOBS as EXPORTING
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.slices import AnswerSlice, DropSlice, IntermediateSlice, PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape, Student, named_starts
from tasks.scoring.jobs import JOBS as SCORING
from tasks.training.jobs import JOBS as TRAINING
from tasks.training.models.students import build_student, freeze, load_classifier, load_encoder, load_masked_lm
from tests import families
from tests.exports.test_exports import EXPORT
from tests.scoring.test_jobs import CLASSES
from tests.tiny import write_tiny_bert
from tests.training.test_families import CPU, FAST, TASK, TEXTS, batch_of, recipe, same_after_reload

SIZES = {
    **families.BERT_LIKE,
    "input_embedding_size": 8,
    "output_embedding_size": 12,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
INNER: dict[str, Any] = {"matching": {"attention": 0.0}}


def of_bert(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build a RemBERT that computes what a BERT does: its embeddings are as wide as its layers, which have the same
    names, and the map between both is the identity."""
    from transformers import AutoModelForSequenceClassification, RemBertConfig

    names = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
    config = RemBertConfig(
        **{name: getattr(model.config, name) for name in names},
        num_hidden_layers=len(kept),
        input_embedding_size=model.config.hidden_size,
        num_labels=model.config.num_labels,
        hidden_dropout_prob=model.config.hidden_dropout_prob,
        attention_probs_dropout_prob=model.config.attention_probs_dropout_prob,
    )
    student = AutoModelForSequenceClassification.from_config(config)
    theirs = model.bert.state_dict()
    with torch.no_grad():
        for name, value in student.rembert.named_parameters():
            parts = name.split(".")
            if parts[:2] == ["encoder", "layer"]:
                parts[2] = str(kept[int(parts[2])])
            if ".".join(parts) in theirs:
                value.copy_(theirs[".".join(parts)])
        torch.nn.init.eye_(student.rembert.encoder.embedding_hidden_mapping_in.weight)
        student.rembert.encoder.embedding_hidden_mapping_in.bias.zero_()
    return student


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of RemBERT's masked-LM head."""
    logits_NV: Tensor = model.cls(states_ND)
    return logits_NV


REMBERT = Architecture(
    shape={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "embedding": "input_embedding_size",
    },
    from_teachers={"bert": of_bert},
    start_note="evenly spread layers in RemBERT's architecture",
    signals=(HIDDEN, STATES),
    because="its attention is computed inside its own code",
    state_maps={name: f"attention.self.{name}" for name in ("query", "key", "value")},
    word_head=words,
    export_mask=as_bias,
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the architecture, and its tiny sizes among those of tests."""
    monkeypatch.setitem(ARCHITECTURES, "rembert", REMBERT)
    monkeypatch.setitem(families.SIZES, "rembert", SIZES)


@pytest.fixture
def rows(tiny_rows: Path, tmp_path: Path) -> Path:
    """A folder of prepared rows."""
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), tmp_path / "rows")
    return tmp_path / "rows"


def done(jobs: Any, kind: str, knobs: Any, output: Path, models: Sequence[Path] = (), **inputs: Path) -> dict[str, Any]:
    """Do a job of an engine in this process; return its facts."""
    output.mkdir()
    order = {
        "job": kind,
        "knobs": knobs if isinstance(knobs, dict) else knobs.model_dump(mode="json"),
        "inputs": {name: str(path) for name, path in inputs.items()},
        "lists": {"models": [str(path) for path in models]},
        "output": str(output),
    }
    facts: dict[str, Any] = jobs[kind](Job(order, silent=True))
    return facts


@pytest.mark.slow
def test_it_goes_from_teacher_to_student_through_dropping_and_scores_to_an_export(
    registered: None, rows: Path, tmp_path: Path
) -> None:
    base = families.write_tiny("rembert", tmp_path / "base")
    teacher, student, dropped = tmp_path / "teacher", tmp_path / "student", tmp_path / "dropped"
    small = {"hidden": 8, "heads": 2, "feed_forward": 12}
    check_students(recipe(small | {"start": "random"}, task_distillation={"intermediate": INNER}), base, {})
    done(TRAINING, "finetune", TeacherSlice(task_type="classification", **FAST), teacher, rows=rows, base=base)
    inner = IntermediateSlice(
        task_type="classification", **FAST, **INNER, shape=Shape(layers=2, **small), start="random"
    )
    done(TRAINING, "intermediate", inner, tmp_path / "first", rows=rows, teacher=teacher)
    answers = AnswerSlice(task_type="classification", max_length=16, precision="fp32")
    done(TRAINING, "answer", answers, tmp_path / "answers", rows=rows, teacher=teacher)
    given = {"rows": rows, "teacher": teacher, "answers": tmp_path / "answers", "start": tmp_path / "first"}
    done(TRAINING, "prediction", PredictionSlice(task_type="classification", **FAST), student, **given)
    facts = done(
        TRAINING,
        "drop",
        DropSlice(task_type="classification", **FAST, strategy="top", drop=2),
        dropped,
        rows=rows,
        base=base,
    )
    assert facts["kept_layers"] == [0, 1]
    for made, width in ((student, 8), (dropped, 16)):
        same_after_reload(made)
        config = json.loads((made / "config.json").read_text())
        assert config["model_type"] == "rembert" and shape_of(config) | {"feed_forward": 0, "heads": 0} == {
            "layers": 2,
            "hidden": width,
            "heads": 0,
            "feed_forward": 0,
            "embedding": 8,
        }
        card = done(SCORING, "score", CLASSES, made / "card", [made], rows=rows, teacher=teacher)
        assert card["flops"] > 0 and 0 <= card["metrics"]["validation"]["accuracy"]["value"] <= 1
    found = done(EXPORTING, "export", EXPORT, tmp_path / "export", model=student, rows=rows)
    assert found["made"] and found["equal_answers"] == 1 and found["largest_difference"] < 1e-4


def test_it_is_built_from_a_teacher_of_another_architecture(registered: None, tmp_path: Path) -> None:
    """All layers of a BERT give its very hidden states, half of them a student; the recipe knows the start by name."""
    base = write_tiny_bert(tmp_path / "bert")
    teacher = freeze(load_classifier(base, TASK, CPU))
    inputs = batch_of(base, TEXTS).inputs(teacher)
    whole = build_student("rembert", teacher, Shape(layers=4), seed=0).eval()
    with torch.no_grad():
        ours, theirs = (model.base_model(**inputs).last_hidden_state for model in (whole, teacher))
    assert whole.config.model_type == "rembert" and torch.allclose(ours, theirs, atol=1e-5)
    half = build_student("rembert", teacher, Shape(layers=2), seed=0)
    assert torch.equal(
        half.base_model.encoder.layer[1].output.dense.weight, teacher.base_model.encoder.layer[3].output.dense.weight
    )
    assert "rembert" in named_starts() and Student(name="small", layers=2, start="rembert", origin="pretrained")
    check_students(recipe({"start": "rembert"}, task_distillation={"intermediate": INNER}), base, {})
    with pytest.raises(ModelError, match="start: rembert copies the layers of a model among bert, and"):
        check_students(recipe({"start": "rembert"}), families.write_tiny("electra", tmp_path / "electra"), {})
    with pytest.raises(LimbeckError, match="it has its teacher's widths; remove hidden"):
        check_students(recipe({"start": "rembert", "hidden": 8}), base, {})


def test_a_knob_of_its_own_shape_and_its_head_for_words(registered: None, tmp_path: Path) -> None:
    """The embeddings may be narrower than the layers, which no other architecture's students can say."""
    base = families.write_tiny("rembert", tmp_path / "base")
    shape = SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None, embedding=4)
    student = build_student("random", load_encoder(base, CPU), shape, seed=0)
    assert student.get_input_embeddings().weight.shape[1] == 4 and student.config.hidden_size == 16
    model = load_masked_lm(base, CPU).eval()
    head, inputs = vocabulary_head(model), batch_of(base, TEXTS).inputs(model)
    assert head is not None
    with torch.no_grad():
        own_ND, all_BTV = model.base_model(**inputs).last_hidden_state[0, :2], model(**inputs).logits
        assert torch.allclose(head(own_ND), all_BTV[0, :2], atol=1e-6)


def test_without_its_line_it_is_an_encoder_of_which_little_is_known(tmp_path: Path) -> None:
    """Then its states cannot be read, and no student is built in it."""
    base = families.write_tiny("bert", tmp_path / "base")
    config = json.loads((base / "config.json").read_text()) | {"model_type": "rembert"}
    (base / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="no check of its attention exists here"):
        check_students(
            recipe({"start": "random"}, task_distillation={"intermediate": {"method": "relations"}}), base, {}
        )
    assert "rembert" not in named_starts()
    with pytest.raises(
        RecipeError,
        match=r"unknown start 'rembert'; choose one of .* "
        r"\(albert, distilbert, limbeck-decoder, limbeck-encoder, limbeck-seq2seq, mobilebert\)",
    ):
        build_student(
            "rembert", load_classifier(write_tiny_bert(tmp_path / "bert"), TASK, CPU), Shape(layers=2), seed=0
        )
