"""Folders of embedders as sentence-transformers writes them are read as they are meant, and written so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import ModelError, RecipeError
from tasks.exports.jobs import JOBS
from tasks.ports.files.model_files import model_files
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.data import TransferText
from tasks.recipe.slices import RowsSlice, TeacherSlice
from tasks.report.model_card import usage
from tasks.report.tables.exports_section import snippet
from tasks.scoring.predict import predict_texts
from tasks.task_types.embedding.pooled import AutoModel, pooling_of
from tasks.task_types.embedding.prompts import require_prompts
from tasks.training.finetune import finetune
from tasks.training.models.students import build_student, save_model
from tests.exports.test_exports import write_rows
from tests.forked.strangers import ask_stranger
from tests.task_types.configs import write_model

PROMPTS = {"prompts": {"query": "the film ", "passage": "a meal "}, "default_prompt_name": None}
KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
}
OTHER_SHAPE = SimpleNamespace(layers=1)


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """An embedder with the files of sentence-transformers."""
    shutil.copytree(tiny_bert, tmp_path / "teacher", symlinks=True)
    model = AutoModel.from_pretrained(tiny_bert)
    model.config.limbeck_task_type = "embedding"
    model.save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


def state(folder: Path, name: str, **said: Any) -> None:
    """Write a file of sentence-transformers anew, with other values."""
    before = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
    (folder / name).write_text(json.dumps(before | said))


def save_again(folder: Path) -> None:
    """Write a folder as a student's is written, which states in its config what its files do."""
    AutoModel.from_pretrained(folder).save_pretrained(folder)


def by_hand(states_TD: Tensor, way: str) -> Tensor:
    """Return the vector of a text from the states of its tokens, at unit length [D]."""
    places_T1 = torch.arange(1.0, len(states_TD) + 1)[:, None]
    found_D = {
        "cls": states_TD[0],
        "lasttoken": states_TD[-1],
        "max": states_TD.max(0).values,
        "weightedmean": (places_T1 * states_TD).sum(0) / places_T1.sum(),
    }.get(way, states_TD.mean(0))
    return found_D / found_D.norm()


# --- pooling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", KEYS)
@pytest.mark.parametrize("is_new", [True, False])
def test_each_pooling_is_that_of_its_name(way: str, is_new: bool, folder: Path, tmp_path: Path) -> None:
    """In both forms of the file; padded on either side. The folder that a student writes says the same."""
    said = {"pooling_mode": way} if is_new else {key: name == way for name, key in KEYS.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **said}))
    model = AutoModel.from_pretrained(folder).eval()
    ids_BT = torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11], [0, 5, 6, 7]])
    mask_BT = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1]])
    found = model(input_ids=ids_BT, attention_mask=mask_BT)
    for row, kept_T in enumerate(mask_BT.bool()):
        expected_D = by_hand(found.last_hidden_state[row][kept_T], way)
        torch.testing.assert_close(found.sentence_embedding[row], expected_D)
    model.save_pretrained(tmp_path / "student")
    assert pooling_of(tmp_path / "student", None) == pooling_of(folder, None)
    assert way in (pooling_of(folder, None), "mean_sqrt_len_tokens")


@pytest.mark.parametrize("way", KEYS)
def test_sentence_transformers_computes_the_same_vectors(way: str, folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers", reason="the extra sentence-transformers is not installed")
    said = {key: name == way for name, key in KEYS.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **said}))
    state(folder, "config_sentence_transformers.json", **PROMPTS | {"default_prompt_name": "query"})
    save_again(folder)
    texts = ["the song was good", "a poor meal but a very fine song", "it"]
    ours = np.asarray([one["embedding"] for one in predict_texts(folder, texts)])
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(theirs, ours, atol=2e-6)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"pooling_mode": ["mean", "cls"]}, "mean and cls"),
        ({"pooling_mode": "attention"}, "attention"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean and max"),
        ({"pooling_mode_other": True}, "pooling_mode_other"),
    ],
)
def test_a_pooling_that_is_not_known_is_refused(said: dict[str, Any], named: str, folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))
    with pytest.raises(ModelError, match=f"pools by {named}; .* are known, one at a time: name a model") as refused:
        pooling_of(folder, None)
    assert "\n" not in str(refused.value)


def modules(*kinds: str, pooling: str = "1_Pooling") -> list[dict[str, str]]:
    """Return the modules of a model."""
    return [
        {"type": f"sentence_transformers.models.{kind}", "path": pooling if kind == "Pooling" else ""} for kind in kinds
    ]


