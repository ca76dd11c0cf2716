"""Every family of encoders as teacher and as student: what the engine makes of it, what can be read of it, and what is
refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tasks.architectures.architecture import HIDDEN, SCORES, STATES
from tasks.architectures.known_architectures import ARCHITECTURES, shape_of
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.preflight import check_students
from tasks.recipe.data import CorpusText
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import (
    AnswerSlice,
    ContributionSlice,
    DropSlice,
    GeneralSlice,
    IntermediateSlice,
    PredictionSlice,
    SignalSlice,
    TeacherSlice,
)
from tasks.recipe.students import Shape
from tasks.scoring.speed.flops import counted_flops, flops_of, parameters_of
from tasks.scoring.speed.speed import measure_latency, peak_increase
from tasks.task_types.heads import HEADS
from tasks.task_types.types import CLASS_LOGITS
from tasks.training import loop
from tasks.training.answers import answer, summary_of
from tasks.training.data.corpora import read_corpus, tokenize_corpus
from tasks.training.data.encoded import Batch, collate, encode
from tasks.training.data.epochs import Epoch
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.distill import distill_intermediate, distill_prediction
from tasks.training.dropping import drop_and_train, measure_contributions, states_of
from tasks.training.finetune import finetune
from tasks.training.general import distill_general
from tasks.training.models.students import build_student, freeze, load_classifier, save_model, set_dropout
from tasks.training.objectives.capture import Capture, beyond_window, check_capture
from tasks.training.objectives.layers import LayerObjective
from tasks.training.objectives.signals import record_signals, recorded
from tasks.training.selection import all_outputs
from tests.families import NAMES, SIZES, write_tiny
from tests.scoring.small import logits_of

CPU = torch.device("cpu")
TASK = Task("tiny", "classification", ["negative", "positive"], "accuracy", False, HEADS["classification"])
FAST: dict[str, Any] = {"steps": 4, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}
TEXTS = ["the film was good", "a poor meal but a very fine song", "it", "the plot was not bad although the end is"]
SECOND = ["a bad book", "it was", "the song and the film and the meal", "good"]
SMALL = Shape(layers=2, hidden=8, heads=2, feed_forward=12)
OF = {signal: [name for name in NAMES if signal in ARCHITECTURES[name].signals] for signal in (HIDDEN, SCORES, STATES)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_tiny(name, tmp_path_factory.mktemp(name)) for name in NAMES}


@pytest.fixture(scope="module")
def teachers(written: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Classifiers as a stage would have saved them: their heads are random."""
    folders = {}
    for name, folder in written.items():
        folders[name] = tmp_path_factory.mktemp(f"{name}-teacher")
        model = load_classifier(folder, TASK, CPU)
        with torch.no_grad():
            for value in model.parameters():
                value.add_(torch.randn_like(value) * 0.1)
        save_model(model, load_tokenizer(folder), folders[name])
    return folders


def job(name: str, knobs: Any, output: Path, *, checkpoints: Path | None = None, **inputs: Path) -> Job:
    output.mkdir(exist_ok=True, parents=True)
    order = {
        "job": name,
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {key: str(path) for key, path in inputs.items()},
        "output": str(output),
    }
    return Job(order | ({"checkpoints": str(checkpoints)} if checkpoints else {}))


def batch_of(folder: Path, texts: list[str], pairs: list[str] | None = None) -> Batch:
    tokenizer = load_tokenizer(folder)
    encoded = encode(tokenizer, texts, pairs, 24)
    return collate(encoded, np.arange(len(texts)), tokenizer.pad_token_id, CPU)


