"""Which tokens of a chat are learned: those that the assistant would write, seen from what a template makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.errors import ModelError
from tasks.scoring.onnx_models import template_of_card
from tasks.task_types.chats.turns import JUDGED_ANSWERS, LEARNED_ANSWERS, asked_by_template, in_its_template
from tasks.task_types.texts.messages import chat_in_cell
from tasks.task_types.units import frame_of
from tasks.training.data.encoded import encode_windows
from tests.task_types.chats.tables import CHATML, SYSTEM, chat_tokenizer, chats

CHAT = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "the good film was very good ."},
    {"role": "assistant", "content": "very good"},
    {"role": "user", "content": "the poor meal 7 was very poor ."},
    {"role": "assistant", "content": "very poor ,\nindeed"},
]
STORED = chat_in_cell("f", "c", 1, CHAT)


def learned(text: str, max_length: int, units=LEARNED_ANSWERS) -> list[str]:  # type: ignore[no-untyped-def]
    """Return the tokens that are predicted, window by window."""
    tokenizer = chat_tokenizer()
    found = encode_windows(tokenizer, [text], max_length, units, labels=[""])
    assert found.windows is not None
    unit_S, ids_S = found.windows.unit_S, found.ids_S
    starts = found.offsets
    words = []
    for start, stop in zip(starts[:-1], starts[1:], strict=True):
        places = np.flatnonzero(unit_S[start:stop] >= 0) + start
        words.append(tokenizer.decode(ids_S[places + 1]))
    assert sorted(unit_S[unit_S >= 0]) == list(range(int(found.windows.counts_N[0])))
    return words


@pytest.mark.parametrize("units", [LEARNED_ANSWERS, JUDGED_ANSWERS])
def test_the_assistant_s_tokens_and_the_end_of_each_message_are_learned(units: object) -> None:
    assert learned(STORED, 512, units) == ["very good<|end|>very poor ,\nindeed<|end|>"]


@pytest.mark.parametrize("max_length", [16, 40])
def test_windows_predict_each_token_once(max_length: int) -> None:
    for units in (LEARNED_ANSWERS, JUDGED_ANSWERS):
        assert "".join(learned(STORED, max_length, units)) == "very good<|end|>very poor ,\nindeed<|end|>"


def test_a_message_begins_as_it_is_asked_for() -> None:
    """The text before the learned tokens of the last answer is the prompt."""
    frame = frame_of(chat_tokenizer())
    prompt = asked_by_template(frame, chat_in_cell("f", "c", 1, CHAT).rpartition("\n␞assistant")[0])
    whole = in_its_template(frame, STORED).text
    assert whole.startswith(prompt) and whole[len(prompt) :] == "very poor ,\nindeed<|end|>\n"


def test_a_card_writes_what_the_tokenizer_writes() -> None:
    frame = frame_of(chat_tokenizer())
    of_card = replace(frame, write_chat=template_of_card(frame.chat_template, frame.begin or "", frame.end or ""))
    for chat in chats(6):
        text = chat_in_cell("f", "c", 1, chat)
        ours, theirs = in_its_template(of_card, text), in_its_template(frame, text)
        assert ours.text == theirs.text and (ours.parts_P3 == theirs.parts_P3).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("template", "chat", "sentence"),
    [
        (None, CHAT, "the tokenizer has no template for chats"),
        ("{{ raise_exception('roles alternate') }}", CHAT, "does not write a chat of system, user.*roles alternate"),
        (CHATML, CHAT[:2], "a chat without a message of the assistant has no answer"),
        (CHATML.replace("'content'] }}", "'content'] if loop.last else 'no' }}"), CHAT, "otherwise when others follow"),
    ],
)
def test_templates_and_chats_that_do_not_fit_have_a_sentence(
    template: str | None, chat: list[dict[str, str]], sentence: str
) -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = template
    stored = "\n".join(f"␞{one['role']}␟ {one['content']}" for one in chat)
    with pytest.raises(ModelError, match=sentence):
        in_its_template(frame_of(tokenizer), stored)
