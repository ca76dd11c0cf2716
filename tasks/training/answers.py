"""The teacher's answers: computed once for every row, mixed if there are several teachers, and looked up while students
train.

A teacher uses its own tokenization of a text. Answers, and the states of its summary token, belong to whole texts, so a
student with another tokenizer may learn from them. Methods: Hinton et al. 2015, arXiv:1503.02531; summary tokens, Sun
et al. 2019, PKD, arXiv:1908.09355. Shape letters: N rows, B batch, T tokens, C classes, L compared layers, D width, M
teachers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor

from tasks.architectures.known_architectures import summary_token
from tasks.engine.job import Job
from tasks.methods.losses.ensembles import mixture_weights
from tasks.methods.losses.patience import patience_layers
from tasks.recipe.slices import AnswerSlice, MixSlice
from tasks.task_types.common_head import words_at_a_token
from tasks.task_types.heads import HEADS
from tasks.task_types.units import KeptWords
from tasks.training.data.answer_blocks import AT, AnswerBlocks, blocks_of
from tasks.training.data.array_files import mapped_arrays
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.batches import without_gradients
from tasks.training.data.encoded import Batch, Encoded, by_number, collate, encode
from tasks.training.data.epochs import Indices
from tasks.training.data.rows import rows_by_id, student_rows, task_and_tokenizer
from tasks.training.data.same_pieces import PIECES, digests_of_pieces, is_answered_in_texts, require_same_pieces
from tasks.training.models.students import freeze, load_classifier
from tasks.training.objectives.capture import Capture
from tasks.training.precision import arithmetic, device, store_as_multiplied

if TYPE_CHECKING:
    from tasks.training.data.rows import TaskHead


ANSWERS_FILE = "answers.safetensors"
COUNTS = "counts"
"""In the file of answers, the number of units of each row; absent where rows have one answer."""

BESIDE_OUTPUTS = ("ids", COUNTS, PIECES, "summaries")
"""Names in that file that are no outputs."""
IN_MEMORY = 2**30
"""Bytes of answers that are kept in the memory of the device; of more, each batch reads its own from the disk."""
Keep = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Returns outputs as they are stored."""


@dataclass(frozen=True)
class Answered:
    """A teacher's answers to a batch: its outputs by name, rows or units first, and, if they are compared, the states
    of its summary token at some layers [B, L, D]."""

    outputs: dict[str, Tensor]
    summaries_BLD: Tensor | None = None


def answer(job: Job) -> dict[str, object]:
    """Run the teacher once over every row that students learn from, and write its answers by row id."""
    knobs = job.read(AnswerSlice)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "teacher")
    teacher = freeze(load_classifier(job.inputs["teacher"], task, device()))
    layers = (
        []
        if knobs.patience is None
        else patience_layers(knobs.patience.layer_map, knobs.patience.layers, teacher.config.num_hidden_layers)
    )
    store_as_multiplied(teacher, knobs.precision)
    rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
    encoded = rows.tokens(tokenizer, knobs.max_length)
    capture = Capture(teacher, task.head, hidden=layers)
    keep, beside = keeping(knobs), {"ids": rows.ids_N}
    if task.head.units is not None and task.head.units.are_pieces:
        beside[PIECES] = digests_of_pieces(encoded)
    if keep is None:
        said = all_answers(job, knobs, capture, encoded, tokenizer.pad_token_id)
        save_file(beside | said, job.output / ANSWERS_FILE)
    else:
        blocks = kept_by_block(job, knobs, capture, encoded, tokenizer.pad_token_id, keep)
        assert encoded.windows is not None
        blocks.publish(job.output / ANSWERS_FILE, encoded.answers, beside | {COUNTS: encoded.windows.counts_N})
    # Tokens, and pairs of tokens of one row: from these a run knows the size of the teacher's layers beforehand.
    sizes = {"tokens": int(encoded.lengths_N.sum()), "pairs": int((encoded.lengths_N.astype(np.int64) ** 2).sum())}
    return {"rows": len(rows), "truncated": float((encoded.lengths_N >= knobs.max_length).mean()), **sizes}


