"""Language models in words: how likely held-out documents are, and code that continues a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_view import TAKES_LIKELIEST
from tasks.task_types.interfaces import Code, ErrorFigure, View


def example_prompt(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``text-generation``."""
    return ["some text"]


def prompt_argument(pairs: bool) -> str:
    """Return an example as the argument of a tokenizer."""
    return '"some text"'


def nats_in_words(given: Any, names: Sequence[str]) -> str:
    """Return the nats of a token of a prediction, or the number of words of a label."""
    numbers = str(given or "").split()
    if len(numbers) == 3:
        return f"{int(numbers[0]):,} words"
    return f"{float(numbers[0]) / max(1.0, float(numbers[1])):.3f} nats a token" if len(numbers) == 2 else "—"


WRITES_ON = (
    'rules, most, written = card["writing"], 20, []\n'
    'shapes = card["memory"].items()\n'
    "memory = {name: np.zeros((1, heads, 0, size), np.float32) for name, (heads, size) in shapes}\n"
    'wanted = ["next_logits", *(name.replace("past", "present") for name in memory)]\n'
    "read, before, following = 0, tokens, tokens  # the whole text first, then word by word\n"
    "while len(written) < most:\n"
    "    read += len(following)\n"
    '    feeds = {"input_ids": np.array([following]), "attention_mask": np.ones((1, read), np.int64), **memory}\n'
    "    logits, *present = session.run(wanted, feeds)\n"
    "    memory = dict(zip(memory, present))\n" + TAKES_LIKELIEST
)
"""Lines that write the words behind ``tokens`` by a graph with a memory."""
TOKENS_FIGURE = ErrorFigure("token_perplexity", "perplexity of a token (its own tokenizer's)", "token perplexity")
VIEW = View(
    example=example_prompt,
    example_answer={"generated_text": "some text and more of it"},
    code=Code(
        text=prompt_argument,
        checkpoint="import torch\n\n"
        "begin = tokenizer.bos_token or tokenizer.eos_token\n"
        'given = tokenizer(begin + {text}, return_tensors="pt", add_special_tokens=False)\n'
        "with torch.inference_mode():\n"
        "    found = model.generate(**given, max_new_tokens=20, do_sample=False, "
        "pad_token_id=tokenizer.eos_token_id)\n"
        "print(tokenizer.decode(found[0], skip_special_tokens=True, clean_up_tokenization_spaces=False))",
        export="tokenizer.no_truncation()  # a text goes on at its end\n"
        'tokens = tokenizer.encode(card["frame"]["begin"] + {text}, add_special_tokens=False).ids\n'
        + WRITES_ON
        + "print(tokenizer.decode(tokens + written))",
    ),
    analysis_title="Likelihood of held-out documents",
    figures=(
        TOKENS_FIGURE,
        ErrorFigure("bits_per_byte", "bits of a byte", "bits a byte"),
        ErrorFigure("easy_word_perplexity", "perplexity of a word, least surprising tenth of documents", "easy words"),
        ErrorFigure("hard_word_perplexity", "perplexity of a word, most surprising tenth of documents", "hard words"),
    ),
    card_figure=TOKENS_FIGURE,
    chart="",
    chart_note="",
    matrix="",
    counted={
        "teacher_likelier": "documents that the teacher finds likelier",
        "student_likelier": "documents that the student finds likelier",
    },
    examples={
        "surest": "Documents whose words became least likely",
        "corrected": "Documents that the student finds likelier",
    },
    answer=nats_in_words,
    judged="Perplexities are of windows of at most {tokens} tokens. Neighbouring windows share half: each token but "
    "the first ones of a text is judged with {half} before it, at least.",
)
