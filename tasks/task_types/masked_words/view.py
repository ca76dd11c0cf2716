"""Encoders with words, in words: how well they find hidden words of held-out documents, and code that asks for one."""

from __future__ import annotations

from typing import Any

from tasks.task_types.interfaces import Code, ErrorFigure, View
from tasks.task_types.next_words.view import nats_in_words


def example_gap(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``fill-mask``, for tokenizers whose mask is ``[MASK]``."""
    return ["some [MASK] text"]


def words_argument(pairs: bool) -> str:
    """Return an example as the argument of a tokenizer; its second word is asked for."""
    return '"some good text"'


HIDDEN_FIGURE = ErrorFigure("masked_perplexity", "perplexity of a hidden token", "masked perplexity")
VIEW = View(
    example=example_gap,
    example_answer={"token_str": "good", "score": 0.9, "sequence": "some good text"},
    code=Code(
        text=words_argument,
        checkpoint="import torch\n\n"
        "words = {text}.split()\n"
        "words[1] = tokenizer.mask_token  # the word that is asked for\n"
        'given = tokenizer(" ".join(words), return_tensors="pt")\n'
        'place = given["input_ids"][0].tolist().index(tokenizer.mask_token_id)\n'
        "with torch.inference_mode():\n"
        "    likeliest = model(**given).logits[0, place].argmax()\n"
        "print(tokenizer.decode(likeliest))",
        export='ids = np.array([given["input_ids"]])\n'
        "ids[0, 2] = -1 - ids[0, 2]  # a negative number is a hidden token: -1 minus its id\n"
        'feeds = {name: np.array([given[name]]) for name in card["inputs"]} | {"input_ids": ids}\n'
        '(nats,) = session.run(["nats"], feeds)\n'
        "print(float(np.exp(-nats[0, 2])))  # the probability of the hidden token, seen from those around it",
    ),
    analysis_title="Hidden words of held-out documents",
    figures=(
        HIDDEN_FIGURE,
        ErrorFigure("easy_masked_perplexity", "the same, least surprising tenth of documents", "easy documents"),
        ErrorFigure("hard_masked_perplexity", "the same, most surprising tenth of documents", "hard documents"),
    ),
    card_figure=HIDDEN_FIGURE,
    chart="",
    chart_note="",
    matrix="",
    counted={
        "teacher_likelier": "documents whose hidden words the teacher finds likelier",
        "student_likelier": "documents whose hidden words the student finds likelier",
    },
    examples={
        "surest": "Documents whose hidden words became least likely",
        "corrected": "Documents whose hidden words the student finds likelier",
    },
    answer=nats_in_words,
    judged="Perplexities are of hidden tokens, 15 % of a text, which the text itself draws, in windows of at most "
    "{tokens} tokens that share none.",
)