@pytest.mark.parametrize(
    ("files", "step"),
    [
        ({"modules.json": modules("Transformer", "Pooling", "Dense")}, "a module Dense after its encoder"),
        ({"modules.json": modules("Transformer", "Pooling", pooling="2_Pool")}, "its pooling in '2_Pool', which is"),
        (
            {
                "modules.json": modules("Transformer", "Pooling"),
                "config_sentence_transformers.json": {"similarity_fn_name": "dot"},
            },
            "vectors of any length, compared by 'dot'",
        ),
        ({"sentence_bert_config.json": {"do_lower_case": True}}, "small letters for every text"),
        (
            {
                "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False},
                "config_sentence_transformers.json": PROMPTS,
            },
            "prompts that its pooling leaves out",
        ),
    ],
)
def test_a_model_that_does_more_with_a_text_is_refused(files: dict[str, Any], step: str, folder: Path) -> None:
    plain = model_files(folder)
    assert (folder / "modules.json").is_file() and not {"modules.json", *files} - {"1_Pooling/config.json"} & {*plain}
    for name, said in files.items():
        (folder / name).write_text(json.dumps(said))
    assert {*model_files(folder)} - {*plain}, "they travel where they count"
    with pytest.raises(ModelError, match=f"has {step}.*pooled states of its encoder"):
        AutoModel.from_pretrained(folder)


def test_vectors_of_unit_length_are_compared_by_any_product(folder: Path) -> None:
    state(folder, "config_sentence_transformers.json", similarity_fn_name="dot")
    assert AutoModel.from_pretrained(folder).config.limbeck_pooling == "mean"


# --- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["teacher", "random", "distilbert"])
def test_the_folder_of_a_student_states_pooling_and_prompts_of_its_teacher(
    start: str, folder: Path, tmp_path: Path
) -> None:
    """A student in another architecture has a config of its own; it had no vectors at all."""
    from transformers import AutoTokenizer

    state(folder, "config_sentence_transformers.json", **PROMPTS)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    assert "config_sentence_transformers.json" in model_files(folder), "prompts count"
    student = build_student(start, AutoModel.from_pretrained(folder), OTHER_SHAPE, seed=0)
    save_model(student, AutoTokenizer.from_pretrained(folder), tmp_path / "student")
    said = json.loads((tmp_path / "student" / "config_sentence_transformers.json").read_text())
    assert said == {**PROMPTS, "similarity_fn_name": "cosine"}
    again = AutoModel.from_pretrained(tmp_path / "student").eval()
    found = again(input_ids=torch.tensor([[5, 6, 7]]), attention_mask=torch.ones(1, 3, dtype=torch.long))
    torch.testing.assert_close(found.sentence_embedding[0], by_hand(found.last_hidden_state[0], "cls"))


def test_a_prompt_of_every_text_stands_before_texts_to_predict(folder: Path) -> None:
    wanted = predict_texts(folder, ["the film it"])
    assert wanted != predict_texts(folder, ["it"])
    state(folder, "config_sentence_transformers.json", **PROMPTS)
    save_again(folder)
    assert predict_texts(folder, ["the film it"]) == wanted, "these are for queries and passages alone"
    state(folder, "config_sentence_transformers.json", default_prompt_name="query")
    save_again(folder)
    assert predict_texts(folder, ["it"]) == wanted


TEACHER_KNOBS = TeacherSlice(task_type="retrieval", model="mine").model_dump(mode="json")
SEARCH = {"name": "mine", "kind": "retrieval", "text": "{question}", "pair": "context", "label": "none"}


@pytest.mark.parametrize(
    ("task", "transfer", "sentence"),
    [
        ({"text": "question"}, None, "task.text is 'question'; write task.text: 'the film {question}'"),
        ({"text": "the film {question}"}, None, "task.pair is 'context'; write task.pair: 'a meal {context}'"),
        (
            {"text": "the film {question}", "pair": "a meal {context}"},
            "text",
            "write transfer.text: 'the film {text}' or 'a meal {text}'",
        ),
        ({"text": "the film {question}", "pair": "a meal {context}"}, "a meal {text}", ""),
        ({"kind": "embedding"}, None, ""),
        ({"kind": "classification", "pair": None}, None, ""),
    ],
)
def test_a_recipe_without_the_prompts_of_its_teacher_is_one_sentence(
    task: dict[str, Any], transfer: str | None, sentence: str, folder: Path
) -> None:
    state(folder, "config_sentence_transformers.json", **PROMPTS)
    further = TransferText(source="texts.txt", text=transfer) if transfer else None
    spec = TaskSpec.model_validate(SEARCH | task)
    if not sentence:
        return require_prompts(folder, spec.kind, spec, further)
    with pytest.raises(RecipeError) as refused:
        require_prompts(folder, spec.kind, spec, further)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"prompts": {"query": 3}}, "has prompts that are no texts by name"),
        ({"prompts": {"query": "q"}, "default_prompt_name": "other"}, "names 'other' as the prompt of every text"),
    ],
)
def test_prompts_that_cannot_be_read_are_one_sentence(said: dict[str, Any], sentence: str, folder: Path) -> None:
    state(folder, "config_sentence_transformers.json", **said)
    with pytest.raises(ModelError, match=sentence):
        model_files(folder)


