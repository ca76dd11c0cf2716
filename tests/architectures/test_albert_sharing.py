"""An ALBERT of which all layers share one block: tied in training, equal copies in a plain folder, counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tasks.architectures.albert import ALBERT_AND_BERT, SHARED_PARTS, SHARING, is_copied_part
from tasks.methods.layers.layer_dropping import drop_layers
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Shape
from tasks.scoring.speed.flops import parameters_of
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import build_student, load_classifier, save_model
from tests.architectures.test_albert_of_bert import outputs_of, tiny
from tests.families import write_tiny
from tests.training.test_families import CPU, TASK


@pytest.mark.parametrize("share", SHARED_PARTS)
def test_a_shared_block_is_the_mean_of_all_layers_and_the_other_block_is_each_layers_own(share: str) -> None:
    teacher = tiny()
    student = build_student("albert", teacher, Shape(layers=4, embedding=16, share=share), seed=0)
    layers = [group.albert_layers[0] for group in student.albert.encoder.albert_layer_groups]
    for ours, theirs in ALBERT_AND_BERT.items():
        sources = [layer.get_submodule(theirs).weight for layer in teacher.bert.encoder.layer]
        for layer, source in zip(layers, sources, strict=True):
            shared = ours.partition(".")[0] in SHARED_PARTS[share]
            expected = torch.stack(sources).mean(0) if shared else source
            torch.testing.assert_close(layer.get_submodule(ours).weight, expected)
            assert (layer.get_submodule(ours) is layers[0].get_submodule(ours)) == (shared or layer is layers[0])


@pytest.mark.parametrize("share", SHARED_PARTS)
def test_the_folder_holds_equal_copies_and_loading_ties_them_before_a_step(share: str, tmp_path: Path) -> None:
    """A step on copies that are not tied would move them apart. Plain loading gives the same logits."""
    base = write_tiny("bert", tmp_path / "bert")
    shape = Shape(layers=3, embedding=8, share=share)
    student = build_student("albert", load_classifier(base, TASK, CPU), shape, seed=0)
    save_model(student, load_tokenizer(base), tmp_path / "student")
    again = load_classifier(tmp_path / "student", TASK, CPU)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "student")
    assert all(map(torch.equal, outputs_of(plain), outputs_of(student)))
    values = list(again.parameters())
    assert parameters_of(tmp_path / "student") == sum(value.numel() for value in values)
    assert sum(value.numel() for value in values) < sum(value.numel() for value in plain.parameters())
    optimizer = torch.optim.SGD(values, lr=0.5)
    again.train()(input_ids=torch.arange(12)[None], labels=torch.tensor([1])).loss.backward()
    optimizer.step()
    save_model(again, load_tokenizer(base), tmp_path / "trained")
    stored, config = load_file(tmp_path / "trained" / "model.safetensors"), again.config.to_dict()
    copies = [name for name in stored if is_copied_part(config, name)]
    assert len(copies) == 2 * 2 * (3 if share == "ffn" else 5)
    for name in copies:
        assert torch.equal(stored[name], stored[name.replace(".1.", ".0.", 1).replace(".2.", ".0.", 1)])
    assert json.loads((tmp_path / "trained" / "config.json").read_text())[SHARING] == share


def test_dropped_layers_leave_the_rest_tied() -> None:
    student = build_student("albert", tiny(), Shape(layers=4, embedding=8, share="attention"), seed=0)
    drop_layers(student, [0, 2])
    first, second = (group.albert_layers[0] for group in student.albert.encoder.albert_layer_groups)
    assert first.attention is second.attention and first.ffn is not second.ffn


@pytest.mark.parametrize("start", ["random", "embeddings"])
def test_a_drawn_student_of_a_teacher_with_a_shared_block_shares_it_while_it_learns(start: str) -> None:
    """Each layer learned a block of its own, and saving kept the first one's for all."""
    teacher = build_student("albert", tiny(), Shape(layers=4, embedding=8, share="attention"), seed=0)
    student = build_student(start, teacher, Shape(layers=2), seed=0)
    first, second = (group.albert_layers[0] for group in student.albert.encoder.albert_layer_groups)
    assert first.attention is second.attention and first.ffn is not second.ffn


def chain(by: str, share: str = "ffn") -> dict[str, Any]:
    """Return a recipe of a student that shares a block, and of a model that is made from it."""
    shared = {"name": "a", "by": "distillation", "from": "teacher", "start": "albert", "seeds": [0]}
    shared["shape"] = {"layers": 4, "share": share}
    recipe = {"name": "r", "task": "sst2", "data": {"holdout_rows": 2000}}
    recipe["candidates"] = [shared, {"name": "b", "by": by, "from": "a"}]
    if by == "quantization":
        recipe["exports"] = {"formats": ["onnx", "int8"]}
    return recipe


@pytest.mark.parametrize("by", ["width-pruning", "head-pruning"])
def test_makers_that_change_layers_one_by_one_refuse_a_block_that_all_share(by: str) -> None:
    """They would cut the one block once for each layer."""
    with pytest.raises(ValueError, match="candidate b changes layers one by one, and all layers of a share one block"):
        Recipe.model_validate(chain(by))


@pytest.mark.parametrize("share", SHARED_PARTS)
@pytest.mark.parametrize("by", ["neuron-pruning", "weight-pruning", "lottery-ticket", "quantization"])
def test_makers_that_change_each_matrix_once_take_a_block_that_all_share(by: str, share: str) -> None:
    """All but the pruning of neurons were refused."""
    assert [one.name for one in Recipe.model_validate(chain(by, share)).planned] == ["a", "b"]


@pytest.mark.parametrize("whose", ["a", "teacher"])
def test_a_block_that_the_section_on_pretraining_shares_is_refused_likewise(whose: str) -> None:
    """It was cut once for each layer, an IndexError behind hours of pretraining, since only the knob of the candidate
    itself was read."""
    section = {"family": "albert", "layers": 4, "share": "ffn"}
    recipe = {
        "name": "r",
        "task": "sst2",
        "data": {"holdout_rows": 2000},
        "corpus": {"source": "wiki"},
        "pretraining": section,
        "candidates": [
            {"name": "a", "by": "pretraining", "from": "pretrained"},
            {"name": "b", "by": "width-pruning", "from": whose},
        ],
    }
    said = f"candidate b changes layers one by one, and all layers of {whose} share one block"
    with pytest.raises(ValueError, match=said):
        Recipe.model_validate(recipe)
    assert Recipe.model_validate(recipe | {"pretraining": section | {"share": "all"}}).planned
