"""BLEU, chrF and ROUGE: the figures of the programs that the literature uses, several true texts, and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from tasks.metrics.definition import SumMetric
from tasks.metrics.of_texts import (
    BETWEEN_REFERENCES,
    BLEU,
    CHRF,
    ROUGE_1,
    ROUGE_2,
    ROUGE_L,
    ROUGE_LSUM,
    bleu_of_sentence,
    chrf_of_sentences,
    signature_of_bleu,
)
from tasks.task_types.answers import ANSWERS
from tests.methods.oracles import Oracle, reads

OURS = np.asarray(["a man stands on a ladder", "two dogs play", "", "the the the the"])
TRUE = np.asarray(["a man is on a ladder", "two dogs are playing", "nothing", "the cat sat on the mat"])


@reads("task_metrics", "sacrebleu")
def test_bleu_and_chrf_are_those_of_sacrebleu(oracle: Oracle) -> None:
    case, wanted = oracle.content, oracle.content["expected"]
    ours, truth = np.asarray(case["hypotheses"]), np.asarray(case["references"])
    assert 100 * BLEU(ours, truth) == pytest.approx(wanted["bleu"], abs=1e-9)
    assert 100 * CHRF(ours, truth) == pytest.approx(wanted["chrf"], abs=1e-9)
    assert signature_of_bleu(truth) == wanted["signature"]
    sums_NK = BLEU.parts(ours, truth)
    assert sums_NK.sum(0).tolist() == [wanted["sys_len"], wanted["ref_len"], *wanted["counts"], *wanted["totals"]]
    for found, row in zip(sums_NK.tolist(), wanted["sentence_counts"], strict=True):
        assert found == [row["sys_len"], row["ref_len"], *row["counts"], *row["totals"]]


@reads("task_metrics", "rouge")
def test_rouge_is_that_of_rouge_score(oracle: Oracle) -> None:
    case = oracle.content
    for name, metric in (("rouge1", ROUGE_1), ("rouge2", ROUGE_2), ("rougeL", ROUGE_L), ("rougeLsum", ROUGE_LSUM)):
        found_N = metric.parts(np.asarray(case["hypotheses"]), np.asarray(case["references"]))[:, 0]
        assert found_N.tolist() == pytest.approx([row[name] for row in case["expected"]["stemmed"]], abs=1e-9)


def test_a_corpus_is_no_mean_of_its_sentences() -> None:
    assert 100 * BLEU(OURS, TRUE) == pytest.approx(corpus_bleu(OURS.tolist(), [TRUE.tolist()]).score)
    assert 100 * CHRF(OURS, TRUE) == pytest.approx(corpus_chrf(OURS.tolist(), [TRUE.tolist()]).score)
    alone_N = chrf_of_sentences(OURS, TRUE)
    assert alone_N[2] == 0 and abs(alone_N.mean() - CHRF(OURS, TRUE)) > 1e-3
    assert bleu_of_sentence("two dogs play", ["two dogs play"]) == pytest.approx(1)


def test_the_best_of_several_true_texts_counts() -> None:
    several = np.asarray([f"something else{BETWEEN_REFERENCES}{one}" for one in TRUE])
    assert ROUGE_L(OURS, several) == ROUGE_L(OURS, TRUE) > ROUGE_L(OURS, np.asarray(["something else"] * 4))
    mixed = np.asarray([several[0], *TRUE[1:]])
    streams = [TRUE.tolist(), ["something else", None, None, None]]
    assert 100 * BLEU(OURS, mixed) == pytest.approx(corpus_bleu(OURS.tolist(), streams).score)


def test_the_signature_states_how_many_true_texts_there_were() -> None:
    """It said one of texts that were judged beside several, so that the figure seemed comparable with others."""
    two, mixed = ([f"{one}{BETWEEN_REFERENCES}other" for one in TRUE], [TRUE[0], f"{TRUE[1]}{BETWEEN_REFERENCES}other"])
    found = [signature_of_bleu(np.asarray(truth)).partition("|")[0] for truth in (TRUE, two, mixed)]
    assert found == ["nrefs:1", "nrefs:2", "nrefs:var"]
    assert str(ANSWERS["seq2seq"].alone({"answer": OURS}, np.asarray(two), 10)["signature"]).startswith("nrefs:2|")


def test_words_that_both_texts_repeat_count_as_often_as_both_have_them() -> None:
    """By hand: a line of the true text finds its words in either of our lines; its second "was" finds none."""
    ours, truth = np.asarray(["it was red\nit was new"]), np.asarray(["red it was\nnew was it was"])
    # "it was" of either line of the true text: 4 of 6 and of 7 words
    assert ROUGE_LSUM(ours, truth) == pytest.approx(2 * 4 / 13)
    assert ROUGE_1(np.asarray(["running runs"]), np.asarray(["run run"])) == 1
    assert ROUGE_1(np.asarray(["!?"]), np.asarray(["a b"])) == ROUGE_2(np.asarray(["a"]), np.asarray(["a"])) == 0


@pytest.mark.parametrize("metric", [BLEU, CHRF, ROUGE_L], ids=["bleu", "chrf", "rouge_l"])
def test_a_resample_is_the_figure_of_the_drawn_rows(metric: SumMetric) -> None:
    """The bootstrap weighs sums of rows; it must find what the drawn sentences have together."""
    drawn = [0, 0, 3, 1]
    weights_RN = np.asarray([np.bincount(drawn, minlength=4), [1, 1, 1, 1], [0, 0, 0, 0]], dtype=float)
    one, whole, nothing = metric.weighted(OURS, TRUE, weights_RN)
    assert one == pytest.approx(metric(OURS[drawn], TRUE[drawn]), abs=1e-12)
    assert whole == pytest.approx(metric(OURS, TRUE), abs=1e-12) and nothing == 0
