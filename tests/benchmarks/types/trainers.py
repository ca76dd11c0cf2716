"""How others would train a student on a teacher's answers, by task type: a Trainer of transformers with a divergence
from the teacher beside it, or sentence-transformers' own distillation. Shape letters: B batch, T tokens, U answered
tokens, V classes or words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from tasks.recipe.slices import PredictionSlice
from tasks.training.precision import is_faster_in_bf16
from tests.benchmarks.measure import Lap, timed
from tests.benchmarks.peers import Distiller, in_bf16
from tests.benchmarks.types.passages import divergence_at_ends, windows_with_ends
from tests.benchmarks.types.school import School

NO_LABEL = -100
"""A token without a label, as transformers marks it."""
Example = dict[str, Any]
LossOfBatch = Callable[[Any, dict[str, Tensor]], Tensor]
"""Returns the loss of a student on a batch."""
LossFromTeacher = Callable[[Any, PredictionSlice], LossOfBatch]
"""Returns the loss from a teacher and the knobs of its students."""


@dataclass(frozen=True)
class Peer:
    """The usual way to distil models of a task type."""

    name: str
    learn: Callable[[School, int], tuple[Path, Lap]]
    """Trains a student of one seed; returns its folder, and the time that the training took."""


class LiveDistiller(Distiller, Seq2SeqTrainer):
    """A Trainer, also of models that write, with another loss."""


def beside_teacher(
    examples: Callable[[School, Any], list[Example]], loss_from: LossFromTeacher
) -> Callable[[School, int], tuple[Path, Lap]]:
    """Return the training with a teacher that runs beside the student."""

    def learn(school: School, seed: int) -> tuple[Path, Lap]:
        teacher, tokenizer = school.load_teacher(), school.tokenizer()
        student = school.start(teacher, seed)
        loss = loss_from(teacher, school.knobs)
        with timed() as lap:
            LiveDistiller(
                student,
                Seq2SeqTrainingArguments(
                    str(school.scratch / f"trainer-{seed}"),
                    **settings_of(school, seed),
                    train_sampling_strategy="group_by_length",
                    remove_unused_columns=False,
                ),
                own_loss=in_bf16(loss) if is_faster_in_bf16(torch.device("cpu")) else loss,
                train_dataset=examples(school, tokenizer),
                data_collator=DataCollatorForSeq2Seq(tokenizer, student),
            ).train()
        return school.save(student, f"theirs-{seed}"), lap

    return learn


def settings_of(school: School, seed: int, texts_of_a_row: int = 1) -> dict[str, Any]:
    """Return the settings of a Trainer that trains as the knobs say."""
    knobs = school.knobs
    return {
        "per_device_train_batch_size": knobs.batch_size * texts_of_a_row,
        "max_steps": school.steps,
        "learning_rate": knobs.learning_rate,
        "warmup_steps": int(knobs.warmup * school.steps),
        "weight_decay": knobs.weight_decay,
        "max_grad_norm": knobs.clip,
        "seed": seed,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }


def divergence_from(teacher: Any, knobs: PredictionSlice, shifts: bool = False) -> LossOfBatch:
    """Return the divergence from a teacher that reads the same tokens, mixed with the cross entropy with the labels;
    ``shifts``: a token is labelled by itself, and predicted before it."""

    def loss(student: Any, batch: dict[str, Tensor]) -> Tensor:
        given = {name: values for name, values in batch.items() if name != "labels"}
        with torch.no_grad():
            theirs_BTV = teacher(**given).logits
        ours_BTV, labels_BT = student(**given).logits, batch["labels"]
        if shifts:
            ours_BTV, theirs_BTV, labels_BT = ours_BTV[:, :-1], theirs_BTV[:, :-1], labels_BT[:, 1:]
        told_BT, heat = labels_BT != NO_LABEL, knobs.temperature
        ours_UV, theirs_UV = ours_BTV[told_BT].float(), theirs_BTV[told_BT].float()
        soft = F.kl_div((ours_UV / heat).log_softmax(-1), (theirs_UV / heat).softmax(-1), reduction="batchmean")
        hard = F.cross_entropy(ours_UV, labels_BT[told_BT])
        return knobs.hard_weight * hard + (1 - knobs.hard_weight) * heat**2 * soft

    return loss


def pairs_of_sentences(school: School, tokenizer: Any) -> list[Example]:
    """Return sources with the words of their texts."""
    rows, most = school.split("train"), school.knobs.max_length
    sources = tokenizer(rows.texts, truncation=True, max_length=most)["input_ids"]
    texts = tokenizer(list(rows.labels), truncation=True, max_length=most)["input_ids"]
    return [
        {"input_ids": source, "attention_mask": [1] * len(source), "labels": text}
        for source, text in zip(sources, texts, strict=True)
    ]


def blocks_of_words(school: School, tokenizer: Any) -> list[Example]:
    """Return all documents behind each other, cut into blocks of one length."""
    rows, size = school.split("train"), school.knobs.max_length
    words = [word for text in rows.texts for word in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]
    blocks = [words[start : start + size] for start in range(0, len(words) - size + 1, size)]
    return [{"input_ids": block, "attention_mask": [1] * size, "labels": block} for block in blocks]


def tagged_words(school: School, tokenizer: Any) -> list[Example]:
    """Return sentences whose words have their tag at the first piece."""
    rows, found = school.split("train"), list[Example]()
    for text, label in zip(rows.texts, rows.labels, strict=True):
        words, tags = text.split(" "), [int(tag) for tag in label.split(" ")]
        read = tokenizer(words, is_split_into_words=True, truncation=True, max_length=school.knobs.max_length)
        word_of = [-1 if word is None else word for word in read.word_ids()]
        first = [word >= 0 and word != before for before, word in zip([-1, *word_of], word_of, strict=False)]
        labels = [tags[word] if is_first else NO_LABEL for is_first, word in zip(first, word_of, strict=True)]
        found.append({"input_ids": read["input_ids"], "attention_mask": read["attention_mask"], "labels": labels})
    return found


def by_sentence_transformers(school: School, seed: int) -> tuple[Path, Lap]:
    """Train an embedder by sentence-transformers' own distillation: the teacher's vectors are computed once, and the
    student learns them by their squared difference (Reimers and Gurevych 2020, arXiv:2004.09813)."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MSELoss
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    rows, started = school.split("train"), school.save(school.start(school.load_teacher(), seed), f"start-{seed}")
    texts = [*rows.texts, *(rows.pairs or [])]

    def embedder(folder: Path) -> Any:
        encoder = Transformer(
            str(folder), model_kwargs={"dtype": torch.float32}, max_seq_length=school.knobs.max_length
        )
        return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension()), Normalize()])

    with timed() as lap:
        vectors = embedder(school.teacher).encode(texts, batch_size=school.knobs.batch_size, show_progress_bar=False)
        student = embedder(started)
        SentenceTransformerTrainer(
            model=student,
            args=SentenceTransformerTrainingArguments(
                str(school.scratch / f"trainer-{seed}"),
                **settings_of(school, seed, 2 if rows.pairs else 1),
                bf16=is_faster_in_bf16(torch.device("cpu")),
            ),
            train_dataset=Dataset.from_dict({"sentence": texts, "label": vectors.tolist()}),
            loss=MSELoss(student),
        ).train()
    made = shutil.copytree(started, school.scratch / f"theirs-{seed}")
    student.transformers_model.save_pretrained(made)
    shutil.copy(started / "config.json", made)  # with what it states of its pooling
    return made, lap


BESIDE_IT = "a Trainer, its teacher beside it"
OF_VECTORS = Peer("sentence-transformers' distillation", by_sentence_transformers)
PEERS = {
    "seq2seq": Peer("a Seq2SeqTrainer, its teacher beside it", beside_teacher(pairs_of_sentences, divergence_from)),
    "next-words": Peer(BESIDE_IT, beside_teacher(blocks_of_words, partial(divergence_from, shifts=True))),
    "tokens": Peer(BESIDE_IT, beside_teacher(tagged_words, divergence_from)),
    "spans": Peer(BESIDE_IT, beside_teacher(windows_with_ends, divergence_at_ends)),
    "embedding": OF_VECTORS,
    "retrieval": OF_VECTORS,
}
