"""Options that a language model scores without a training on them: each score is that of transformers and numpy alone,
whatever is read beside it; where an option begins; long questions and options; chats; keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.engine.job import Job
from tasks.ports.code.fingerprint import program
from tasks.recipe.slices import JudgingScoreSlice, OfTask
from tasks.scoring.jobs import score_judging_set
from tasks.scoring.predict import load, untrained_outputs
from tasks.scoring.predictions import read_predictions
from tasks.task_types.chats.turns import JUDGED_ANSWERS
from tasks.task_types.choices.options import OPTION_PARTS
from tasks.task_types.next_words.document import JUDGED_TOKENS
from tasks.task_types.next_words.zero_shot import (
    asked_text,
    first_of_option,
    nats_of_windows,
    option_scores,
    windows_of_option,
)
from tasks.task_types.units import frame_of
from tests.stage_tasks import edited
from tests.task_types.chats.tables import chat_tokenizer, write_answering
from tests.task_types.next_words.tables import byte_tokenizer, documents, write_decoder
from tests.task_types.test_keys import remade, with_statements

QUESTIONS = ["the good film 7 was very", "Was ist größer als eine Maus?", "the bad book"]
OPTIONS = ["good .", "ein Bär – 熊 🐻\nder Floh\nthe poor plot 12 was very poor .", "x\nwas very bad . the song"]
"""Options of different lengths, with characters of two, three and four bytes."""


def plain_scores(folder: Path, text: str, options: str) -> list[float]:
    """Return the scores of a text's options by transformers and numpy alone: one text at a time, in float64."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, found = AutoTokenizer.from_pretrained(folder), list[float]()
    model = AutoModelForCausalLM.from_pretrained(folder).double().eval()
    before = tokenizer(f"<|end|>{text}", add_special_tokens=False).input_ids
    for option in options.split("\n"):
        ids = tokenizer(f"<|end|>{text} {option}", return_tensors="pt", add_special_tokens=False).input_ids
        assert ids[0, : len(before)].tolist() == before, "this tokenizer has a border before each space"
        logits_TV = model(ids).logits[0].detach().numpy()
        logp_TV = logits_TV - np.log(np.exp(logits_TV).sum(-1, keepdims=True))
        places = range(len(before), ids.shape[1])
        found.append(sum(logp_TV[place - 1, ids[0, place]] for place in places) / len(option.encode()))
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("llama"), layers=2)


def scored(folder: Path, texts: list[str], options: list[str], length: int = 128) -> list[Any]:
    """Return the scores of the options of each text."""
    found = untrained_outputs(OfTask(task_type="next-words"), folder, OPTION_PARTS, texts, options, length)
    return [scores_K1[:, 0] for scores_K1 in found["logits"]]


@pytest.mark.parametrize("model_type", ["gpt2", "llama"])
def test_scores_are_those_of_transformers_alone(model_type: str, tmp_path: Path) -> None:
    folder = write_decoder(tmp_path, model_type, layers=2)
    found = scored(folder, QUESTIONS, OPTIONS)
    assert [len(scores_K) for scores_K in found] == [1, 3, 2]
    for text, options, scores_K in zip(QUESTIONS, OPTIONS, found, strict=True):
        np.testing.assert_allclose(scores_K, plain_scores(folder, text, options), atol=1e-5)


