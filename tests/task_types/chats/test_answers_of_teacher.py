"""A teacher's own answers in training chats: message by message, as it answers when it is asked, for students with
other pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from flows.cli.runner import planned_records, run_recipe
from flows.home import Home
from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.table_files import write_table
from tasks.preflight import check_students
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.scoring.continuing import continued_texts
from tasks.task_types.texts.messages import ASSISTANT, messages_in
from tasks.task_types.units import Units
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.distill import distill_prediction
from tasks.training.models.students import load_classifier
from tasks.training.writing.answer_texts import rows_with_texts, write_all_beams
from tasks.training.writing.chat_answers import answering_teacher, own_messages
from tasks.training.writing.text_blocks import BEAMS_FILE, read_beams
from tests.task_types.chats.tables import CHATML, chats, write_answering, write_chats
from tests.task_types.next_words.tables import write_decoder
from tests.task_types.next_words.test_chain import values_for

KNOBS: dict[str, Any] = {
    "task_type": "chats",
    "max_length": 96,
    "precision": "fp32",
    "steps": 4,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "evaluations": 0,
    "seed": 3,
}
GREEDY = {"task_type": "chats", "beams": 1, "max_length": 24, "source_length": 96, "precision": "fp32"}


def job(knobs: dict[str, Any], folder: Path, **inputs: Path) -> Job:
    """A job that writes a folder of its own."""
    order = {"job": "test", "knobs": knobs, "output": str(folder), "checkpoints": str(folder.with_suffix(".marks"))}
    folder.mkdir(exist_ok=True)
    return Job({**order, "inputs": {name: str(one) for name, one in inputs.items()}}, silent=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rows of chats, and a teacher that has learned to answer and to stop, and is often wrong."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = RowsSlice(task=TaskSpec(name="chats", kind="chats", text="messages"), selection_rows=3, purge=False)
    short = [[one for one in chat if one["role"] != "system"] for chat in chats(40)]  # two questions fit in a prompt
    write_table(folder / "train.parquet", {"messages": short})
    prepare_rows(folder / "train.parquet", rows, folder / "rows")
    drawn = write_answering(folder / "drawn", layers=2)
    learned = {**KNOBS, "signal": "labels", "steps": 120, "learning_rate": 5e-3}
    distill_prediction(job(learned, folder / "teacher", rows=folder / "rows", teacher=drawn, start=drawn))
    return {"rows": folder / "rows", "teacher": folder / "teacher"}


@pytest.fixture(scope="module")
def texts(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers") / "texts"
    facts = write_all_beams(job(GREEDY, folder, **inputs))
    assert facts["rows"] == 33 and 0 < int(str(facts["own"])) <= int(str(facts["messages"]))
    return folder


def stored_rows(inputs: dict[str, Path]) -> Any:
    return read_rows(inputs["rows"], "train", read_task(inputs["rows"], "chats").head)


def test_each_message_is_what_the_teacher_answers_behind_its_own_earlier_ones(
    inputs: dict[str, Path], texts: Path
) -> None:
    """Asked as a user of the folder asks it, one chat at a time; a message that did not end is the given one."""
    rows, compared = stored_rows(inputs), [0, 0]
    for number, given in zip(rows.ids_N[:12], rows.texts[:12], strict=True):
        (chat,) = read_beams(texts / BEAMS_FILE)[int(number)]
        before = messages_in(given)
        said = messages_in(chat)
        assert [one.role for one in said] == [one.role for one in before]
        for place, one in enumerate(said):
            if one.role != ASSISTANT:
                assert one.content == before[place].content
                continue
            asked = json.dumps([{"role": two.role, "content": two.content} for two in said[:place]])
            (answer,) = continued_texts(inputs["teacher"], [asked], 24)
            assert one.content in (answer.strip(), before[place].content)
            compared[place > 1] += one.content == answer.strip() != before[place].content
    assert min(compared) >= 2, "own answers to first and to second questions were compared"


def test_an_answer_does_not_depend_on_the_others_and_blocks_are_not_written_again(
    inputs: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.training.writing.text_blocks.SOURCES_OF_BLOCK", 1)
    first = job(GREEDY, tmp_path / "first", **inputs)
    write_all_beams(first)
    assert (tmp_path / "first" / BEAMS_FILE).read_bytes() == (texts / BEAMS_FILE).read_bytes()
    blocks = sorted(first.checkpoints.glob("texts-*"))
    assert len(blocks) == 33
    kept = {one.name: one.stat().st_mtime_ns for one in blocks[:20]}
    for one in blocks[20:]:
        one.unlink()
    (tmp_path / "first" / BEAMS_FILE).unlink()
    write_all_beams(job(GREEDY, tmp_path / "first", **inputs))
    assert {name: (first.checkpoints / name).stat().st_mtime_ns for name in kept} == kept
    assert (tmp_path / "first" / BEAMS_FILE).read_bytes() == (texts / BEAMS_FILE).read_bytes()


def test_students_with_other_pieces_learn_the_answers(inputs: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    start = write_answering(tmp_path / "start", layers=1)
    tokenizer = AutoTokenizer.from_pretrained(start)
    tokenizer.add_tokens(["film"])
    tokenizer.save_pretrained(start)
    model = AutoModelForCausalLM.from_pretrained(start)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(start)
    given = {**inputs, "start": start, "texts": texts}
    rows = rows_with_texts(job(KNOBS, tmp_path / "read", **given), read_task(inputs["rows"], "chats"), "sequence")
    before = stored_rows(inputs)
    assert own_messages(before.texts, rows.texts)[1] > 0 and np.array_equal(rows.ids_N, before.ids_N)
    weights = []
    for signal in ("sequence", "labels"):
        distill_prediction(job({**KNOBS, "signal": signal}, tmp_path / signal, **given))
        weights.append((tmp_path / signal / "model.safetensors").read_bytes())
    assert weights[0] != weights[1]
    with pytest.raises(ModelError, match=r"is not its teacher's .*\(signal: sequence\)"):
        distill_prediction(job({**KNOBS, "temperature": 1.0, "hard_weight": 0.1}, tmp_path / "words", **given))


def test_answers_without_an_end_are_not_learned(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"own to none of \d+ questions: .* generation.max_length, 1 tokens"):
        write_all_beams(job(GREEDY | {"max_length": 1}, tmp_path / "short", **inputs))
    with pytest.raises(ModelError, match="where a prompt with 2 tokens or fewer was read"):
        write_all_beams(job(GREEDY | {"source_length": 2}, tmp_path / "unread", **inputs))


def test_an_answer_ends_with_the_sign_of_the_template(inputs: dict[str, Path]) -> None:
    """A teacher learns to write the sign behind a message, which need not be the end of its generation config."""
    task, tokenizer = read_task(inputs["rows"], "chats"), load_tokenizer(inputs["teacher"])
    units, knobs = task.head.units, TextAnswerSlice.model_validate(GREEDY)
    assert isinstance(units, Units)
    model = load_classifier(inputs["teacher"], task, torch.device("cpu"))
    (end,) = answering_teacher(model, tokenizer, units, knobs).ends
    assert end == tokenizer.eos_token_id and not hasattr(type(model), "plain_class")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|stop|>"]})
    tokenizer.chat_template = CHATML.replace("<|end|>", "<|stop|>")
    stop = tokenizer.convert_tokens_to_ids("<|stop|>")
    assert answering_teacher(model, tokenizer, units, knobs).ends == tuple(sorted((end, stop)))
    model.generation_config.eos_token_id = None
    assert answering_teacher(model, tokenizer, units, knobs).ends == (stop,)
    tokenizer.chat_template = CHATML.replace("<|end|>", " .")  # a piece of any text
    with pytest.raises(ModelError, match="nothing tells where an answer of the teacher ends"):
        answering_teacher(model, tokenizer, units, knobs)


def test_a_model_without_a_template_or_without_room_is_refused_before_anything_runs(tmp_path: Path) -> None:
    base = write_answering(tmp_path / "decoder")
    write_chats(tmp_path)
    start = write_decoder(tmp_path / "start", layers=2)
    recipe = chats_recipe(tmp_path, generation={"max_length": 24})
    check_students(recipe, base, {})
    with pytest.raises(ModelError, match="start has no template for chats"):
        check_students(recipe, base, {"texts": start})
    with pytest.raises(ModelError, match="the teacher has 128 positions for a question and its answer together.* 64"):
        check_students(chats_recipe(tmp_path, generation={"max_length": 128}), base, {})


def test_beams_answer_too(inputs: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    write_all_beams(job(GREEDY | {"beams": 3}, tmp_path / "beams", **inputs))
    found, greedy = (read_beams(one / BEAMS_FILE) for one in (tmp_path / "beams", texts))
    assert {len(one) for one in found.values()} == {1} and found.keys() == greedy.keys()


def chats_recipe(folder: Path, **changes: Any) -> Recipe:
    values = values_for(folder / "decoder", folder / "train.parquet") | {"layer_dropping": None}
    values["task"] = {"name": "chats", "kind": "chats", "text": "messages"}
    learner = {"name": "texts", "layers": 2, "stages": [], "signal": "sequence"}
    return Recipe.model_validate({**values, "students": [*values["students"], learner], **changes})


def test_a_plan_writes_the_answers_once_for_all_that_learn_them(tmp_path: Path) -> None:
    write_answering(tmp_path / "decoder")
    write_chats(tmp_path)
    recipe = chats_recipe(tmp_path, generation={"beams": 1, "max_length": 24})
    again = {**recipe.students[-1].model_dump(exclude_unset=True), "name": "again", "seeds": [0, 1]}
    students = [*(one.model_dump(exclude_unset=True) for one in recipe.students), again]
    recipe = chats_recipe(tmp_path, students=students, generation={"beams": 1, "max_length": 24})
    records = planned_records(recipe, Home(tmp_path / "home").create())
    assert [one.name for one in records].count("answer-texts") == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"students": [{"name": "s", "layers": 2, "stages": [], "signal": "interpolated"}]},
            "of type chats, whose teachers write sequence alone; set signal: teacher, sequence or labels",
        ),
        ({"transfer": {"source": "a"}}, "and not those of transfer; remove the section transfer"),
        (
            {"students": [{"name": "s", "layers": 2, "stages": []}], "generation": {"beams": 2}},
            "generation says how texts are written",
        ),
    ],
)
def test_what_chats_do_not_have_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=sentence):
        chats_recipe(tmp_path, **changes)


@pytest.mark.slow
def test_a_student_with_other_pieces_is_distilled_judged_and_asked(
    prefect_server: None, engines_here: None, tmp_path: Path
) -> None:
    home, start = Home(tmp_path / "home").create(), write_answering(tmp_path / "start", layers=1)
    tokenizer = AutoTokenizer.from_pretrained(start)
    tokenizer.chat_template = tokenizer.chat_template.replace("\n'", ": '")
    tokenizer.save_pretrained(start)
    write_answering(tmp_path / "decoder")
    write_chats(tmp_path, 60)
    learner = {"name": "texts", "layers": 1, "start": str(start), "stages": [], "signal": "sequence"}
    recipe = chats_recipe(tmp_path, students=[learner], generation={"beams": 1, "max_length": 32})
    longer = recipe.teacher.model_copy(update={"steps": 150, "max_length": 96})
    result = run_recipe(recipe.model_copy(update={"teacher": longer}), home=home)
    (registered,) = result["registered"]
    assert registered["candidate"] == "texts" and {one["name"] for one in result["models"]} == {"teacher", "texts"}
    (stage,) = [one for one in result["stages"] if one["name"] == "answer-texts"]
    assert stage["cache"] == "miss"
    again = planned_records(recipe.model_copy(update={"teacher": longer}), home)
    assert {one.cache for one in again} == {"hit"}
