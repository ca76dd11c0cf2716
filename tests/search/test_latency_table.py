"""The latency table: sums of parts, exact counts, its check on shapes that are no part of it, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import spearmanr

from tasks.engine.job import Job
from tasks.errors import LimbeckError
from tasks.recipe.makers.search import LatencySlice
from tasks.recipe.students import Shape
from tasks.results.search import LatencyTable
from tasks.scoring.speed.flops import flops_of, parameters_of, weight_bytes
from tasks.search.jobs import JOBS
from tasks.search.latency_table import ShapeBuilder
from tasks.search.space import bytes_of_row
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.pieces import keep_pieces
from tasks.training.models.students import build_student, save_model
from tests.architectures.test_albert_of_bert import tiny
from tests.families import write_tiny
from tests.task_types.masked_words.tables import write_encoder
from tests.task_types.next_words.tables import write_decoder

FAST: dict[str, Any] = {"repeats": 5, "warmup": 1, "seconds": 0.02, "length": 8, "task_type": "classification"}


def measured_table(bert: Path, output: Path, **knobs: Any) -> LatencyTable:
    slice_ = LatencySlice(**FAST | {"depths": (1, 4), **knobs})
    output.mkdir(exist_ok=True)
    job = Job(
        {
            "job": "latency-table",
            "knobs": slice_.model_dump(mode="json"),
            "inputs": {"base": str(bert)},
            "output": str(output),
        },
        silent=True,
    )
    return LatencyTable.model_validate(JOBS["latency-table"](job))


@pytest.fixture(scope="module")
def table(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> LatencyTable:
    return measured_table(
        tiny_bert,
        tmp_path_factory.mktemp("table"),
        widths=(1.0, 0.5),
        neurons=(1.0, 0.5),
        between=(2, 3),
        checks=3,
    )


def test_every_width_and_number_of_neurons_has_a_cell(table: LatencyTable) -> None:
    assert [(cell.hidden, cell.heads, cell.feed_forward) for cell in table.cells] == [
        (16, 4, 32),
        (16, 4, 16),
        (8, 2, 32),
        (8, 2, 16),
    ]
    assert all(cell.ms.of(4) > 0 for cell in table.cells)


def test_shapes_that_are_no_part_of_it_check_it(table: LatencyTable) -> None:
    assert len(table.checks) == 3 and {check.layers for check in table.checks} <= {2, 3}
    assert table.error == pytest.approx(sum(check.error for check in table.checks) / 3)
    assert table.largest_error == max(check.error for check in table.checks)
    predicted, measured = ([getattr(check, name) for check in table.checks] for name in ("predicted_ms", "measured_ms"))
    assert table.rank_correlation == pytest.approx(spearmanr(predicted, measured).statistic)
    again = LatencyTable.model_validate(table.as_json())
    assert again.rank_correlation == table.rank_correlation, "it is stored with the answer"


def test_parameters_bytes_and_flops_are_those_of_a_real_model(table: LatencyTable, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, BertConfig

    cell = table.cells[3]
    config = BertConfig(
        vocab_size=table.vocabulary,
        hidden_size=cell.hidden,
        num_hidden_layers=3,
        num_attention_heads=cell.heads,
        intermediate_size=cell.feed_forward,
        max_position_embeddings=64,
    )
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    assert cell.parameters.of(3) == parameters_of(tmp_path)
    assert cell.bytes.of(3) == pytest.approx(weight_bytes(tmp_path), rel=1e-2)
    assert cell.flops.of(3) == flops_of(tmp_path, 128, "classification")


def test_a_shared_block_is_counted_once(tmp_path: Path) -> None:
    """It was counted for each layer."""
    shape = Shape(layers=2, embedding=8, share="attention")
    student = build_student("albert", tiny(), shape, seed=0)
    save_model(student, load_tokenizer(write_tiny("albert", tmp_path / "other")), tmp_path / "base")
    found = measured_table(tmp_path / "base", tmp_path / "table", depths=(1, 2))
    assert found.cells[0].parameters.of(2) == parameters_of(tmp_path / "base")


def test_a_base_in_half_precision_is_measured_as_models_are_loaded(tiny_bert: Path, tmp_path: Path) -> None:
    """Its table ended in a traceback, or would have been of half the bytes."""
    half = shutil.copytree(tiny_bert, tmp_path / "half")
    stated = json.loads((half / "config.json").read_text())
    (half / "config.json").write_text(json.dumps({**stated, "dtype": "float16"}))
    whole, same = (measured_table(folder, tmp_path / folder.name, depths=(1, 2)) for folder in (tiny_bert, half))
    assert [one.bytes for one in whole.cells] == [one.bytes for one in same.cells]


def test_hidden_words_and_a_decoder_that_states_no_neurons_are_measured(tmp_path: Path) -> None:
    """A mask that only a tokenizer states was missing, and neurons that are four times the width were none."""
    encoder = write_encoder(tmp_path / "encoder", layers=2)
    decoder = write_decoder(tmp_path / "decoder", "gpt2", layers=2)
    stated = json.loads((decoder / "config.json").read_text())
    (decoder / "config.json").write_text(json.dumps({**stated, "n_inner": None}))
    for folder, kind in ((encoder, "masked-words"), (decoder, "next-words")):
        found = measured_table(folder, tmp_path / kind, depths=(1, 2), task_type=kind)
        assert found.cells[0].feed_forward > 0 and found.cells[0].parameters.of(2) == parameters_of(folder)


def test_layers_that_share_some_sets_of_weights_are_refused(tmp_path: Path) -> None:
    """Parameters do not grow by the layer: shapes over a budget were taken for fitting ones."""
    student = build_student("albert", tiny(), Shape(layers=4, embedding=8, share="groups:2"), seed=0)
    save_model(student, load_tokenizer(write_tiny("albert", tmp_path / "other")), tmp_path / "base")
    with pytest.raises(LimbeckError, match="the 4 layers of this teacher share 2 sets of weights, and the size of a"):
        measured_table(tmp_path / "base", tmp_path / "table", depths=(1, 4))


def test_a_width_that_a_config_cannot_state_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    """It was refused behind the training of the teacher: at the embeddings' width, an ELECTRA has no map from them."""
    electra = write_tiny("electra", tmp_path / "electra")
    with pytest.raises(LimbeckError, match="of type electra and width 8 has other parameters than one of width 16"):
        measured_table(electra, tmp_path / "table", widths=(1.0, 0.5))


