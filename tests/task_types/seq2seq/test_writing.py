"""Models that read and write: two stacks, teacher-forced and cached passes, kept answers, the teacher's texts, and a
run that is killed while they are written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.ports.rows.prepared import prepare_rows
from tasks.preflight import check_students
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.task_types.heads import HEADS
from tasks.task_types.seq2seq.target import WRITTEN_IDS
from tasks.task_types.units import Writing
from tasks.training.answers import answer
from tasks.training.data.rows import Task, load_tokenizer, read_rows, read_task
from tasks.training.distill import distill_prediction
from tasks.training.finetune import finetune
from tasks.training.models.students import build_student, load_classifier, save_model
from tasks.training.writing import answer_texts as stage
from tasks.training.writing.answer_texts import best_text, write_all_beams
from tasks.training.writing.generation_config import write_generation_config
from tasks.training.writing.text_blocks import BEAMS_FILE, read_beams
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.seq2seq.test_chain import values_for

KNOBS: dict[str, Any] = {
    "task_type": "seq2seq",
    "max_length": 32,
    "precision": "fp32",
    "steps": 4,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "temperature": 1.5,
    "hard_weight": 0.25,
    "evaluations": 0,
    "seed": 3,
    "start": "teacher",
    "shape": {"layers": 2, "decoder_layers": 1},
}
BEAM = {"task_type": "seq2seq", "beams": 2, "max_length": 6, "source_length": 32, "precision": "fp32"}
SHORT = {
    "name": "short",
    "layers": 2,
    "decoder_layers": 1,
    "start": "limbeck-seq2seq",
    "mixer": "light",
    "kernel": 3,
    "positions": 12,
}
HEAD = HEADS["seq2seq"]
TASK = Task("texts", "seq2seq", None, "bleu", False, HEAD)


def job(knobs: dict[str, Any], folder: Path, **inputs: Path) -> Job:
    """A job that writes a folder of its own."""
    order = {"job": "test", "knobs": knobs, "output": str(folder), "checkpoints": str(folder.with_suffix(".marks"))}
    folder.mkdir(exist_ok=True)
    return Job({**order, "inputs": {name: str(one) for name, one in inputs.items()}}, silent=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    rows = RowsSlice(task=TaskSpec(name="texts", kind="seq2seq"), selection_rows=3, purge=False)
    prepare_rows(write_sentences(folder / "table", 40), rows, folder / "rows")
    return {"rows": folder / "rows", "teacher": write_translator(folder / "teacher", layers=3)}


def test_texts_that_are_learned_in_part_are_told(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summaries beyond the limit were cut in silence, and models learned to stop there."""
    said = list[str]()
    monkeypatch.setattr(Job, "log", lambda self, line: said.append(line))
    knobs = {"task_type": "seq2seq", "steps": 1, "batch_size": 4, "evaluations": 0, "seed": 0}
    base = inputs["teacher"]
    for length in (8, 64):
        finetune(job(knobs | {"max_length": length}, tmp_path / str(length), base=base, rows=inputs["rows"]))
    (line,) = (one for one in said if "texts to write" in one)
    assert re.match(r"\d+ of \d+ texts to write have max_length: 8 tokens or more, and are learned up to", line)


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
def test_both_stacks_keep_evenly_spread_layers_and_the_cache_agrees(family: str, tmp_path: Path) -> None:
    """A layer that kept its old number would be looked up at a wrong place of the cache, or at none."""
    folder = write_translator(tmp_path, family, layers=4)
    model = HEAD.auto_class().from_pretrained(folder).eval()
    small = build_student("teacher", model, SimpleNamespace(layers=3, decoder_layers=2), seed=0).eval()
    assert small.config.kept_layers == [0, 2, 3] and small.config.kept_decoder_layers == [0, 3]
    ids_BT = torch.randint(2, 280, (2, 7), generator=torch.Generator().manual_seed(0))
    mask_BT = torch.ones_like(ids_BT)
    assert HEAD.write is not None
    with torch.inference_mode():
        written_BL = HEAD.write(small, ids_BT, mask_BT, Writing(most=5, least=5))
        logits_BLV = small(input_ids=ids_BT, attention_mask=mask_BT, written_ids=written_BL).logits.clone()
        logits_BLV[..., small.config.eos_token_id] = -torch.inf  # as the least length forbids it
    assert torch.equal(logits_BLV.argmax(-1), written_BL)
    assert {one.dtype for one in small.parameters()} == {torch.float32}
    small.save_pretrained(tmp_path / "small")
    assert type(small).__name__ in (tmp_path / "small" / "config.json").read_text()


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
def test_all_that_learns_is_in_the_file(family: str, tmp_path: Path) -> None:
    """transformers lets the tables of positions of a loaded Marian learn, and leaves them out of its file."""
    folder = write_translator(tmp_path / "base", family)
    model = load_classifier(folder, TASK, torch.device("cpu"))
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) * 0.1)
    save_model(model, load_tokenizer(folder), tmp_path / "saved")
    again = load_classifier(tmp_path / "saved", TASK, torch.device("cpu"))
    given = {"input_ids": torch.tensor([[5, 6, 7, 1]]), WRITTEN_IDS: torch.tensor([[3, 4, 5]])}
    with torch.no_grad():
        ours, theirs = (one.eval()(**given).logits for one in (model, again))
    assert torch.equal(ours, theirs)


