"""Embedding and retrieval: a table becomes a pulled folder whose vectors are those that were judged, for transformers,
for sentence-transformers and for ONNX Runtime.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from flows.api import pull
from flows.cli.runner import run_recipe
from flows.home import Home
from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import read_facts, read_split
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice, TeacherSlice
from tasks.task_types.answers import ANSWERS
from tasks.task_types.heads import HEADS
from tasks.training.finetune import finetune
from tests.forked.interpreter import forked_processes
from tests.forked.strangers import ask_stranger
from tests.methods.oracles import Oracle, reads
from tests.tiny import WORDS

HERE = np.random.default_rng(5)
TASK = {"name": "sts", "kind": "embedding", "text": "a", "pair": "b", "label": "similarity"}
FAST = {"steps": 4, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}


def recipe_for(
    bert: Path, source: Path, sizes: Sequence[tuple[str, int, list[int]]] = (("one", 1, [0, 1]),), **changes: Any
) -> dict[str, Any]:
    """Return a recipe of every stage that asks the task type."""
    return {
        "name": "sts",
        "task": TASK,
        "data": {"source": str(source), "selection_rows": 12, "validation_share": 0.3, "purge": False},
        "teacher": {"model": str(bert), "already_finetuned": True, "floor": -1.0, "max_length": 16},
        "task_distillation": {"prediction": FAST},
        "students": [
            {"name": name, "layers": layers, "start": "teacher", "stages": [], "seeds": seeds}
            for name, layers, seeds in sizes
        ],
        "layer_dropping": {**FAST, "strategies": ["top"], "drop": [2], "signal": "teacher"},
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": {"parity_rows": 8, "formats": ["onnx", "int8"], "of": ["one"], "tolerance": 2.0},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "parameters", "at_most": 1e9}],
            "leakage": 1.0,
            "register_as": "embedder",
        },
        "resources": {"cores": 2, "threads_alone": 1},
        **changes,
    }


def write_pairs(folder: Path, count: int = 120) -> Path:
    """Write pairs of texts with the number of words that they share."""
    lines = ["a,b,similarity"]
    for number in range(count):
        first, second = ([WORDS[(number * step + step * place) % len(WORDS)] for place in range(4)] for step in (1, 3))
        shared = (len(set(first) & set(second)) + number % 3) / 4
        lines.append(f"{' '.join(first)} {number},{' '.join(second)} {number},{shared}")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return folder / "pairs.csv"


def write_searches(folder: Path, count: int = 60) -> Path:
    """Write queries, each with a passage that has its words among others."""
    lines = ["query,passage,label"]
    for number in range(count):
        asked, more = ([WORDS[(number * step + place) % len(WORDS)] for place in range(3)] for step in (7, 3))
        lines.append(f"{' '.join(asked)} {number},{' '.join([*more, *asked])} {number},1")
    (folder / "searches.csv").write_text("\n".join(lines) + "\n")
    return folder / "searches.csv"


# --- metrics ----------------------------------------------------------------------------------------------------------


def outputs_of(queries_PD: np.ndarray, passages_PD: np.ndarray) -> dict[str, np.ndarray]:
    """Return the vectors of pairs, text and second text one after the other."""
    return {"sentence_embedding": np.stack([queries_PD, passages_PD], 1).reshape(-1, queries_PD.shape[1])}


def test_the_cosine_of_a_pair_is_the_prediction_of_both_of_its_rows() -> None:
    found = ANSWERS["embedding"].decide(outputs_of(np.asarray([[3.0, 4], [1, 0]]), np.asarray([[4.0, 3], [0, 2]])))
    assert found.tolist() == pytest.approx([0.96, 0.96, 0, 0])
    with pytest.raises(DataError, match="3 texts are no pairs of texts; name the column of second texts by task.pair"):
        ANSWERS["embedding"].decide({"sentence_embedding": np.ones((3, 2))})


def test_correlations_of_rows_are_those_of_pairs() -> None:
    """Every pair stands twice, which must not change a correlation."""
    cosine_P, score_P = HERE.normal(size=(2, 50))
    for metric in ANSWERS["embedding"].metrics.values():
        assert metric(np.repeat(cosine_P, 2), np.repeat(score_P, 2)) == pytest.approx(metric(cosine_P, score_P))


def test_a_teacher_is_judged_by_the_number_of_its_pairs(tiny_bert: Path, tmp_path: Path) -> None:
    """Each pair is two rows of a text, of which intervals must not be told that they are independent."""
    knobs = RowsSlice(task=TaskSpec(**TASK), selection_rows=12, validation_share=0.3, purge=False)
    facts = prepare_rows(write_pairs(tmp_path), knobs, tmp_path / "rows")
    teacher = TeacherSlice(task_type="embedding", already_finetuned=True, max_length=16, precision="fp32")
    inputs = {"rows": str(tmp_path / "rows"), "base": str(tiny_bert)}
    folders = {"output": str(tmp_path / "output"), "checkpoints": str(tmp_path / "checkpoints")}
    job = Job({"job": "finetune", "knobs": teacher.model_dump(mode="json"), "inputs": inputs, **folders}, silent=True)
    job.output.mkdir()
    assert finetune(job)["selection_count"] == facts.rows["selection"] == 12


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_ranks_are_those_of_a_search_over_different_passages(noise: float) -> None:
    """Passages that stand in several rows are searched once, also if their vectors were computed in other batches."""
    passages_UD, of_P = HERE.normal(size=(20, 8)), HERE.integers(0, 20, 60)
    queries_PD = HERE.normal(size=(60, 8))
    passages_PD = passages_UD[of_P] + noise * HERE.normal(size=(60, 8))
    found = ANSWERS["retrieval"].decide(outputs_of(queries_PD, passages_PD))[::2]
    units_UD = passages_UD / np.linalg.norm(passages_UD, axis=1, keepdims=True)
    scores_PU = queries_PD @ units_UD[np.unique(of_P)].T
    place_P = np.searchsorted(np.unique(of_P), of_P)
    assert found.tolist() == [1 + int((row > row[place]).sum()) for row, place in zip(scores_PU, place_P, strict=True)]


def test_a_model_that_gives_all_texts_one_vector_finds_nothing() -> None:
    """Of equal vectors it cannot be told that they are of one passage; and a passage as near as another is not found
    before it."""
    one_PD, other_PD = np.ones((30, 4)), HERE.normal(size=(30, 4))
    for queries_PD, passages_PD in ((one_PD, one_PD), (other_PD, one_PD), (one_PD, other_PD)):
        assert set(ANSWERS["retrieval"].decide(outputs_of(queries_PD, passages_PD))) == {30.0}
    doubled_PD = np.asarray([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    away_PD = np.asarray([[1.0, 0.5, 0], [1.0, -0.5, 0], [0, 1.0, 1.0]])
    asked_PD = doubled_PD + np.asarray([[0, 0, 0], [0, 0, 0.1], [0, 0, 0]])
    assert ANSWERS["retrieval"].decide(outputs_of(asked_PD, away_PD))[::2].tolist() == [2, 2, 1]


def test_a_model_that_gives_some_texts_one_vector_finds_none_of_them() -> None:
    """Nine in ten pairs with one vector: each passage would be the one that every such query asks for."""
    queries_PD, passages_PD = HERE.normal(size=(400, 16)), HERE.normal(size=(400, 16))
    queries_PD[:360], passages_PD[:360] = 1.0, 1.0
    found = ANSWERS["retrieval"].decide(outputs_of(queries_PD, passages_PD))
    assert found[:720].min() >= 360
    assert ANSWERS["retrieval"].metrics["ndcg_at_10"](found, np.ones(800)) < 0.05


def test_another_passage_of_the_same_query_does_not_count_against_the_first() -> None:
    query, better, good = np.asarray([1.0, 0, 0]), np.asarray([1.0, 0.1, 0]), np.asarray([1.0, 0.3, 0])
    other, away = np.asarray([0, 1.0, 0]), np.asarray([0, 0, 1.0])
    outputs = outputs_of(np.stack([query, query, other]), np.stack([better, good, away]))
    assert ANSWERS["retrieval"].decide(outputs)[::2].tolist() == [1, 1, 3]


def test_metrics_of_ranks_are_scikit_learns() -> None:
    from sklearn.metrics import ndcg_score

    scores_QU, right_Q = HERE.normal(size=(40, 30)), HERE.integers(0, 30, 40)
    truth_QU = np.eye(30)[right_Q]
    ranks_Q = 1 + (scores_QU > np.take_along_axis(scores_QU, right_Q[:, None], 1)).sum(1)
    metrics, ones_Q = ANSWERS["retrieval"].metrics, np.ones(40)
    assert metrics["ndcg_at_10"](ranks_Q, ones_Q) == pytest.approx(ndcg_score(truth_QU, scores_QU, k=10), abs=1e-9)
    assert metrics["mrr_at_10"](ranks_Q, ones_Q) == pytest.approx(np.where(ranks_Q <= 10, 1 / ranks_Q, 0).mean())
    for places in (1, 10, 100):
        assert metrics[f"recall_at_{places}"](ranks_Q, ones_Q) == pytest.approx((ranks_Q <= places).mean())


@reads("task_metrics", "ranking")
def test_metrics_of_ranks_are_the_oracles(oracle: Oracle) -> None:
    """The oracle's queries with one passage; that with three is one unit a passage here (``of_ranks.py``)."""
    case, compared = oracle.content, 0
    for number, (truth, scores) in enumerate(zip(case["relevance"], case["scores"], strict=True)):
        if sum(truth) == 1:
            rank = np.asarray([1.0 + sum(score > scores[truth.index(1)] for score in scores)])
            for ours, theirs in (("ndcg_at_10", "ndcg10"), ("mrr_at_10", "mrr10")):
                found = ANSWERS["retrieval"].metrics[ours](rank, np.ones(1))
                assert found == pytest.approx(case["expected"][theirs][number], abs=1e-9)
            compared += 1
    assert compared == 2


