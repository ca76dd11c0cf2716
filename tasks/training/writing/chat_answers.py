"""A teacher's own answers in training chats, from which students learn whose pieces, or whose template, are others.

Kim and Rush 2016, "Sequence-Level Knowledge Distillation", arXiv:1606.07947, with answers in the place of translations.
Each message of the assistant is answered in turn, behind the teacher's own earlier answers, so that a chat is one that
the user could have had with it. Prompts of one length are answered together: nothing is padded, so that no answer
depends on the others. Shape letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch

from tasks.architectures.architecture import plain_class
from tasks.architectures.known_architectures import longest
from tasks.errors import ModelError
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.task_types.texts.likeliest_words import likeliest_words
from tasks.task_types.texts.messages import ASSISTANT, CONTENT, MESSAGE, messages_in, stored_chat
from tasks.task_types.units import Units, Writing, frame_of
from tasks.training.data.batches import cut_batches
from tasks.training.precision import arithmetic

PROMPTS_AT_ONCE, PROMPT_TOKENS = 64, 8192
"""Prompts, and their tokens with those of all beams, that are read at once."""


@dataclass(frozen=True)
class AnsweringTeacher:
    """A teacher that answers in chats, its tokenizer, how it writes, and the tokens that end an answer."""

    model: Any
    tokenizer: Any
    units: Units
    knobs: TextAnswerSlice
    ends: tuple[int, ...]

    @property
    def room(self) -> int:
        """The tokens of the longest prompt that is read."""
        return min(self.knobs.source_length, longest(self.model.config, 10**9) - self.knobs.max_length)

    def answered(self, chats: Sequence[str]) -> list[str]:
        """Return stored chats with the teacher's answers.

        A message stays as it is that opens its chat, whose prompt is longer than what is read, or that the teacher
        answers with nothing, with the signs between which chats are stored, or without an end: what learns from an
        answer that was cut off learns to stop there.
        """
        said = [[(one.role, one.content) for one in messages_in(chat)] for chat in chats]
        asked = [[place for place, (role, _) in enumerate(chat) if role == ASSISTANT and place] for chat in said]
        for turn in range(max(map(len, asked), default=0)):
            places = {row: own[turn] for row, own in enumerate(asked) if turn < len(own)}
            prompts = {row: self.prompt(said[row][:place]) for row, place in places.items()}
            for row, answer in self.answers_to(prompts):
                if answer and not {MESSAGE, CONTENT} & {*answer}:
                    said[row][places[row]] = (ASSISTANT, answer)
        return [stored_chat(chat) for chat in said]

    def prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Return the tokens of messages, and behind them those with which an answer begins."""
        assert self.units.prompt is not None
        asked = self.units.prompt(frame_of(self.tokenizer), stored_chat(messages))
        found: list[int] = self.tokenizer(asked, add_special_tokens=False)["input_ids"]
        return found

    def answers_to(self, prompts: Mapping[int, list[int]]) -> Iterator[tuple[int, str]]:
        """Yield the number and the answer of each prompt that is not too long; an empty one of those without an end."""
        fitting = sorted((row for row in prompts if len(prompts[row]) <= self.room), key=lambda row: len(prompts[row]))
        lengths_N = np.zeros(1 + max(fitting, default=0), dtype=np.int64)
        lengths_N[fitting] = [len(prompts[row]) for row in fitting]
        tokens = PROMPT_TOKENS // self.knobs.beams
        for _, alike in groupby(fitting, key=lambda row: len(prompts[row])):
            for rows in cut_batches(np.asarray([*alike]), lengths_N, PROMPTS_AT_ONCE, tokens):
                yield from zip(rows.tolist(), self.written([prompts[int(row)] for row in rows]), strict=True)

    def written(self, prompts: Sequence[Sequence[int]]) -> list[str]:
        """Return the answers to prompts of one length."""
        writing = Writing(self.knobs.beams, self.knobs.length_penalty, self.knobs.max_length)
        settings = likeliest_words(self.model, writing)
        settings.pad_token_id, settings.eos_token_id = self.tokenizer.pad_token_id, [*self.ends]
        ids_BT = torch.tensor(prompts, device=self.model.device)
        with torch.inference_mode(), arithmetic(self.knobs.precision, self.model.device):
            found_BT = self.model.generate(
                input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), generation_config=settings
            )[:, ids_BT.shape[1] :]
        ended_B = torch.isin(found_BT, torch.tensor(self.ends, device=found_BT.device)).any(1)
        texts = self.tokenizer.batch_decode(found_BT, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return [text.strip() if ended else "" for text, ended in zip(texts, ended_B.tolist(), strict=True)]


def answering_teacher(model: Any, tokenizer: Any, units: Units, knobs: TextAnswerSlice) -> AnsweringTeacher:
    """Return a teacher that answers in chats. It is taken as transformers has it, which computes logits of the last
    token of a prompt alone. Raises ModelError for one of whose answers no token is the end."""
    model.__class__ = plain_class(model)
    ends = {*ids_of_ends(model.generation_config.eos_token_id), *sign_behind_answers(tokenizer, units)}
    if not ends:
        raise ModelError(
            "nothing tells where an answer of the teacher ends: its generation config states no eos_token_id, and its "
            "template writes no token of its own behind a message; state one in generation_config.json, or set "
            "signal: labels"
        )
    return AnsweringTeacher(model, tokenizer, units, knobs, tuple(sorted(ends)))


def ids_of_ends(stated: int | Sequence[int] | None) -> Sequence[int]:
    """Return the tokens that a generation config states as ends."""
    return [] if stated is None else [stated] if isinstance(stated, int) else stated


def sign_behind_answers(tokenizer: Any, units: Units) -> list[int]:
    """Return the token that the template writes behind a message of the assistant, by which a model learns to stop;
    none where that is a piece of any text."""
    assert units.frame is not None
    said = "limbeck"
    whole = units.frame(frame_of(tokenizer), stored_chat([("user", said), (ASSISTANT, said)])).text
    behind = tokenizer(whole.rpartition(said)[2].lstrip(), add_special_tokens=False)["input_ids"][:1]
    added = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    return [token for token in behind if token in added]


def own_messages(chats: Sequence[str], answered: Sequence[str]) -> tuple[int, int]:
    """Return the number of the assistant's messages, and of those that the teacher wrote otherwise."""
    pairs = [
        (before.content, after.content)
        for chat, own in zip(chats, answered, strict=True)
        for before, after in zip(messages_in(chat), messages_in(own), strict=True)
        if before.role == ASSISTANT
    ]
    return len(pairs), sum(before != after for before, after in pairs)
