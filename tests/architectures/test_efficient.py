"""Models of transformers with other attentions, tiny and with random weights: Longformer and Mamba are trained and
loaded again, the others are refused in one sentence that has the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from tasks.catalog import TaskSpec
from tasks.errors import ModelError
from tasks.methods.layers.layer_maps import initial_layers
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import (
    AnswerSlice,
    DropSlice,
    IntermediateSlice,
    KeptSlice,
    PredictionSlice,
    RowsSlice,
    TeacherSlice,
)
from tasks.recipe.students import Shape
from tasks.scoring.continuing import continued_texts
from tasks.scoring.predict import predict_texts
from tasks.training.jobs import JOBS as TRAINING
from tests import families
from tests.architectures.test_a_further_architecture import INNER, done
from tests.task_types.next_words.tables import byte_tokenizer, documents, write_documents
from tests.training.test_families import FAST, recipe, same_after_reload

WINDOWS = [4, 8, 16, 8]
SIZES: dict[str, dict[str, Any]] = {
    "longformer": {**families.BERT_LIKE, "attention_window": WINDOWS, "max_position_embeddings": 66, "pad_token_id": 0},
    "nystromformer": {**families.BERT_LIKE, "segment_means_seq_len": 8, "num_landmarks": 8, "conv_kernel_size": 3},
    "funnel": {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "block_sizes": [2, 2]},
}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 4, "state_size": 8, "time_step_rank": 4}
DROPPED: dict[str, Any] = {"layer_dropping": {"strategies": ["top"], "drop": [1]}}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay the sizes beside those of the families that all tests know."""
    for name, sizes in SIZES.items():
        monkeypatch.setitem(families.SIZES, name, sizes)


@pytest.fixture
def rows(tiny_rows: Path, tmp_path: Path) -> Path:
    """A folder of prepared rows."""
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), tmp_path / "rows")
    return tmp_path / "rows"


def write_mamba(folder: Path) -> Path:
    """Write a random Mamba with its tokenizer."""
    tokenizer = byte_tokenizer(documents(40))
    end = tokenizer.eos_token_id
    words = {"vocab_size": len(tokenizer), "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("mamba", **words, **MAMBA)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_longformer_keeps_the_windows_of_its_layers(known: None, rows: Path, tmp_path: Path) -> None:
    """Texts here are shorter than a window and no multiple of it. Students and a dropped model load elsewhere: their
    configs had a window for each of the teacher's layers, which transformers refuses."""
    base, of = families.write_tiny("longformer", tmp_path / "base"), {"task_type": "classification"}
    check_students(recipe({"start": "random"}, task_distillation={"intermediate": INNER}, **DROPPED), base, {})
    teacher, answers, first = tmp_path / "teacher", tmp_path / "answers", tmp_path / "first"
    done(TRAINING, "finetune", TeacherSlice(**of, **FAST), teacher, rows=rows, base=base)
    asked = AnswerSlice(**of, max_length=16, precision="fp32")
    done(TRAINING, "answer", asked, answers, rows=rows, teacher=teacher)
    narrow = Shape(layers=2, hidden=8, heads=2, feed_forward=12)
    inner = IntermediateSlice(**of, **FAST, **INNER, shape=narrow, start="random")
    done(TRAINING, "intermediate", inner, first, rows=rows, teacher=teacher)
    given = {"rows": rows, "teacher": teacher, "answers": answers}
    halved = PredictionSlice(**of, **FAST, shape=Shape(layers=2), start="teacher")
    done(TRAINING, "prediction", halved, tmp_path / "halved", **given)
    done(TRAINING, "prediction", PredictionSlice(**of, **FAST), tmp_path / "narrow", start=first, **given)
    dropped = DropSlice(**of, **FAST, strategy="bottom", drop=2)
    done(TRAINING, "drop", dropped, tmp_path / "dropped", rows=rows, base=base)
    spread = [WINDOWS[layer] for layer in initial_layers(2, 4)]
    kept = {"halved": spread, "narrow": spread, "dropped": WINDOWS[2:]}
    for name, windows in kept.items():
        same_after_reload(tmp_path / name)
        assert json.loads((tmp_path / name / "config.json").read_text())["attention_window"] == windows, name


def test_a_nystromformer_of_any_length_is_trained(known: None, rows: Path, tmp_path: Path) -> None:
    """As it is published: with as many landmarks as tokens of a segment its attention is whole."""
    base, of = families.write_tiny("nystromformer", tmp_path / "base"), {"task_type": "classification"}
    check_students(recipe({}), base, {})
    done(TRAINING, "finetune", TeacherSlice(**of, **FAST), tmp_path / "teacher", rows=rows, base=base)
    same_after_reload(tmp_path / "teacher")


def language_recipe(model: Path, student: dict[str, Any], **sections: Any) -> Recipe:
    """Return a recipe of a language model with one student."""
    own = {
        "name": "words",
        "task": {"name": "words", "kind": "next-words"},
        "teacher": {"model": str(model)},
        "gate": {"split": "validation"},
        "students": [{"name": "small", "layers": 2, **student}],
    }
    return Recipe.model_validate({**own, **sections})


def test_a_mamba_learns_a_language_and_teaches_a_smaller_one(tmp_path: Path) -> None:
    """It has no heads and no keys; the student is narrower, and writes when transformers alone has loaded it."""
    base, of, table = write_mamba(tmp_path / "base"), {"task_type": "next-words"}, write_documents(tmp_path / "t", 40)
    spec = TaskSpec(name="words", kind="next-words", metrics=("word_perplexity",))
    prepare_rows(table, RowsSlice(task=spec, selection_rows=5), tmp_path / "rows")
    check_students(language_recipe(base, {"start": "random", "hidden": 16}), base, {})
    trained, teacher = {**FAST, "max_length": 32}, tmp_path / "teacher"
    done(TRAINING, "finetune", TeacherSlice(**of, **trained), teacher, rows=tmp_path / "rows", base=base)
    given = {"rows": tmp_path / "rows", "teacher": teacher}
    asked = AnswerSlice(**of, max_length=32, precision="fp32", kept=KeptSlice(words=8, temperature=1.0))
    done(TRAINING, "answer", asked, tmp_path / "answers", **given)
    knobs = PredictionSlice(**of, **trained, temperature=1.0, shape=Shape(layers=2, hidden=16), start="random")
    done(TRAINING, "prediction", knobs, tmp_path / "small", answers=tmp_path / "answers", **given)
    config = AutoConfig.from_pretrained(tmp_path / "small")
    assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == (2, 16, 32)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "small", output_loading_info=True)[1]
    assert not loaded["missing_keys"] and not loaded["unexpected_keys"]
    assert predict_texts(tmp_path / "small", documents(1, 5), max_length=32)[0]["tokens"] > 30
    assert isinstance(continued_texts(tmp_path / "small", ["the good film"], 3)[0], str)


