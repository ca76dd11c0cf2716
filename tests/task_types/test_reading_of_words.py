"""What models that answer about a vocabulary read: no more tokens than they have places for, and a student of kept
answers the tokens that its teacher was asked about. Both are checked before anything runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tasks.errors import ModelError
from tasks.preflight import check_students
from tasks.recipe.recipe import Recipe
from tasks.task_types.chats.turns import LEARNED_ANSWERS
from tasks.task_types.texts.messages import chat_in_cell
from tasks.training.data.encoded import encode_windows
from tests.task_types.chats.tables import CHATML, chats, write_answering
from tests.task_types.next_words.tables import write_decoder
from tests.task_types.next_words.test_chain import values_for
from tests.task_types.seq2seq.tables import write_translator
from tests.task_types.seq2seq.test_chain import values_for as values_for_translators

PREDICTION = {"steps": 4, "temperature": 1.0}


def words(model: Path, **changes: Any) -> Recipe:
    """Return a recipe of a language model with sections of its own."""
    return Recipe.model_validate({**values_for(model, model), "layer_dropping": None, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"teacher": {"model": "gpt2", "max_length": 300}}, "teacher.max_length is 300, and the teacher has 128"),
        (
            {"task_distillation": {"prediction": {**PREDICTION, "max_length": 129}}},
            "task_distillation.prediction.max_length is 129, and the teacher has 128 positions",
        ),
        (
            {"students": [{"name": "own", "layers": 2, "prediction": {**PREDICTION, "max_length": 200}}]},
            "prediction.max_length of own is 200, .* so it reads at most 128 tokens; give it 128 or less",
        ),
        (
            {"layer_dropping": {"strategies": ["top"], "drop": [1], "max_length": 129}},
            "max_length of top-1 is 129",
        ),
        (
            {
                "students": [
                    {"name": "short", "layers": 2, "start": "limbeck-decoder", "mixer": "local", "positions": 16}
                ]
            },
            "task_distillation.prediction.max_length is 32, and short has 16 positions",
        ),
    ],
)
def test_trainings_on_longer_inputs_than_a_model_reads_are_refused(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    model = write_decoder(tmp_path / "gpt2", "gpt2")
    check_students(words(model, teacher={"model": "gpt2", "max_length": 128}), model, {})
    with pytest.raises(ModelError, match=sentence):
        check_students(words(model, **changes), model, {})


def test_a_model_with_relative_positions_has_no_such_limit(tmp_path: Path) -> None:
    long = {"teacher": {"model": "t5", "max_length": 600}, "exports": None}
    for model_type in ("t5", "marian"):
        model = write_translator(tmp_path / model_type, model_type)
        recipe = Recipe.model_validate({**values_for_translators(model, model), **long})
        if model_type == "t5":
            check_students(recipe, model, {})
        else:
            with pytest.raises(ModelError, match="teacher.max_length is 600, and the teacher has 128 positions"):
                check_students(recipe, model, {})


def other_template(tokenizer: Any) -> None:
    """Let a template write a word behind each answer."""
    tokenizer.chat_template = CHATML.replace("{{ message['content'] }}", "{{ message['content'] }} very")


def other_end(tokenizer: Any) -> None:
    """Let texts end with the sign that begins a message."""
    tokenizer.eos_token = "<|start|>"


@pytest.mark.parametrize(
    ("change", "part"), [(other_template, "template for chats"), (other_end, "beginning or the end of a text")]
)
def test_a_start_that_frames_texts_otherwise_learns_no_kept_answers(
    change: Callable[[Any], None], part: str, tmp_path: Path
) -> None:
    base = write_answering(tmp_path / "teacher")
    own = shutil.copytree(base, tmp_path / "own")
    tokenizer = AutoTokenizer.from_pretrained(own)
    change(tokenizer)
    tokenizer.save_pretrained(own)
    rows = [chat_in_cell("f", "c", 1, chat) for chat in chats(4)]
    ours, theirs = (
        encode_windows(AutoTokenizer.from_pretrained(one), rows, 64, LEARNED_ANSWERS).windows for one in (own, base)
    )
    assert ours is not None and theirs is not None
    # answers are found by the number of their token: those of the second chat would be learned in the first
    assert (ours.counts_N.sum() != theirs.counts_N.sum()) == (change is other_template)
    task = {"name": "chats", "kind": "chats", "text": "messages"}
    student = {"name": "half", "layers": 4, "start": str(own), "stages": []}
    with pytest.raises(ModelError, match=rf"whose tokenizer has another .*{part}.*copy the files of the teacher's"):
        check_students(words(base, task=task, students=[student]), base, {"half": own})
    check_students(words(base, task=task, students=[{**student, "start": str(base)}]), base, {"half": base})
    of_labels = {**student, "signal": "labels", "role": "baseline"}
    check_students(words(base, task=task, students=[of_labels]), base, {"half": own})
    live = {"answers": "live", "prediction": {**PREDICTION, "max_length": 32}}  # its teacher reads what it reads
    check_students(words(base, task=task, students=[student], task_distillation=live), base, {"half": own})


def test_a_translator_whose_texts_do_not_end_learns_no_kept_answers(tmp_path: Path) -> None:
    base = write_translator(tmp_path / "teacher")
    own = shutil.copytree(base, tmp_path / "own")
    tokenizer = AutoTokenizer.from_pretrained(own)
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.save_pretrained(own)
    student = {"name": "words", "layers": 3, "start": str(own)}
    for signal in ("teacher", "sequence"):
        values = {**values_for_translators(base, base), "exports": None, "students": [{**student, "signal": signal}]}
        recipe = Recipe.model_validate(values)
        if signal == "sequence":
            check_students(recipe, base, {"words": own})
        else:
            with pytest.raises(ModelError, match=r"another rule for tokens that are added.*\(signal: sequence\)"):
                check_students(recipe, base, {"words": own})


def test_teachers_of_other_stacks_than_their_type_are_refused(tmp_path: Path) -> None:
    translator, decoder = write_translator(tmp_path / "bart", "bart"), write_decoder(tmp_path / "llama")
    recipe = Recipe.model_validate({**values_for_translators(decoder, decoder), "exports": None})
    with pytest.raises(ModelError, match="of type llama, without a decoder beside an encoder.*name a marian"):
        check_students(recipe, decoder, {})
    with pytest.raises(ModelError, match="of type bart, which reads a source .* or set task.kind: seq2seq"):
        check_students(words(translator), translator, {})
    check_students(recipe, translator, {})