def test_rows_marked_zero_are_searched_and_not_counted() -> None:
    metric = ANSWERS["retrieval"].metrics["recall_at_1"]
    assert metric(np.asarray([1.0, 5.0]), np.asarray([1.0, 0.0])) == 1.0
    assert metric(np.asarray([1.0, 5.0]), np.asarray([0.0, 0.0])) == 0.0


def test_a_passage_that_is_marked_zero_competes_for_its_own_query(tmp_path: Path) -> None:
    """Stored with its query, it would be taken for one of the query's answers, and a model that puts it first would
    lose nothing. In training rows the query stays: its vector is learned."""
    lines = ["a,b,similarity"]
    for number in range(30):
        lines += [f"query {number},answer {number},1", f"query {number},trap {number},0"]
    for split in ("train", "validation"):
        (tmp_path / f"{split}.csv").write_text("\n".join(lines) + "\n")
    prepare_rows(tmp_path, RowsSlice(task=SEARCH, selection_rows=0, purge=False), tmp_path / "rows")  # type: ignore[arg-type]
    rows = read_split(tmp_path / "rows", "validation")
    assert rows.texts[:4] == ["query 0", "answer 0", "trap 0", "trap 0"] and rows.labels[:4] == [1, 1, 0, 0]
    assert read_split(tmp_path / "rows", "train").texts.count("query 0") == 2
    drawn = np.random.default_rng(0)
    near = {text: drawn.normal(size=8) for text in rows.texts if text.startswith("query")}
    near |= {text.replace("query", "trap"): vector + 0.1 * drawn.normal(size=8) for text, vector in near.items()}
    answer = drawn.normal(size=8)  # far from every query, whose trap is near
    vectors = [near.get(text, answer) for text in rows.texts]
    found = ANSWERS["retrieval"].decide({"sentence_embedding": np.stack(vectors)})
    assert (
        found[rows.labels_N > 0].min() >= 2 and ANSWERS["retrieval"].metrics["recall_at_1"](found, rows.labels_N) == 0
    )
    assert set(found[rows.labels_N == 0]) == {0.0}, "and such rows say nothing of whether two models agree"
    assert ANSWERS["retrieval"].agreement(found, np.where(rows.labels_N > 0, 9.0, 0.0)) == 0.0