@pytest.mark.parametrize(
    ("model_type", "config", "student", "sections", "sentence"),
    [
        ("funnel", SIZES["funnel"], {}, {}, "funnel cannot be trained here: it pools texts between its blocks"),
        (
            "nystromformer",
            {"num_landmarks": 8, "segment_means_seq_len": 64},
            {},
            {},
            r"means of texts of exactly 64 tokens .*; name a model of another type",
        ),
        ("rwkv", {"num_hidden_layers": 4}, {}, {}, "divides its weights in place when it is evaluated"),
        ("mamba", MAMBA, {}, {}, r"small starts from whole layers \(start: teacher\), .* start: random, embeddings"),
        ("mamba", MAMBA, {"start": "random"}, DROPPED, "is made by layer-dropping, and a mamba is only trained as a w"),
        ("mamba", MAMBA, {"start": "random"}, {"exports": {}}, "a mamba remembers states, .*remove the section exp"),
        (
            "mamba",
            MAMBA,
            {"start": "random", "heads": 2},
            {},
            "a model of type mamba has no heads; remove that, its shape has the knobs layers, hidden",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    model_type: str,
    config: dict[str, Any],
    student: dict[str, Any],
    sections: dict[str, Any],
    sentence: str,
    tmp_path: Path,
) -> None:
    stated = json.dumps({"model_type": model_type, **config})
    (tmp_path / "config.json").write_text(stated)
    make = language_recipe if model_type in ("mamba", "rwkv") else lambda model, own, **more: recipe(own, **more)
    with pytest.raises(ModelError, match=sentence):
        check_students(make(tmp_path, student, **sections), tmp_path, {})


def test_a_folder_of_a_students_own_is_checked_alike(tmp_path: Path) -> None:
    for name, sizes in (("base", families.BERT_LIKE), ("own", SIZES["funnel"])):
        (tmp_path / name).mkdir()
        model_type = "bert" if name == "base" else "funnel"
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": model_type, **sizes}))
    own = recipe({"start": str(tmp_path / "own")})
    with pytest.raises(ModelError, match="a model of type funnel cannot be trained here"):
        check_students(own, tmp_path / "base", {"small": tmp_path / "own"})
