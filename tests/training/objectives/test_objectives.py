"""Every inner objective in the engine: it learns, it leaves a plain model, and what it reads of the models is what it
says."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import Interrupted, LimbeckError, ModelError
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.data import CorpusText
from tasks.recipe.slices import (
    AnswerSlice,
    GeneralSlice,
    IntermediateSlice,
    MixSlice,
    PatienceOf,
    PredictionSlice,
    RowsSlice,
    TeacherSlice,
)
from tasks.recipe.students import Shape
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import collate, encode
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.jobs import JOBS
from tasks.training.loop import StopSignal
from tasks.training.models.students import build_student, freeze, load_classifier, load_masked_lm
from tasks.training.objectives.relations import Relations
from tasks.training.objectives.theseus import Replacing
from tests.tiny import WORDS, write_tiny_bert

TASK, CPU = (
    Task("tiny", "classification", ["negative", "positive"], "accuracy", False, HEADS["classification"]),
    torch.device("cpu"),
)
FAST: dict[str, Any] = {"steps": 12, "batch_size": 8, "max_length": 16, "precision": "fp32", "learning_rate": 2e-3}


@pytest.fixture(scope="module")
def scene(tiny_bert: Path, tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Prepared rows, general text as tokens, and a fine-tuned teacher with its answers."""
    folder = tmp_path_factory.mktemp("scene")
    rows = folder / "rows"
    rows.mkdir()
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), rows)
    documents = folder / "documents"
    documents.mkdir()
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = [f"the {word} was not {other} and it was {word}" for word in WORDS for other in WORDS[:6]]
    pq.write_table(pa.table({"text": text}), documents / "documents.parquet")
    knobs = CorpusText(source="x", max_tokens=2000, max_length=16)
    corpus = do("tokenize", folder / "corpus", knobs, base=tiny_bert, documents=documents)
    teacher = do(
        "finetune",
        folder / "teacher",
        TeacherSlice(task_type="classification", **FAST, evaluations=1),
        rows=rows,
        base=tiny_bert,
    )
    answers = do(
        "answer",
        folder / "answers",
        AnswerSlice(task_type="classification", max_length=16, precision="fp32"),
        rows=rows,
        teacher=teacher,
    )
    return SimpleNamespace(rows=rows, corpus=corpus, teacher=teacher, answers=answers, base=tiny_bert, folder=folder)


def do(name: str, folder: Path, knobs: Any, lists: dict[str, list[Path]] | None = None, **inputs: Path) -> Path:
    """Do a job here and return its output folder; its facts are written beside it."""
    values = knobs if isinstance(knobs, dict) else knobs.model_dump(mode="json")
    order = {
        "job": name,
        "knobs": values,
        "inputs": {key: str(path) for key, path in inputs.items()},
        "output": str(folder / "output"),
        "lists": {key: [str(path) for path in paths] for key, paths in (lists or {}).items()},
        "checkpoints": str(folder / "checkpoints"),
    }
    job = Job(order, silent=True)
    job.output.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").write_text(json.dumps(JOBS[name](job)))
    return job.output


def facts(output: Path) -> Any:
    return json.loads((output.parent / "facts.json").read_text())


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


@pytest.fixture
def teacher(scene: SimpleNamespace) -> Any:
    return freeze(load_classifier(scene.teacher, TASK, CPU))


@pytest.fixture
def batch(scene: SimpleNamespace) -> Any:
    encoded = encode(
        load_tokenizer(scene.base), ["the film was good", "a book", "the plot was not very fine"], None, 16
    )
    return collate(encoded, [0, 1, 2], 0, CPU)


def relations(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**({"layer": None, "heads": None, "query": 1.0, "key": 1.0, "value": 1.0} | changes))


# --- relations ---


def test_a_student_equal_to_its_teacher_loses_nothing_in_relations(teacher: Any, batch: Any) -> None:
    assert float(Relations(copy.deepcopy(teacher), teacher, relations()).loss(batch).mean()) == pytest.approx(
        0, abs=1e-6
    )