# --- rows -------------------------------------------------------------------------------------------------------------


def test_both_texts_of_a_pair_are_rows_of_one_group(tmp_path: Path) -> None:
    """Intervals that drew texts one by one would be too narrow."""
    knobs = RowsSlice(task=TASK, selection_rows=12, validation_share=0.3, purge=False)  # type: ignore[arg-type]
    facts = prepare_rows(write_pairs(tmp_path), knobs, tmp_path / "rows")
    rows = read_split(tmp_path / "rows", "validation")
    assert facts.rows["validation"] * 2 == len(rows) and rows.pairs is None
    assert rows.groups_N is not None and (rows.groups_N[::2] == rows.groups_N[1::2]).all()
    assert rows.labels[::2] == rows.labels[1::2]
    assert [one.split()[-1] for one in rows.texts[::2]] == [one.split()[-1] for one in rows.texts[1::2]]
    assert not read_facts(tmp_path / "rows").pairs


def test_training_pairs_need_no_score(tmp_path: Path) -> None:
    lines = ["a,b,similarity", *(f"the film {number},a meal {number}," for number in range(60))]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    held = ["a,b,similarity", *(f"a song {number},the song {number},{number}" for number in range(30))]
    (tmp_path / "validation.csv").write_text("\n".join(held) + "\n")
    prepare_rows(tmp_path, RowsSlice(task=TASK, selection_rows=0), tmp_path / "rows")  # type: ignore[arg-type]
    assert len(read_split(tmp_path / "rows", "train")) == 120
    assert all(math.isnan(label) for label in read_split(tmp_path / "rows", "train").labels)