def matching(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"layer_map": "uniform", "hidden": 1.0, "attention": 0.0, "projection": "shared", "formula": "masked"}
        | changes
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pairs", [None, SECOND])
def test_padding_changes_no_answer(teachers: dict[str, Path], name: str, pairs: list[str] | None) -> None:
    model = freeze(load_classifier(teachers[name], TASK, CPU))
    together = model(**batch_of(teachers[name], TEXTS, pairs).inputs(model)).logits
    alone = [
        model(**batch_of(teachers[name], [text], pairs and [pairs[row]]).inputs(model)).logits
        for row, text in enumerate(TEXTS)
    ]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-4, atol=1e-5)
    assert together.std(0).min() > 1e-3, "all texts get one answer, and this test shows nothing"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pairs", [None, SECOND])
def test_whoever_loads_the_folder_gets_the_engines_answers(
    teachers: dict[str, Path], name: str, pairs: list[str] | None
) -> None:
    """Nothing of ours is asked there: the saved tokenizer knows on which side to pad, and what the model takes."""
    tokenizer, model = load_tokenizer(teachers[name]), freeze(load_classifier(teachers[name], TASK, CPU))
    encoded = encode(tokenizer, TEXTS, pairs, 24)
    ours_NC = all_outputs(model, CLASS_LOGITS, encoded, tokenizer.pad_token_id, precision="fp32")["logits"]
    np.testing.assert_allclose(logits_of(teachers[name], TEXTS, pairs, 24), ours_NC, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_no_inner_loss(teachers: dict[str, Path], name: str) -> None:
    teacher = freeze(load_classifier(teachers[name], TASK, CPU))
    attention = float(SCORES in ARCHITECTURES[name].signals)
    student = build_student("random", teacher, Shape(layers=2, hidden=8, heads=4), seed=1).eval()
    matcher = LayerObjective(student, teacher, matching(attention=attention))
    wide = batch_of(teachers[name], TEXTS)
    one = Batch(wide.ids_BT[:1], wide.mask_BT[:1], wide.segments_BT[:1])
    assert 0 in one.mask_BT
    alone = matcher.loss(batch_of(teachers[name], TEXTS[:1])).mean().item()
    assert matcher.loss(one).mean().item() == pytest.approx(alone, rel=1e-4) and alone > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_a_family_shows_is_its_own(teachers: dict[str, Path], name: str) -> None:
    """The proof of a first batch: twice the same, and, where scores are read or can be made, the model's own
    probabilities."""
    model = freeze(load_classifier(teachers[name], TASK, CPU))
    shows, every = ARCHITECTURES[name].signals, range(4)
    capture = Capture(
        model, hidden=range(5), attention=every if SCORES in shows else (), states=every if STATES in shows else ()
    )
    batch = batch_of(teachers[name], TEXTS)
    check_capture(capture, batch.inputs(model), batch.mask_BT)
    shown = capture(**batch.inputs(model))
    assert [tuple(state.shape) for state in shown.hidden.values()] == [(4, batch.ids_BT.shape[1], 16)] * 5
    if STATES in shows:
        assert {state.shape for by_name in shown.states.values() for state in by_name.values()} == {
            (4, 4, batch.ids_BT.shape[1], getattr(model.config, "true_hidden_size", 16) // 4)
        }
    model.train()
    set_dropout(model, 0.3)
    with pytest.raises(ModelError, match="between two calls"):
        check_capture(capture, batch.inputs(model), batch.mask_BT)


def test_deberta_shows_what_its_maps_make_of_the_text_not_of_positions(teachers: dict[str, Path]) -> None:
    model = freeze(load_classifier(teachers["deberta-v2"], TASK, CPU))
    assert model.config.share_att_key, "else the maps are used once, and this test shows nothing"
    batch = batch_of(teachers["deberta-v2"], TEXTS)
    shown = Capture(model, hidden=[0], states=[0])(**batch.inputs(model))
    attention = model.base_model.encoder.layer[0].attention.self
    for signal, linear in (
        ("query", attention.query_proj),
        ("key", attention.key_proj),
        ("value", attention.value_proj),
    ):
        whole_BTD = shown.states[0][signal].transpose(1, 2).flatten(2)
        torch.testing.assert_close(whole_BTD, linear(shown.hidden[0]))


@pytest.mark.parametrize("name", NAMES)
def test_every_job_of_the_engine(written: dict[str, Path], rows: Path, name: str, tmp_path: Path) -> None:
    """Fine-tuning, answers, kept layers, both phases of a narrower student, contributions, dropping; what comes out
    answers alike after a reload."""
    teacher, base = tmp_path / "teacher", written[name]
    finetune(job("finetune", TeacherSlice(task_type="classification", **FAST), teacher, rows=rows, base=base))
    answer(
        job(
            "answer",
            AnswerSlice(task_type="classification", max_length=16, precision="fp32"),
            tmp_path / "answers",
            rows=rows,
            teacher=teacher,
        )
    )
    attention = SCORES in ARCHITECTURES[name].signals
    shape = Shape(layers=2, hidden=8, heads=4) if attention else SMALL
    kept = SignalSlice(task_type="classification", layers=2, max_length=16, precision="fp32", attention=attention)
    record_signals(job("signals", kept, tmp_path / "kept", rows=rows, teacher=teacher))
    first = IntermediateSlice(
        task_type="classification", **FAST, matching={"attention": float(attention)}, shape=shape, start="embeddings"
    )
    distill_intermediate(
        job("intermediate", first, tmp_path / "first", rows=rows, teacher=teacher, signals=tmp_path / "kept")
    )
    second = PredictionSlice(task_type="classification", **FAST, transfer_alone=False)
    distill_prediction(
        job(
            "prediction",
            second,
            tmp_path / "student",
            rows=rows,
            teacher=teacher,
            answers=tmp_path / "answers",
            start=tmp_path / "first",
        )
    )
    measured = measure_contributions(
        job(
            "contributions",
            ContributionSlice(task_type="classification", max_length=16),
            tmp_path / "shares",
            rows=rows,
            base=base,
        )
    )
    assert len(measured["cosines"]) == 4
    dropped = drop_and_train(
        job(
            "drop",
            DropSlice(task_type="classification", **FAST, strategy="contribution", drop=1),
            tmp_path / "dropped",
            rows=rows,
            base=base,
            contributions=tmp_path / "shares",
        )
    )
    assert len(dropped["kept_layers"]) == 3 and ("parameters only where" in dropped.get("note", "")) == (
        name == "albert"
    )
    for made in (teacher, tmp_path / "student", tmp_path / "dropped"):
        same_after_reload(made)
    found = shape_of(json.loads((tmp_path / "student" / "config.json").read_text()))
    assert (found["layers"], found["hidden"], found["heads"]) == (2, 8, shape.heads)
    scored(teacher, tmp_path / "student")


def same_after_reload(folder: Path) -> None:
    """Load a folder twice, by transformers alone and by the engine: their answers are the same, bit for bit under one
    attention."""
    from transformers import AutoModelForSequenceClassification

    plain = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    ours = load_classifier(folder, TASK, CPU).eval()
    if hasattr(ours.config, "_attn_implementation") and ours._supports_attention_backend:
        ours.set_attn_implementation("eager")
    batch = batch_of(folder, TEXTS)
    with torch.no_grad():
        assert torch.equal(plain(**batch.inputs(plain)).logits, ours(**batch.inputs(ours)).logits)


def scored(teacher: Path, student: Path) -> None:
    """Check the figures of a student that is smaller in every way."""
    few, more, beyond = (flops_of(student, length, TASK.kind) for length in (16, 64, 128))
    assert parameters_of(student) < parameters_of(teacher) and few < flops_of(teacher, 16, TASK.kind)
    assert few == pytest.approx(counted_flops(student, 16, TASK.kind), rel=0.01)
    assert beyond > more > 0, "more tokens than a tiny model has positions"
    timed = measure_latency(
        {"model": student, "teacher": teacher},
        task_type="classification",
        batch=1,
        length=8,
        threads=1,
        repeats=2,
        warmup=0,
        seconds=0.01,
    )
    assert (
        timed["model"]["p50_ms"] > 0
        and peak_increase(student, task_type="classification", batch=1, length=8, threads=1) >= 0
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("start", ["teacher", "embeddings", "random"])
def test_students_of_every_start(teachers: dict[str, Path], name: str, start: str, tmp_path: Path) -> None:
    teacher = freeze(load_classifier(teachers[name], TASK, CPU))
    before = {key: value.clone() for key, value in teacher.state_dict().items()}
    shape = Shape(layers=3) if start == "teacher" else SMALL
    student = build_student(start, teacher, shape, seed=3)
    assert student.config is not teacher.config and teacher.config.num_hidden_layers == 4
    assert student(**batch_of(teachers[name], TEXTS).inputs(student)).logits.shape == (4, 2)
    save_model(student, load_tokenizer(teachers[name]), tmp_path)
    same_after_reload(tmp_path)
    assert all(torch.equal(before[key], value) for key, value in teacher.state_dict().items())
    if start == "embeddings":
        ours, theirs = (model.get_input_embeddings().weight.float() for model in (student, teacher))
        assert torch.linalg.lstsq(theirs, ours).solution.shape == (theirs.shape[1], ours.shape[1])
        torch.testing.assert_close(theirs @ torch.linalg.lstsq(theirs, ours).solution, ours, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_training_ends_with_the_same_bytes(
    written: dict[str, Path], rows: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embedding rows in use, dropout and optimizer included."""
    knobs = TeacherSlice(task_type="classification", **FAST | {"steps": 6}, checkpoint_minutes=1e-9, dropout=0.1)
    finetune(job("finetune", knobs, tmp_path / "whole", rows=rows, base=written[name]))
    steps = iter(range(99))
    real = loop.Run.one_step

    def breaks(run: Any, *given: Any) -> None:
        if next(steps) == 4:
            raise RuntimeError("the machine broke")
        real(run, *given)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(loop.Run, "one_step", breaks)
        finetune(
            job("finetune", knobs, tmp_path / "broken", checkpoints=tmp_path / "points", rows=rows, base=written[name])
        )
    finetune(
        job("finetune", knobs, tmp_path / "resumed", checkpoints=tmp_path / "points", rows=rows, base=written[name])
    )
    whole, resumed = (load_file(tmp_path / made / "model.safetensors") for made in ("whole", "resumed"))
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())


@pytest.mark.parametrize("name", NAMES)
def test_only_rows_in_use_are_trained_and_nothing_else_changes(
    written: dict[str, Path], rows: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = loop.Run.__init__
    monkeypatch.setattr(loop.Run, "__init__", lambda run, *given: (real(run, *given), seen.append(run.table))[0])
    knobs = TeacherSlice(task_type="classification", **FAST, dropout=0.0)
    finetune(job("finetune", knobs, tmp_path / "few", rows=rows, base=written[name]))
    assert seen[0] is not None and int(seen[0].standing[0]) < len(seen[0].token_V)
    monkeypatch.setattr(loop, "used_rows_only", lambda modules: __import__("contextlib").nullcontext(None))
    finetune(job("finetune", knobs, tmp_path / "all", rows=rows, base=written[name]))
    assert seen[1] is None
    few, everything = (load_file(tmp_path / made / "model.safetensors") for made in ("few", "all"))
    for key, value in few.items():
        torch.testing.assert_close(value, everything[key], rtol=0, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_is_set_in_every_layer_and_nowhere_saved(teachers: dict[str, Path], name: str) -> None:
    model = load_classifier(teachers[name], TASK, CPU).train()
    inputs = batch_of(teachers[name], TEXTS).inputs(model)
    set_dropout(model, 0.0)
    assert torch.equal(model(**inputs).logits, model(**inputs).logits)
    config = model.config.to_dict()
    set_dropout(model, 0.5)
    assert not torch.equal(model(**inputs).logits, model(**inputs).logits)
    assert model.config.to_dict() == config


@pytest.mark.parametrize("name", ["roberta", "xlnet", "modernbert", "deberta-v2"])
def test_general_text_stands_in_the_familys_own_frame(written: dict[str, Path], name: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "documents").mkdir()
    pq.write_table(
        pa.table({"text": [" ".join(TEXTS) + " " + " ".join(SECOND)] * 8}), tmp_path / "documents" / "documents.parquet"
    )
    knobs = CorpusText(source="", max_tokens=2000, max_length=16)
    tokenize_corpus(job("tokenize", knobs, tmp_path / "corpus", base=written[name], documents=tmp_path / "documents"))
    tokenizer, encoded = load_tokenizer(written[name]), read_corpus(tmp_path / "corpus")
    first = encoded.ids_S[: encoded.offsets[1]].tolist()
    assert len(first) == 16
    assert first == tokenizer(tokenizer.decode(first, skip_special_tokens=True))["input_ids"]
    method = (
        {"method": "relations"}
        if STATES in ARCHITECTURES[name].signals
        else {"method": "layers", "matching": {"attention": 0.0}}
    )
    knobs = GeneralSlice(**FAST, shape=SMALL, start="random", **method)
    distill_general(job("general", knobs, tmp_path / "student", base=written[name], corpus=tmp_path / "corpus"))
    assert (tmp_path / "student" / "model.safetensors").is_file()


def test_kept_layers_of_a_model_padded_on_the_left_are_those_of_a_live_teacher(
    teachers: dict[str, Path], rows: Path, tmp_path: Path
) -> None:
    from tasks.training.data.rows import read_rows

    folder = teachers["xlnet"]
    record_signals(
        job(
            "signals",
            SignalSlice(task_type="classification", layers=2, max_length=16, precision="fp32", attention=False),
            tmp_path,
            rows=rows,
            teacher=folder,
        )
    )
    train, tokenizer = read_rows(rows, "train", HEADS["classification"]), load_tokenizer(folder)
    teacher = freeze(load_classifier(folder, TASK, CPU))
    matcher = LayerObjective(build_student("random", teacher, SMALL, seed=3).eval(), teacher, matching())
    kept = recorded(
        Job({"job": "intermediate", "inputs": {"signals": str(tmp_path)}, "output": str(tmp_path)}), train.ids_N
    )
    batch = np.asarray([5, 0, 17, 30])
    epoch = Epoch(0, encode(tokenizer, train.texts, None, 16), [])
    tensors = collate(epoch.encoded, batch, tokenizer.pad_token_id, CPU)
    assert kept is not None and 0 in tensors.mask_BT[:, 0] and (tensors.mask_BT[:, -1] == 1).all()
    stored = matcher.loss(tensors, kept.of(batch, CPU)).mean()
    torch.testing.assert_close(stored, matcher.loss(tensors).mean(), rtol=1e-4, atol=0)


def test_xlnet_contributes_where_its_summary_stands(written: dict[str, Path], rows: Path, tmp_path: Path) -> None:
    measured = {
        token: measure_contributions(
            job(
                "contributions",
                ContributionSlice(task_type="classification", max_length=16, token=token),
                tmp_path / token,
                rows=rows,
                base=written["xlnet"],
            )
        )["cosines"]
        for token in ("cls", "mean")
    }
    model, batch = freeze(load_classifier(written["xlnet"], TASK, CPU)), batch_of(written["xlnet"], TEXTS[:1])
    states = model(**batch.inputs(model), output_hidden_states=True).hidden_states
    assert batch.ids_BT[0, -1] == load_tokenizer(written["xlnet"]).cls_token_id and len(states) == 5
    assert measured["cls"] != measured["mean"]


def test_a_norm_behind_the_last_layer_is_nobodys_contribution(written: dict[str, Path]) -> None:
    model, batch = freeze(load_classifier(written["modernbert"], TASK, CPU)), batch_of(written["modernbert"], TEXTS)
    with torch.no_grad():
        model.model.layers[3].mlp.Wo.weight.zero_()
        model.model.layers[3].attn.Wo.weight.zero_()
    states = states_of(model, batch.inputs(model))
    assert len(states) == 5 and torch.equal(states[3], states[4]), "this layer does nothing"


def test_a_student_of_another_family_is_saved_with_its_own_inputs(written: dict[str, Path], tmp_path: Path) -> None:
    """A DistilBERT may learn from a BERT that reads the same tokens."""
    save_model(load_classifier(written["distilbert"], TASK, CPU), load_tokenizer(written["bert"]), tmp_path)
    assert logits_of(tmp_path, TEXTS, SECOND, 24).shape == (4, 2), "it takes no segments, though its teacher does"
    other = shutil.copytree(written["bert"], tmp_path / "other")
    (other / "config.json").write_text((written["xlnet"] / "config.json").read_text())
    with pytest.raises(ModelError, match="whose summary token is at the other end"):
        copying = {"intermediate": {"matching": {"attention": 0.0}}}
        check_students(
            recipe({"layers": 4, "start": "a/folder"}, task_distillation=copying), written["bert"], {"small": other}
        )


def test_a_local_layer_of_modernbert_is_not_copied_where_it_does_not_look(teachers: dict[str, Path]) -> None:
    teacher = freeze(load_classifier(teachers["modernbert"], TASK, CPU))
    student = build_student("teacher", teacher, Shape(layers=4), seed=0).eval()
    matcher = LayerObjective(student, teacher, matching(hidden=0.0, attention=1.0))
    batch = batch_of(teachers["modernbert"], TEXTS)
    kinds = teacher.config.layer_types
    assert kinds == ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    ours, theirs = (capture(**batch.inputs(teacher)) for capture in (matcher.of_student, matcher.of_teacher))
    unseen_1TT = beyond_window(batch.mask_BT, SIZES["modernbert"]["local_attention"] // 2)
    assert unseen_1TT.any()
    for layer, kind in enumerate(kinds):
        there = {**ours.scores, layer: ours.scores[layer] + unseen_1TT[:, None] * 3.0}
        loss = matcher.compare(SimpleNamespace(hidden=ours.hidden, scores=there), theirs, batch.mask_BT).mean()
        assert (loss.item() > 0) == (kind == "full_attention")


def test_what_else_a_config_holds_follows_the_shape(teachers: dict[str, Path]) -> None:
    configs = {
        name: build_student("random", freeze(load_classifier(teachers[name], TASK, CPU)), SMALL, seed=0).config
        for name in NAMES
    }
    assert (configs["xlnet"].d_head, configs["xlnet"].d_inner, configs["distilbert"].hidden_dim) == (4, 12, 12)
    assert configs["deberta-v2"].pooler_hidden_size == 8 and len(configs["modernbert"].layer_types) == 2
    assert configs["electra"].embedding_size == configs["albert"].embedding_size == 8


def test_a_tokenizer_without_padding_borrows_a_token_that_is_masked_anyway(
    written: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(written["distilbert"], tmp_path / "bare")
    values = json.loads((folder / "tokenizer_config.json").read_text())
    del values["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    assert load_tokenizer(folder).pad_token == "[SEP]"
    ours, theirs = (
        freeze(load_classifier(place, TASK, CPU))(
            **batch_of(place, TEXTS).inputs(load_classifier(place, TASK, CPU))
        ).logits
        for place in (folder, written["distilbert"])
    )
    torch.testing.assert_close(ours, theirs)


def recipe(student: dict[str, Any], **sections: Any) -> Recipe:
    own = {
        "name": "tiny",
        "task": {"name": "tiny"},
        "gate": {"split": "validation"},
        "students": [{"name": "small", "layers": 2, **student}],
    }
    return Recipe.model_validate({**own, **sections})


@pytest.mark.parametrize(
    ("name", "student", "sections", "sentence"),
    [
        (
            "xlnet",
            {},
            {"task_distillation": {"intermediate": {}}},
            "small, task_distillation.intermediate: attention scores cannot be read from a model of type xlnet, "
            "because its attention is one function.*"
            "set matching.attention: 0 and copy hidden states, or use one of albert, bert",
        ),
        (
            "deberta-v2",
            {},
            {"task_distillation": {"intermediate": {}}},
            "because its attention .*adds position .* copy hidden states",
        ),
        ("xlnet", {}, {"augmentation": {"masked_lm": "teacher"}}, "and xlnet is not one; name another model"),
        ("xlnet", {"hidden": 18, "start": "random"}, {}, "width 18 does not divide by 4 heads"),
        ("modernbert", {"hidden": 12, "start": "random"}, {}, "choose another number of heads"),
        ("distilbert", {"hidden": 32, "start": "embeddings"}, {}, "is wider"),
        ("xlnet", {"layers": 5}, {}, "has 5 layers and its teacher 4"),
        ("albert", {}, {"layer_dropping": {"drop": [4]}}, "cannot drop 4 of 4 layers"),
    ],
)
def test_what_a_family_cannot_do_is_refused_before_anything_is_spent(
    written: dict[str, Path], name: str, student: dict[str, Any], sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelError if "cannot drop" not in sentence else Exception, match=sentence):
        check_students(recipe(student, **sections), written[name], {})


@pytest.mark.parametrize(
    ("name", "phase", "section", "sentence"),
    [
        (
            "xlnet",
            {"method": "relations"},
            "general_distillation",
            "queries, keys and values cannot be read from a model of type xlnet.* use method: layers",
        ),
        ("deberta-v2", {"method": "relations"}, "task_distillation", None),
        (
            "deberta-v2",
            {"method": "triple"},
            "general_distillation",
            "deberta-v2 is not among albert, bert, .*; use method: relations",
        ),
        (
            "xlnet",
            {"method": "triple"},
            "general_distillation",
            "xlnet is not among albert, bert, .*; use method: layers with matching.attention: 0",
        ),
        ("albert", {"method": "triple"}, "general_distillation", None),
        (
            "albert",
            {"method": "replacing"},
            "task_distillation",
            "layers of a model of type albert cannot be replaced one by one; use method: layers",
        ),
        ("roberta", {"method": "replacing"}, "task_distillation", None),
    ],
)
def test_every_method_is_refused_where_the_family_cannot_serve_it(
    written: dict[str, Path], name: str, phase: dict[str, Any], section: str, sentence: str | None
) -> None:
    general = {"corpus": {"source": "x"}, "general_distillation": phase}
    asked = recipe(
        {"start": "random" if general.get(section) else "teacher"},
        **(general if section in general else {section: {"intermediate": phase}}),
    )
    if sentence is None:
        check_students(asked, written[name], {})
    else:
        with pytest.raises(ModelError, match=sentence):
            check_students(asked, written[name], {})


@pytest.mark.parametrize("name", ["bert", "xlnet"])
def test_a_summary_is_where_the_family_keeps_it(teachers: dict[str, Path], name: str) -> None:
    model, batch = freeze(load_classifier(teachers[name], TASK, CPU)), batch_of(teachers[name], TEXTS)
    found = summary_of(model, batch.ids_BT[:, :, None].float(), batch.mask_BT)
    assert set(found[:, 0].tolist()) == {load_tokenizer(teachers[name]).cls_token_id}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_family_can_do_is_not_refused(written: dict[str, Path], name: str) -> None:
    attention = float(SCORES in ARCHITECTURES[name].signals)
    check_students(
        recipe(
            {}, task_distillation={"intermediate": {"matching": {"attention": attention}}}, layer_dropping={"drop": [1]}
        ),
        written[name],
        {},
    )


@pytest.mark.parametrize("name", sorted({*NAMES} - {*OF[STATES]}))
def test_the_engine_refuses_too(teachers: dict[str, Path], name: str) -> None:
    with pytest.raises(
        ModelError,
        match="queries, keys and values cannot be read from a model of type xlnet, because .* use method: layers",
    ):
        Capture(load_classifier(teachers[name], TASK, CPU), states=[0])