def test_what_stands_beside_an_option_changes_nothing(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = scored(llama, QUESTIONS, OPTIONS)
    for text, options, scores_K in zip(QUESTIONS, OPTIONS, together, strict=True):
        np.testing.assert_allclose(scored(llama, [text], [options])[0], scores_K, atol=1e-6)
    monkeypatch.setattr("tasks.task_types.next_words.zero_shot.MOST_NUMBERS", 1)  # one window at once
    for alone, scores_K in zip(scored(llama, QUESTIONS, OPTIONS), together, strict=True):
        np.testing.assert_allclose(alone, scores_K, atol=1e-6)


def test_an_option_begins_at_the_first_token_behind_the_question() -> None:
    tokenizer = byte_tokenizer(documents(40))
    frame = frame_of(tokenizer)
    for text, option in (("the good film", "was"), ("größer", "ß"), ("so", "🐻"), ("it is ", "good")):
        asked, question = asked_text(JUDGED_TOKENS, frame, text, option)
        assert asked[question:].lstrip() == option and asked.startswith(f"<|end|>{text}")
        read = tokenizer(asked, add_special_tokens=False, return_offsets_mapping=True)
        first = first_of_option(read["offset_mapping"], question)
        behind = tokenizer.decode(read["input_ids"][first:])
        assert behind == f" {option}", "the space is the option's, also where it ends the question"
    over_the_border = [(0, 3), (3, 8), (8, 12), (12, 15)]
    assert first_of_option(over_the_border, 10) == 2, "a token of both is scored"
    assert first_of_option(over_the_border, 12) == 3 and first_of_option(over_the_border, 0) == 1


def test_the_question_alone_is_cut_and_each_token_of_an_option_is_scored_once(llama: Path) -> None:
    assert windows_of_option(5, 9, 16) == [(0, 9, 5)]
    assert windows_of_option(20, 24, 8) == [(16, 24, 20)]
    long = windows_of_option(3, 40, 8)
    assert [number for begin, end, scored in long[::-1] for number in range(scored, end)] == [*range(3, 40)]
    assert all(begin < scored and end - begin <= 8 for begin, end, scored in long)
    assert all(scored - begin >= 4 for begin, _, scored in long[:-1]), "half a window stands before"
    model, tokenizer = load(llama, "next-words")
    text, option = documents(1)[0], "was very good ."
    (found,) = option_scores(model, tokenizer, 16, JUDGED_TOKENS, [text], [option], lambda done: None)["logits"]
    ids = tokenizer(f"<|end|>{text} {option}", add_special_tokens=False).input_ids
    own = tokenizer(f" {option}", add_special_tokens=False).input_ids
    assert len(ids) > 16 and ids[-len(own) :] == own
    nats_T = nats_of_windows(model, [ids[-16:]])[0]
    assert found[0] == pytest.approx(-nats_T[15 - len(own) : 15].sum() / len(option), abs=1e-6)


def test_an_option_of_a_chat_is_an_answer(tmp_path: Path) -> None:
    frame = frame_of(chat_tokenizer())
    asked, question = asked_text(JUDGED_ANSWERS, frame, "Which one?", "this")
    assert frame.write_chat is not None
    messages = [{"role": "user", "content": "Which one?"}]
    assert asked[:question] == frame.write_chat(messages, add_generation_prompt=True) and asked[question:] == "this"
    folder = write_answering(tmp_path, layers=2)
    found = untrained_outputs(OfTask(task_type="chats"), folder, OPTION_PARTS, ["Which one?"], ["this\nthat one"], 64)
    model, tokenizer = load(folder, "chats")
    ids, own = (tokenizer(one, add_special_tokens=False).input_ids for one in (asked, asked[:question]))
    assert ids[: len(own)] == own
    nats_T = nats_of_windows(model, [ids])[0]
    expected = -nats_T[len(own) - 1 : len(ids) - 1].sum() / 4
    assert found["logits"][0][0, 0] == pytest.approx(expected, abs=1e-6)


# --- scorecards -------------------------------------------------------------------------------------------------------


def test_a_scorecard_has_accuracy_and_the_score_of_guessing(llama: Path, tmp_path: Path) -> None:
    """Two seeds beside their teacher, whose answers are read from its own scorecard."""
    folder, labels = tmp_path / "set", ["0/1", "2/3", "1/2"]
    folder.mkdir()
    (folder / "task.json").write_text('{"merged": null}')
    columns = {"id": range(3), "text": QUESTIONS, "pair": OPTIONS, "label": labels, "group": range(3)}
    pq.write_table(
        pa.table({name: pa.array(values) for name, values in columns.items()}), folder / "validation.parquet"
    )
    knobs = JudgingScoreSlice(
        task_type="choices",
        metrics=("accuracy",),
        headline="accuracy",
        resamples=50,
        answered_by=OfTask(task_type="next-words"),
    )
    other = write_decoder(tmp_path / "gpt2", "gpt2", layers=1)

    def judged(output: str, models: list[Path], **more: Path) -> dict[str, Any]:
        (tmp_path / output).mkdir()
        inputs = {"rows": folder, "teacher": llama, **more}
        order: Any = {"job": "judge", "knobs": knobs.model_dump(mode="json"), "inputs": inputs}
        return score_judging_set(Job(order | {"output": tmp_path / output, "lists": {"models": models}}, silent=True))

    own = judged("own", [llama])
    assert own["chance"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3) and own["headline"] == "accuracy"
    card = judged("card", [other, llama], teacher_predictions=tmp_path / "own")
    assert json.loads((tmp_path / "card" / "scorecard.json").read_text())["chance"] == card["chance"] == own["chance"]
    right = {}
    for name, model in (("llama", llama), ("other", other)):
        chosen = [int(scores_K.argmax()) for scores_K in scored(model, QUESTIONS, OPTIONS)]
        right[name] = float(np.mean([place == int(label[0]) for place, label in zip(chosen, labels, strict=True)]))
    assert card["per_seed"]["accuracy"] == [right["other"], right["llama"]]  # type: ignore[index]
    assert own["metrics"]["accuracy"]["value"] == right["llama"]  # type: ignore[index]
    first, second = read_predictions(tmp_path / "card")
    np.testing.assert_allclose(second.outputs["logits"][1][:, 0], scored(llama, QUESTIONS, OPTIONS)[1], atol=1e-6)
    assert [str(one) for one in first.predictions_N] and first.ids == [0, 1, 2]


def test_the_type_of_the_models_is_in_the_key_of_such_sets_alone() -> None:
    values = {"task_type": "choices", "metrics": ("accuracy",), "headline": "accuracy"}
    plain, foreign = JudgingScoreSlice(**values), JudgingScoreSlice(**values, answered_by=OfTask(task_type="chats"))
    assert "answered_by" not in plain.key_values()
    assert foreign.key_values()["answered_by"] == {"task_type": "chats"}
    assert JudgingScoreSlice.model_validate(json.loads(json.dumps(foreign.model_dump(mode="json")))) == foreign


def test_a_change_in_these_scores_remakes_them_alone() -> None:
    name = "tasks.task_types.next_words.zero_shot"
    there = edited({name: with_statements(program().sources[name])})
    assert remade(there, "classification") == remade(there, "choices") == set()
    # a set of choices in a run of a language model
    assert remade(there, "choices", answered_by={"task_type": "next-words"}) == {"score-judging-set"}
