"""An encoder with other attentions made from a BERT: what is copied, how it is kept, how its attention is taught, and
its distribution, which loads it without this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch

from tasks.architectures.limbeck.encoder import LIMBECK_ENCODER, limbeck_class_like
from tasks.errors import LimbeckError, ModelError
from tasks.methods.layers.layer_dropping import drop_layers
from tasks.modeling.names import VERSION
from tasks.modeling.registration import needs_of
from tasks.preflight import check_students
from tasks.recipe.students import Shape
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import build_student, freeze, load_classifier, save_model
from tasks.training.objectives.attention_outputs import AttentionBlocks
from tests.architecture.sources import ROOT
from tests.forked.strangers import ask_stranger
from tests.tiny import write_tiny_bert
from tests.training.test_families import CPU, TASK, TEXTS, batch_of, recipe, same_after_reload

START = "limbeck-encoder"
MODELING = ROOT / "tasks" / "modeling"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT."""
    return write_tiny_bert(tmp_path_factory.mktemp("base") / "bert")


def teacher_of(base: Path) -> Any:
    """Return a frozen classifier."""
    return freeze(load_classifier(base, TASK, CPU))


def student_of(teacher: Any, **shape: Any) -> Any:
    """Return a student that is not trained."""
    return build_student(START, teacher, Shape(**{"layers": 4, **shape}), seed=0).eval()


def logits_of(model: Any, base: Path) -> torch.Tensor:
    """Return a model's logits of some texts."""
    with torch.no_grad():
        logits: torch.Tensor = model(**batch_of(base, TEXTS).inputs(model)).logits
    return logits


def test_with_softmax_in_all_layers_it_computes_what_the_bert_does(base: Path) -> None:
    teacher = teacher_of(base)
    torch.testing.assert_close(logits_of(student_of(teacher), base), logits_of(teacher, base), rtol=1e-5, atol=1e-6)


def test_what_has_the_same_shape_is_copied_and_drawn_copies_nothing(base: Path) -> None:
    teacher = teacher_of(base)
    half = student_of(teacher, layers=2, mixer=("linear", "lsra"), positions=32)
    theirs = teacher.bert.encoder.layer
    linear, lsra = half.limbeck.encoder.layer
    assert torch.equal(linear.attention.self.query.weight, theirs[0].attention.self.query.weight)
    assert torch.equal(linear.output.dense.weight, theirs[0].output.dense.weight)
    assert torch.equal(lsra.attention.output.LayerNorm.bias, theirs[3].attention.output.LayerNorm.bias)
    assert lsra.intermediate.dense.out_features == 16 and not hasattr(lsra.attention.output, "dense")
    places = half.limbeck.embeddings.position_embeddings.weight
    assert torch.equal(places, teacher.bert.embeddings.position_embeddings.weight[:32])
    drawn = student_of(teacher, mixer="linear", drawn=True, hidden=8, heads=2, feed_forward=16)
    words = drawn.get_input_embeddings().weight
    assert words.shape[1] == 8 and not torch.equal(words, teacher.get_input_embeddings().weight[:, :8])


def test_it_is_saved_reloaded_and_loses_layers_with_their_mixers(base: Path, tmp_path: Path) -> None:
    student = student_of(teacher_of(base), mixer=("linear", "light", "favor", "local"))
    drop_layers(student, [0, 2])
    assert student.config.mixer == ["linear", "favor"] and student.config.mixer_kernels == [3, 15]
    save_model(student, load_tokenizer(base), tmp_path / "made")
    same_after_reload(tmp_path / "made")
    loaded = load_classifier(tmp_path / "made", TASK, CPU).eval()
    assert torch.equal(logits_of(loaded, base), logits_of(student.eval(), base))
    assert "(linear, favor) is not in transformers: install limbeck-models" in needs_of(tmp_path / "made")
    assert needs_of(base) == ""


def test_attention_blocks_learn_the_teachers_outputs_and_nothing_else_learns(base: Path) -> None:
    teacher = teacher_of(base)
    torch.manual_seed(0)
    with torch.no_grad():  # its attention should matter
        for value in teacher.bert.encoder.parameters():
            value.add_(torch.randn_like(value) * 0.3)
    student = student_of(teacher, layers=2, mixer="linear").requires_grad_(True)
    objective = AttentionBlocks(student, teacher)
    (phase,) = objective.phases(5)
    learned = {name: value for name, value in student.named_parameters() if phase.learns(name)}
    assert all(".attention." in name for name in learned)
    before = {name: value.detach().clone() for name, value in student.named_parameters()}
    optimizer, batch, losses = torch.optim.Adam(learned.values(), 1e-2), batch_of(base, TEXTS), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = objective.loss(batch)
        total = sum(((term.weight or 1.0) * term.total / term.count for term in loss.terms), torch.zeros(()))
        total.backward()
        optimizer.step()
        losses.append(total.item())
    assert losses[-1] < 0.5 * losses[0] and objective.copied == [0, 3]
    changed = {name for name, value in student.named_parameters() if not torch.equal(value, before[name])}
    assert changed and changed <= set(learned)