def test_a_model_without_a_decoder_is_refused() -> None:
    from transformers import BertConfig

    with pytest.raises(ModelError, match="a model of type bert reads a text and writes none"):
        HEAD.auto_class().from_config(BertConfig())


def test_padding_changes_neither_logits_nor_targets(inputs: dict[str, Path]) -> None:
    from tasks.training.data.encoded import collate

    task = read_task(inputs["rows"], "seq2seq")
    tokenizer, model = load_tokenizer(inputs["teacher"]), HEAD.auto_class().from_pretrained(inputs["teacher"]).eval()
    encoded = read_rows(inputs["rows"], "train", task.head).tokens(tokenizer, 32)
    assert encoded.windows is not None and encoded.windows.targets_UK is not None
    both, alone = (collate(encoded, rows, 0, torch.device("cpu")) for rows in ([0, 7], [7]))
    with torch.inference_mode():
        many, few = (one.answers({"logits": model(**one.inputs(model)).logits})["logits"] for one in (both, alone))
    torch.testing.assert_close(many[-len(few) :], few, rtol=0, atol=1e-5)
    target_K = encoded.windows.targets_UK[alone.numbers][:, 0]
    assert target_K[-1] == 1  # the end is learned, too
    assert tokenizer.decode(target_K[:-1]) == read_rows(inputs["rows"], "train", task.head).labels_N[7]


def test_a_live_teacher_and_all_words_kept_end_in_the_same_weights(tmp_path: Path, inputs: dict[str, Path]) -> None:
    kept = {"words": 1000, "temperature": KNOBS["temperature"], "bits": 32}
    asked = {name: KNOBS[name] for name in ("task_type", "max_length", "precision")} | {"kept": kept}
    answer(job(asked, tmp_path / "answers", **inputs))
    slow = KNOBS | {"learning_rate": 2e-4}  # AdamW enlarges rounding by its rate
    distill_prediction(job(slow, tmp_path / "live", **inputs))
    distill_prediction(job(slow, tmp_path / "kept", **inputs, answers=tmp_path / "answers"))
    live, stored = (load_file(tmp_path / name / "model.safetensors") for name in ("live", "kept"))
    start = load_file(inputs["teacher"] / "model.safetensors")
    assert any((live[name] - start[name]).abs().max() > 2e-4 for name in live if name in start)
    for name, values in live.items():
        if not name.endswith("k_proj.bias"):  # its gradient is rounding alone: it shifts all scores of a query alike
            torch.testing.assert_close(values, stored[name], rtol=0, atol=1e-6)


def test_students_learn_the_teachers_texts_whatever_their_tokenizer(tmp_path: Path, inputs: dict[str, Path]) -> None:
    write_all_beams(job(BEAM, tmp_path / "texts", **inputs))
    own = {name: value for name, value in KNOBS.items() if name not in ("start", "shape")}
    start = write_translator(tmp_path / "start", layers=1, pieces=290)
    given = {**inputs, "start": start, "texts": tmp_path / "texts"}
    for signal_name in ("sequence", "interpolated", "labels"):
        distill_prediction(job({**own, "signal": signal_name}, tmp_path / signal_name, **given))
    first, second, third = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("sequence", "interpolated", "labels")
    )
    assert first != third and second != third
    with pytest.raises(ModelError, match="signal: sequence"):
        distill_prediction(job(own, tmp_path / "words", **given))


