"""Every recipe on the shelf runs to its end on a tiny real model: the flow, the stages, the engines, the registry.

The recipes are the real ones; only their sizes are made small. Engines work in the process of the test, where torch is
loaded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.run.recipe_file import SHELF, read_yaml, to_plain_values
from tasks.recipe.judging import Gate
from tasks.recipe.recipe import Recipe
from tasks.task_types.readers import READERS
from tests.command_line import plan_recipe
from tests.task_types.chats.tables import write_answering, write_chats
from tests.task_types.choices.tables import write_questions
from tests.task_types.embedding.test_chain import write_pairs
from tests.task_types.embedding.test_search_chain import write_searches
from tests.task_types.masked_words.tables import write_encoder
from tests.task_types.next_words.tables import write_decoder, write_documents
from tests.task_types.ranking.tables import write_graded
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.spans.tables import write_asked
from tests.task_types.tokens.tables import write_tagged
from tests.tiny import WORDS, write_tiny_bert

RECIPES = sorted(path.stem for path in SHELF.glob("*.yaml"))
SMALL = {"batch_size": 16, "max_length": 16, "precision": "fp32", "evaluations": 1}
WIDTHS = {"hidden": 8, "heads": 4, "feed_forward": 16, "embedding": 8, "rewind_to": 1, "bottleneck": 8}


def shrink(values: Any, bert: Path) -> Any:
    """Make a recipe's sizes tiny and its sources local, whatever stands in it."""
    if isinstance(values, list):
        return [shrink(value, bert) for value in values]
    if not isinstance(values, Mapping):
        return values
    small = {key: shrink(value, bert) for key, value in values.items() if key not in ("epochs", "holdout_rows")}
    if values.keys() & {"learning_rate", "epochs", "steps"} and "minutes" not in values:  # a section search.recipes
        few = 78 if values.get("method") == "feature-maps" else 2  # layers take turns
        small |= SMALL | {"steps": min(few, values.get("steps", few))}  # a model that is scored as it was cut has none
    small |= {key: size for key, size in WIDTHS.items() if isinstance(values.get(key), int)}
    if isinstance(values.get("heads"), int) and "hidden" not in values:
        small.pop("heads")
    if isinstance(values.get("layers"), int):  # the tiny teacher has 12
        small["layers"] = min(12, values["layers"])
    if "model" in values:
        small |= {"model": str(bert), "floor": 0.0}
    return small


