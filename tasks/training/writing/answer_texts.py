"""A teacher's own texts of all training sources, by beam search, and students that learn to write them.

Kim and Rush 2016, "Sequence-Level Knowledge Distillation", arXiv:1606.07947: the best text of the beam in the place of
the true one (``sequence``), or that text of the beam which is nearest to the true one (``interpolated``), by the BLEU
of the sentence, smoothed. Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.metrics.of_texts import bleu_of_sentence, references_in
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.task_types.units import Writing
from tasks.training.data.batches import cut_batches
from tasks.training.data.rows import Rows, Task, read_rows, task_and_tokenizer
from tasks.training.data.written_texts import texts_of_batch
from tasks.training.models.students import freeze, load_classifier
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.writing.text_blocks import BEAMS_FILE, TextBlocks, blocks_by_length, texts_of_rows, write_beams

SOURCES_AT_ONCE, TOKENS_AT_ONCE = 64, 4096
"""Sources, and their tokens, that are read at once; each of them takes as much memory as there are beams."""


def write_all_beams(job: Job) -> dict[str, object]:
    """Write the texts of the teacher's beam of every training source, by row id; each finished block of them is on the
    disk. Return the number of sources, of empty best texts, and the mean number of words of the best ones."""
    knobs = job.read(TextAnswerSlice)
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "teacher")
    teacher = freeze(load_classifier(job.inputs["teacher"], task, device()))
    store_as_multiplied(teacher, knobs.precision)
    rows = read_rows(job.inputs["rows"], "train", task.head)
    encoded = rows.tokens(tokenizer, knobs.source_length)
    if encoded.written is None:
        raise ModelError(f"models of type {knobs.task_type} write no texts; set signal: teacher or labels")
    writing = Writing(knobs.beams, knobs.length_penalty, knobs.max_length, best=knobs.beams)
    blocks, lengths_N = TextBlocks(job.checkpoints), encoded.lengths_N
    job.blocks = blocks.stored
    for number, of_block in enumerate(blocks_by_length(lengths_N)):
        if not blocks.has(number):
            texts = dict[int, list[str]]()
            for some in cut_batches(of_block, lengths_N, SOURCES_AT_ONCE, TOKENS_AT_ONCE):
                found = texts_of_batch(
                    teacher, encoded, encoded.written, some, tokenizer.pad_token_id, writing, knobs.precision
                )
                texts |= {int(rows.ids_N[row]): own for row, own in zip(some, found, strict=True)}
            blocks.write(number, texts)
        job.progress(len(blocks.texts), len(rows), unit="sentences")
    by_id = {int(number): blocks.texts[int(number)] for number in rows.ids_N}
    write_beams(job.output / BEAMS_FILE, by_id)
    best = [texts[0] for texts in by_id.values()]
    words = float(np.mean([len(text.split()) for text in best])) if best else 0.0
    return {"rows": len(best), "empty": sum(not text for text in best), "words": words}


def rows_with_texts(job: Job, task: Task, signal: str) -> Rows:
    """Return the training rows with the teacher's texts in the place of the true ones; a row of which the teacher wrote
    nothing keeps the true one."""
    rows = read_rows(job.inputs["rows"], "train", task.head)
    written = texts_of_rows(job.inputs["texts"], rows.ids_N)
    labels = [
        (best_text(texts, label) if signal == "interpolated" else texts[0]) or label
        for texts, label in zip(written, rows.labels_N.tolist(), strict=True)
    ]
    return replace(rows, labels_N=np.asarray(labels, dtype=str))


def best_text(texts: Sequence[str], label: str) -> str:
    """Return the text that is nearest to a true one; of equally near ones the teacher's likeliest."""
    right = references_in(label)
    return max(texts, key=lambda text: bleu_of_sentence(text, right) if text else -1.0)
