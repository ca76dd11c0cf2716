"""What cannot work is refused before anything is spent, in one sentence that says what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tasks.checks import check_students, require_selection
from tasks.errors import DataError, LimbeckError
from tasks.recipe import Recipe
from tests.tiny import write_tiny_bert


def recipe(student: dict[str, Any], **sections: Any) -> Recipe:
    return Recipe.model_validate({"name": "tiny", "task": {"name": "tiny"}, "students": [{"name": "small", "layers": 2, **student}], **sections})


@pytest.mark.parametrize(
    ("student", "sections", "sentence"),
    [
        ({"layers": 5}, {}, "has 5 layers and its teacher 4"),
        ({"hidden": 18, "start": "random"}, {}, "width 18 does not divide by 4 heads"),
        ({"hidden": 32, "start": "embeddings"}, {}, "is wider"),
        ({"layers": 3}, {"task_distillation": {"intermediate": {"matching": {"layer_map": "divisible"}}}}, "do not divide by 3"),
        ({}, {"layer_dropping": {"drop": [4]}}, "cannot drop 4 of 4 layers"),
        ({}, {"layer_dropping": {"strategies": ["topp"]}}, "did you mean 'top'"),
        ({"layers": 1, "start": "alternate-odd"}, {}, "alternate-odd cannot drop 3 of 4 layers"),
        ({"hidden": 8, "heads": 4, "start": "random"}, {"task_distillation": {"prediction": {"patience": {}}}}, "patience compares one width"),
        ({"start": "top", "hidden": 8, "heads": 4}, {"task_distillation": {"intermediate": {"method": "replacing"}}}, "only at its width and heads"),
        ({"start": "random", "heads": 2}, {"task_distillation": {"intermediate": {}}}, "attention scores need equal heads"),
        ({"start": "random"}, {"task_distillation": {"intermediate": {"method": "relations", "relations": {"heads": 5}}}}, "5 relation heads do not divide"),
        ({"start": "random"}, {"task_distillation": {"intermediate": {"method": "relations", "relations": {"layer": 5}}}}, "has layers 1 to 4"),
        (
            {"start": "random", "hidden": 8, "heads": 4},
            {"corpus": {"source": "x"}, "general_distillation": {"method": "triple"}},
            "directions of hidden states need equal widths",
        ),
    ],
)
def test_a_student_that_cannot_be_built(student: dict[str, Any], sections: dict[str, Any], sentence: str, tiny_bert: Path) -> None:
    with pytest.raises(LimbeckError, match=sentence):
        check_students(recipe(student, **sections), tiny_bert, {})


def test_a_checkpoint_of_ones_own_has_the_depth_that_the_recipe_says(tmp_path: Path, tiny_bert: Path) -> None:
    own = write_tiny_bert(tmp_path / "own", layers=3)
    check_students(recipe({"layers": 3, "start": str(own)}), tiny_bert, {"small": own})
    with pytest.raises(LimbeckError, match="which has 3 layers, and the recipe gives it 2; set layers: 3"):
        check_students(recipe({"layers": 2, "start": str(own)}), tiny_bert, {"small": own})


def test_a_checkpoint_of_ones_own_reads_as_its_teacher_does(tmp_path: Path, tiny_bert: Path) -> None:
    own = write_tiny_bert(tmp_path / "own", layers=2)
    other = shutil.copytree(own, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["film"], tokenizer["model"]["vocab"]["song"] = tokenizer["model"]["vocab"]["song"], tokenizer["model"]["vocab"]["film"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    layer_by_layer = {"task_distillation": {"intermediate": {}}}
    check_students(recipe({"start": str(own)}, **layer_by_layer), tiny_bert, {"small": own})
    with pytest.raises(LimbeckError, match="whose tokenizer is not its teacher's"):
        check_students(recipe({"start": str(other)}, **layer_by_layer), tiny_bert, {"small": other})
    check_students(recipe({"start": str(other)}), tiny_bert, {"small": other})  # answers are about whole texts


def test_a_sweep_needs_rows_to_choose_by() -> None:
    with pytest.raises(DataError, match="too small for one; add rows"):
        require_selection({"rows": {"train": 5, "validation": 1, "selection": 0}})
    require_selection({"rows": {"selection": 1}})
    require_selection({})  # a plan has not counted them