@pytest.mark.parametrize("signal_name", ["labels", "teacher"])
def test_texts_without_an_end_are_refused(signal_name: str, tmp_path: Path, inputs: dict[str, Path]) -> None:
    """A model that learns them would write as many words as it may, of every source."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    start = write_translator(tmp_path / "start", layers=1)
    tokenizer = AutoTokenizer.from_pretrained(start)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.save_pretrained(start)
    own = {name: value for name, value in KNOBS.items() if name not in ("start", "shape")}
    with pytest.raises(ModelError, match=r"writes no end \(eos_token_id \d+ .* behind (\d+) of \1 texts"):
        distill_prediction(job({**own, "signal": signal_name}, tmp_path / signal_name, **inputs, start=start))


def test_the_nearest_text_of_a_beam_is_taken_and_the_likeliest_among_equals() -> None:
    assert best_text(["a cat", "the dog sat here now"], "the dog sat here") == "the dog sat here now"
    assert best_text(["x", "y"], "the dog") == "x" and best_text(["", "y"], "the dog") == "y"


def test_a_stopped_run_writes_what_is_missing_alone(
    tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.training.writing.text_blocks.SOURCES_OF_BLOCK", 8)
    write_all_beams(job(BEAM, tmp_path / "whole", **inputs))
    (tmp_path / "stopped.marks").mkdir()
    for name in ("texts-000000.parquet", "texts-000002.parquet"):
        shutil.copy(tmp_path / "whole.marks" / name, tmp_path / "stopped.marks" / name)
    (tmp_path / "stopped.marks" / "unfinished").write_bytes(b"PAR1")  # as a run that was killed leaves it
    asked = list[int]()
    before = stage.texts_of_batch
    monkeypatch.setattr(stage, "texts_of_batch", lambda *all_of: asked.append(len(all_of[3])) or before(*all_of))
    facts = write_all_beams(job(BEAM, tmp_path / "stopped", **inputs))
    assert sum(asked) == int(str(facts["rows"])) - 16
    first, second = ((tmp_path / name / BEAMS_FILE).read_bytes() for name in ("whole", "stopped"))
    assert first == second


KILLED = """
import sys
from pathlib import Path
from tests.task_types.seq2seq import test_writing as own
import tasks.training.writing.text_blocks as blocks
blocks.SOURCES_OF_BLOCK = 4
folder, rows, teacher = map(Path, sys.argv[1:])
own.write_all_beams(own.job(own.BEAM, folder, rows=rows, teacher=teacher))
"""


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_texts(
    tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 in the middle; the finished blocks are not written again."""
    monkeypatch.setattr("tasks.training.writing.text_blocks.SOURCES_OF_BLOCK", 4)
    whole = job(BEAM, tmp_path / "whole", **inputs)
    write_all_beams(whole)
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(folder), str(inputs["rows"]), str(inputs["teacher"])]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    marks, until = folder.with_suffix(".marks"), time.monotonic() + 120
    while len(list(marks.glob("texts-*"))) < 2 and time.monotonic() < until and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in marks.glob("texts-*")}
    assert 2 <= len(done) < len(list(whole.checkpoints.glob("texts-*"))) and not (folder / BEAMS_FILE).exists()
    write_all_beams(job(BEAM, folder, **inputs))
    assert {name: (marks / name).stat().st_mtime_ns for name in done} == done
    digests = [sha256((one / BEAMS_FILE).read_bytes()).hexdigest() for one in (folder, tmp_path / "whole")]
    assert digests[0] == digests[1]
    texts = read_beams(folder / BEAMS_FILE)
    assert [*texts] == read_rows(inputs["rows"], "train", read_task(inputs["rows"], "seq2seq").head).ids_N.tolist()
    assert {len(own) for own in texts.values()} == {2}