def all_answers(job: Job, knobs: AnswerSlice, capture: Capture, encoded: Encoded, pad: int) -> dict[str, np.ndarray]:
    """Return the outputs [N, …] by name and, if layers are read, summary states [N, L, D] in float16, in row order."""
    order, at, parts, place = [], [], list[Answered](), capture.model.device
    for rows in without_gradients(encoded.lengths_N, place, words_at_a_token(capture.model)):
        batch = collate(encoded, rows, pad, place)
        with torch.inference_mode(), arithmetic(knobs.precision, place):
            parts.append(answers_of(capture, batch))
        order.append(rows)
        at.append(batch.numbers)
        job.progress(sum(map(len, order)), len(encoded.lengths_N), unit="rows")
    place_N = np.argsort(np.concatenate(order))
    said = {
        name: by_number([part.outputs[name].cpu().numpy() for part in parts], at, encoded.answers)
        for name in parts[0].outputs
    }
    if encoded.windows is not None:
        said[COUNTS] = encoded.windows.counts_N
    if capture.hidden:
        said["summaries"] = torch.cat(
            [part.summaries_BLD.half().cpu() for part in parts if part.summaries_BLD is not None]
        ).numpy()[place_N]
    return said


def keeping(knobs: AnswerSlice) -> Keep | None:
    """Return the function that keeps a part of each answer; None where they are stored whole."""
    keep = HEADS[knobs.task_type].keep
    if keep is None or knobs.kept is None:
        return None
    part = KeptWords(knobs.kept.words, knobs.kept.temperature, knobs.kept.bits)
    return lambda outputs: keep(outputs, part)


def kept_by_block(
    job: Job, knobs: AnswerSlice, capture: Capture, encoded: Encoded, pad: int, keep: Keep
) -> AnswerBlocks:
    """Return the kept parts of all answers. Each finished block of them is on the disk, so that a run that was killed
    goes on behind it."""
    place, blocks = capture.model.device, AnswerBlocks(job.checkpoints)
    job.blocks = blocks.stored
    batches_of_pass = without_gradients(encoded.lengths_N, place, words_at_a_token(capture.model))
    for number, batches in enumerate(blocks_of(batches_of_pass)):
        if blocks.has(number):
            job.progress(blocks.answers, encoded.answers, unit="tokens")
            continue
        found = list[dict[str, np.ndarray]]()
        for rows in batches:
            batch = collate(encoded, rows, pad, place)
            with torch.inference_mode(), arithmetic(knobs.precision, place):
                kept = keep(batch.answers(capture(**batch.inputs(capture.model)).outputs))
            found.append({AT: batch.numbers} | {name: values.cpu().numpy() for name, values in kept.items()})
        blocks.write(number, found, encoded.answers)
        job.progress(blocks.answers, encoded.answers, unit="tokens")
    return blocks


def answers_of(capture: Capture, batch: Batch) -> Answered:
    """Return a teacher's answers to one batch."""
    shown = capture(**batch.inputs(capture.model))
    outputs = {name: values.float() for name, values in batch.answers(shown.outputs).items()}
    states = [summary_of(capture.model, shown.hidden[layer], batch.mask_BT) for layer in capture.hidden]
    return Answered(outputs, torch.stack(states, 1).float() if states else None)


