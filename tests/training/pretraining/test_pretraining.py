"""Pretraining on pairs of segments: what it reads and saves, that a stopped one ends with the same bytes, and when it
stops."""

from __future__ import annotations

import json
import signal
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from tasks.architectures.albert import SHARING, is_copied_part
from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.ports.rows.document_files import write_documents
from tasks.recipe.training import Pretraining
from tasks.training.data.rows import load_tokenizer
from tasks.training.jobs import JOBS
from tasks.training.models.students import set_dropout
from tasks.training.pretraining.encoders import HEAD_DROPOUT, load_pretrained, new_albert, new_encoder
from tasks.training.pretraining.held_documents import HeldCounts, HeldDocuments, RiseWatch
from tasks.training.pretraining.pair_batches import PairReader
from tasks.training.pretraining.pretrain import make_lamb
from tasks.training.pretraining.sentences import DividedCorpus, read_divided
from tests.forked import OFTEN, ForkedJob, wait_for_checkpoint
from tests.methods.oracles import Oracle, reads

CPU = torch.device("cpu")
WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "unbelievable"]
TINY: dict[str, Any] = {
    "layers": 2,
    "hidden": 16,
    "heads": 2,
    "feed_forward": 32,
    "vocabulary": 100,
    "max_length": 24,
    "steps": 6,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "evaluations": 2,
    "precision": "fp32",
}
ALBERT = {**TINY, "family": "albert", "share": "all", "embedding": 8, "ngrams": 3}