def test_relations_read_the_very_projections_of_a_layer(teacher: Any, batch: Any) -> None:
    """What is captured is what the layer's own linear maps put out, head by head."""
    seen: dict[str, torch.Tensor] = {}
    attention = teacher.base_model.encoder.layer[2].attention.self
    hooks = [
        getattr(attention, name).register_forward_hook(lambda _, __, out, name=name: seen.update({name: out}))
        for name in ("query", "key", "value")
    ]
    shown = Relations(teacher, teacher, relations(layer=3)).of_teacher(**batch.inputs(teacher)).states[2]
    for hook in hooks:
        hook.remove()
    for name, states_BTD in seen.items():
        assert torch.equal(shown[name].transpose(1, 2).flatten(2), states_BTD)


def test_relations_do_not_change_with_padding(teacher: Any, scene: SimpleNamespace) -> None:
    """The projections are made larger: relations of fresh weights are so alike that single precision leaves four digits
    of their distance."""
    teacher = copy.deepcopy(teacher)
    student = build_student(
        "random", teacher, SimpleNamespace(layers=2, hidden=8, heads=2, feed_forward=16), seed=1
    ).eval()
    for name, weight in [*teacher.named_parameters(), *student.named_parameters()]:
        weight.data *= 10 if re.search(r"(query|key|value)\.weight", name) else 1
    objective = Relations(student, teacher, relations())
    encoded = encode(load_tokenizer(scene.base), ["the film was good", "a book " * 6], None, 16)
    both = collate(encoded, [0, 1], 0, CPU)
    padded = type(both)(both.ids_BT[:1], both.mask_BT[:1], both.segments_BT[:1])
    alone = float(objective.loss(collate(encoded, [0], 0, CPU)).mean().detach())
    assert alone > 0.01 and alone == pytest.approx(float(objective.loss(padded).mean().detach()), rel=1e-5)


def test_general_distillation_by_relations_with_other_heads_and_another_width(
    scene: SimpleNamespace, tmp_path: Path
) -> None:
    shape = Shape(layers=2, hidden=8, heads=2, feed_forward=16)
    made = do(
        "general",
        tmp_path,
        GeneralSlice(**FAST, evaluations=2, shape=shape, start="random"),
        base=scene.base,
        corpus=scene.corpus,
    )
    assert facts(made)["relation_heads"] == 8 and facts(made)["teacher_layer"] == 4
    assert set(weights(made)) == set(weights_of_plain(made)), "nothing but the plain model is saved"