def test_words_of_a_batch_do_not_depend_on_its_neighbours(inputs: dict[str, Path]) -> None:
    from tasks.scoring.predict import outputs_of

    sources = ["1 2 : Film gut , Buch arm", "3 : Film gut", "1 : Essen fein , Faden arm , Film gut"]
    many = outputs_of(inputs["teacher"], sources, None, 32, task_type="seq2seq")["written"]
    alone = [outputs_of(inputs["teacher"], [one], None, 32, task_type="seq2seq")["written"][0] for one in sources]
    assert np.array_equal(many, alone)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"exports": {"formats": ["onnx", "executorch"]}},
            "so they write no texts, and translators is of type seq2seq",
        ),
        ({"layer_dropping": {}}, "drops layers of one stack; a student"),
        ({"transfer": {"source": "a"}}, "transfer has texts without a target"),
        ({"augmentation": {"masked_lm": "teacher"}}, "remove the section augmentation"),
        ({"task_distillation": {"intermediate": {}}}, "compares layers of one stack"),
        (
            {"generation": {"beams": 1}, "students": [{"name": "mixed", "layers": 2, "signal": "interpolated"}]},
            "generation.beams is 1; set 2 or more beams, or signal: sequence",
        ),
        ({"task_distillation": {"prediction": {"patience": {}}}}, "remove patience"),
        ({"students": [{"name": "a", "layers": 1, "start": "top"}]}, "which has layers of one stack"),
        ({"candidates": [{"name": "n", "from": "teacher", "by": "neuron-pruning", "keep": 0.5}]}, "with one stack"),
        ({"ensemble": {"teachers": [{"model": "another"}]}}, "are not mixed; remove the section ensemble"),
        ({"task": {"name": "t", "kind": "seq2seq", "metrics": ["accuracy"]}}, "legal are bleu, chrf"),
        ({"general_distillation": {}, "corpus": {"source": "a"}}, "remove the section general_distillation"),
    ],
)
def test_what_is_not_built_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values_for(tmp_path, tmp_path) | changes)


@pytest.mark.parametrize(("beams", "penalty"), [(3, 0.5), (1, 0.5)])
def test_a_finished_folder_states_how_it_is_judged(
    beams: int, penalty: float, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    """Whatever the teacher's own settings were: here some that sample."""
    base = shutil.copytree(inputs["teacher"], tmp_path / "base")
    sampling = {"do_sample": True, "temperature": 0.3, "top_k": 7, "max_length": 99, "bad_words_ids": [[5]]}
    stated = base / "generation_config.json"
    stated.write_text(json.dumps(json.loads(stated.read_text()) | sampling))
    knobs = {"beams": beams, "length_penalty": penalty, "max_length": 9}
    write_generation_config(job(knobs, tmp_path / "settled", base=base))
    settled = tmp_path / "settled"
    changed = {one.name for one in base.iterdir() if one.read_bytes() != (settled / one.name).read_bytes()}
    assert changed == {"generation_config.json"} and {*os.listdir(base)} == {*os.listdir(settled)}
    model = HEAD.auto_class().from_pretrained(settled)
    own, ids_BT = model.generation_config, torch.tensor([[11, 12, 13, 1]])
    assert (own.num_beams, own.max_new_tokens, own.max_length, own.bad_words_ids) == (beams, 9, None, [[5]])
    assert not own.do_sample and own.temperature is None
    assert HEAD.write is not None
    asked = HEAD.write(model, ids_BT, torch.ones_like(ids_BT), Writing(beams, penalty, 9))
    assert torch.equal(model.generate(input_ids=ids_BT)[:, 1:], asked)


@pytest.mark.parametrize(
    ("changes", "whose", "most"),
    [({"generation": {"max_length": 200}}, "the teacher", 128), ({"students": [SHORT]}, "short", 12)],
)
def test_texts_longer_than_a_model_has_places_for_are_refused(
    changes: dict[str, Any], whose: str, most: int, tmp_path: Path
) -> None:
    model = write_translator(tmp_path / "model")
    recipe = Recipe.model_validate({**values_for(model, tmp_path), **changes})
    with pytest.raises(ModelError, match=rf"and {whose} has {most} positions.*set generation.max_length: {most}"):
        check_students(recipe, model, {})


def test_other_types_write_no_texts() -> None:
    values = {"name": "a", "task": "sst2", "teacher": {"model": "bert"}}
    with pytest.raises(ValidationError, match="whose models write none; set signal: teacher or labels"):
        Recipe.model_validate({**values, "students": [{"name": "s", "layers": 2, "signal": "sequence"}]})
    with pytest.raises(ValidationError, match="generation says how texts are written"):
        Recipe.model_validate({**values, "students": [{"name": "s", "layers": 2}], "generation": {"beams": 2}})
