"""A translator with other attentions made from a Marian: what is copied, padding, words that are not written yet, what
it remembers, how it is kept, its graph, and its distribution, which loads it without this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from tasks.catalog import TaskSpec
from tasks.errors import LimbeckError, ModelError
from tasks.exports.jobs import export
from tasks.modeling.names import MIXER_NAMES, VERSION, reads_back
from tasks.modeling.registration import needs_of
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.recipe.students import Shape
from tasks.scoring.predict import outputs_of
from tasks.task_types.heads import HEADS
from tasks.task_types.seq2seq.models import written_ids
from tasks.task_types.seq2seq.target import WRITTEN_IDS
from tasks.task_types.units import Writing
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import build_student, load_classifier, save_model, set_dropout
from tests.forked.strangers import ask_stranger
from tests.modeling.test_limbeck_encoder import MODELING
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.seq2seq.test_chain import values_for
from tests.task_types.seq2seq.test_graphs import FULL, GENERATION, SOURCES, job

START = "limbeck-seq2seq"
CPU = torch.device("cpu")
TASK = Task("texts", "seq2seq", None, "bleu", False, HEADS["seq2seq"])
IDS_BT = torch.tensor([[5, 6, 7, 8, 1, 0, 0], [9, 10, 11, 12, 13, 14, 1]])
MASK_BT = (IDS_BT != 0).long()
WORDS_BL = torch.tensor([[3, 4, 5, 6], [8, 8, 9, 7]])
THAT_WRITE = [name for name in MIXER_NAMES if reads_back(name)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Marian of three and three layers."""
    return write_translator(tmp_path_factory.mktemp("base") / "marian")


@pytest.fixture(scope="module")
def teacher(base: Path) -> Any:
    """A translator with weights that make its answers depend on what it reads."""
    model = load_classifier(base, TASK, CPU).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:  # places are computed, and in no file
                value.add_(torch.randn_like(value) * 0.1)
    return model


def student_of(teacher: Any, **shape: Any) -> Any:
    """Return a student that is not trained."""
    return build_student(START, teacher, Shape(**{"layers": 3, **shape}), seed=0).eval()


def logits_of(
    model: Any, words_BL: torch.Tensor = WORDS_BL, rows: slice = slice(None), tokens: int = 7
) -> torch.Tensor:
    """Return the logits of words, given those before."""
    given = {"input_ids": IDS_BT[rows, :tokens], "attention_mask": MASK_BT[rows, :tokens]}
    with torch.no_grad():
        logits: torch.Tensor = model(**given, **{WRITTEN_IDS: words_BL[rows]}).logits
    return logits


def test_with_softmax_in_all_layers_it_computes_what_the_marian_does(teacher: Any) -> None:
    torch.testing.assert_close(logits_of(student_of(teacher)), logits_of(teacher), rtol=1e-4, atol=1e-5)


def test_what_has_the_same_shape_is_copied_and_drawn_copies_nothing(teacher: Any) -> None:
    linear = student_of(teacher, layers=2, decoder_layers=1, mixer="linear").model
    theirs, ours = teacher.model.encoder.layers[2], linear.encoder.layers[1]
    assert torch.equal(ours.self_attn.mixer.key.weight, theirs.self_attn.k_proj.weight)
    assert torch.equal(ours.self_attn.out_proj.weight, theirs.self_attn.out_proj.weight)
    assert torch.equal(ours.fc1.weight, theirs.fc1.weight)
    (writes,) = linear.decoder.layers
    assert torch.equal(writes.encoder_attn.q_proj.weight, teacher.model.decoder.layers[0].encoder_attn.q_proj.weight)
    lsra = student_of(teacher, mixer="lsra").model.decoder.layers[0]
    assert lsra.fc1.out_features == 32 and not hasattr(lsra.self_attn, "out_proj")
    assert torch.equal(lsra.final_layer_norm.bias, teacher.model.decoder.layers[0].final_layer_norm.bias)
    drawn = student_of(teacher, mixer="lsra", drawn=True, hidden=16, heads=4, feed_forward=24, positions=20)
    words = drawn.get_input_embeddings().weight
    assert words.shape[1] == 16 and not torch.equal(words, teacher.get_input_embeddings().weight[:, :16])
    assert drawn.config.max_position_embeddings == 20


@pytest.mark.parametrize("mixer", THAT_WRITE)
def test_it_reads_no_padding_and_no_later_word_and_remembers_what_it_read(teacher: Any, mixer: str) -> None:
    """A source alone and in a padded batch; another last word; a text that is written with and without a memory, whose
    beams take each other's places."""
    model = student_of(teacher, layers=2, decoder_layers=2, mixer=mixer)
    both = logits_of(model)
    torch.testing.assert_close(logits_of(model, rows=slice(1), tokens=5), both[:1], rtol=1e-3, atol=1e-4)
    other = logits_of(model, torch.cat([WORDS_BL[:, :2], torch.tensor([[20, 3], [21, 3]])], 1))
    assert torch.equal(other[:, :3], both[:, :3]) and not torch.allclose(other[:, 3], both[:, 3])
    given = {"input_ids": IDS_BT, "attention_mask": MASK_BT, "num_beams": 3, "do_sample": False, "max_new_tokens": 8}
    with torch.no_grad():
        written = [model.generate(**given, use_cache=kept) for kept in (True, False)]
    assert torch.equal(*written)


