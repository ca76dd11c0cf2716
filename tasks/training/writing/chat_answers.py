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

from tasks.architectures.known_architectures import longest
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.task_types.texts.likeliest_words import likeliest_words
from tasks.task_types.texts.messages import ASSISTANT, CONTENT, MESSAGE, messages_in, stored_chat
from tasks.task_types.units import Units, Writing, frame_of
from tasks.training.data.batches import cut_batches
from tasks.training.precision import arithmetic

PROMPTS_AT_ONCE, PROMPT_TOKENS = 64, 8192
"""Prompts, and their tokens, that are read at once; each of them takes as much memory as there are beams."""


@dataclass(frozen=True)
class AnsweringTeacher:
    """A teacher that answers in chats, its tokenizer, and how it writes."""

    model: Any
    tokenizer: Any
    units: Units
    knobs: TextAnswerSlice

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
        room = min(self.knobs.source_length, longest(self.model.config, 10**9) - self.knobs.max_length)
        fitting = sorted((row for row in prompts if len(prompts[row]) <= room), key=lambda row: len(prompts[row]))
        lengths_N = np.zeros(1 + max(fitting, default=0), dtype=np.int64)
        lengths_N[fitting] = [len(prompts[row]) for row in fitting]
        for _, alike in groupby(fitting, key=lambda row: len(prompts[row])):
            for rows in cut_batches(np.asarray([*alike]), lengths_N, PROMPTS_AT_ONCE, PROMPT_TOKENS):
                yield from zip(rows.tolist(), self.written([prompts[int(row)] for row in rows]), strict=True)

    def written(self, prompts: Sequence[Sequence[int]]) -> list[str]:
        """Return the answers to prompts of one length."""
        writing = Writing(self.knobs.beams, self.knobs.length_penalty, self.knobs.max_length)
        settings = likeliest_words(self.model, writing)
        settings.pad_token_id = self.tokenizer.pad_token_id
        ids_BT = torch.tensor(prompts, device=self.model.device)
        with torch.inference_mode(), arithmetic(self.knobs.precision, self.model.device):
            found_BT = self.model.generate(
                input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), generation_config=settings
            )[:, ids_BT.shape[1] :]
        ended_B = torch.isin(found_BT, stated_ends(settings).to(found_BT.device)).any(1)
        texts = self.tokenizer.batch_decode(found_BT, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return [text.strip() if ended else "" for text, ended in zip(texts, ended_B.tolist(), strict=True)]


def stated_ends(settings: Any) -> torch.Tensor:
    """Return the tokens that end a text, by a generation config; none of one that states none."""
    stated = settings.eos_token_id
    return torch.tensor([] if stated is None else stated, dtype=torch.long).reshape(-1)


def own_messages(chats: Sequence[str], answered: Sequence[str]) -> tuple[int, int]:
    """Return the number of the assistant's messages, and of those that the teacher wrote otherwise."""
    pairs = [
        (before.content, after.content)
        for chat, own in zip(chats, answered, strict=True)
        for before, after in zip(messages_in(chat), messages_in(own), strict=True)
        if before.role == ASSISTANT
    ]
    return len(pairs), sum(before != after for before, after in pairs)