def test_attention_of_the_same_kind_begins_without_a_loss(base: Path) -> None:
    """Softmax in place of softmax: each block returns what the teacher's returns, given the teacher's states."""
    teacher = teacher_of(base)
    (term, *_) = AttentionBlocks(student_of(teacher), teacher).loss(batch_of(base, TEXTS)).terms
    assert float(term.total) < 1e-8


@pytest.mark.parametrize(
    ("student", "sections", "sentence"),
    [
        ({"mixer": "linaer"}, {}, "unknown mixer 'linaer'; legal are softmax, light"),
        ({"mixer": ["linear"]}, {}, "1 mixers are named for 2 layers; name one for all, or one for each"),
        ({"mixer": "light", "kernel": 4}, {}, "kernel is 4; give an odd number"),
        ({"mixer": "linear", "kernel": 3}, {}, "kernel is read by mixers whose names begin with light, dynamic, lsra"),
        ({"mixer": "linear", "hidden": 8}, {}, "so it has its widths; remove hidden, or set drawn: true"),
        (
            {"mixer": "linear", "start": "teacher"},
            {},
            "mixer can be set with start: limbeck-encoder or limbeck-seq2seq or limbeck-decoder only",
        ),
        (
            {"mixer": "linear"},
            {"task_distillation": {"intermediate": {}}},
            "so scores, queries, keys and values are not compared; use method: attention-outputs",
        ),
        (
            {"start": "teacher"},
            {"task_distillation": {"intermediate": {"method": "attention-outputs"}}},
            "method: attention-outputs trains other attentions; set start: limbeck-encoder",
        ),
        (
            {"mixer": "synth-random", "positions": 16},
            {},
            "max_length is 128, and small has 16 positions, so it reads at most 16 tokens; give it 16 or less",
        ),
        (
            {"mixer": "linear"},
            {"task": {"name": "tiny", "kind": "tokens", "text": "tokens", "label": "tags"}},
            "small starts from limbeck-encoder, which has heads for answers about a whole text",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_sentence(
    base: Path, student: dict[str, Any], sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((LimbeckError, ValueError), match=sentence):
        check_students(recipe({"start": START, **student}, **sections), base, {})


def test_a_head_that_it_does_not_have_is_refused() -> None:
    from transformers import BertConfig, BertForTokenClassification

    model = BertForTokenClassification(
        BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    )
    with pytest.raises(ModelError, match="no limbeck-encoder with the head of this BertForTokenClassification"):
        limbeck_class_like(model)
    assert "bert" in LIMBECK_ENCODER.from_teachers


ASK = """
import sys
sys.path.insert(0, sys.argv[1])
import limbeck_models
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[2]).eval()
import torch
print(limbeck_models.__version__, [round(v, 4) for v in model(torch.tensor([[2, 5, 6, 3]])).logits[0].tolist()])
assert not [name for name in sys.modules if name.split(".")[0] in ("tasks", "flows")]
"""


def test_the_distribution_loads_it_without_this_repository(base: Path, tmp_path: Path) -> None:
    """And without it transformers refuses the folder instead of answering with another attention."""
    student = student_of(teacher_of(base), mixer=("linear", "synth-dense+softmax", "lsra-dynamic", "linformer"))
    save_model(student, load_tokenizer(base), tmp_path / "made")
    build = f"import sys; sys.path.insert(0, '.'); import packing; print(packing.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", build], cwd=MODELING, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"limbeck_models-{VERSION}-py3-none-any.whl"
    with ZipFile(tmp_path / done.stdout.strip()) as wheel:
        wheel.extractall(tmp_path / "installed")
    words = (str(tmp_path / "installed"), str(tmp_path / "made"))
    asked = ask_stranger(ASK, *words, folder=tmp_path)
    with torch.no_grad():
        expected = [round(value, 4) for value in student(torch.tensor([[2, 5, 6, 3]])).logits[0].tolist()]
    assert asked.stdout.strip() == f"{VERSION} {expected}", asked.stderr
    refused = ask_stranger(ASK.replace("import limbeck_models\n", ""), *words, folder=tmp_path)
    assert refused.returncode and "does not recognize this architecture" in refused.stderr
    assert "auto_map" not in (tmp_path / "made" / "config.json").read_text()
