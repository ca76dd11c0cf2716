"""A teacher's own texts of all training sources, by beam search, or its answers in all training chats, and students
that learn to write them.

Kim and Rush 2016, "Sequence-Level Knowledge Distillation", arXiv:1606.07947: the best text of the beam in the place of
the true one (``sequence``), or that text of the beam which is nearest to the true one (``interpolated``), by the BLEU
of the sentence, smoothed. Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.metrics.of_texts import bleu_of_sentence, references_in
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.task_types.units import Units, Writing
from tasks.training.data.batches import cut_batches
from tasks.training.data.rows import Rows, Task, read_rows, task_and_tokenizer
from tasks.training.data.written_texts import texts_of_batch
from tasks.training.models.students import freeze, load_classifier
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.writing.chat_answers import AnsweringTeacher, answering_teacher, own_messages
from tasks.training.writing.text_blocks import texts_of_rows, written_in_blocks

SOURCES_AT_ONCE, TOKENS_AT_ONCE = 64, 4096
"""Sources, and their tokens, that are read at once; each of them takes as much memory as there are beams."""


def write_all_beams(job: Job) -> dict[str, object]:
    """Write the texts of the teacher's beam of every training source, or its answers in every training chat, by row id;
    each finished block of them is on the disk. Return facts on them."""
    knobs = job.read(TextAnswerSlice)
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "teacher")
    teacher = freeze(load_classifier(job.inputs["teacher"], task, device()))
    store_as_multiplied(teacher, knobs.precision)
    rows = read_rows(job.inputs["rows"], "train", task.head)
    if isinstance(rows.units, Units) and rows.units.are_chats:
        return answer_chats(job, rows, answering_teacher(teacher, tokenizer, rows.units, knobs))
    return write_beams_of_sources(job, rows, teacher, tokenizer, knobs)


def answer_chats(job: Job, rows: Rows, teacher: AnsweringTeacher) -> dict[str, object]:
    """Write every training chat with the teacher's answers. Return the number of chats, of the assistant's messages,
    and of those that the teacher wrote. Raises ModelError for a teacher that wrote none: its students would learn the
    labels."""

    def texts_of(some: np.ndarray) -> dict[int, list[str]]:
        found = teacher.answered([rows.texts[row] for row in some])
        return {int(row): [chat] for row, chat in zip(some, found, strict=True)}

    lengths_N = np.asarray([len(text) for text in rows.texts])
    by_id = written_in_blocks(job, rows.ids_N, lengths_N, texts_of, "chats")
    messages, own = own_messages(rows.texts, [chat for (chat,) in by_id.values()])
    if messages and not own:
        raise ModelError(
            f"the teacher wrote an answer of its own to none of {messages:,} questions: where a prompt with "
            f"{teacher.room} tokens or fewer was read, no answer came to its end within generation.max_length, "
            f"{teacher.knobs.max_length} tokens, or it was the given one; give prompts room by max_length of the "
            f"student's training, and answers by generation.max_length, or set signal: labels"
        )
    note = f"{own:,} of {messages:,} answers are the teacher's own; others are as given"
    job.log(note)
    return {"rows": len(rows), "messages": messages, "own": own, "note": note}


def write_beams_of_sources(
    job: Job, rows: Rows, teacher: Any, tokenizer: Any, knobs: TextAnswerSlice
) -> dict[str, object]:
    """Write the texts of the beam of every source. Return the number of sources, of empty best texts, and the mean
    number of words of the best ones."""
    encoded = rows.tokens(tokenizer, knobs.source_length)
    if encoded.written is None:
        raise ModelError(f"models of type {knobs.task_type} write no texts; set signal: teacher or labels")
    writing = Writing(knobs.beams, knobs.length_penalty, knobs.max_length, best=knobs.beams)
    written, lengths_N = encoded.written, encoded.lengths_N

    def texts_of(of_block: np.ndarray) -> dict[int, list[str]]:
        texts = dict[int, list[str]]()
        for some in cut_batches(of_block, lengths_N, SOURCES_AT_ONCE, TOKENS_AT_ONCE):
            found = texts_of_batch(teacher, encoded, written, some, tokenizer.pad_token_id, writing, knobs.precision)
            texts |= {int(row): own for row, own in zip(some, found, strict=True)}
        return texts

    best = [texts[0] for texts in written_in_blocks(job, rows.ids_N, lengths_N, texts_of, "sentences").values()]
    words = float(np.mean([len(text.split()) for text in best])) if best else 0.0
    return {"rows": len(best), "empty": sum(not text for text in best), "words": words}


def rows_with_texts(job: Job, task: Task, signal: str) -> Rows:
    """Return the training rows with the teacher's texts in the place of the true ones, or chats with its answers; a row
    of which the teacher wrote nothing keeps the true one."""
    rows = read_rows(job.inputs["rows"], "train", task.head)
    written = texts_of_rows(job.inputs["texts"], rows.ids_N)
    if isinstance(rows.units, Units):
        return replace(rows, texts=[texts[0] for texts in written])
    labels = [
        (best_text(texts, label) if signal == "interpolated" else texts[0]) or label
        for texts, label in zip(written, rows.labels_N.tolist(), strict=True)
    ]
    return replace(rows, labels_N=np.asarray(labels, dtype=str))


def best_text(texts: Sequence[str], label: str) -> str:
    """Return the text that is nearest to a true one; of equally near ones the teacher's likeliest."""
    right = references_in(label)
    return max(texts, key=lambda text: bleu_of_sentence(text, right) if text else -1.0)
