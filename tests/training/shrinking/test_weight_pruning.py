"""Single weights of real models that go while they are trained: zeros in a plain folder, as many as asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.job import Job
from tasks.errors import Interrupted, RecipeError
from tasks.recipe.makers.slices import WeightSlice
from tasks.scoring.predict import outputs_of
from tasks.training import loop
from tasks.training.data.rows import read_task
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.weight_pruning import matrices_of, prune_while_training
from tests.families import NAMES, write_tiny
from tests.training.shrinking.test_vocabulary import classifier, texts_in

KNOBS: dict[str, Any] = {
    "task_type": "classification",
    "signal": "labels",
    "steps": 10,
    "batch_size": 8,
    "max_length": 32,
    "keep": 0.25,
    "every": 2,
    "learning_rate": 1e-3,
    "precision": "fp32",
}


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir(exist_ok=True)
    given = WeightSlice(**{**KNOBS, **knobs}).model_dump(mode="json")
    order = {"job": "weights", "knobs": given, "output": str(output), "checkpoints": str(output.parent / "kept")}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


def left_in(folder: Path, rows: Path) -> list[float]:
    """Return the share of each matrix that is not 0 in a written model."""
    model = load_classifier(folder, read_task(rows, "classification"), torch.device("cpu"))
    return [float((matrix.weight != 0).float().mean()) for matrix in matrices_of(model)]


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    return classifier(write_tiny("bert", folder / "bert"), rows, folder / "whole")


@pytest.mark.parametrize("scores", ["magnitude", "movement", "soft-movement", "random"])
def test_as_many_weights_stay_as_asked_for_and_the_folder_is_plain(
    scores: str, whole: Path, rows: Path, tmp_path: Path
) -> None:
    facts = prune_while_training(job(tmp_path / "a", {"scores": scores}, start=whole, rows=rows))
    assert facts["weights_left"] == facts["weights_before"] // 4 and 0.2 < facts["nonzero_share"] < 1
    before, after = (load_file(folder / "model.safetensors") for folder in (whole, tmp_path / "a"))
    assert {name: value.shape for name, value in before.items()} == {name: value.shape for name, value in after.items()}
    answers = outputs_of(tmp_path / "a", texts_in(rows), None, 32, task_type="classification")["logits"]
    assert answers.shape[1] == 2 and facts["selection_score"] is not None
    again = prune_while_training(job(tmp_path / "b", {"scores": scores}, start=whole, rows=rows))
    assert again == {**facts, "train_seconds": again["train_seconds"]}
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_each_score_keeps_other_weights(whole: Path, rows: Path, tmp_path: Path) -> None:
    kept = {}
    for scores in ("magnitude", "movement", "random"):
        prune_while_training(job(tmp_path / scores, {"scores": scores}, start=whole, rows=rows))
        model = load_classifier(tmp_path / scores, read_task(rows, "classification"), torch.device("cpu"))
        kept[scores] = torch.cat([(matrix.weight != 0).flatten() for matrix in matrices_of(model)])
    assert all(not torch.equal(kept[one], kept[other]) for one in kept for other in kept if one != other)


def test_of_each_matrix_the_same_share_stays_where_that_is_asked_for(whole: Path, rows: Path, tmp_path: Path) -> None:
    prune_while_training(job(tmp_path / "each", {"scope": "matrix"}, start=whole, rows=rows))
    prune_while_training(job(tmp_path / "all", {}, start=whole, rows=rows))
    assert set(left_in(tmp_path / "each", rows)) == {0.25} and len(set(left_in(tmp_path / "all", rows))) > 1


@pytest.mark.parametrize("name", NAMES)
def test_a_family_with_zeros(name: str, rows: Path, tmp_path: Path) -> None:
    start = classifier(write_tiny(name, tmp_path / name), rows, tmp_path / "whole")
    facts = prune_while_training(job(tmp_path / "sparse", {"steps": 3, "every": 1}, start=start, rows=rows))
    assert facts["weights_left"] == int(0.25 * facts["weights_before"])


@pytest.mark.parametrize("scores", ["magnitude", "movement"])
def test_a_training_that_is_stopped_resumes_with_its_masks(
    scores: str, whole: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune_while_training(job(tmp_path / "a", {"scores": scores}, start=whole, rows=rows))
    agree = loop.ProcessGroup.agree
    monkeypatch.setattr(loop.ProcessGroup, "agree", lambda self, asked, step, place: step == 5)
    with pytest.raises(Interrupted):
        prune_while_training(job(tmp_path / "b", {"scores": scores}, start=whole, rows=rows))
    monkeypatch.setattr(loop.ProcessGroup, "agree", agree)
    prune_while_training(job(tmp_path / "b", {"scores": scores}, start=whole, rows=rows))
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_too_few_steps_for_a_ramp_are_refused_in_a_sentence(whole: Path, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="with 1 steps, all weights would go at step 0; give the training more steps"):
        prune_while_training(job(tmp_path / "a", {"steps": 1, "end": 0.4}, start=whole, rows=rows))
