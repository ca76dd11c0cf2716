"""The packing room: a graph that answers as its checkpoint does, in eight bits nearly so, and that says nothing of the
machine that made it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.branches.export import fits_seven_bits
from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.exports.graph import part_sums
from tasks.exports.jobs import JOBS
from tasks.exports.package import files_for_a_model, shared_card
from tasks.exports.parity import against_fp32, against_full, apart, loss
from tasks.exports.quantizing import best, draw, quietly
from tasks.gate.speed_check import NOISE, too_slow
from tasks.recipe.judging import Exports
from tasks.results.facts import GraphFacts, Pace, SpeedFacts
from tasks.scoring.onnx_models import FILES, OnnxModel, card_of, is_export
from tasks.scoring.predict import predict_texts, truncated_share
from tests.command_line import Command
from tests.forked.interpreter import interpreter
from tests.scoring.small import logits_of, sentences, write_classifier

ROOT = Path(__file__).resolve().parents[2]
EXPORT = {"opset": 20, "parity_rows": 24, "max_length": 32, "task_type": "classification"}
QUANTIZE = {
    "ways": ["dynamic", "static"],
    "calibration_rows": 12,
    "seed": 0,
    "task_type": "classification",
    "metric": "accuracy",
    "max_length": 32,
    "reduce_range": fits_seven_bits(Exports()),
}


def write_rows(folder: Path, **counts: int) -> Path:
    """Write splits of sentences."""
    folder.mkdir()
    for split, count in counts.items():
        columns = {
            "id": range(count),
            "text": sentences(count),
            "pair": pa.nulls(count, pa.string()),
            "label": [number % 2 for number in range(count)],
        }
        pq.write_table(
            pa.table({key: pa.array(column) for key, column in columns.items()}), folder / f"{split}.parquet"
        )
    return folder


def do(job: str, output: Path, knobs: dict[str, Any], **inputs: Path) -> dict[str, Any]:
    """Do a job in this process; return its facts."""
    order = {
        "job": job,
        "knobs": knobs,
        "inputs": {name: str(folder) for name, folder in inputs.items()},
        "output": str(output),
        "threads": 1,
    }
    output.mkdir(parents=True)
    return JOBS[job](Job(order, silent=True))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier, rows, its graph and that graph in int8."""
    place = tmp_path_factory.mktemp("packing")
    write_classifier(place / "model")
    write_rows(place / "rows", train=40, selection=30, validation=30)
    (place / "facts.json").write_text(
        json.dumps(
            {
                "level before": logging.getLogger().level,
                "export": do("export", place / "full" / "output", EXPORT, model=place / "model", rows=place / "rows"),
                "quantize": do(
                    "quantize",
                    place / "small" / "output",
                    QUANTIZE,
                    export=place / "full" / "output",
                    rows=place / "rows",
                ),
            }
        )
    )
    return place


def facts(place: Path, job: str) -> dict[str, Any]:
    return dict(json.loads((place / "facts.json").read_text())[job])


def test_a_graph_answers_as_its_checkpoint(place: Path) -> None:
    texts = sentences(60)
    ours_NC, theirs_NC = (logits_of(place / folder, texts, None, 32) for folder in ("full/output", "model"))
    assert ours_NC == pytest.approx(theirs_NC, abs=1e-4) and np.ptp(theirs_NC[:, 0]) > 0.1
    found = facts(place, "export")
    assert found["made"] and found["largest_difference"] < 1e-4 and found["equal_answers"] == 1 and found["rows"] == 24


def test_padding_never_speaks(place: Path) -> None:
    """A long sentence beside a short one: the short one's answer is the same as alone."""
    model = OnnxModel(place / "full" / "output")
    together_NC = model.ask(model.encode(["good", " ".join(["bad film"] * 12)], None, 32))["logits"]
    alone_NC = model.ask(model.encode(["good"], None, 32))["logits"]
    assert together_NC[0] == pytest.approx(alone_NC[0], abs=1e-5)
    given = model.encode(["good", " ".join(["bad film"] * 12)], None, 32)
    given["attention_mask"][:] = 1
    assert np.abs(model.ask(given)["logits"][0] - alone_NC[0]).max() > 1e-3  # the mask is what does it