def run(name: str, knobs: dict[str, Any], output: Path, **inputs: Path) -> dict[str, Any]:
    output.mkdir(exist_ok=True)
    given = {key: str(folder) for key, folder in inputs.items()}
    order: Any = {"job": name, "knobs": knobs, "inputs": given, "output": str(output), "threads": 1}
    return JOBS[name](Job(order, silent=True))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A vocabulary, and a corpus of 60 documents, of which every sixth has one sentence."""
    root, random = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    documents = [
        " ".join(f"{' '.join(random.choice(WORDS, 5)).capitalize()}." for _ in range(number % 6 + 1))
        for number in range(60)
    ]
    (root / "documents").mkdir()
    write_documents(root / "documents", documents)
    run("learn-vocabulary", {"vocabulary": 60}, root / "vocabulary", documents=root / "documents")
    knobs = {"max_tokens": 100_000}
    facts = run("sentences", knobs, root / "sentences", documents=root / "documents", base=root / "vocabulary")
    assert facts["documents"] == 50 and facts["documents_left_out"] == 10 and facts["sentences"] == 200
    assert "full stop" in facts["sentence_end"]
    return {"vocabulary": root / "vocabulary", "corpus": root / "sentences"}


def knobs_of(**values: Any) -> dict[str, Any]:
    return Pretraining.model_validate(values).model_dump(mode="json")


def reader_of(corpus: dict[str, Path], **values: Any) -> PairReader:
    knobs = Pretraining.model_validate({**ALBERT, **values})
    return PairReader(read_divided(corpus["corpus"]), load_tokenizer(corpus["vocabulary"]), knobs, CPU)


def digest(folder: Path) -> str:
    return sha256((folder / "output" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_or_killed_pretraining_ends_with_the_same_bytes(
    corpus: dict[str, Path], tmp_path: Path, sent: signal.Signals
) -> None:
    def start(folder: Path) -> ForkedJob:
        order = {
            "job": "pretrain-encoder",
            "knobs": knobs_of(
                **{**ALBERT, "steps": 120, "order": "sop", "evaluations": 12, "checkpoint_minutes": OFTEN}
            ),
            "inputs": {name: str(path) for name, path in corpus.items()},
            "output": str(folder / "output"),
            "checkpoints": str(folder / "checkpoints"),
            "threads": 1,
        }
        return ForkedJob(order, folder)

    assert start(tmp_path / "whole").events()[-1]["event"] == "result"
    stopped = start(tmp_path / "stopped")
    stopped.stdout.readline()  # the first evaluation, at step 10
    wait_for_checkpoint(tmp_path / "stopped")
    stopped.send_signal(sent)
    said = stopped.events()
    ended = bool(said) and said[-1]["event"] == "error" and said[-1]["kind"] == "Interrupted"
    assert ended == (sent == signal.SIGTERM) and not (tmp_path / "stopped" / "output" / "model.safetensors").exists()
    resumed = start(tmp_path / "stopped").events()
    assert resumed[0]["message"].startswith("resuming at step")
    assert digest(tmp_path / "stopped") == digest(tmp_path / "whole")


@pytest.mark.parametrize("order", ["sop", "nsp"])
def test_it_saves_a_plain_folder_with_both_heads(corpus: dict[str, Path], tmp_path: Path, order: str) -> None:
    values = {**ALBERT, "order": order, "share": "attention"} if order == "sop" else {**TINY, "order": order}
    facts = run("pretrain-encoder", knobs_of(**values), tmp_path / "model", **corpus)
    assert {"words", "sop", "nsp"} <= set(facts)
    assert (facts["held_documents"], facts["choosing_documents"]) == (2, 2)
    words, found = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not found["missing_keys"]
    model, found = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert {name.split(".")[0] for name in found["missing_keys"]} == {"classifier"}, "the pooler was learned"
    dropout = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert model.dropout.p == HEAD_DROPOUT and dropout <= {0.0, HEAD_DROPOUT}
    assert words.config.hidden_dropout_prob == 0 and words.config.attention_probs_dropout_prob == 0
    loaded = load_pretrained(tmp_path / "model", CPU, seed=0)
    assert sum(value.numel() for value in loaded.parameters()) == facts["parameters"], "copies are tied again"


def test_the_order_learns_on_from_an_encoder_of_words(corpus: dict[str, Path], tmp_path: Path) -> None:
    run("pretrain-encoder", knobs_of(**ALBERT), tmp_path / "words", **corpus)
    start = {**corpus, "start": tmp_path / "words"}
    run("pretrain-encoder", knobs_of(**{**ALBERT, "order": "sop", "learning_rate": 1e-9}), tmp_path / "order", **start)
    words, order = (load_pretrained(tmp_path / name, CPU, seed=0) for name in ("words", "order"))
    torch.testing.assert_close(words.state_dict(), order.state_dict(), rtol=0, atol=1e-6)


def test_nothing_is_dropped_out_and_masks_depend_on_the_step_alone(corpus: dict[str, Path]) -> None:
    reader = reader_of(corpus, order="sop")
    model = new_encoder(len(load_tokenizer(corpus["vocabulary"])), reader.knobs, CPU).train()
    set_dropout(model, 0.0)
    assert not any(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))
    epoch = reader.epoch(0)
    assert epoch.pairs is not None and epoch.tokens_S is None, "replaced tokens may be any of the vocabulary"
    first, again, other = (reader.batch(epoch.pairs, epoch.batches[0], [0, step]) for step in (5, 5, 6))
    assert first.ids_BT.equal(again.ids_BT) and not first.ids_BT.equal(other.ids_BT)
    specials = {reader.cls, reader.sep, reader.pad}
    assert not specials & set(first.targets_P.tolist())
    lengths_B, predicted_B = first.mask_BT.sum(1), torch.bincount(first.places_P // first.ids_BT.shape[1])
    budget_B = torch.tensor([max(1, round(0.15 * int(length))) for length in lengths_B])
    assert (predicted_B <= budget_B).all() and (predicted_B >= 1).all()
    assert first.segments_BT.amax(1).eq(1).all() and not first.segments_BT[:, 0].any()


def test_the_longest_text_without_n_grams_has_its_budget(corpus: dict[str, Path]) -> None:
    reader = reader_of(corpus, ngrams=0)
    epoch = reader.epoch(0)
    assert epoch.pairs is not None
    batch = reader.batch(epoch.pairs, epoch.batches[0], [0, 0])
    lengths_B, predicted_B = batch.mask_BT.sum(1), torch.bincount(batch.places_P // batch.ids_BT.shape[1])
    assert predicted_B.tolist() == [max(1, round(0.15 * int(length))) for length in lengths_B]


def test_documents_that_choose_are_reported_on_by_none_and_learned_by_none(corpus: dict[str, Path]) -> None:
    """Weights were chosen by the pairs on whose accuracies the stage reported."""
    reader = reader_of(corpus, order="nsp")
    sentences = reader.sentences
    parts = (sentences.reported_D2, sentences.choosing_D2, sentences.learned_D2)
    reported, choosing, learned = ({int(start) for start, _ in part} for part in parts)
    assert (len(reported), len(choosing), len(learned)) == (2, 2, 46) and len(reported | choosing | learned) == 50
    model = new_encoder(len(load_tokenizer(corpus["vocabulary"])), reader.knobs, CPU)
    scores, other = (HeldDocuments(model, reader, reader.knobs, part) for part in parts[:2])
    assert scores.counts("nsp", 64) == scores.counts("nsp", 64)
    assert 0.3 < scores.pairs("sop", 64).labels_N.mean() < 0.7
    tokens = [
        {int(start) for start in np.concatenate([found.first_N2, found.second_N2])[:, 0]}
        for found in (scores.pairs("sop", 64), other.pairs("sop", 64))
    ]
    assert tokens[0] and tokens[1] and not tokens[0] & tokens[1]


def test_a_model_that_knows_how_frequent_words_are_and_no_more_is_told(
    corpus: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of ten models pretrained in one run two were such, which only the figures of the others told."""
    reader = reader_of(corpus, order="none")
    model = new_encoder(len(load_tokenizer(corpus["vocabulary"])), reader.knobs, CPU)
    held = HeldDocuments(model, reader, reader.knobs, reader.sentences.reported_D2)
    frequent = held.counts("none", 512).targets.most_common(1)[0][0]
    with torch.no_grad():
        model.predictions.bias.fill_(-100.0)[frequent] = 100.0
    facts = held.facts()
    assert facts["words"] == facts["most_frequent_word"] and facts["knows_frequencies_alone"]
    half = HeldCounts(words=100, right_words=50, targets=Counter({1: 30, 2: 70}))
    assert half.most_frequent == 70 and half.knows_frequencies_alone
    assert HeldCounts(words=100, right_words=80, targets=Counter({1: 70, 2: 30})).knows_frequencies_alone, "by chance"
    assert not HeldCounts(words=100, right_words=90, targets=Counter({1: 70, 2: 30})).knows_frequencies_alone
    said = list[str]()
    monkeypatch.setattr(Job, "log", lambda job, message: said.append(message))
    run("pretrain-encoder", knobs_of(**{**ALBERT, "learning_rate": 1e-9}), tmp_path / "model", **corpus)
    assert said[-1].startswith("it knows how frequent words are and no more: the most frequent one alone is right")


