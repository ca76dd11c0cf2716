"""Options of a question, each scored by a language model that was not trained on any: how likely it is behind the
question, by byte.

The score of an option is the sum of log p of its tokens, given those of the question, divided by its bytes (Gao 2021,
"Multiple Choice Normalization in LM Evaluation", EleutherAI; its harness reports ARC and HellaSwag by characters, which
are bytes in English): not divided, long options would lose to short ones. The option stands behind the question and a
space; behind the template of a chat without one, as answers do. Shape letters: U options, B windows of a batch, T
tokens of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tasks.task_types.common_head import words_at_a_token
from tasks.task_types.next_words.document import NATS
from tasks.task_types.units import ModelFrame, Units, frame_of, require_places

MOST_TOGETHER = 64
"""Windows that a model reads at once."""
MOST_NUMBERS = 2**25
"""Numbers about a vocabulary that it returns at once, 128 megabytes: fewer windows where it has many words."""


class OptionWindow(NamedTuple):
    """Tokens of a question with an option, by their numbers: those that a model reads, and those that are scored, which
    are the last ones of them."""

    begin: int
    end: int
    scored: int


def asked_text(units: Units, frame: ModelFrame, text: str, option: str) -> tuple[str, int]:
    """Return a question with an option as a model reads them, and the number of the question's characters: what stands
    behind them is scored, with the space before the option, which its first token has in most tokenizers."""
    assert units.prompt is not None
    prompt = units.prompt(frame, units.prepared(text))
    apart = "" if units.are_chats or prompt[-1:].isspace() else " "
    return f"{prompt}{apart}{option}", len(prompt)


def first_of_option(offsets: Sequence[tuple[int, int]], question: int) -> int:
    """Return the number of the first token with a character behind those of the question, also where it has some of
    theirs, too. The very first token has none before it, and is never scored."""
    return next((number for number, (_, end) in enumerate(offsets) if number and end > question), len(offsets))


def windows_of_option(first: int, tokens: int, most: int) -> list[OptionWindow]:
    """Return the windows of at most so many tokens in which the tokens of an option, from ``first`` on, are scored once
    each. The question alone is cut, at its beginning; where an option itself is longer, its tokens have half a window
    before them at least, as those of documents."""
    found, end = list[OptionWindow](), tokens
    while end > first:
        begin = max(0, end - most)
        scored = first if begin < first else begin + max(1, most // 2)
        found.append(OptionWindow(begin, end, scored))
        end = scored
    return found


def option_scores(
    model: Any,
    tokenizer: Any,
    max_length: int,
    units: Units,
    texts: Sequence[str],
    options: Sequence[str],
    report: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """Return the score of each option behind its text, in nats a byte, as the logits [U, 1] of a model of options;
    options of like length are read at once. Raises ModelError for a tokenizer that does not tell the places of its
    tokens."""
    require_places(tokenizer)
    frame = frame_of(tokenizer)
    asked = [asked_text(units, frame, text, option) for text, option in zip(texts, options, strict=True)]
    read = tokenizer([text for text, _ in asked], add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    windows = [
        (number, ids, window)
        for number, (ids, offsets, (_, question)) in enumerate(
            zip(read["input_ids"], read["offset_mapping"], asked, strict=True)
        )
        for window in windows_of_option(first_of_option(offsets, question), len(ids), max_length)
    ]
    windows.sort(key=lambda one: one[2].end - one[2].begin)
    words, nats_U, start = words_at_a_token(model), np.zeros(len(asked)), 0
    while start < len(windows):
        some = windows[start : start + MOST_TOGETHER]
        longest = some[-1][2].end - some[-1][2].begin
        some = some[: max(1, MOST_NUMBERS // (longest * words))]
        found_BT = nats_of_windows(model, [ids[window.begin : window.end] for _, ids, window in some])
        for (number, _, window), nats_T in zip(some, found_BT, strict=True):
            # The nats of a token stand at the one before it.
            nats_U[number] += nats_T[window.scored - window.begin - 1 : window.end - window.begin - 1].sum()
        start += len(some)
        report(start * len(asked) // len(windows))
    bytes_U = np.asarray([max(1, len(option.encode())) for option in options])
    return {"logits": (-nats_U / bytes_U).astype(np.float32)[:, None]}


def nats_of_windows(model: Any, windows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return how many nats the token behind each one takes [B, T]. Padding stands on the right, where no token of a
    window sees it."""
    import torch

    longest = max(map(len, windows))
    ids_BT = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in windows])
    mask_BT = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in windows])
    with torch.inference_mode():
        found = model(input_ids=ids_BT, attention_mask=mask_BT)[NATS]
    return np.asarray(found.double().numpy())