SEARCH, HEAD = TASK | {"kind": "retrieval"}, "a,b,similarity"
HOSTILE = {
    "no score where pairs judge": (TASK, HEAD, "film {0},meal {0},", "have no score, and judge nothing"),
    "one score for all": (TASK, HEAD, "film {0},meal {0},1", "have the score 1, so none is more similar"),
    "a score in words": (TASK, HEAD, "film {0},meal {0},high", "the score 'high' is not a number"),
    "an endless score": (TASK, HEAD, "film {0},meal {0},inf", "the score is inf; give a finite number"),
    "an empty text": (TASK, HEAD, ",meal {0},{0}", "the text in column 'a' is empty"),
    "an empty second text": (TASK, HEAD, "film {0},,{0}", "the text in column 'b' is empty"),
    "no column of second texts": (TASK, "a,c,similarity", "film {0},meal,{0}", "no pair column 'b'"),
    "another name of the score": (TASK, "a,b,score", "film {0},meal {0},{0}", "no label column 'similarity'"),
    "a grade as a mark": (SEARCH, HEAD, "film {0},meal {0},3", "the mark 3 is neither 1"),
    "no passage that answers": (SEARCH, HEAD, "film {0},meal {0},0", "split answers its query"),
}


@pytest.mark.parametrize("harm", HOSTILE)
def test_a_hostile_table_is_one_sentence(harm: str, tmp_path: Path) -> None:
    task, head, line, sentence = HOSTILE[harm]
    (tmp_path / "rows.csv").write_text("\n".join([head, *(line.format(number) for number in range(60))]) + "\n")
    with pytest.raises(DataError, match=sentence) as refused:
        prepare_rows(tmp_path / "rows.csv", RowsSlice(task=task, selection_rows=6), tmp_path / "rows")  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"teacher": {"model": "x"}}, "teacher.already_finetuned: true, and name a model whose vectors are good"),
        ({"task": {"name": "sts", "kind": "embedding"}}, "task.pair names no column"),
        ({"students": [{"name": "alone", "layers": 2, "signal": "labels"}]}, "alone would be trained on labels"),
        (
            {"task_distillation": {"prediction": FAST | {"hard_weight": 1}}},
            r"task_distillation.prediction gives labels a weight \(hard_weight: 1\), and labels of type embedding",
        ),
        (
            {"layer_dropping": {**FAST, "drop": [1], "signal": "teacher", "hard_weight": 0.5}},
            r"top-1 gives labels a weight \(hard_weight: 0.5\)",
        ),
        (
            {"task_distillation": {"intermediate": {"method": "replacing"}, "prediction": FAST}},
            r"task_distillation replaces layers with the loss on the label of each text \(method: replacing\), and "
            "labels of type embedding are those of pairs",
        ),
        (
            {"candidates": [{"name": "thin", "from": "teacher", "by": "neuron-pruning", "keep": 0.5}]},
            r"thin keeps what changes the loss on labels \(importance: taylor\), and labels of type embedding judge",
        ),
        ({"task": TASK | {"metrics": ["accuracy"]}}, "legal are spearman, pearson"),
    ],
)
def test_a_recipe_that_would_learn_labels_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        Recipe.model_validate(recipe_for(tmp_path, tmp_path, **changes))


