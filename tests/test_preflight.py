"""What cannot work is refused before anything is spent, in one sentence that says what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.errors import DataError, GateError, LimbeckError
from tasks.gate.floor import require_floor
from tasks.ports.files.tokenizer_files import same_reading
from tasks.preflight import check_students, require_selection
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import TeacherSlice
from tasks.results.facts import ModelFacts, RowsFacts
from tests.tiny import write_tiny_bert


def recipe(student: dict[str, Any], **sections: Any) -> Recipe:
    own = {
        "name": "tiny",
        "task": {"name": "tiny"},
        "gate": {"split": "validation"},
        "students": [{"name": "small", "layers": 2, **student}],
    }
    return Recipe.model_validate({**own, **sections})


@pytest.mark.parametrize(
    ("student", "sections", "sentence"),
    [
        ({"layers": 5}, {}, "has 5 layers and its teacher 4"),
        ({}, {"teacher": {"model": "x", "max_length": 100}}, "teacher.max_length is 100, and .* has 64 positions"),
        (
            {},
            {"task_distillation": {"prediction": {"max_length": 65}}},
            "task_distillation.prediction.max_length is 65, and the teacher has 64 positions",
        ),
        (
            {},
            {"task_distillation": {"intermediate": {"max_length": 256}}},
            "task_distillation.intermediate.max_length is 256, and the teacher has 64 positions",
        ),
        (
            {},
            {"layer_dropping": {"drop": [1], "max_length": 96}},
            "^max_length of top-1 is 96, and the teacher has 64 positions",
        ),
        (
            {"start": "limbeck-encoder", "positions": 65},
            {"task_distillation": {"prediction": {"max_length": 32}}},
            "student small: positions is 65, and the teacher has embeddings of 64",
        ),
        ({"hidden": 18, "start": "random"}, {}, "width 18 does not divide by 4 heads"),
        ({"hidden": 32, "start": "embeddings"}, {}, "is wider"),
        (
            {"layers": 3},
            {"task_distillation": {"intermediate": {"matching": {"layer_map": "divisible"}}}},
            "do not divide by 3",
        ),
        ({}, {"layer_dropping": {"drop": [4]}}, "cannot drop 4 of 4 layers"),
        ({}, {"layer_dropping": {"strategies": ["topp"]}}, "did you mean 'top'"),
        ({"layers": 1, "start": "alternate-odd"}, {}, "alternate-odd cannot drop 3 of 4 layers"),
        (
            {"hidden": 8, "heads": 4, "start": "random"},
            {"task_distillation": {"prediction": {"patience": {}}}},
            "patience needs equal widths",
        ),
        (
            {"start": "top", "hidden": 8, "heads": 4},
            {"task_distillation": {"intermediate": {"method": "replacing"}}},
            "remove hidden",
        ),
        ({"start": "teacher", "feed_forward": 8}, {}, "starts from whole layers .* remove feed_forward"),
        ({"start": "distilbert", "hidden": 8}, {}, "starts from whole layers .* remove hidden"),
        (
            {"start": "random", "heads": 2},
            {"task_distillation": {"intermediate": {}}},
            "attention scores need equal heads",
        ),
        (
            {"start": "random"},
            {"task_distillation": {"intermediate": {"method": "relations", "relations": {"heads": 5}}}},
            "5 relation heads do not divide",
        ),
        (
            {"start": "random"},
            {"task_distillation": {"intermediate": {"method": "relations", "relations": {"layer": 5}}}},
            "has layers 1 to 4",
        ),
        (
            {"start": "random", "hidden": 8, "heads": 4},
            {"corpus": {"source": "x"}, "general_distillation": {"method": "triple"}},
            "directions of hidden states need equal widths",
        ),
    ],
)
def test_a_student_that_cannot_be_built(
    student: dict[str, Any], sections: dict[str, Any], sentence: str, tiny_bert: Path
) -> None:
    with pytest.raises(LimbeckError, match=sentence):
        check_students(recipe(student, **sections), tiny_bert, {})


GENERAL = {"corpus": {"source": "x"}, "general_distillation": {}}
SECOND = {"teachers": [{"model": "other"}]}


@pytest.mark.parametrize(
    ("student", "sections", "sentence"),
    [
        ({"start": "topp"}, {}, "unknown start 'topp'; did you mean 'top'"),
        ({"start": "random", "origin": "pretrained"}, {}, "start: random has no layers; remove origin"),
        ({"signal": "labels", "intermediate": {}}, {}, "learns from labels alone, but has an intermediate phase"),
        ({"stages": [], "intermediate": {}}, {}, "an intermediate phase that is not in its stages"),
        ({"start": "contribution", "origin": "pretrained"}, GENERAL, "general distillation has no task"),
        (
            {"start": "distilbert", "intermediate": {"method": "replacing"}},
            {},
            "must start from whole layers of the fine-tuned teacher",
        ),
        (
            {"start": "distilbert", "intermediate": {"matching": {"layer_map": "kept"}}},
            {},
            "which has no layers of its teacher",
        ),
        (
            {"intermediate": {"method": "replacing"}},
            {"transfer": {"source": "x", "alone": True}},
            "transfer text has no labels; set transfer.alone: false",
        ),
        (
            {"intermediate": {"matching": {"hidden": 0, "attention": 0}}},
            {},
            "hidden, attention are all 0, so nothing would be distilled",
        ),
        (
            {"intermediate": {"method": "relations", "relations": {"query": 0, "key": 0, "value": 0}}},
            {},
            "query, key, value are all 0",
        ),
        (
            {"prediction": {"hard_weight": 1}},
            {"transfer": {"source": "x", "alone": True}},
            "learns from labels only .hard_weight: 1.",
        ),
        ({"signal": "labels"}, {"ensemble": SECOND}, "no student learns from the ensemble's predictions"),
        (
            {},
            {"ensemble": {**SECOND, "combine": "certainty"}, "task": "stsb"},
            "certainty needs classes, and stsb is a task of regression",
        ),
        (
            {},
            {"teacher": {"choose_by": "pearson"}},
            "teacher.choose_by is pearson, and tiny is a task of classification; choose one of headline, accuracy, f1",
        ),
        (
            {"prediction": {"choose_by": "f1"}},
            {"task": "stsb"},
            "students.small.prediction.choose_by is f1, and stsb is a task of regression",
        ),
    ],
)
def test_a_recipe_that_would_fail_later_or_be_read_in_part(
    student: dict[str, Any], sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        recipe(student, **sections)


def test_what_is_refused_is_not_refused_too_often(tiny_bert: Path) -> None:
    recipe({"start": "contribution", "origin": "pretrained", "stages": []}, **GENERAL)
    recipe({"start": "top", "origin": "pretrained"}, **GENERAL)
    recipe({"signal": "labels"}, ensemble=SECOND, layer_dropping={"signal": "teacher"})
    check_students(recipe({"start": "top", "hidden": 16, "heads": 4, "feed_forward": 32}), tiny_bert, {})
    check_students(recipe({"start": "distilbert"}), tiny_bert, {})


def test_a_teacher_without_a_head_for_words_is_not_asked_for_any(tmp_path: Path, tiny_bert: Path) -> None:
    bare = shutil.copytree(tiny_bert, tmp_path / "bare")
    (bare / "config.json").write_text(
        json.dumps(json.loads((bare / "config.json").read_text()) | {"architectures": ["BertModel"]})
    )
    triple = {**GENERAL, "general_distillation": {"method": "triple"}}
    for sections in (triple, {"augmentation": {"masked_lm": "teacher"}}):
        check_students(recipe({"start": "random"}, **sections), tiny_bert, {})
        with pytest.raises(LimbeckError, match="saved as BertModel, without a masked-LM head"):
            check_students(recipe({"start": "random"}, **sections), bare, {})
    check_students(recipe({"start": "random", "stages": []}, **triple), bare, {})  # nobody passes it


def test_a_checkpoint_of_ones_own_is_compared_by_its_own_widths(tmp_path: Path, tiny_bert: Path) -> None:
    own = write_tiny_bert(tmp_path / "own", layers=2)
    narrow = json.loads((own / "config.json").read_text()) | {"hidden_size": 8, "num_attention_heads": 2}
    (own / "config.json").write_text(json.dumps(narrow))
    patient = {"task_distillation": {"prediction": {"patience": {}}}}
    with pytest.raises(LimbeckError, match="small is 8 wide and its teacher 16; patience needs equal widths"):
        check_students(recipe({"start": str(own)}, **patient), tiny_bert, {"small": own})
    with pytest.raises(LimbeckError, match="2 heads against the teacher's 4"):
        check_students(recipe({"start": str(own)}, task_distillation={"intermediate": {}}), tiny_bert, {"small": own})
    with pytest.raises(LimbeckError, match="which has 8 units, and the recipe gives it 16; set hidden: 8"):
        check_students(recipe({"start": str(own), "hidden": 16}), tiny_bert, {"small": own})


def test_a_checkpoint_of_ones_own_has_the_depth_that_the_recipe_says(tmp_path: Path, tiny_bert: Path) -> None:
    own = write_tiny_bert(tmp_path / "own", layers=3)
    check_students(recipe({"layers": 3, "start": str(own)}), tiny_bert, {"small": own})
    with pytest.raises(LimbeckError, match="which has 3 layers, and the recipe gives it 2; set layers: 3"):
        check_students(recipe({"layers": 2, "start": str(own)}), tiny_bert, {"small": own})


def test_a_checkpoint_of_ones_own_reads_as_its_teacher_does(tmp_path: Path, tiny_bert: Path) -> None:
    own = write_tiny_bert(tmp_path / "own", layers=2)
    other = shutil.copytree(own, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["film"], tokenizer["model"]["vocab"]["song"] = (
        tokenizer["model"]["vocab"]["song"],
        tokenizer["model"]["vocab"]["film"],
    )
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    layer_by_layer = {"task_distillation": {"intermediate": {}}}
    plain = shutil.copytree(own, tmp_path / "plain")  # the same tokens in the older kind of file
    numbers = json.loads((plain / "tokenizer.json").read_text())["model"]["vocab"]
    (plain / "vocab.txt").write_text("\n".join(sorted(numbers, key=numbers.__getitem__)))
    (plain / "tokenizer.json").unlink()
    check_students(recipe({"start": str(plain)}, **layer_by_layer), tiny_bert, {"small": plain})
    check_students(recipe({"start": str(own)}, **layer_by_layer), tiny_bert, {"small": own})
    with pytest.raises(LimbeckError, match="whose tokenizer is not its teacher's"):
        check_students(recipe({"start": str(other)}, **layer_by_layer), tiny_bert, {"small": other})
    check_students(recipe({"start": str(other)}), tiny_bert, {"small": other})  # answers are about whole texts
    pieces = {"task": {"name": "asked", "kind": "spans", "pair": "context"}}
    with pytest.raises(LimbeckError, match="tokens cannot be compared one by one; .* or set its signal: labels"):
        check_students(recipe({"start": str(other)}, **pieces), tiny_bert, {"small": other})
    of_labels = recipe({"start": str(other), "signal": "labels", "role": "baseline"}, **pieces)
    check_students(of_labels, tiny_bert, {"small": other})


CLASSES, VALUES = TeacherSlice(task_type="classification"), TeacherSlice(task_type="regression")


def judged(score: float, rows: int, split: str = "selection") -> ModelFacts:
    return ModelFacts.model_validate(
        {
            "selection_score": score,
            "selection_accuracy": score,
            "majority": 0.5,
            "selection_count": rows,
            "selection_split": split,
        }
    )


@pytest.mark.parametrize(
    ("score", "rows", "refused", "doubted"),
    [
        (0.54, 1000, True, False),  # so many rows are held against the floor of 0.55 by the score
        (0.56, 1000, False, False),
        (0.54, 30, False, True),  # as well the luck of thirty rows
        (0.60, 30, False, True),
        (0.90, 30, False, False),
        (0.20, 30, True, False),  # labels in another order: below with the whole interval
    ],
)
def test_the_floor_is_not_decided_by_the_luck_of_a_few_rows(
    score: float, rows: int, refused: bool, doubted: bool
) -> None:
    if refused:
        with pytest.raises(GateError, match=f"on {rows:,} selection rows and the floor is 0.550"):
            require_floor(CLASSES, judged(score, rows), "accuracy")
    else:
        assert bool(require_floor(CLASSES, judged(score, rows), "accuracy")) is doubted


def test_what_a_floor_says_where_it_cannot_tell() -> None:
    said = require_floor(CLASSES, judged(0.6, 30), "accuracy")
    assert "on 30 selection rows" in said and "from 0.423 to 0.754" in said and "raise data.selection_rows" in said
    on_train = require_floor(CLASSES, judged(0.6, 30, "train"), "accuracy")
    assert "training rows, since there are no selection rows" in on_train


def test_a_floor_of_ones_own_is_taken_at_its_word() -> None:
    with pytest.raises(GateError, match=r"the floor is 0\.800 \(teacher\.floor\)"):
        require_floor(CLASSES.model_copy(update={"floor": 0.8}), judged(0.79, 30), "accuracy")
    assert require_floor(CLASSES.model_copy(update={"floor": 0.5}), judged(0.79, 30), "accuracy") == ""


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("classification", r"\); check the label column and label order, train it longer"),
        ("next-words", r"\); train it longer, or set teacher\.floor"),
        ("seq2seq", r"\); check the columns of sources and targets, train it longer"),
    ],
)
def test_a_refused_teacher_gets_advice_that_its_type_can_follow(kind: str, advice: str) -> None:
    with pytest.raises(GateError, match=advice):
        require_floor(TeacherSlice(task_type=kind, floor=0.9), judged(0.5, 300), "accuracy")


def test_the_floor_of_an_error_is_the_largest_one_that_is_allowed() -> None:
    knobs = TeacherSlice(task_type="next-words", floor=30.0)
    assert require_floor(knobs, judged(-29.5, 300), "word_perplexity") == ""
    with pytest.raises(GateError, match=r"a word_perplexity of 41\.200 on 300 selection rows, and at most 30\.000"):
        require_floor(knobs, judged(-41.2, 300), "word_perplexity")


def test_a_floor_that_no_score_reaches_is_refused_before_anything_runs() -> None:
    given: dict[str, Any] = {"task": "sst2", "students": [{"name": "small", "layers": 2}], "teacher": {"floor": 90}}
    given["gate"] = {"split": "validation"}
    with pytest.raises(ValueError, match=r"teacher\.floor is 90, and accuracy is at most 1; state it as a share"):
        Recipe.model_validate({"name": "percent", **given})
    words = {
        "task": {"name": "words", "kind": "next-words"},
        "data": {"source": "documents"},
        "teacher": {"floor": -30},
    }
    with pytest.raises(
        ValueError, match=r"teacher\.floor is -30, and word_perplexity is an error, which is at least 0"
    ):
        Recipe.model_validate({"name": "negative", **given, **words})


def test_the_floor_of_a_regression_is_a_correlation_whatever_decides_the_task() -> None:
    facts = {"selection_score": -1.3, "selection_count": 1000, "selection_split": "selection", "majority": 0.0}

    def doubt(correlation: float, **changes: int) -> str:
        return require_floor(
            VALUES, ModelFacts.model_validate({**facts, **changes, "selection_correlation": correlation}), "pearson"
        )

    assert doubt(0.4) == ""
    with pytest.raises(GateError, match="the minimum correlation"):
        doubt(0.2)
    assert "from -0.266 to 0.590" in doubt(0.2, selection_count=20)
    assert "from -1.000 to 1.000" in doubt(0.2, selection_count=3)


def test_a_sweep_needs_rows_to_choose_by() -> None:
    with pytest.raises(DataError, match="too small for one; add rows"):
        require_selection(RowsFacts(rows={"train": 5, "validation": 1, "selection": 0}))
    require_selection(RowsFacts(rows={"selection": 1}))
    require_selection(RowsFacts())  # a plan has not counted them


@pytest.mark.parametrize(
    ("name", "other"),
    [("spm.model", b"other pieces"), ("sentencepiece.bpe.model", b"other"), ("vocab.json", b'{"a": 1}')],
)
def test_vocabularies_without_a_tokenizer_json_are_compared_too(tmp_path: Path, name: str, other: bytes) -> None:
    for folder, body in (("one", b'{"a": 0}'), ("same", b'{"a": 0}'), ("other", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(body)
    assert same_reading(tmp_path / "one", tmp_path / "same") and not same_reading(tmp_path / "one", tmp_path / "other")
