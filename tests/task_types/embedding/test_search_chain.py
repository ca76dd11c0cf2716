"""An embedder for search through the whole chain: queries with the passages that answer them become a student that is
judged by the search itself, passes the gate, is registered and pulled, and finds as a plain user's search would."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from flows.api import pull
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tests.forked.interpreter import forked_processes
from tests.forked.strangers import ask_stranger
from tests.task_types.embedding.test_chain import recipe_for
from tests.task_types.shown.cards import snippets_of
from tests.tiny import WORDS

SEARCH = {
    "name": "search",
    "kind": "retrieval",
    "text": "query",
    "pair": "passage",
    "label": "right",
    "metrics": ["ndcg_at_10", "mrr_at_10", "recall_at_1"],
}
ONE_SEED = (("one", 1, [0]), ("two", 2, [0]))


def write_searches(folder: Path, count: int = 150) -> Path:
    """Write queries of three words with a passage that has them among others, and marks that say that it answers."""
    draw, rows = random.Random(0), list[tuple[str, str]]()
    for number in range(count):
        words = draw.sample(WORDS, 3)
        rows.append((" ".join([*words, str(number)]), " ".join([*draw.sample(WORDS, 4), *words, str(number)])))
    columns = {"query": [query for query, _ in rows], "passage": [passage for _, passage in rows]}
    write_table(folder / "train.parquet", {**columns, "right": [1] * count})
    return folder / "train.parquet"


def plain_gain(folder: Path, queries: list[str], passages: list[str]) -> float:
    """Return the nDCG@10 of a search for each query among all passages by cosines, of which one answers it."""
    there = sorted({*passages})
    asked_QD, found_PD = (
        np.asarray([one["embedding"] for one in predict_texts(folder, texts)]) for texts in (queries, there)
    )
    found_PD = found_PD / np.linalg.norm(found_PD, axis=1, keepdims=True)
    scores_QP = asked_QD @ found_PD.T
    own_Q1 = np.asarray([there.index(one) for one in passages])[:, None]
    ranks_Q = 1 + (scores_QP > np.take_along_axis(scores_QP, own_Q1, 1) + 1e-9).sum(1)
    return float(np.where(ranks_Q <= 10, 1 / np.log2(1 + ranks_Q), 0.0).mean())


@pytest.mark.slow
def test_an_embedder_for_search_is_distilled_judged_by_search_and_found_in_the_registry(
    prefect_server: None, engines_here: None, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").create()
    values = recipe_for(tiny_bert, write_searches(tmp_path), ONE_SEED, task=SEARCH)
    result = run_recipe(Recipe.model_validate(values), home=home, json_path=home.root / "out.json")
    models = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert {*models} == {"teacher", "one", "two", "top-2", "one-onnx", "one-int8"}
    for metrics in models.values():
        assert {*metrics} == {*SEARCH["metrics"]}
        assert metrics["ndcg_at_10"]["low"] <= metrics["ndcg_at_10"]["value"] <= metrics["ndcg_at_10"]["high"]
    assert models["one-onnx"]["ndcg_at_10"]["value"] == pytest.approx(models["one"]["ndcg_at_10"]["value"], abs=1e-3)
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1
    assert {entry["candidate"] for entry in result["registered"]} >= {"one", "two", "top-2"}
    rows = read_split(next(home.root.rglob("validation.parquet")).parent, "validation")
    queries, passages = rows.texts[::2], rows.texts[1::2]
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    for candidate in ("one", "two"):
        entry = next(one for one in result["registered"] if one["candidate"] == candidate)
        with forked_processes():
            folder = pull(f"{entry['name']}@{entry['version']}", tmp_path / candidate)
        expected = models[candidate]["ndcg_at_10"]["value"]
        assert plain_gain(folder, queries, passages) == pytest.approx(expected, abs=1e-6)
        assert 0.0 < expected < 1.0
        vector = predict_texts(folder, ["some text"])[0]["embedding"]
        # of the checkpoint, and where it has graphs, of the fastest one, in int8
        for place, snippet in enumerate(snippets_of(folder, 2 if candidate == "one" else 1)):
            done = ask_stranger(snippet, folder=tmp_path)
            assert done.returncode == 0, snippet + done.stderr[-2000:]
            printed = json.loads(done.stdout)
            assert float(np.dot(printed, vector)) > (0.99 if place else 1 - 1e-6), snippet
    page = next(home.root.rglob("report.html")).read_text()
    assert all(f"{models[name]['ndcg_at_10']['value']:.3f}" in page for name in ("one", "two"))
    assert ">None<" not in page
