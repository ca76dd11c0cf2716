"""Transfer of feature maps in the engine: which layers take their turn, which weights move, and where a stopped
training goes on."""

from __future__ import annotations

import copy
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tasks.errors import Interrupted, ModelError
from tasks.recipe.methods import FeatureMaps as FeatureMapsKnobs
from tasks.recipe.slices import GeneralSlice, IntermediateSlice
from tasks.recipe.students import Shape
from tasks.training.loop import StopSignal
from tasks.training.models.students import build_student, load_masked_lm, save_model
from tasks.training.objectives.feature_maps import Transfer
from tests.forked import OFTEN, ForkedJob, wait_for_checkpoint
from tests.methods.oracles import Oracle, reads
from tests.training.objectives.test_objectives import FAST, batch, do, facts, scene, teacher

__all__ = ["batch", "scene", "teacher"]
NARROW = Shape(layers=4, bottleneck=8, embedding=8, feed_forwards=2)


def objective(teacher: Any, **knobs: Any) -> Transfer:
    student = build_student("mobilebert", teacher, NARROW, seed=0).requires_grad_(True)
    return Transfer(student, teacher, FeatureMapsKnobs(**{"predictions": 0.0, **knobs}))


def general(transfer: str, steps: int, **knobs: Any) -> GeneralSlice:
    return GeneralSlice(
        method="feature-maps",
        **FAST | {"steps": steps},
        evaluations=1,
        shape=NARROW,
        start="mobilebert",
        feature_maps={"transfer": transfer, **knobs},
    )


def test_a_student_equal_to_its_teacher_loses_nothing_and_padding_changes_nothing(teacher: Any, batch: Any) -> None:
    same = Transfer(copy.deepcopy(teacher), teacher, FeatureMapsKnobs(predictions=0.0))
    assert float(same.transferred(batch, range(4)).mean()) == pytest.approx(0, abs=1e-6)
    made = objective(teacher, transfer="joint")
    made.student.eval()
    padded = type(batch)(
        *(torch.nn.functional.pad(one, (0, 3)) for one in (batch.ids_BT, batch.mask_BT, batch.segments_BT))
    )
    ours, wide = (float(made.loss(one).mean()) for one in (batch, padded))
    assert ours == pytest.approx(wide, rel=1e-5) and ours > 0


@reads("mobilebert", "layer_gates")
def test_layers_take_turns_as_in_the_reference(oracle: Oracle, teacher: Any) -> None:
    """Its steps count from 1, and at step 0 it transfers nothing: ours begins with its step 1."""
    three = SimpleNamespace(stack=range(3), knobs=FeatureMapsKnobs(predictions=0.0), words=None)
    parts = Transfer.parts(three, 3 * oracle.content["phase_length"])  # type: ignore[arg-type]
    turns = [part.layers for part in parts for _ in range(part.steps)]
    for case in oracle.content["values"]:
        if 1 <= case["step"] <= 30:
            assert turns[case["step"] - 1] == tuple(np.flatnonzero(case["gates"]))


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, [(2, (0,)), (2, (1,)), (2, (2,)), (2, (3,)), (8, ())]),
        ({"transfer": "joint", "share": 0.25}, [(4, (0, 1, 2, 3)), (12, ())]),
        ({"transfer": "auxiliary"}, [(16, (0, 1, 2, 3))]),
    ],
)
def test_ways_of_transfer(teacher: Any, knobs: dict[str, Any], expected: list[tuple[int, tuple[int, ...]]]) -> None:
    made = objective(teacher, **knobs)
    made.words = object()  # type: ignore[assignment]
    assert [(part.steps, part.layers) for part in made.parts(16)] == expected
    assert [part.has_words for part in made.parts(16)] == [not layers or len(expected) == 1 for _, layers in expected]
    if len(expected) > 1:
        with pytest.raises(ModelError, match="too few for 4 layers|leaves a part without steps"):
            made.parts(2)


@pytest.mark.parametrize("freeze", ["soft", "hard"])
def test_only_the_layer_whose_turn_it_is_learns_at_the_full_rate(teacher: Any, freeze: str) -> None:
    made = objective(teacher, freeze=freeze)
    phases = made.phases(8)
    names = [name for name, _ in made.student.named_parameters()]
    learned = [{name for name in names if phase.learns(name)} for phase in phases]
    layer = "mobilebert.encoder.layer.{}."
    assert any("word_embeddings" in name for name in learned[0]) and not any("embeddings" in one for one in learned[1])
    assert any(name.startswith(layer.format(0)) for name in learned[2]) == (freeze == "soft")
    assert not any(name.startswith((layer.format(3), "classifier", "mobilebert.pooler")) for name in learned[2])
    made.begin(5, 8)
    first, now = (made.stack[number].intermediate.dense.weight for number in (0, 2))
    before = first.detach().clone(), now.detach().clone()
    with torch.no_grad():
        first.add_(1.0)
        now.add_(1.0)
        made.after_step(6)
    moved = [float((value - old).mean().detach()) for value, old in zip((first, now), before, strict=True)]
    assert moved == pytest.approx([0.1 if freeze == "soft" else 1.0, 1.0], rel=1e-5), "hard: the loop freezes them"