def tiny_recipe(name: str, folder: Path) -> dict[str, Any]:
    """Return a recipe of the shelf, made tiny: a teacher of 12 layers, 100 rows, a few sentences of general text.

    Half of the 20 rows of the holdout have each class, so an untrained teacher is right on half of them. On fewer rows
    some resample would have none of those, and a share of the teacher's score would be undefined there.
    """
    bert, data = write_tiny_bert(folder / "bert", layers=12), folder / "rows.csv"
    rows = [
        f"the {WORDS[number % 20]} {number} was "
        f"{'good' if number % 2 else 'bad'},{'positive' if number % 2 else 'negative'}"
        for number in range(100)
    ]
    data.write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "text.txt").write_text(
        "\n".join(f"the {word} was not {other} and it was {word}" for word in WORDS for other in WORDS[:6])
    )
    values = shrink(to_plain_values(read_yaml(SHELF / f"{name}.yaml")), bert)
    values_of_data = values.get("data") or {}
    kind = task.get("kind") if isinstance(task := values["task"], Mapping) else ""
    data = write_tagged(folder / "tagged", 100) if kind == "tokens" else data
    data = write_questions(folder / "questions", 200) if kind == "choices" else data
    data = write_asked(folder / "asked", 60) if kind == "spans" else data
    values["task"] = {"name": "tiny", **({"kind": kind} if kind else {"labels": ["negative", "positive"]})}
    data = write_graded(folder / "graded", 200) if kind == "ranking" else data
    if kind == "ranking":
        values["task"] |= {"text": "query", "pair": "passage"}
    if kind == "next-words":
        data = write_documents(folder / "documents", 100)
        own = [one.get("start") for one in values.get("students") or ()]
        family = "gpt2" if "limbeck-decoder" in own else "llama"  # the one that such a student is made from
        values["teacher"] |= {"model": str(write_decoder(folder / "decoder", family, layers=30)), "floor": 1e9}
    if kind == "chats":
        data = write_chats(folder / "chats", 100)
        values["teacher"] |= {"model": str(write_answering(folder / "answering", layers=30)), "floor": 1e9}
    if kind == "masked-words":
        data = write_documents(folder / "documents", 100)
        values["teacher"] |= {"model": str(write_encoder(folder / "encoder", layers=12)), "floor": 1e9}
    if kind == "seq2seq":
        data = write_sentences(folder / "sentences", 100)
        values["task"] |= {"text": "source", "label": "target"}
        values["teacher"] |= {"model": str(write_translator(folder / "translator", layers=6)), "floor": -1.0}
        values["teacher"] |= {"steps": 120, "learning_rate": 3e-3, "batch_size": 16, "already_finetuned": False}
    if kind == "choices":
        values["task"] |= {"text": "context", "pair": "{choices[]}"}
    if kind == "embedding":
        values["task"]["pair"] = "other"
        texts = [row.partition(",")[0] for row in rows]
        others = [text if number % 2 else f"poor {number} end" for number, text in enumerate(texts)]
        scores = [
            (text == other) + number % 3 / 10 for number, (text, other) in enumerate(zip(texts, others, strict=True))
        ]
        pairs = [",".join(map(str, row)) for row in zip(texts, others, scores, strict=True)]
        data.write_text("\n".join(["text,other,label", *pairs]) + "\n")
    if kind == "retrieval":
        data = write_searches(folder, 400)
        values["task"] |= {"text": "query", "pair": "passage", "label": "right"}
    values["data"] = {"source": str(data), "selection_rows": 5, "holdout_rows": 20}
    if kind in ("embedding", "retrieval"):  # a correlation on ten pairs may be 0 in some resample
        values["data"]["validation_share"] = 0.4
    if kind == "retrieval":  # among ten passages every search finds all
        values["data"] |= {"selection_rows": 15, "group": "passage"}
        values["data"] |= {"judge": {"sts": shrunk_pairs(values_of_data["judge"]["sts"], folder)}}
    elif "judge" in values_of_data:
        more = [
            f"it was {WORDS[number % 20]} {WORDS[number % 7]} once {number},{'fine' if number % 2 else 'poor'}"
            for number in range(20)
        ]
        (folder / "elsewhere.csv").write_text("\n".join(["text,label", *more]) + "\n")
        elsewhere = {"source": str(folder / "elsewhere.csv"), "classes": {"fine": "positive", "poor": "negative"}}
        values["data"]["judge"] = dict.fromkeys([*values_of_data["judge"], "mismatched"], elsewhere)
    values["scoring"], values["speed"] = (
        {"resamples": 100, "max_length": 16},
        {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
    )
    values["resources"] = {"threads_alone": 1}
    # Of a teacher that finds next to nothing, or guesses, a share of its score would be undefined.
    if kind in ("", "tokens", "spans") or name == "superglue-pairs":
        values["teacher"] |= {"steps": 60, "learning_rate": 5e-3}
    if "corpus" in values:
        values["corpus"] = {"source": str(folder / "text.txt"), "max_tokens": 1000, "max_length": 16}
    if "pretraining" in values:
        values["corpus"]["source"] = str(write_two_sentences(folder / "documents.csv"))
        values["teacher"] = {**values["teacher"], "floor": 0.0}
    if "augmentation" in values:
        values["augmentation"] |= {"masked_lm": str(bert), "rows": 10, "options": 3, "max_length": 32}
    if "exports" in values:  # one is enough: torch takes seconds to follow a model, however small
        values["exports"]["of"] = [(values.get("students") or values["candidates"])[0]["name"]]
    return values


def shrunk_pairs(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a judging set of scored pairs with rows of its own."""
    own = {"source": str(write_pairs(folder)), "text": "a", "pair": "b", "label": "similarity"}
    return {**{name: value for name, value in given.items() if name != "split"}, **own}


def write_two_sentences(path: Path) -> Path:
    """Write documents of two and three sentences."""
    rows = [
        " ".join(f"The {word} was not {other}." for other in WORDS[number % 5 : number % 5 + 2 + number % 2])
        for number, word in enumerate(WORDS[:20] * 3)
    ]
    path.write_text("\n".join(["text", *rows]) + "\n")
    return path


def test_the_recipe_of_all_three_ways_has_joint_goals() -> None:
    gate = Recipe.model_validate(to_plain_values(read_yaml(SHELF / "dropped-distilled-int8.yaml"))).gate
    assert {one.metric for one in gate.criteria} == {"retained", "latency_ms", "bytes", "memory_bytes", "joules"}
    assert all(one.at_most < 1 and one.of_teacher for one in gate.criteria if one.at_most is not None), (
        "half a model costs less than a whole one"
    )


LIKE_ANOTHER = (
    "albert",
    "albert-tables",
    "chats-small",
    "choices-race",
    "choices-small",
    "decoder-mixers",
    "distilbert",
    "dropout",
    "dropped-distilled-int8",
    "dropped-then-distilled",
    "embedder-search",
    "embedder-small",
    "entities-small",
    "finetuned",
    "four-bit",
    "glue-best",
    "glue-methods",
    "glue-ways",
    "go-emotions",
    "linear-attention",
    "lite-transformer",
    "lottery",
    "masked-words-small",
    "minilm-v2",
    "minitron-depth",
    "mnli-judged",
    "mobilebert",
    "mobilebert-small",
    "mobilebert-tiny",
    "movement",
    "mrpc-small",
    "next-words-small",
    "pkd-last",
    "pkd-skip",
    "poor-mans-alternate-even",
    "poor-mans-alternate-odd",
    "poor-mans-bottom",
    "poor-mans-contribution",
    "poor-mans-symmetric",
    "poor-mans-top",
    "pruned-heads",
    "pruned-neurons",
    "pruned-width",
    "regularisers",
    "reranker-small",
    "search",
    "shapes",
    "smallest",
    "squad-small",
    "squad2-small",
    "sst2-cut-distil-cut",
    "sst2-methods",
    "sst2-tinybert",
    "stsb-small",
    "summaries-small",
    "superglue-pairs",
    "synthesizers",
    "tinybert-4-paper",
    "tinybert-6",
    "tinybert-6-paper",
    "translation-small",
    "translator-sizes",
    "two-bit",
    "vocabulary",
)
"""Recipes whose every stage another one passes too, or the recipe of ``test_compress.py``, which drops layers by their
contributions: they run in ``make shelf``."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LIKE_ANOTHER else [])
        for name in RECIPES
        if name != "demo"
    ],
)
def test_a_recipe_of_the_shelf(name: str, home: Home, tmp_path: Path, prefect_server: None, engines_here: None) -> None:
    recipe = Recipe.model_validate(tiny_recipe(name, tmp_path))
    result = run_recipe(recipe, home=home)
    assert [model["name"] for model in result["models"]][0] == "teacher"
    made = {model["name"] for model in result["models"][1:] if model["role"] != "export"}
    assert made == {one.name for one in recipe.planned}
    assert {entry["candidate"] for entry in result["registered"]} >= {
        one.name for one in recipe.planned if one.planned_role not in ("baseline", "step")
    }
    texts_of_a_row = 2 if READERS[recipe.spec.kind].reads_apart else 1  # each of which is scored
    held = texts_of_a_row * (result["rows"]["validation"] + result["rows"].get("holdout", 0))
    assert all(model["pooled"]["rows"] == held for model in result["models"] if model["role"] != "export"), (
        "a shelf's recipe holds rows out here"
    )
    exported = {model["name"] for model in result["models"] if model["role"] == "export"}
    assert exported == (
        {f"{name}-{one}" for name in recipe.exports.of for one in recipe.exports.formats} if recipe.exports else set()
    )
    others = recipe.model_copy(update={"gate": recipe.gate.model_copy(update={"criteria": Gate().criteria})})
    assert not [row["stage"] for row in plan_recipe(others, home=home) if row["cache"] != "hit"], "goals are in no key"
    asked = {criterion.metric for criterion in recipe.gate.criteria}
    assert not [
        said
        for model in result["models"]
        for said in model.get("reasons") or []
        if "unknown" in said and said.split()[0] in asked
    ]
