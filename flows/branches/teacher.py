"""The pretrained model of a run, its fine-tuned teacher, and the further teachers of an ensemble."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tasks.contracts import Artifact
from tasks.finetune_teacher import finetune_teacher
from tasks.gate.floor import require_floor
from tasks.ports.store.artifacts import Store
from tasks.preflight import layers_of, whole
from tasks.prepare_corpus import divide_corpus, learn_vocabulary, pretrain_base, pretrain_encoder
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import PretrainingOfText, SentencesSlice, TeacherSlice, VocabularyOfCorpus
from tasks.recipe.training import Colleague, Pretraining, Teacher
from tasks.results.facts import ModelFacts
from tasks.stage.session import current_session


async def pretrained_base(recipe: Recipe, sources: dict[str, Artifact]) -> Artifact:
    """Return the pretrained model from which the teacher and the students start."""
    if recipe.pretraining is None:
        return sources["teacher"]
    if not reads_pairs(recipe.pretraining):
        column = recipe.corpus.text if recipe.corpus else "text"
        return await pretrain_base(PretrainingOfText(**dict(recipe.pretraining), text=column), source=sources["corpus"])
    return await pretrain_encoder(recipe.pretraining, **await text_of_pretraining(recipe, sources["corpus"]))


def reads_pairs(knobs: Pretraining) -> bool:
    """Tell whether a pretraining reads pairs of segments of documents; otherwise it reads pieces of text, and masks one
    token at a time."""
    return (knobs.family, knobs.order, knobs.ngrams, knobs.optimizer) != ("bert", "none", 0, "adamw")


async def text_of_pretraining(recipe: Recipe, source: Artifact) -> dict[str, Artifact]:
    """Return the vocabulary of a recipe's pretraining, and its corpus divided into sentences with it."""
    assert recipe.pretraining is not None and recipe.corpus is not None
    text = recipe.corpus
    of_words = VocabularyOfCorpus(text=text.text, vocabulary=recipe.pretraining.vocabulary)
    vocabulary = await learn_vocabulary(of_words, source=source)
    sentences = SentencesSlice(text=text.text, max_tokens=text.max_tokens)
    return {"vocabulary": vocabulary, "corpus": await divide_corpus(sentences, source=source, base=vocabulary)}


def layers_of_teacher(recipe: Recipe, store: Store, sources: Mapping[str, Artifact]) -> int:
    """Return the number of the teacher's layers, which a plan knows before the teacher is there."""
    if recipe.pretraining is not None:
        return recipe.pretraining.layers
    return layers_of(json.loads((store.folder(sources["teacher"]) / "config.json").read_text()))


def vocabulary_of_teacher(recipe: Recipe, store: Store, sources: Mapping[str, Artifact]) -> int | None:
    """Return the number of words among which the teacher answers, at most; None if its config does not state it."""
    if recipe.pretraining is not None:
        return recipe.pretraining.vocabulary
    found = json.loads((store.folder(sources["teacher"]) / "config.json").read_text()).get("vocab_size")
    return found if isinstance(found, int) else None


def width_and_heads_of_teacher(recipe: Recipe, store: Store, base: Artifact) -> tuple[int, int]:
    """Return the teacher's width and its number of attention heads; it has those of its pretrained base."""
    if recipe.pretraining is not None:
        return recipe.pretraining.hidden, recipe.pretraining.heads
    config = json.loads((store.folder(base) / "config.json").read_text())
    return whole(config, "hidden"), whole(config, "heads")


async def good_teacher(recipe: Recipe, rows: Artifact, base: Artifact) -> Artifact:
    """Fine-tune the teacher; raise GateError if it is no better than guessing."""
    knobs = TeacherSlice(**dict(recipe.teacher), task_type=recipe.spec.kind)
    teacher = await finetune_teacher(knobs, rows=rows, base=base)
    hold_against_floor(knobs, teacher, recipe.spec.headline)
    return teacher


def hold_against_floor(knobs: TeacherSlice, teacher: Artifact, headline: str) -> None:
    """Raise GateError for a teacher below its floor, and warn on the run's page and in the terminal if its rows are too
    few to tell. A plan does not warn, and does not check a teacher that is not scored yet."""
    doubt = require_floor(knobs, teacher.read(ModelFacts), headline) if teacher.facts else ""
    if doubt and not current_session().planning:
        from prefect.logging import get_run_logger

        get_run_logger().warning(doubt)
        if (watcher := current_session().watcher) is not None:
            watcher.note(f"warning: {doubt}")


async def colleague(recipe: Recipe, knobs: Colleague, rows: Artifact, base: Artifact, number: int) -> Artifact:
    """Fine-tune one more teacher of an ensemble; each must reach its floor."""
    shared = {name: value for name, value in dict(knobs).items() if name in Teacher.model_fields}
    own = TeacherSlice(**shared, task_type=recipe.spec.kind)
    teacher = await finetune_teacher(own, rows=rows, base=base, label=f"teacher {number}")
    hold_against_floor(own, teacher, recipe.spec.headline)
    return teacher