def test_a_stopped_transfer_ends_with_the_same_bytes(
    scene: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a layer's turn; afterwards words are predicted."""
    knobs = general("progressive", 12)
    whole = do("general", tmp_path / "whole", knobs, base=scene.base, corpus=scene.corpus)
    assert facts(whole)["steps_of_parts"] == [2, 1, 1, 2, 6]
    asked = iter([False] * 4 + [True] * 99)
    with monkeypatch.context() as patch:
        patch.setattr(StopSignal, "asked", property(lambda self: next(asked), lambda self, value: None), raising=False)
        with pytest.raises(Interrupted):
            do("general", tmp_path / "stopped", knobs, base=scene.base, corpus=scene.corpus)
    stopped = do("general", tmp_path / "stopped", knobs, base=scene.base, corpus=scene.corpus)
    assert (whole / "model.safetensors").read_bytes() == (stopped / "model.safetensors").read_bytes()


@pytest.mark.parametrize("way", ["progressive", "auxiliary"])
def test_the_student_that_predicts_words_is_the_one_that_is_saved(
    scene: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Saving sets the row of [PAD] to zero, so that the weights of a folder do not tell whether it was zero before."""
    trained: list[Any] = []

    def saved(model: Any, *given: Any) -> None:
        trained.append(copy.deepcopy(model).eval())
        save_model(model, *given)

    monkeypatch.setattr("tasks.training.general.save_model", saved)
    made = do("general", tmp_path / way, general(way, 12), base=scene.base, corpus=scene.corpus)
    ids_BT = torch.tensor([[2, 40, 44, 3]])
    assert not trained[0].get_input_embeddings().weight[0].any(), "[PAD] stays zero"
    with torch.no_grad():
        assert torch.equal(trained[0](ids_BT).logits, load_masked_lm(made, torch.device("cpu")).eval()(ids_BT).logits)


def test_a_killed_transfer_ends_with_the_same_bytes(scene: SimpleNamespace, tmp_path: Path) -> None:
    knobs = general("progressive", 60).model_copy(update={"checkpoint_minutes": OFTEN})

    def start(folder: Path) -> ForkedJob:
        inputs = {"base": str(scene.base), "corpus": str(scene.corpus)}
        order = {"job": "general", "knobs": knobs.model_dump(mode="json"), "inputs": inputs, "threads": 1}
        places = {name: str(folder / name) for name in ("output", "checkpoints")}
        return ForkedJob(order | places, folder)

    assert start(tmp_path / "whole").events()[-1]["event"] == "result"
    killed = start(tmp_path / "killed")
    wait_for_checkpoint(tmp_path / "killed")
    killed.send_signal(signal.SIGKILL)
    killed.events()
    assert not (tmp_path / "killed" / "output" / "model.safetensors").exists()
    again = start(tmp_path / "killed").events()
    assert any(str(one.get("message")).startswith("resuming at step") for one in again), again
    whole, killed_one = (tmp_path / name / "output" / "model.safetensors" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed_one.read_bytes()


@pytest.mark.parametrize("way", ["auxiliary", "joint"])
def test_other_ways_learn_from_general_text(scene: SimpleNamespace, tmp_path: Path, way: str) -> None:
    made = do("general", tmp_path / way, general(way, 4), base=scene.base, corpus=scene.corpus)
    assert facts(made)["steps_of_parts"] == ([4] if way == "auxiliary" else [2, 2])


def test_layers_that_are_transferred_come_nearer(scene: SimpleNamespace, tmp_path: Path) -> None:
    """On the task's rows, where the input embedding holds nothing but the rows in use."""
    losses = {}
    for steps in (4, 80):
        knobs = IntermediateSlice(
            task_type="classification",
            **FAST | {"steps": steps},
            method="feature-maps",
            shape=NARROW,
            start="mobilebert",
        )
        made = do("intermediate", tmp_path / str(steps), knobs, rows=scene.rows, teacher=scene.teacher)
        losses[steps] = loss_of(made, scene)
    assert losses[80] < 0.8 * losses[4], losses


def loss_of(folder: Path, scene: SimpleNamespace) -> float:
    """Return the loss of all layers of a student on a few texts."""
    from tasks.training.data.encoded import collate, encode
    from tasks.training.data.rows import load_tokenizer
    from tasks.training.models.students import freeze, load_classifier
    from tests.training.objectives.test_objectives import CPU, TASK

    student, teacher = (freeze(load_classifier(one, TASK, CPU)) for one in (folder, scene.teacher))
    encoded = encode(
        load_tokenizer(scene.base), ["the film was good", "a book", "the plot was not very fine"], None, 16
    )
    made = Transfer(student, teacher, FeatureMapsKnobs(predictions=0.0))
    return float(made.loss(collate(encoded, [0, 1, 2], 0, CPU)).mean())
