"""The whole chain with encoders that are not BERT: from a pretrained folder to a pulled model that needs nothing of
ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.architectures.architecture import SCORES, STATES
from tasks.architectures.known_architectures import ARCHITECTURES
from tasks.errors import ModelError
from tasks.recipe.recipe import Recipe
from tests.families import NAMES, write_tiny
from tests.flows.test_compress import FAST, recipe_for


@pytest.fixture(scope="module")
def home(home: Home, prefect_server: None, engines_here: None) -> Home:
    return home


def sections(name: str) -> dict[str, Any]:
    """Return what is different in a recipe for a family: which inner signals are copied, and who gives words."""
    shows = SCORES in ARCHITECTURES[name].signals
    matching = {"attention": float(shows)}
    small = {
        "name": "small",
        "layers": 2,
        "hidden": 8,
        "heads": 4 if shows else 2,
        "feed_forward": 16,
        "start": "embeddings",
    }
    words = {} if ARCHITECTURES[name].has_masked_lm else {"augmentation": None}
    general = (
        {"method": "relations"} if STATES in ARCHITECTURES[name].signals else {"method": "layers", "matching": matching}
    )
    return {
        "general_distillation": {**FAST, **general},
        "task_distillation": {
            "intermediate": {**FAST, "matching": matching},
            "prediction": FAST,
            "keep_signals": "always",
        },
        "students": [small, {"name": "half", "layers": 2, "stages": []}],
    } | words


def test_xlnet_goes_through_a_short_chain(home: Home, tiny_rows: Path, tmp_path: Path) -> None:
    """The family that is least like BERT: padded on the left, its summary last, and no model of its kind fills gaps."""
    base, short = (
        write_tiny("xlnet", tmp_path / "xlnet"),
        sections("xlnet") | {"corpus": None, "general_distillation": None, "layer_dropping": None},
    )
    short["students"] = short["students"][:1]
    result = passes(recipe_for(base, tiny_rows, **short), home, tmp_path)
    assert {model["name"] for model in result["models"]} == {"teacher", "small"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_family_goes_through_the_whole_chain(home: Home, tiny_rows: Path, tmp_path: Path, name: str) -> None:
    recipe = recipe_for(write_tiny(name, tmp_path / name), tiny_rows, **sections(name))
    result = passes(recipe, home, tmp_path)
    assert {model["name"] for model in result["models"]} == {"teacher", "small", "half", "contribution-1"}
    assert any(model["note"] for model in result["models"]) == (name == "albert")
    again = run_recipe(recipe, home=home)
    assert all(stage["cache"] == "hit" for stage in again["stages"])


def passes(recipe: Recipe, home: Home, folder: Path) -> dict[str, Any]:
    """Run a recipe; check that everyone has every figure, and that the champion answers once it is pulled."""
    from tasks.ports.tracking.tracker import Tracker
    from tasks.scoring.predict import predict_texts

    result = run_recipe(recipe, home=home)
    for model in result["models"]:
        assert all(
            model[figure] is not None
            for figure in ("parameters", "bytes", "flops", "latency_ms", "memory_bytes", "metrics")
        )
    champion = next(entry for entry in result["registered"] if entry["alias"] == "champion")
    Tracker(home.own_tracking_uri, home.artifacts).download(champion["name"], "champion", folder / "model")
    assert {answer["label"] for answer in predict_texts(folder / "model", ["the film was good", "a poor meal"])} <= {
        "positive",
        "negative",
    }
    return result


def test_what_a_family_cannot_show_is_refused_before_anything_is_spent(
    home: Home, tiny_rows: Path, tmp_path: Path
) -> None:
    base = write_tiny("deberta-v2", tmp_path / "base")
    with pytest.raises(
        ModelError,
        match="attention scores cannot be read from a model of type deberta-v2, because .* copy hidden states",
    ):
        run_recipe(recipe_for(base, tiny_rows), home=home)