def test_the_second_text_is_told_apart(place: Path) -> None:
    one, other = (logits_of(place / "full" / "output", ["the film"], [pair], 32) for pair in ("was good", "was bad"))
    assert (
        one == pytest.approx(logits_of(place / "model", ["the film"], ["was good"], 32), abs=1e-4)
        and np.abs(one - other).max() > 1e-3
    )


def test_a_text_longer_than_the_model_is_cut_as_the_checkpoint_cuts_it(place: Path) -> None:
    long = ["good film was bad " * 40]
    assert logits_of(place / "full" / "output", long, None, 128) == pytest.approx(
        logits_of(place / "model", long, None, 128), abs=1e-4
    )
    assert truncated_share(place / "full" / "output", [*long, "good"], None, 128) == 0.5


def test_int8_is_near_and_a_good_deal_smaller(place: Path) -> None:
    texts = sentences(60)
    ours_NC, theirs_NC = (logits_of(place / folder / "output", texts, None, 32) for folder in ("small", "full"))
    assert 0 < np.abs(ours_NC - theirs_NC).mean() < 0.05 * np.ptp(theirs_NC)
    tables = onnx.load(str(place / "small" / "output" / FILES["int8"])).graph.initializer
    kinds = {onnx.TensorProto.DataType.Name(one.data_type) for one in tables if np.prod(one.dims) >= 256}
    assert kinds <= {"INT8", "UINT8"}, "weights and embeddings, all of them"


def test_both_ways_are_weighed_on_the_selection_rows_and_the_better_is_kept(place: Path) -> None:
    found = facts(place, "quantize")
    assert found["rows"] == 30 and set(found["ways"]) == {"dynamic", "static"}
    assert (
        found["loss"]
        == min(way["loss"] for way in found["ways"].values())
        == pytest.approx(found["fp32"]["score"] - found["score"])
    )
    assert card_of(place / "small" / "output")["engine"] == f"onnxruntime int8 {found['way']}"
    texts = sentences(30)
    mine = logits_of(place / "small" / "output", texts, None, 32).argmax(-1)
    assert found["score"] == pytest.approx(np.mean(mine == np.arange(30) % 2))


def test_the_loggers_of_the_process_are_left_as_they_were(place: Path) -> None:
    with quietly():
        assert logging.getLogger().level == logging.ERROR
    assert logging.getLogger().level == json.loads((place / "facts.json").read_text())["level before"]


def test_equal_ways_are_told_apart_by_their_order() -> None:
    assert (
        best({"dynamic": {"loss": 0.1}, "static": {"loss": 0.1}}) == "dynamic"
        and best({"dynamic": {"loss": 0.1}, "static": {"loss": 0.0}}) == "static"
    )
    assert (
        best({"dynamic": {"because": "no"}, "static": {"loss": 0.5}}) == "static"
        and best({"dynamic": {"because": "no"}}) is None
    )


def test_calibration_depends_on_the_seed_alone() -> None:
    assert draw(100, 10, 1) == draw(100, 10, 1) != draw(100, 10, 2)
    assert draw(5, 10, 0) == [0, 1, 2, 3, 4] and sorted(set(draw(100, 10, 3))) == draw(100, 10, 3)


def test_static_reads_train_and_never_the_rows_that_judge_it(place: Path, tmp_path: Path) -> None:
    """Other selection rows leave the graph's bytes alone; other training rows do not."""
    knobs, found = QUANTIZE | {"ways": ["static"]}, {}
    write_rows(tmp_path / "same", train=40, selection=9)
    write_rows(tmp_path / "other", train=12, selection=30)
    for rows in (place / "rows", tmp_path / "same", tmp_path / "other"):
        found[rows.name] = do(
            "quantize", tmp_path / f"{rows.name}-out" / "output", knobs, export=place / "full" / "output", rows=rows
        )["sha256"]
    assert found["same"] == found["rows"] != found["other"]


def test_the_same_model_gives_the_same_bytes_and_they_name_no_folder(place: Path, tmp_path: Path) -> None:
    """A trace as torch writes it holds the source line of every operation, with the path of the machine's libraries."""
    again = do("export", tmp_path / "output", EXPORT, model=place / "model", rows=place / "rows")
    assert again["sha256"] == facts(place, "export")["sha256"]
    for folder, name in (("full", "onnx"), ("small", "int8")):
        text = (place / folder / "output" / FILES[name]).read_bytes()
        assert b"site-packages" not in text and str(ROOT).encode() not in text and b".py" not in text