def summary_of(model: Any, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the state [B, D] of the token that represents each row: the first, or the last in XLNet."""
    last = summary_token(model.config) == "last"
    at_B = mask_BT.shape[1] - 1 - mask_BT.flip(1).long().argmax(1) if last else mask_BT.long().argmax(1)
    return states_BTD[torch.arange(len(states_BTD), device=states_BTD.device), at_B]


def mix(job: Job) -> dict[str, object]:
    """Mix the answers of several teachers into one file of the same format."""
    knobs, said = job.read(MixSlice), [load_file(folder / ANSWERS_FILE) for folder in job.lists["answers"]]
    ids_N = said[0]["ids"]
    places = [places_of_answers(each, ids_N) for each in said]
    mixed, head = dict[str, np.ndarray](), HEADS[knobs.task_type]
    for output in head.outputs:
        pairs = zip(said, places, strict=True)
        theirs_MNC = torch.stack([torch.from_numpy(each[output.name][place_N]) for each, place_N in pairs])
        weights_MN = mixture_weights(theirs_MNC, knobs.weights, combine=knobs.combine)
        mixed[output.name] = head.mix(theirs_MNC, weights_MN, knobs.temperature).contiguous().numpy()
    counts = {COUNTS: said[0][COUNTS]} if COUNTS in said[0] else {}
    save_file({"ids": ids_N} | counts | mixed, job.output / ANSWERS_FILE)
    return {"rows": len(ids_N), "teachers": len(said)}


def places_of_answers(stored: Mapping[str, np.ndarray], ids_N: np.ndarray) -> np.ndarray:
    """Return the positions of the stored answers to rows of these ids, unit after unit where rows have several."""
    order = rows_by_id(stored["ids"], ids_N, "answers", "answer-rows")
    if COUNTS not in stored:
        return order
    ends_N = np.cumsum(stored[COUNTS])
    return np.concatenate([np.arange(ends_N[row] - stored[COUNTS][row], ends_N[row]) for row in order])


def places_if_moved(stored: Mapping[str, np.ndarray], ids_N: np.ndarray) -> np.ndarray | None:
    """Return these positions; None where the rows are those that are stored, in the same order, as most often: there
    may be hundreds of millions of units."""
    return None if np.array_equal(stored["ids"], ids_N) else places_of_answers(stored, ids_N)


def at_places(values: np.ndarray, places: np.ndarray | None) -> Tensor:
    """Return stored values in the order of a student's rows, in memory."""
    return torch.from_numpy(np.array(values) if places is None else values[places])


class StoredOutputs:
    """Stored outputs of a teacher, by the number of a row or unit: in the memory of a device or, where they are large,
    on the disk. Without ``places``, number and position are one."""

    def __init__(self, outputs: Mapping[str, np.ndarray], places: np.ndarray | None, place: torch.device) -> None:
        self.place, self.places, self.mapped, self.held = place, places, dict[str, np.ndarray](), dict[str, Tensor]()
        if sum(values.nbytes for values in outputs.values()) > IN_MEMORY:
            self.mapped = dict(outputs)
        else:
            self.held = {name: at_places(values, places).to(place) for name, values in outputs.items()}

    def of(self, batch: Batch) -> dict[str, Tensor]:
        """Return the outputs for each number of a batch, on the device."""
        if self.held:
            return {name: values[batch.at_B] for name, values in self.held.items()}
        numbers = batch.numbers if self.places is None else self.places[batch.numbers]
        read = {name: torch.from_numpy(values[numbers]) for name, values in self.mapped.items()}
        return {name: values.to(self.place, non_blocking=True) for name, values in read.items()}


class Answers:
    """The teacher's answers to a batch: looked up for rows with their own text, computed only for augmented variants.
    Raises ModelError for answers to other pieces than those of the rows."""

    def __init__(
        self,
        folder: Path,
        head: TaskHead,
        augmented: AugmentedRows,
        teacher: Any,
        tokenizer: Any,
        layers: Sequence[int] = (),
    ) -> None:
        self.max_length, self.tokenizer, self.place = augmented.max_length, tokenizer, teacher.device
        self.capture, stored = Capture(teacher, head, hidden=layers), mapped_arrays(folder / ANSWERS_FILE)
        places = places_if_moved(stored, augmented.rows.ids_N)
        if PIECES in stored:
            pieces_N = stored[PIECES]
            if places is not None:
                pieces_N = pieces_N[rows_by_id(stored["ids"], augmented.rows.ids_N, "answers", "answer-rows")]
            require_same_pieces(pieces_N, augmented.encoded, writes=is_answered_in_texts(head.units))
        outputs = {name: values for name, values in stored.items() if name not in BESIDE_OUTPUTS}
        self.outputs = StoredOutputs(outputs, places, self.place)
        self.summaries_NLD = at_places(stored["summaries"], places) if layers else None

    def sent(self, values: Tensor) -> Tensor:
        """Send values to the teacher's device, without waiting for it."""
        return values.to(self.place, non_blocking=True)

    def of(self, indices: Indices, batch: Batch) -> Answered:
        """Return the answers to a batch of rows, or to the units that it answers."""
        rows, changed, variants = indices.rows_B, indices.changed(), indices.epoch.variants
        outputs = self.outputs.of(batch)
        summaries_BLD = None if self.summaries_NLD is None else self.sent(self.summaries_NLD[rows]).float()
        if variants is None or not len(changed):
            return Answered(outputs, summaries_BLD)
        with torch.inference_mode():
            texts, pairs = variants.read(rows[changed])
            encoded = encode(self.tokenizer, texts, pairs, self.max_length)
            fresh = answers_of(
                self.capture, collate(encoded, np.arange(len(changed)), self.tokenizer.pad_token_id, self.place)
            )
        at = self.sent(torch.from_numpy(changed))
        # Autograd cannot use inference tensors in a loss: copy them into normal tensors.
        outputs = {
            name: values.clone().index_copy_(0, at, fresh.outputs[name].clone()) for name, values in outputs.items()
        }
        if summaries_BLD is not None and fresh.summaries_BLD is not None:
            summaries_BLD = summaries_BLD.index_copy_(0, at, fresh.summaries_BLD.clone())
        return Answered(outputs, summaries_BLD)


class LiveAnswers:
    """Answers of a teacher that runs beside its student in every step: nothing is stored, and no part is left out."""

    def __init__(self, head: TaskHead, teacher: Any) -> None:
        self.capture = Capture(teacher, head)

    def of(self, indices: Indices, batch: Batch) -> Answered:
        """Return the whole answers to a batch, whatever the text of its rows."""
        with torch.no_grad():
            return answers_of(self.capture, batch)