@pytest.mark.parametrize(
    ("count", "held"), [(1, 0), (2, 1), (7, 1), (8, 2), (39, 2), (40, 4), (79, 4), (80, 4), (800, 40)]
)
def test_few_documents_are_held_back_for_both_ends_where_there_are_some(count: int, held: int) -> None:
    documents_D2 = np.stack([np.arange(count), np.arange(count)], 1)
    divided = DividedCorpus(np.zeros(0), np.zeros(0), documents_D2)
    assert len(divided.reported_D2) == -(-held // 2) and len(divided.choosing_D2) == held // 2
    assert len(divided.learned_D2) == count - held


def test_a_corpus_with_one_held_document_reports_on_it_and_saves_the_last_weights(
    corpus: dict[str, Path], tmp_path: Path
) -> None:
    write_documents(tmp_path, [f"{word.capitalize()} alpha bravo. Charlie delta echo." for word in WORDS])
    divided = tmp_path / "divided"
    run("sentences", {"max_tokens": 1000}, divided, documents=tmp_path, base=corpus["vocabulary"])
    given = {"vocabulary": corpus["vocabulary"], "corpus": divided}
    facts = run("pretrain-encoder", knobs_of(**{**ALBERT, "order": "sop"}), tmp_path / "model", **given)
    assert (facts["held_documents"], facts["choosing_documents"]) == (1, 0) and {"words", "sop"} <= set(facts)
    assert "nsp" not in facts, "of one document there are no segments of two"
    assert "selection_score" not in facts


def test_a_rising_loss_stops_and_its_counts_are_in_checkpoints() -> None:
    watch = RiseWatch()
    for loss in (5.0, 4.0, 4.6, 4.7, 4.2, 4.6):
        watch.note_loss(loss)
    resumed = RiseWatch()
    resumed.load_state_dict(watch.state_dict())
    resumed.note_loss(4.6)
    with pytest.raises(ModelError, match=r"is 4\.60 and was 4\.00 before; the training diverges; lower"):
        resumed.note_loss(4.6)


def test_a_corpus_without_a_second_sentence_is_refused_with_the_rule(corpus: dict[str, Path], tmp_path: Path) -> None:
    write_documents(tmp_path, ["one sentence alone", "no capital. here"])
    with pytest.raises(DataError, match="no document of the corpus has two sentences.*a full stop"):
        run("sentences", {"max_tokens": 1000}, tmp_path / "out", documents=tmp_path, base=corpus["vocabulary"])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"optimizer": "lamb", "batch_size": 512}, "lamb is for batches of 1,024 and more, and batch_size is 512"),
        ({"optimizer": "lamb", "batch_size": 1024}, "set batch_tokens to 24,576"),
        ({"family": "bert", "share": None}, "embedding is a knob of ALBERT"),
        ({"share": "some"}, "share is 'some'; legal are all, none, attention, ffn, groups:N"),
        ({"share": "groups:3"}, "makes 3 groups of 2 layers"),
        ({"heads": 3}, "does not divide among 3 heads"),
        ({"embedding": 32}, r"embedding is 32, and the layers are 16 wide \(hidden\); give it at most 16"),
    ],
)
def test_knobs_that_cannot_work_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Pretraining.model_validate({**ALBERT, **values})