def test_the_usual_weight_of_labels_is_not_read(tmp_path: Path) -> None:
    """A recipe that names none has it, and may have been written out with it."""
    import torch

    for weight in ({}, {"hard_weight": 0.1}, {"hard_weight": 0.0}):
        Recipe.model_validate(recipe_for(tmp_path, tmp_path, task_distillation={"prediction": FAST | weight}))
    ours, theirs = ({"sentence_embedding": torch.randn(4, 3)} for _ in range(2))
    losses = [
        HEADS["embedding"].teacher_loss(
            ours, theirs, torch.full((4,), torch.nan), temperature=1.0, hard_weight=weight, formula="default"
        )
        for weight in (0.0, 0.1)
    ]
    assert losses[0].mean() == losses[1].mean() > 0


def test_a_starter_recipe_takes_scored_pairs_for_an_embedder_as_it_is(tmp_path: Path) -> None:
    starter = starter_recipe(str(write_pairs(tmp_path)), tmp_path / "mine.yaml")
    recipe = Recipe.model_validate(YAML(typ="safe").load(starter.text))
    assert (recipe.spec.kind, recipe.spec.pair, recipe.spec.label) == ("embedding", "b", "similarity")
    assert recipe.teacher.already_finetuned and [one.signal_of_training for one in recipe.planned] == ["teacher"]
    assert any("similarity scores how similar a and b are, from " in note for note in starter.notes)


# --- the folder -------------------------------------------------------------------------------------------------------


# --- the chain --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path) -> dict[str, Any]:
    """One run: teacher as it is, its vectors, a student with two seeds, a dropped model, scores on the task's pairs and
    on searches, a gate that reads both, exports."""
    values = recipe_for(tiny_bert, write_pairs(home.root))
    found = {"source": str(write_searches(home.root)), "kind": "retrieval", "text": "query", "pair": "passage"}
    values["data"]["judge"] = {"found": found}
    kept = {"metric": "retained", "at_least": 0.1, "worst_of": ["found"]}
    values["gate"]["criteria"].append(kept)
    return run_recipe(Recipe.model_validate(values), home=home, json_path=home.root / "out.json")


@pytest.fixture(scope="module")
def pulled(result: dict[str, Any], home: Home) -> Path:
    """The registered champion as its user gets it."""
    folder = home.root / "pulled"
    found = next(entry for entry in result["registered"] if entry["alias"] == "champion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBECK_HOME", str(home.root))
        with forked_processes():
            return pull(f"{found['name']}@champion", folder)


def test_the_teacher_is_asked_once_for_all_trainings(result: dict[str, Any]) -> None:
    stages = [stage["name"] for stage in result["stages"]]
    assert stages.count("answer-rows") == 1 and stages.count("distill-predictions") == 2


@pytest.mark.slow
def test_the_teacher_is_asked_once_for_three_students_with_three_seeds(
    prefect_server: None, engines_here: None, tmp_path: Path, tiny_bert: Path
) -> None:
    """Left to ``make slow``: the run of this module asks the same of two seeds."""
    sizes = [(name, layers, [0, 1, 2]) for name, layers in (("one", 1), ("two", 2), ("three", 3))]
    recipe = Recipe.model_validate(recipe_for(tiny_bert, write_pairs(tmp_path), sizes))
    stages = [stage["name"] for stage in run_recipe(recipe, home=Home(tmp_path / "home").create())["stages"]]
    assert stages.count("answer-rows") == 1 and stages.count("distill-predictions") == 9


def test_every_model_is_judged_by_the_cosines_of_pairs(result: dict[str, Any]) -> None:
    models = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert {"teacher", "one", "top-2", "one-onnx", "one-int8"} == {*models}
    for metrics in models.values():
        assert {*metrics} == {"spearman"} and metrics["spearman"]["low"] < metrics["spearman"]["high"]
    assert models["one-onnx"]["spearman"]["value"] == pytest.approx(models["one"]["spearman"]["value"], abs=1e-3)