def test_it_is_saved_reloaded_and_loses_layers_with_their_convolutions(
    teacher: Any, base: Path, tmp_path: Path
) -> None:
    student = student_of(teacher, layers=2, decoder_layers=2, mixer="dynamic")
    assert student.config.mixer == student.config.decoder_mixer == ["dynamic", "dynamic"]
    assert student.config.mixer_kernels == [3, 7] and student.config.decoder_kernels == [3, 15]
    save_model(student, load_tokenizer(base), tmp_path / "made")
    loaded = load_classifier(tmp_path / "made", TASK, CPU).eval()
    assert torch.equal(logits_of(loaded), logits_of(student))
    assert "(dynamic) is not in transformers: install limbeck-models" in needs_of(tmp_path / "made")
    half = build_student("teacher", loaded, Shape(layers=1, decoder_layers=1), seed=0)
    assert half.config.mixer_kernels == [3] and half.config.decoder_mixer == ["dynamic"]
    save_model(half, load_tokenizer(base), tmp_path / "half")
    assert torch.equal(logits_of(load_classifier(tmp_path / "half", TASK, CPU).eval()), logits_of(half.eval()))
    drawn = build_student("random", loaded, Shape(layers=2, decoder_layers=1), seed=0)
    assert drawn.config.decoder_kernels == [3] and len(drawn.model.decoder.layers) == 1


def test_a_training_sets_each_dropout_of_a_translator(teacher: Any) -> None:
    """Marian holds its shares as plain numbers, also within the model that is made of it."""
    for model in (student_of(teacher, mixer="lsra"), student_of(teacher, layers=2)):
        set_dropout(model, 0.5)
        model.train()
        torch.manual_seed(1)
        dropped = logits_of(model)
        set_dropout(model, 0.0)
        assert torch.equal(logits_of(model), logits_of(model.eval()))
        assert not torch.allclose(dropped, logits_of(model))


def test_its_graph_writes_what_it_writes(teacher: Any, base: Path, tmp_path: Path) -> None:
    knobs = RowsSlice(task=TaskSpec(name="texts", kind="seq2seq"), selection_rows=4, purge=False)
    prepare_rows(write_sentences(tmp_path / "table", 40), knobs, tmp_path / "rows")
    student = student_of(teacher, layers=2, decoder_layers=1, mixer="lsra-dynamic")
    save_model(student, load_tokenizer(base), tmp_path / "model")
    facts = export(job(tmp_path / "graph", FULL, model=tmp_path / "model", rows=tmp_path / "rows"))
    assert facts["made"] and facts["equal_answers"] == 1.0 and 0 < facts["largest_difference"] < 1e-4, facts
    ours, theirs = (
        outputs_of(tmp_path / one, SOURCES, None, 32, task_type="seq2seq", generation=GENERATION)["written"]
        for one in ("graph", "model")
    )
    assert np.array_equal(ours, theirs) and len(set(theirs)) > 1, (ours, theirs)


@pytest.mark.parametrize(
    ("student", "sentence"),
    [
        ({"mixer": "linformer"}, "mixer is linformer, which cannot write"),
        ({"mixer": "favor"}, "it would read words that are not written yet; use linear"),
        ({"mixer": ["linear", "light"]}, "mixer is a list, and start: limbeck-seq2seq has one in all layers"),
        ({"mixer": "light", "kernel": [3, 5]}, "kernel is a list"),
        ({"mixer": "linear", "kernel": 3}, "kernel is read by mixers whose names begin with light, dynamic, lsra"),
        ({"mixer": "linear", "hidden": 16}, "so it has its widths; remove hidden, or set drawn: true"),
        (
            {"mixer": "lsra", "hidden": 30, "heads": 5, "drawn": True},
            "lsra divides 30 channels and 5 heads into halves",
        ),
        ({"mixer": "linear", "hidden": 30, "heads": 4, "drawn": True}, "width 30 does not divide by 4 heads"),
        (
            {"mixer": "lsra", "start": "teacher"},
            "with start: limbeck-encoder or limbeck-seq2seq or .* or set that start",
        ),
        ({"mixer": "lsra", "start": "limbeck-encoder"}, "which has layers of one stack"),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_sentence(base: Path, student: dict[str, Any], sentence: str) -> None:
    values = values_for(base, base)
    values |= {"students": [{"name": "one", "layers": 2, "start": START, **student}]}
    values.pop("candidates", None)
    with pytest.raises((LimbeckError, ValueError), match=sentence):
        check_students(Recipe.model_validate(values), base, {})


def test_only_a_translator_is_made_into_one(teacher: Any) -> None:
    with pytest.raises(ModelError, match="its teacher is a MarianModel"):
        build_student(START, teacher.model, Shape(layers=2, mixer="lsra"), seed=0)


ASK = """
import sys
sys.path.insert(0, sys.argv[1])
import limbeck_models
from transformers import AutoModelForSeq2SeqLM
import torch
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[2]).eval()
ids = torch.tensor([[5, 6, 7, 8, 1]])
print(model.generate(input_ids=ids, max_new_tokens=8, num_beams=2, do_sample=False)[0, 1:].tolist())
assert not [name for name in sys.modules if name.split(".")[0] in ("tasks", "flows")]
"""


def test_the_distribution_loads_it_without_this_repository(teacher: Any, base: Path, tmp_path: Path) -> None:
    student = student_of(teacher, mixer="lsra", decoder_layers=2)
    save_model(student, load_tokenizer(base), tmp_path / "made")
    build = f"import sys; sys.path.insert(0, '.'); import packing; print(packing.build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=MODELING, capture_output=True, check=True)
    with ZipFile(tmp_path / f"limbeck_models-{VERSION}-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path / "installed")
    asked = ask_stranger(ASK, str(tmp_path / "installed"), str(tmp_path / "made"), folder=tmp_path)
    expected = written_ids(student, IDS_BT[:1, :5], MASK_BT[:1, :5], Writing(beams=2, most=8))[0].tolist()
    assert asked.stdout.strip() == str(expected), asked.stderr