def test_lamb_has_the_papers_rate_for_its_batch_and_vectors_apart() -> None:
    large = {"optimizer": "lamb", "batch_tokens": 1_000_000, "max_length": 24}
    knobs = {batch: Pretraining(**large, batch_size=batch) for batch in (1024, 4096)}
    assert knobs[4096].learning_rate == 1.76e-3 and knobs[1024].learning_rate == 8.8e-4
    assert (knobs[1024].warmup, knobs[1024].eps, knobs[1024].evaluations) == (0.025, 1e-6, 20)
    assert Pretraining(**large, batch_size=4096, learning_rate=1e-3).learning_rate == 1e-3
    again = Pretraining.model_validate(json.loads(knobs[1024].model_dump_json()))
    assert again == knobs[1024], "as the engine gets them"
    model = new_albert(30, Pretraining.model_validate({**ALBERT, "share": "attention"}))
    matrices, vectors = make_lamb(model, knobs[1024]).param_groups
    assert matrices["adapted"] and not vectors["adapted"] and vectors["weight_decay"] == 0
    assert {value.ndim for value in vectors["params"]} == {1} and {value.ndim for value in matrices["params"]} == {2}
    maps = [value for value in matrices["params"] if value.shape == (16, 16)]
    assert len(maps) == 4 + 1, "attention is stored once; beside it the pooler"


def test_recipes_without_the_new_knobs_keep_their_keys() -> None:
    assert not {"family", "share", "embedding", "order", "ngrams", "optimizer"} & set(Pretraining().key_values())


@reads("albert", "parameters")
def test_a_new_albert_has_as_many_parameters_as_the_literature_says(oracle: Oracle) -> None:
    """In the shape of BERT-base with 30,000 words, encoder and pooler without heads."""
    base = {"layers": 12, "hidden": 768, "heads": 12, "feed_forward": 3072, "max_length": 512, "family": "albert"}
    for case in oracle.content["expected"]:
        knobs = Pretraining.model_validate({**base, "share": case["shared"], "embedding": case["embedding"]})
        with torch.device("meta"):
            model = new_albert(30_000, knobs)
        assert getattr(model.config, SHARING, None) in (None, case["shared"])
        assert sum(value.numel() for value in model.albert.parameters()) == case["parameters"]
        every = model.albert.named_parameters(remove_duplicate=False)
        once = sum(value.numel() for name, value in every if not is_copied_part(model.config.to_dict(), name))
        assert once == case["parameters"]