def weights_of_plain(folder: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModel

    return dict(AutoModel.from_pretrained(folder).state_dict())


def test_a_layer_that_the_teacher_does_not_have_is_refused(teacher: Any) -> None:
    with pytest.raises(ModelError, match="has layers 1 to 4"):
        Relations(teacher, teacher, relations(layer=5))


# --- the triple loss ---


def test_general_distillation_by_the_triple_loss_makes_a_distilbert(scene: SimpleNamespace, tmp_path: Path) -> None:
    knobs = GeneralSlice(**FAST, method="triple", evaluations=2, shape=Shape(layers=2), start="distilbert")
    made = do("general", tmp_path / "general", knobs, base=scene.base, corpus=scene.corpus)
    assert json.loads((made / "config.json").read_text())["model_type"] == "distilbert"
    again = do("general", tmp_path / "again", knobs, base=scene.base, corpus=scene.corpus)
    assert (made / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    common = {"rows": scene.rows, "teacher": scene.teacher, "answers": scene.answers}
    last = do(
        "prediction",
        tmp_path / "last",
        PredictionSlice(task_type="classification", **FAST, evaluations=1),
        start=made,
        **common,
    )
    assert not any("token_type" in name or "pooler" in name for name in weights(last))


def test_the_triple_loss_falls(scene: SimpleNamespace, tmp_path: Path) -> None:
    from tasks.training.data.corpora import read_corpus
    from tasks.training.objectives.distilbert import Triple

    base, text = freeze(load_masked_lm(scene.base, CPU)), read_corpus(scene.corpus)
    student = build_student(
        "distilbert", base, SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None), seed=0
    )
    knobs = SimpleNamespace(soft=5.0, words=2.0, direction=1.0, temperature=2.0, mask_share=0.15, where="all")
    objective = Triple(student, base, knobs, load_tokenizer(scene.base), text)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    losses = []
    for step in range(60):
        torch.manual_seed(step % 3)
        loss = objective.loss(collate(text, list(range(8)), 0, CPU)).mean()
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert np.mean(losses[-9:]) < 0.8 * np.mean(losses[:9]), losses


def test_checkpoints_of_the_triple_loss_are_judged_on_the_same_masked_words(scene: SimpleNamespace) -> None:
    from tasks.training.data.corpora import read_corpus
    from tasks.training.general import general_spec
    from tasks.training.objectives.distilbert import Triple

    base, text = freeze(load_masked_lm(scene.base, CPU)), read_corpus(scene.corpus)
    student = build_student(
        "distilbert", base, SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None), seed=0
    ).eval()
    losses = SimpleNamespace(soft=5.0, words=2.0, direction=1.0, temperature=2.0, mask_share=0.15, where="all")
    objective = Triple(student, base, losses, load_tokenizer(scene.base), text)
    scores = []
    for seed in (0, 0, 1):
        knobs = SimpleNamespace(seed=seed, batch_size=8, batch_tokens=4096, precision="fp32")
        torch.manual_seed(len(scores))  # where the training stands when it scores
        before = torch.get_rng_state()
        score = general_spec(objective, text, 0, knobs, CPU).score
        assert score is not None
        scores.append(score())
        assert torch.equal(torch.get_rng_state(), before), "the training draws what it would have drawn"
    assert scores[0] == scores[1] != scores[2]