def test_residual_sums_are_kept_from_the_norms(place: Path) -> None:
    graph = onnx.load(str(place / "full" / "output" / FILES["onnx"])).graph
    makers = {output: node.op_type for node in graph.node for output in node.output}
    norms = [makers[node.input[0]] for node in graph.node if node.op_type == "LayerNormalization"]
    assert norms == ["Sum"] * 5 and part_sums(graph) == 0  # the embeddings' norm, and two a layer


def test_what_onnx_cannot_express_is_noted_and_not_raised(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation of a library of somebody's, of which ONNX knows nothing."""
    import torch

    from tasks.exports.tracing import Answering

    twice = torch.library.custom_op(
        "limbeck_tests::twice", lambda x: 2 * x, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    twice.register_fake(torch.empty_like)
    plain = Answering.forward

    def forward(self: Any, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
        return twice(plain(self, input_ids, attention_mask, token_type_ids))

    monkeypatch.setattr(Answering, "forward", forward)
    found = do("export", tmp_path / "output", EXPORT, model=place / "model", rows=place / "rows")
    assert found == {"made": False, "because": found["because"]} and found["because"].startswith(
        "torch.onnx cannot express this bert model ("
    )
    assert (
        "\n" not in found["because"]
        and not (tmp_path / "output" / FILES["onnx"]).exists()
        and is_export(tmp_path / "output")
    )


def test_no_selection_rows_no_int8(place: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows", train=10, selection=0)
    with pytest.raises(DataError, match="and there are none; set data.selection_rows"):
        do("quantize", tmp_path / "output", QUANTIZE, export=place / "full" / "output", rows=rows)


def test_a_tokenizer_of_many_files_is_refused(place: Path, tmp_path: Path) -> None:
    from tasks.exports.package import copy_beside

    with pytest.raises(ModelError, match="has no tokenizer.json"):
        copy_beside(tmp_path, tmp_path)


def test_parity_by_hand() -> None:
    ours_NC, theirs_NC = np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([[0.5, 1.0], [0.0, 0.25]])
    ours, theirs = {"logits": ours_NC}, {"logits": theirs_NC}
    assert apart(ours, theirs, "classification") == {"largest_difference": 2.0, "equal_answers": 0.5}
    found = apart({"logits": np.array([[1.0], [2.0]])}, {"logits": np.array([[1.005], [2.02]])}, "regression")
    assert found["equal_answers"] == 0.5 and found["largest_difference"] == pytest.approx(0.02)
    assert loss(0.8, 0.9, "accuracy") == pytest.approx(0.1)
    assert loss(0.3, 0.2, "mse") == pytest.approx(0.5)  # an error: half as much again


def test_verdicts_say_what_was_allowed() -> None:
    made = GraphFacts(largest_difference=0.5, loss=0.02, way="static", metric="accuracy")
    assert against_full(made, 0.5) == "" and "by up to 0.5, and exports.parity allows 0.1" in against_full(made, 0.1)
    assert against_fp32(made, 0.02) == ""
    assert against_fp32(made, 0.01).startswith("int8 (static) loses 0.0200 of accuracy against its own fp32 graph")
    error = GraphFacts(loss=0.02, way="dynamic", metric="word_perplexity")
    assert "has 2.00% more word_perplexity than its own fp32 graph" in against_fp32(error, 0.01)
    unmade = GraphFacts(made=False, because="no")
    assert against_full(unmade, 1) == against_fp32(unmade, 1) == "no"


@pytest.mark.parametrize(
    ("ours", "theirs", "least", "refused"),
    [
        (1.0, 1.0, 1.0, False),  # as fast is not slower
        (1.04, 1.0, 1.0, False),  # noise
        (1.2, 1.0, 1.0, True),
        (1.0, 1.5, 2.0, True),  # faster, and less so than was asked
        (1.0, 2.0, 2.0, False),
        (5.0, 1.0, 0.1, False),
    ],
)
def test_int8_is_held_to_its_own_fp32_s_pace(ours: float, theirs: float, least: float, refused: bool) -> None:
    facts = SpeedFacts(
        model=Pace(p50_ms=ours, p95_ms=ours, low_ms=ours, high_ms=ours),
        teacher=Pace(p50_ms=theirs, p95_ms=theirs, low_ms=theirs, high_ms=theirs),
        speedup=theirs / ours,
        speedup_low=theirs / ours,
        speedup_high=theirs / ours,
        calls=9,
        batch=2,
        length=32,
        threads=1,
        unsteady="",
    )
    said = too_slow(facts, least)
    assert too_slow(facts.replaced(unsteady="after 9 calls"), least) == "", "what is unsteady keeps nothing out"
    assert bool(said) is refused and 0 < NOISE < 0.1
    assert not refused or said.startswith(
        f"int8 takes {ours:g} ms, its own fp32 {theirs:g} ms (batch 2, length 32, threads 1)"
    )


def test_both_formats_share_a_card(place: Path, tmp_path: Path) -> None:
    folders = {"onnx": place / "full" / "output", "int8": place / "small" / "output"}
    files = files_for_a_model(folders, tmp_path / "work")
    assert set(files) == {"onnx/model.onnx", "onnx/model_int8.onnx", "onnx/onnx.json"}
    card = json.loads(files["onnx/onnx.json"].read_text())
    assert (
        card["files"] == {name: FILES[name] for name in ("onnx", "int8")}
        and card["engine"]["onnx"] == "onnxruntime fp32"
        and card["int8"]["way"] in ("dynamic", "static")
    )
    assert "int8" not in shared_card({"onnx": card_of(folders["onnx"])})


def test_people_may_ask_an_export(place: Path) -> None:
    found = predict_texts(place / "small" / "output", ["good", "bad film"])
    assert {one["label"] for one in found} <= {"LABEL_0", "LABEL_1"} and all(0.5 <= one["score"] <= 1 for one in found)
    with pytest.raises(DataError, match="from single texts, and two are given"):
        predict_texts(place / "small" / "output", ["good"], ["bad film"])


def model_with_exports(place: Path, folder: Path) -> Path:
    """Write a model's folder as ``limbeck pull`` writes it, with graphs in fp32 and int8."""
    shutil.copytree(place / "model", folder / "model")
    (folder / "model" / "onnx").mkdir()
    for name, path in files_for_a_model(
        {"onnx": place / "full" / "output", "int8": place / "small" / "output"}, folder / "work"
    ).items():
        shutil.copyfile(path, folder / "model" / name)
    return folder / "model"


@pytest.mark.parametrize(("named", "job"), [("onnx", "full"), ("int8", "small")])
def test_the_user_chooses_the_graph_that_predicts(
    place: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, named: str, job: str
) -> None:
    """Of a whole model's folder, and of its folder of graphs; not the fastest one in silence."""
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    model, text = model_with_exports(place, tmp_path), "good film"
    expected = predict_texts(place / job / "output", [text])[0]
    for folder in (model, model / "onnx"):
        ended = command("predict", str(folder), text, "--format", named)
        assert ended.status == 0 and json.loads(ended.output) == {"text": text, **expected}
    refused = command("predict", str(model), text, "--format", "four-bit")
    assert refused.status == 1 and refused.error.count("\n") == 1
    assert "has no graph in four-bit; it has int8, onnx" in refused.error


def test_the_command_line_asks_the_onnx_folder_of_a_model(place: Path, tmp_path: Path) -> None:
    """Where the tokenizer lies one folder up."""
    model_with_exports(place, tmp_path)
    (tmp_path / "texts.csv").write_text("text\ngood film\nbad\n")
    words = [
        interpreter(),
        "-m",
        "flows.cli",
        "predict",
        str(tmp_path / "model" / "onnx"),
        str(tmp_path / "texts.csv"),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [{name: one[name] for name in ("label", "score")} for one in found] == predict_texts(
        place / "small" / "output", ["good film", "bad"]
    )


def test_the_room_runs_as_a_process_and_int8_needs_no_torch(place: Path, tmp_path: Path) -> None:
    order = {
        "job": "quantize",
        "knobs": QUANTIZE,
        "inputs": {"export": str(place / "full" / "output"), "rows": str(place / "rows")},
        "output": str(tmp_path / "output"),
        "threads": 1,
    }
    (tmp_path / "job.json").write_text(json.dumps(order))
    probe = """
import runpy, sys
try:
    runpy.run_module("tasks.exports", run_name="__main__")
except SystemExit as end:
    print(end.code, sorted({"torch", "transformers", "mlflow", "prefect", "boto3"} & set(sys.modules)))
"""
    words = [sys.executable, "-c", probe, str(tmp_path / "job.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout[-800:] + done.stderr[-800:]
    last = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    assert last["facts"]["sha256"] == facts(place, "quantize")["sha256"]