def test_a_trimmed_vocabulary_is_as_much_smaller_as_predicted(tmp_path: Path) -> None:
    """Tables in four bits have a scale for every 32 numbers, also for the last 16 of 48: predicted without them, the
    rest of a trimmed model was said to be larger than it is."""
    words = [f"word{number}" for number in range(3000)]
    base = write_tiny("bert", tmp_path / "bert", more=words, hidden_size=48, num_hidden_layers=1)
    knobs = LatencySlice(**FAST, depths=(1,))
    order = {"job": "latency-table", "inputs": {"base": str(base)}, "output": str(tmp_path)}
    found = []
    for name in ("whole", "trimmed"):
        (tmp_path / name).mkdir()
        job = Job(order | {"knobs": knobs.model_dump(mode="json")}, silent=True)
        builder = ShapeBuilder(job, knobs, tmp_path / name)
        size = builder.size_of(1.0, 1.0, 1)
        model = builder.model_of(size)
        if name == "trimmed":
            keep_pieces(model, range(400))
        model.save_pretrained(tmp_path / name)
        graphs = {way: builder.graph_of(model, size, way) for way in ("onnx", "int8", "int8-table4")}
        found.append({"torch": weight_bytes(tmp_path / name)} | {way: graphs[way].stat().st_size for way in graphs})
    gone = builder.config.vocab_size - 400
    for way, whole in found[0].items():
        assert bytes_of_row(way, 48) * gone == pytest.approx(whole - found[1][way], rel=2e-3), way
    assert gone > 2600, "what else differs in the files is little beside it"


def test_a_shape_is_traced_once_and_its_graphs_are_removed_when_it_is_measured(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs of all shapes of a space, in all formats, were kept until the table was whole: gigabytes of BERT-base."""
    traced: list[str] = []
    most: list[int] = []

    def written(target: Path) -> None:
        target.write_bytes(b"graph")
        most.append(len([*target.parent.glob("*.onnx")]))

    def trace(model: Any, tokenizer: Any, texts: Any, pairs: Any, target: Path, **options: Any) -> None:
        traced.append(target.name)
        written(target)

    class Session:
        def get_inputs(self) -> list[Any]:
            return []

        def run(self, outputs: Any, feeds: Any) -> None:
            sum(range(1000))

    monkeypatch.setattr("tasks.search.latency_table.trace", trace)
    monkeypatch.setattr("tasks.search.latency_table.tidy", lambda target: None)
    monkeypatch.setattr("tasks.search.latency_table.quantize_by", lambda way, full, small, **options: written(small))
    monkeypatch.setattr("tasks.search.latency_table.open_session", lambda path, threads: Session())
    ways: dict[str, Any] = {"formats": ("int8", "onnx", "int8-table4"), "widths": (1.0, 0.5)}
    found = measured_table(tiny_bert, tmp_path, **ways, between=(2, 3), checks=12)
    assert len(found.cells) == 6 and len(found.checks) == 12
    assert len(traced) == len(set(traced)) == 2 * 4, "two widths with one to four layers"
    assert max(most) == 6, "two depths of one shape, in three formats"


@pytest.mark.slow
def test_graphs_are_timed_as_they_are_served(tiny_bert: Path, tmp_path: Path) -> None:
    found = measured_table(tiny_bert, tmp_path, depths=(1, 2), formats=("onnx", "int8"))
    onnx, int8 = found.cells
    assert (onnx.engine, int8.engine) == ("onnxruntime onnx", "onnxruntime int8")
    assert int8.row_bytes == onnx.row_bytes / 4 and int8.ms.of(2) > 0


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"neurons": (0.99,)}, "none would be removed; give a smaller share"),
        ({"widths": (0.9,)}, "nothing would be removed; give a smaller share"),
        ({"length": 100}, "lower speed.length"),
    ],
)
def test_what_no_model_can_have_is_refused(knobs: dict[str, Any], words: str, tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match=words):
        measured_table(tiny_bert, tmp_path, **knobs)