def test_padding_changes_no_part_of_the_triple_loss(scene: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.training.data.corpora import read_corpus
    from tasks.training.objectives import distilbert

    base, tokenizer = freeze(load_masked_lm(scene.base, CPU)), load_tokenizer(scene.base)
    student = build_student(
        "distilbert", base, SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None), seed=0
    ).eval()
    knobs = SimpleNamespace(soft=5.0, words=2.0, direction=1.0, temperature=2.0, mask_share=0.15, where="all")
    objective = distilbert.Triple(student, base, knobs, tokenizer, read_corpus(scene.corpus))
    # Which tokens are drawn depends on the shape of a batch; here it is always the third of each row, shown as a mask.
    monkeypatch.setattr(
        distilbert, "draw_targets", lambda ids, mask, weights, share: torch.arange(ids.shape[1]).expand(ids.shape) == 3
    )
    monkeypatch.setattr(
        distilbert, "masked_inputs", lambda ids, drawn, mask_token, vocabulary: torch.where(drawn, mask_token, ids)
    )
    encoded = encode(tokenizer, ["the film was good", "a book " * 6], None, 16)
    both = collate(encoded, [0, 1], 0, CPU)
    padded = type(both)(both.ids_BT[:1], both.mask_BT[:1], both.segments_BT[:1])
    losses = [float(objective.loss(batch).mean().detach()) for batch in (collate(encoded, [0], 0, CPU), padded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_chunks_of_the_vocabulary_change_nothing(scene: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.training.data.corpora import read_corpus
    from tasks.training.objectives import distilbert

    base, text, found = freeze(load_masked_lm(scene.base, CPU)), read_corpus(scene.corpus), []
    for chunk in (1024, 7):
        monkeypatch.setattr(distilbert, "CHUNK", chunk)
        student = build_student(
            "distilbert", base, SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None), seed=0
        )
        knobs = SimpleNamespace(soft=5.0, words=2.0, direction=1.0, temperature=2.0, mask_share=0.15, where="all")
        torch.manual_seed(3)
        loss = (
            distilbert.Triple(student, base, knobs, load_tokenizer(scene.base), text)
            .loss(collate(text, list(range(8)), 0, CPU))
            .mean()
        )
        loss.backward()
        found.append((float(loss.detach()), student.distilbert.transformer.layer[0].ffn.lin1.weight.grad.clone()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=1e-5)


def test_a_start_as_distilbert_answers_as_the_layers_that_it_kept(scene: SimpleNamespace) -> None:
    """All layers kept, one segment, and no pooler between: the masked-LM logits are the teacher's, once its one token
    type is added."""
    base = freeze(load_masked_lm(scene.base, CPU))
    shape = SimpleNamespace(layers=4, hidden=None, heads=None, feed_forward=None)
    student = build_student("distilbert", base, shape, seed=0).eval()
    base.bert.embeddings.token_type_embeddings.weight.data.zero_()
    ids = torch.randint(5, 60, (2, 9))
    torch.testing.assert_close(student(ids).logits, base(ids).logits, rtol=1e-4, atol=1e-5)


def test_a_model_without_a_head_for_words_is_refused(scene: SimpleNamespace, tmp_path: Path) -> None:
    knobs = GeneralSlice(**FAST, method="triple", shape=Shape(layers=2), start="distilbert")
    with pytest.raises(ModelError, match="no masked-LM head"):
        do("general", tmp_path, knobs, base=scene.teacher, corpus=scene.corpus)


# --- replaced layers ---


def theseus(**changes: Any) -> IntermediateSlice:
    return IntermediateSlice(
        task_type="classification",
        **(FAST | {"method": "replacing", "evaluations": 0, "shape": Shape(layers=2), "start": "top"} | changes),
    )


def test_replacing_trains_the_students_layers_alone(scene: SimpleNamespace, tmp_path: Path) -> None:
    made = do("intermediate", tmp_path, theseus(), rows=scene.rows, teacher=scene.teacher)
    ours, theirs = weights(made), weights(scene.teacher)
    moved = {name for name in ours if not np.array_equal(ours[name], theirs[name])}
    assert moved and all(name.startswith("bert.encoder.layer.") for name in moved), (
        "embeddings and head are frozen, and no wrapper's name is saved"
    )
    assert (
        facts(made)["replaced"] == [[0, 1], [2, 3]]
        and json.loads((made / "config.json").read_text())["num_hidden_layers"] == 2
    )


def test_a_student_that_always_stands_in_is_the_student_and_one_that_never_does_is_the_teacher(
    teacher: Any, batch: Any
) -> None:
    student = build_student(
        "top", teacher, SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None), seed=0
    )
    alone = student.eval()(**batch.inputs(student)).logits
    knobs = SimpleNamespace(replacing=SimpleNamespace(first=0.3, share=0.5), seed=0)
    objective = Replacing(student, teacher, knobs, np.zeros(3, dtype=np.int64), HEADS["classification"])
    student.train()
    for module in student.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for stands_in, expected in ((True, alone), (False, teacher(**batch.inputs(teacher)).logits)):
        for module in objective.stack:
            module.replaced = stands_in
        torch.testing.assert_close(student(**batch.inputs(student)).logits, expected, rtol=1e-5, atol=1e-6)


def test_a_stopped_replacing_ends_with_the_same_bytes(
    scene: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = theseus(steps=30)
    whole = do("intermediate", tmp_path / "whole", knobs, rows=scene.rows, teacher=scene.teacher)
    asked = iter([False] * 11 + [True] * 99)
    with monkeypatch.context() as patch:
        patch.setattr(StopSignal, "asked", property(lambda self: next(asked), lambda self, value: None), raising=False)
        with pytest.raises(Interrupted):
            do("intermediate", tmp_path / "stopped", knobs, rows=scene.rows, teacher=scene.teacher)
    stopped = do("intermediate", tmp_path / "stopped", knobs, rows=scene.rows, teacher=scene.teacher)
    assert (whole / "model.safetensors").read_bytes() == (stopped / "model.safetensors").read_bytes()


# --- answers, patience, ensembles ---


def last_phase(**changes: Any) -> PredictionSlice:
    return PredictionSlice(
        task_type="classification",
        **(FAST | {"evaluations": 1, "shape": Shape(layers=2), "start": "top", "origin": "finetuned"} | changes),
    )


def test_patience_changes_the_student_and_is_zero_for_the_teacher_itself(
    scene: SimpleNamespace, tmp_path: Path, teacher: Any, batch: Any
) -> None:
    kept = AnswerSlice(
        task_type="classification", max_length=16, precision="fp32", patience=PatienceOf(layer_map="skip", layers=2)
    )
    answers = do("answer", tmp_path / "answers", kept, rows=scene.rows, teacher=scene.teacher)
    stored = load_file(answers / "answers.safetensors")
    assert stored["summaries"].shape == (len(stored["ids"]), 1, 16)
    impatient = do(
        "prediction", tmp_path / "without", last_phase(), rows=scene.rows, teacher=scene.teacher, answers=answers
    )
    patient = do(
        "prediction",
        tmp_path / "with",
        last_phase(patience={"weight": 100}),
        rows=scene.rows,
        teacher=scene.teacher,
        answers=answers,
    )
    assert any(not np.array_equal(weights(patient)[name], weights(impatient)[name]) for name in weights(patient))


def test_kept_summaries_are_those_of_a_live_teacher(scene: SimpleNamespace, tmp_path: Path, teacher: Any) -> None:
    kept = AnswerSlice(
        task_type="classification", max_length=16, precision="fp32", patience=PatienceOf(layer_map="last", layers=3)
    )
    stored = load_file(do("answer", tmp_path, kept, rows=scene.rows, teacher=scene.teacher) / "answers.safetensors")
    from tasks.training.data.rows import read_rows

    rows = read_rows(scene.rows, "train", HEADS["classification"])
    assert stored["ids"].tolist() == rows.ids_N.tolist()
    encoded = encode(load_tokenizer(scene.base), rows.texts[:5], None, 16)
    asked = collate(encoded, list(range(5)), 0, CPU)
    states = teacher(**asked.inputs(teacher), output_hidden_states=True).hidden_states
    expected = torch.stack([states[layer][:, 0] for layer in (2, 3)], 1)
    torch.testing.assert_close(torch.from_numpy(stored["summaries"][:5]).float(), expected, rtol=2e-3, atol=2e-3)


def test_an_ensembles_answers_are_the_mixture(scene: SimpleNamespace, tmp_path: Path) -> None:
    second = do(
        "finetune",
        tmp_path / "second",
        TeacherSlice(task_type="classification", **FAST, evaluations=1, seed=7),
        rows=scene.rows,
        base=scene.base,
    )
    theirs = do(
        "answer",
        tmp_path / "answers",
        AnswerSlice(task_type="classification", max_length=16, precision="fp32"),
        rows=scene.rows,
        teacher=second,
    )
    mixed = do(
        "mix",
        tmp_path / "mix",
        MixSlice(task_type="classification", weights=(1.0, 3.0), temperature=2.0),
        lists={"answers": [scene.answers, theirs]},
    )
    logits = [
        torch.from_numpy(load_file(folder / "answers.safetensors")["logits"])
        for folder in (scene.answers, theirs, mixed)
    ]
    first, other, both = ((each / 2).softmax(-1) for each in logits)
    torch.testing.assert_close(both, 0.25 * first + 0.75 * other)


# --- starts ---


def test_a_student_starts_where_its_recipe_says(scene: SimpleNamespace, tmp_path: Path) -> None:
    frozen = {"learning_rate": 1e-12, "weight_decay": 0.0}
    common = {"rows": scene.rows, "teacher": scene.teacher, "answers": scene.answers}
    for origin, inputs, source in (("finetuned", {}, scene.teacher), ("pretrained", {"base": scene.base}, scene.base)):
        made = do(
            "prediction", tmp_path / origin, last_phase(**frozen, start="bottom", origin=origin), **common, **inputs
        )
        name = "bert.encoder.layer.{}.output.dense.weight"
        np.testing.assert_allclose(weights(made)[name.format(0)], weights(source)[name.format(2)], atol=1e-6)
    assert json.loads((made / "config.json").read_text())["kept_layers"] == [2, 3]


def test_layers_that_were_kept_copy_themselves(scene: SimpleNamespace, tmp_path: Path, teacher: Any) -> None:
    from tasks.training.objectives.layers import map_between

    shape = SimpleNamespace(layers=2, hidden=None, heads=None, feed_forward=None)
    student = build_student("symmetric", teacher, shape, seed=0)
    assert map_between(student.config, teacher.config, "kept").hidden == (0, 1, 4)
    with pytest.raises(LimbeckError, match="starts from whole layers"):
        map_between(build_student("random", teacher, shape, seed=0).config, teacher.config, "kept")


# --- two tokenizers ---


@pytest.fixture
def foreigner(tmp_path: Path) -> Path:
    """A model whose tokenizer numbers its words otherwise."""
    folder = write_tiny_bert(tmp_path / "foreign", layers=2)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    words = [word for word in vocabulary if word in WORDS]
    tokenizer["model"]["vocab"] |= {word: vocabulary[other] for word, other in zip(words, reversed(words), strict=True)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def test_a_student_with_another_tokenizer_learns_answers_by_its_own_reading(
    scene: SimpleNamespace, foreigner: Path, tmp_path: Path
) -> None:
    common = {"rows": scene.rows, "teacher": scene.teacher, "answers": scene.answers, "start": foreigner}
    made = do(
        "prediction", tmp_path / "made", PredictionSlice(task_type="classification", **FAST, evaluations=1), **common
    )
    assert (
        load_tokenizer(made).get_vocab()
        == load_tokenizer(foreigner).get_vocab()
        != load_tokenizer(scene.base).get_vocab()
    )


def test_layers_of_other_pieces_are_not_compared_token_by_token(
    scene: SimpleNamespace, foreigner: Path, tmp_path: Path
) -> None:
    """Other numbers of the same pieces can be (``test_trimmed_teacher.py``); a piece that a teacher has not cannot."""
    tokenizer = json.loads((foreigner / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["unheard"] = vocabulary.pop(next(word for word in vocabulary if word in WORDS))
    (foreigner / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match="cannot be compared token by token"):
        do(
            "intermediate",
            tmp_path / "made",
            IntermediateSlice(task_type="classification", **FAST, evaluations=0),
            rows=scene.rows,
            teacher=scene.teacher,
            start=foreigner,
        )


def test_the_teacher_reads_variants_by_its_own_tokenizer(scene: SimpleNamespace, foreigner: Path, teacher: Any) -> None:
    """Ids of the wrong vocabulary would be answered too, and wrongly."""
    from tasks.training.answers import Answers
    from tasks.training.data.augmented_rows import AugmentedRows
    from tasks.training.data.epochs import Epoch, Indices
    from tasks.training.data.rows import read_rows

    rows, own, other = (
        read_rows(scene.rows, "train", HEADS["classification"]),
        load_tokenizer(scene.base),
        load_tokenizer(foreigner),
    )
    candidates = {
        (int(number), "text"): (text.split(), [["fine", "good"] for _ in text.split()])
        for number, text in zip(rows.ids_N, rows.texts, strict=True)
    }
    found = []
    for tokenizer in (own, other):
        varied = AugmentedRows(rows, tokenizer, 16, 0, SimpleNamespace(share=1.0, probability=0.5), candidates)
        encoded, variants = varied.at(1)
        indices = Indices(Epoch(1, encoded, [], variants=variants), np.arange(8))
        batch = collate(encoded, indices.rows_B, tokenizer.pad_token_id, torch.device("cpu"))
        found.append(Answers(scene.answers, TASK.head, varied, teacher, own).of(indices, batch).outputs["logits"])
    assert torch.equal(*found)