def test_the_same_embedders_are_judged_by_search(result: dict[str, Any], pulled: Path, home: Home) -> None:
    """By nDCG@10 over all passages of the set, for teacher, students and exports; the gate reads the share of the
    teacher's there, and table, page and card name the metric beside the set."""
    judged = {model["name"]: model["judged"]["found"] for model in result["models"]}
    assert {*judged} == {"teacher", "one", "top-2", "one-onnx", "one-int8"}
    for found in judged.values():
        assert found["headline"] == "ndcg_at_10" and {"ndcg_at_10", "recall_at_100"} <= {*found["metrics"]}
        assert found["rows"] == 120 and found["drop"] is None and "chance" not in found
    gains = {name: found["metrics"]["ndcg_at_10"]["value"] for name, found in judged.items()}
    assert all(0 < gain < 1 for gain in gains.values()) and gains["teacher"] != gains["one"]
    assert gains["one-onnx"] == pytest.approx(gains["one"], abs=1e-2)
    share = judged["one"]["retained"]["value"]
    assert share == pytest.approx(gains["one"] / gains["teacher"])
    reasons = next(model["reasons"] for model in result["models"] if model["name"] == "one")
    assert any(said.startswith(f"on found: retained {share:.4g} [") and said.endswith(": met") for said in reasons)
    page, card = next(home.root.rglob("report.html")).read_text(), (pulled / "README.md").read_text()
    assert "found (ndcg_at_10)" in page and "ndcg_at_10, judging set found, 120 rows" in card


def test_the_pulled_folder_is_one_of_transformers_and_of_sentence_transformers(pulled: Path) -> None:
    library = pytest.importorskip("sentence_transformers", reason="the extra sentence-transformers is not installed")
    from tasks.scoring.predict import predict_texts

    texts = ["the film was good", "a poor meal but a very fine song", "it"]
    ours = np.asarray([one["embedding"] for one in predict_texts(pulled, texts)])
    np.testing.assert_allclose(library.SentenceTransformer(str(pulled), device="cpu").encode(texts), ours, atol=2e-6)


def test_the_lines_of_the_card_compute_the_vectors_without_our_code(pulled: Path) -> None:
    """They run in a process that cannot import our packages."""
    from tasks.scoring.predict import predict_texts

    card = (pulled / "README.md").read_text()
    lines = card.split("## Use")[1].split("```python\n")[1].split("```")[0].replace("FOLDER", str(pulled))
    done = ask_stranger(lines, folder=pulled)
    assert done.returncode == 0, done.stderr
    expected = predict_texts(pulled, ["some text"])[0]["embedding"]
    with pytest.raises(DataError, match="embedding reads one text at a time, and two are given; name one column"):
        predict_texts(pulled, ["some text"], ["another"])
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=2e-6)
    assert "pipeline_tag: feature-extraction" in card


def test_the_lines_of_the_card_compute_the_vectors_of_each_graph_without_our_code(pulled: Path) -> None:
    """The program names the fastest graph, which is int8; each published one runs by it."""
    from tasks.scoring.onnx_models import FILES, formats_in
    from tasks.scoring.predict import predict_texts

    if not (pulled / "onnx").is_dir():
        pytest.skip("the champion of this machine has no export: its graphs were refused, or another model is faster")
    program = (pulled / "README.md").read_text().split("## Exports")[1].split("```python\n")[1].split("```")[0]
    found = formats_in(pulled / "onnx")
    assert FILES[found[0]] in program
    for name in found:
        lines = program.replace("FOLDER", str(pulled)).replace(FILES[found[0]], FILES[name])
        done = ask_stranger(lines, folder=pulled)
        assert done.returncode == 0, done.stderr
        expected = predict_texts(pulled, ["some text"], export_format=name)[0]["embedding"]
        np.testing.assert_allclose(json.loads(done.stdout), expected, atol=2e-6)


def test_vectors_of_exports_are_those_of_the_checkpoint(result: dict[str, Any], pulled: Path) -> None:
    from tasks.scoring.predict import predict_texts

    if not (pulled / "onnx").is_dir():
        pytest.skip("the champion of this machine has no export: its graphs were refused, or another model is faster")
    texts = ["the film was good", "it"]
    ours, theirs = (predict_texts(folder, texts) for folder in (pulled, pulled / "onnx"))
    for one, other in zip(ours, theirs, strict=True):
        assert float(np.dot(one["embedding"], other["embedding"])) > 0.99


def test_the_page_speaks_of_pairs_and_their_places(result: dict[str, Any], home: Home) -> None:
    pages = [file.read_text() for file in home.root.rglob("report.html")]
    assert pages and all("How far pairs stand from their true place" in page for page in pages)
