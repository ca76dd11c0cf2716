"""Which tokens of a chat are learned: those that the assistant would write, seen from what a template makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tasks.errors import ModelError
from tasks.scoring.onnx_models import template_of_card
from tasks.task_types.chats.turns import JUDGED_ANSWERS, LEARNED_ANSWERS, asked_by_template, in_its_template
from tasks.task_types.chats.view import VIEW
from tasks.task_types.texts.messages import chat_in_cell
from tasks.task_types.units import Units, frame_of
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


INSTRUCTIONS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %} {{ message['content'] }}"
    "{{ eos_token }}{% else %}[INST] {{ message['content'] }} [/INST]{% endif %}{% endfor %}"
)
"""The form of a family that has no beginning of an answer of its own."""
LINES = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""A form without signs: an answer ends where its text ends."""
MARKED = (
    "{{ strftime_now('%Y') }}{% if tools is none %} without tools{% endif %}\n"
    "{%- for message in messages %}\n"
    "  {{- message | tojson }}\n"
    "  {%- generation -%}  {{ message['content'] | trim }}  {%- endgeneration %}\n"
    "{% endfor %}"
)
"""A form with what some published ones have: the date, JSON, and marks around what is learned."""


def learned(text: str, max_length: int, units: Units = LEARNED_ANSWERS, tokenizer: Any = None) -> list[str]:
    """Return the tokens that are predicted, window by window."""
    tokenizer = tokenizer or chat_tokenizer()
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
def test_the_assistant_s_tokens_and_the_end_of_each_message_are_learned(units: Units) -> None:
    assert learned(STORED, 512, units) == ["very good<|end|>very poor ,\nindeed<|end|>"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (CHATML, "hi<|end|>bad<|end|>"),
        ("<|start|>system\nYou are a helpful assistant.<|end|>\n" + CHATML, "hi<|end|>bad<|end|>"),
        (INSTRUCTIONS, " hi<|end|> bad<|end|>"),
        (LINES, " hi bad"),
    ],
)
def test_what_a_template_writes_before_a_chat_that_opens_with_an_answer_is_not_learned(
    template: str, said: str
) -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = template
    opened = [{"role": "assistant", "content": "hi"}, CHAT[1], {"role": "assistant", "content": "bad"}]
    assert learned(chat_in_cell("f", "c", 1, opened), 512, tokenizer=tokenizer) == [said]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (INSTRUCTIONS, " very good<|end|> very poor ,\nindeed<|end|>"),
        (LINES, " very good very poor ,\nindeed"),
    ],
)
def test_answers_of_other_templates_are_found(template: str, said: str) -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = template
    assert "".join(learned(STORED, 512, tokenizer=tokenizer)) == said


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


@pytest.mark.parametrize("dated", ["", "{{ strftime_now('%d %b %Y') }} "])
def test_a_card_writes_what_the_tokenizer_writes_and_both_the_same_every_day(dated: str) -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = dated + CHATML
    frame = frame_of(tokenizer)
    assert in_its_template(frame, STORED).text.startswith("26 Jul 2024 " if dated else "<|start|>")
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


@pytest.mark.parametrize("template", [CHATML, INSTRUCTIONS, LINES, "MARKED"])
def test_the_program_on_a_card_writes_chats_as_transformers_does(template: str) -> None:
    """Also by templates that mark answers for trainings, write numbers and texts as JSON, or know the date."""
    own, asked = chat_tokenizer(), 'say "é < 3"'
    own.chat_template = MARKED if template == "MARKED" else template
    program = VIEW.code.export.split("tokenizer.no_truncation()")[0].replace("{text}", repr(asked))
    frame = {"begin": own.bos_token or "", "end": own.eos_token, "chat_template": own.chat_template}
    found: dict[str, Any] = {"card": {"frame": frame}, "json": json}
    exec(compile(program, "card", "exec"), found)
    messages = [{"role": "user", "content": asked}]
    assert found["asked"] == own.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