@pytest.mark.parametrize(
    ("text", "pair", "prompts"),
    [
        ("query: {question}", "passage: {context}", {"query": "query: ", "document": "passage: "}),
        ("Find: {question}", "context", {"query": "Find: ", "document": ""}),
        ("to: {question}", "to: {context}", {"query": "to: ", "document": "to: "}),
        ("{question}", "context", None),
        ("title: {question} by {author}", "context", None),
    ],
)
def test_prompts_of_a_recipe_are_stated_where_the_teacher_states_none(
    text: str, pair: str, prompts: dict[str, str] | None, folder: Path, tmp_path: Path
) -> None:
    """E5's folder says nothing of the words with which it was trained: a student's must, or its user asks without
    them. A template of several columns is written by its user, words before it too."""
    rows = [{"question": f"q {row}", "context": f"c {row}", "author": f"a {row}"} for row in range(90)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = TaskSpec.model_validate(SEARCH | {"text": text, "pair": pair, "label": "label"})
    knobs = RowsSlice(task=task, selection_rows=0, validation_share=0.3, purge=False)
    prepare_rows(tmp_path / "rows.jsonl", knobs, tmp_path / "rows")
    (tmp_path / "taken").mkdir()
    order = {
        "job": "finetune",
        "knobs": {**TEACHER_KNOBS, "task_type": "retrieval", "already_finetuned": True},
        "inputs": {"rows": str(tmp_path / "rows"), "base": str(folder)},
        "output": str(tmp_path / "taken"),
        "threads": 1,
    }
    finetune(Job(order, silent=True))
    said = json.loads((tmp_path / "taken" / "config_sentence_transformers.json").read_text())
    assert said["prompts"] == (prompts or {})
    assert said["default_prompt_name"] == ("query" if prompts and len({*prompts.values()}) == 1 else None)
    state(folder, "config_sentence_transformers.json", prompts={"query": text.partition("{")[0]})
    require_prompts(tmp_path / "taken", "retrieval", task, None)


def test_the_program_of_a_card_for_sentence_transformers_names_the_prompts() -> None:
    """Written into the text, a prompt that the folder states for every text would be read twice."""
    search = usage(TaskSpec.model_validate(SEARCH | {"text": "query: {question}", "pair": "passage: {context}"}))
    assert '.encode(["some text"], prompt="query: ")' in search and 'prompt="passage: ")' in search
    alike = usage(TaskSpec.model_validate(SEARCH | {"text": "to: {question}", "pair": "to: {context}"}))
    assert '.encode(["some text"], prompt="to: ")' in alike and alike.count("prompt=") == 1
    assert '.encode(["some text"])' in usage(TaskSpec.model_validate(SEARCH | {"text": "question"}))


def test_the_programs_of_a_card_write_the_prompt(folder: Path) -> None:
    """The program for the checkpoint runs in a process that cannot import our packages."""
    task = TaskSpec.model_validate(SEARCH | {"text": "the film {question}", "pair": "a {{meal}} {context}"})
    assert 'tokenizer.encode("the film some text")' in snippet(task, "model.onnx")
    program = usage(task)
    assert program.startswith('# second texts are written as "a {{meal}} {context}"\n')
    loading = f"""from transformers import AutoModel, AutoTokenizer
model, tokenizer = (one.from_pretrained({str(folder)!r}) for one in (AutoModel, AutoTokenizer))
"""
    done = ask_stranger(loading + program.replace("FOLDER", str(folder)), folder=folder)
    assert done.returncode == 0, done.stderr
    expected = predict_texts(folder, ["the film some text"])[0]["embedding"]
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=2e-6)


@pytest.mark.parametrize("way", ["max", "weightedmean", "lasttoken"])
def test_the_program_of_a_card_pools_as_the_folder_says(way: str, folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": way}))
    save_again(folder)
    loading = f"""from transformers import AutoModel, AutoTokenizer
model, tokenizer = (one.from_pretrained({str(folder)!r}) for one in (AutoModel, AutoTokenizer))
"""
    program = usage(TaskSpec.model_validate(SEARCH | {"text": "question"}))
    done = ask_stranger(loading + program, folder=folder)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), predict_texts(folder, ["some text"])[0]["embedding"], atol=2e-6)


@pytest.mark.parametrize("way", ["cls", "lasttoken"])
def test_a_graph_pools_at_one_token_for_any_number_of_texts(way: str, tmp_path: Path) -> None:
    """The number of texts that were traced became that of all calls, so that no such embedder had a graph. Its card
    knows the prompt."""
    model = write_model(tmp_path / "model", "embedding")
    (model / "1_Pooling").mkdir(exist_ok=True)
    (model / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": way}))
    state(model, "config_sentence_transformers.json", **PROMPTS | {"default_prompt_name": "query"})
    save_again(model)
    (tmp_path / "export" / "output").mkdir(parents=True)
    order = {
        "job": "export",
        "knobs": {"opset": 20, "parity_rows": 8, "max_length": 32, "task_type": "embedding"},
        "inputs": {"model": str(model), "rows": str(write_rows(tmp_path / "rows", train=9))},
        "output": str(tmp_path / "export" / "output"),
        "threads": 1,
    }
    facts = JOBS["export"](Job(order, silent=True))
    assert facts["equal_answers"] == 1 and facts["largest_difference"] < 1e-4
    ours, theirs = (predict_texts(place, ["it", "a song"]) for place in (tmp_path / "export" / "output", model))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one["embedding"], other["embedding"], atol=2e-5)
