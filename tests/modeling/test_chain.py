"""A student with other attentions goes from teacher through both phases and a score to graphs in fp32 and int8; a
language model of this kind is distilled, exported, registered and pulled in a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.catalog import TaskSpec
from tasks.exports.jobs import JOBS as EXPORTING
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import AnswerSlice, IntermediateSlice, PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.scoring.jobs import JOBS as SCORING
from tasks.scoring.predict import outputs_of, predict_texts
from tasks.training.jobs import JOBS as TRAINING
from tests.architectures.test_a_further_architecture import done
from tests.exports.test_exports import EXPORT
from tests.scoring.test_jobs import CLASSES
from tests.task_types.next_words.tables import write_decoder, write_documents
from tests.task_types.next_words.test_chain import TRAINED, values_for
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.seq2seq.test_chain import TRAINED as LITTLE
from tests.task_types.seq2seq.test_chain import values_for as translators
from tests.tiny import write_tiny_bert
from tests.training.test_families import FAST, same_after_reload


@pytest.mark.slow
def test_a_language_model_with_other_attentions_in_a_whole_run(
    prefect_server: None, engines_here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, model = Home(tmp_path / "home").create(), write_decoder(tmp_path / "decoder", "gpt2")
    values = values_for(model, write_documents(tmp_path / "table"))
    del values["layer_dropping"]
    values["task_distillation"]["intermediate"] = {**TRAINED, "steps": 6, "method": "attention-outputs"}
    values["students"] = [{"name": "mixed", "layers": 2, "start": "limbeck-decoder", "mixer": "lsra"}]
    values |= {"exports": {"of": ["mixed"], "ways": ["dynamic"], "tolerance": 0.2, "min_speedup": 0}}
    result = run_recipe(Recipe.model_validate(values), home=home)
    models = {one["name"]: one for one in result["models"]}
    assert {*models} == {"teacher", "mixed", "mixed-onnx", "mixed-int8"}
    # of a token each layer remembers keys and values of 16 channels, and of the others what its convolution reads
    assert [models[name]["token_bytes"] for name in ("mixed", "mixed-onnx", "mixed-int8")] == [384, 384, 384]
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "mixed")
    Tracker(home.own_tracking_uri, home.artifacts).download("writer", str(number), tmp_path / "pulled")
    one, other = predict_texts(tmp_path / "pulled", ["the good film 731 was very good .", "good was the . film very"])
    assert one["token_perplexity"] < other["token_perplexity"]  # type: ignore[operator]
    programs = (tmp_path / "pulled" / "README.md").read_text().split("```python\n")[1:]
    assert len(programs) == 2 and programs[0].startswith("import limbeck_models")
    program = programs[1].split("```")[0].replace("FOLDER", str(tmp_path / "pulled"))  # of the graph, which needs none
    exec(compile(program, "card", "exec"), {})
    assert capsys.readouterr().out.strip().startswith("some text")


@pytest.mark.slow
def test_a_translator_learns_swapped_attentions_first(prefect_server: None, engines_here: None, tmp_path: Path) -> None:
    """Beside one whose attentions are swapped, and learn from words alone."""
    home, model = Home(tmp_path / "home").create(), write_translator(tmp_path / "translator")
    values = translators(model, write_sentences(tmp_path / "table"))
    values["task_distillation"]["intermediate"] = {**LITTLE, "steps": 30, "method": "attention-outputs"}
    swapped = {"layers": 3, "decoder_layers": 2, "start": "limbeck-seq2seq", "mixer": "linear"}
    values["students"] = [{"name": "both", **swapped}, {"name": "swapped", **swapped, "stages": []}]
    result = run_recipe(Recipe.model_validate(values), home=home)
    assert {one["name"] for one in result["models"]} == {"teacher", "both", "swapped"}
    ran = [stage["label"] for stage in result["stages"] if stage["name"] == "distill-layers"]
    assert ran == ["both"]


MIXERS = ("lsra", "light", "dynamic", "synth-random+softmax")


@pytest.mark.slow
def test_from_teacher_to_graphs(tiny_rows: Path, tmp_path: Path) -> None:
    rows, base, teacher, student = (tmp_path / name for name in ("rows", "base", "teacher", "student"))
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), rows)
    write_tiny_bert(base)
    done(TRAINING, "finetune", TeacherSlice(task_type="classification", **FAST), teacher, rows=rows, base=base)
    shape = Shape(layers=4, mixer=MIXERS)
    inner = IntermediateSlice(
        task_type="classification", **FAST, method="attention-outputs", shape=shape, start="limbeck-encoder"
    )
    facts = done(TRAINING, "intermediate", inner, tmp_path / "first", rows=rows, teacher=teacher)
    assert facts["copied_attention"] == [0, 1, 2, 3]
    answers = AnswerSlice(task_type="classification", max_length=16, precision="fp32")
    done(TRAINING, "answer", answers, tmp_path / "answers", rows=rows, teacher=teacher)
    given = {"rows": rows, "teacher": teacher, "answers": tmp_path / "answers", "start": tmp_path / "first"}
    done(TRAINING, "prediction", PredictionSlice(task_type="classification", **FAST), student, **given)
    same_after_reload(student)
    card = done(SCORING, "score", CLASSES, tmp_path / "card", [student], rows=rows, teacher=teacher)
    assert card["flops"] > 0
    found = done(EXPORTING, "export", EXPORT, tmp_path / "export", model=student, rows=rows)
    assert found["made"] and found["equal_answers"] == 1 and found["largest_difference"] < 1e-4
    for texts in (["the film was good"], ["a meal", "the plot was very bad and the book was not"]):
        ours, graphs = (
            outputs_of(folder, texts, None, 16, task_type="classification")["logits"]
            for folder in (student, tmp_path / "export")
        )
        assert abs(ours - graphs).max() < 1e-4
