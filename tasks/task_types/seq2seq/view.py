"""Models that read and write in words: texts beside the right ones, and code that writes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.metrics.of_texts import references_in
from tasks.task_types.common_view import TAKES_LIKELIEST
from tasks.task_types.interfaces import Code, ErrorFigure, View


def example_source(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``text2text-generation``."""
    return ["some text"]


def source_argument(pairs: bool) -> str:
    """Return an example as the argument of a tokenizer."""
    return '"some text"'


def length_of_text(given: Any, names: Sequence[str]) -> str:
    """Return the number of words of a text, or of the first of several right ones."""
    words = len(references_in(str(given or ""))[0].split())
    return f"{words} word{'' if words == 1 else 's'}" if words else "nothing"


def text_in_words(given: Any, names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return a text, or several right ones."""
    return " / ".join(references_in(str(given or ""))) or "nothing"


WRITES_A_TEXT = (
    'rules, most, written = card["writing"], card["writing"]["most"], []\n'
    'before = following = [rules["begin"]]\n'
    "source, mask = (np.array([part]) for part in (text.ids, text.attention_mask))\n"
    'shapes = card["memory"].items()\n'
    "memory = {name: np.zeros((1, heads, 0, size), np.float32) for name, (heads, size) in shapes}\n"
    'wanted = ["next_logits", *("present_" + name.removeprefix("past_") for name in memory)]\n'
    "while len(written) < most:  # the likeliest word each time; limbeck predict has beams\n"
    '    feeds = {"input_ids": source, "attention_mask": mask, "written_ids": np.array([following]), **memory}\n'
    "    logits, *present = session.run(wanted, feeds)\n"
    "    memory, source = dict(zip(memory, present)), source[:, :0]  # the source is read once\n"
    + TAKES_LIKELIEST
    + "print(tokenizer.decode(written).strip())"
)
"""Lines that write the text of a source by a graph with a memory."""
CHRF_FIGURE = ErrorFigure("sentence_chrf", "mean chrF of a sentence", "sentence chrF")
VIEW = View(
    example=example_source,
    example_answer={"generated_text": "another text"},
    code=Code(
        text=source_argument,
        checkpoint="import torch\n\n"
        'given = tokenizer({text}, return_tensors="pt")\n'
        "with torch.inference_mode():\n"
        "    ids, mask = given.input_ids, given.attention_mask\n"
        "    found = model.generate(input_ids=ids, attention_mask=mask)  # as it was judged\n"
        "print(tokenizer.decode(found[0], skip_special_tokens=True, clean_up_tokenization_spaces=False).strip())",
        export=WRITES_A_TEXT,
    ),
    analysis_title="Written texts",
    figures=(
        CHRF_FIGURE,
        ErrorFigure("worst_chrf", "mean chrF of the worst tenth of sentences", "worst tenth"),
        ErrorFigure("empty", "share of empty texts", "empty"),
        ErrorFigure("repeating", "share of texts that repeat themselves", "repeating"),
        ErrorFigure("length", "words for each word of the right texts", "length"),
    ),
    card_figure=CHRF_FIGURE,
    chart="",
    chart_note="",
    matrix="",
    counted={
        "teacher_better": "sources of which the teacher writes clearly better (5 points of chrF)",
        "student_better": "sources of which the student writes clearly better",
        "empty": "empty texts of the student",
        "repeating": "texts of the student that repeat themselves",
    },
    examples={
        "surest": "Sources whose texts became worst",
        "corrected": "Sources of which the student writes better",
    },
    answer=length_of_text,
    in_text=text_in_words,
    judged="Texts were written with {beams} beams (1: the likeliest word), length penalty {penalty} and at most {most} "
    "tokens, as `generation_config.json` states, of sources of at most {tokens} tokens; `truncation=True` applies that "
    "limit.",
)
