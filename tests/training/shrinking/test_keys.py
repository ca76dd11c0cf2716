"""The code of one way to make a model smaller counts in the keys of its own stage alone."""

from __future__ import annotations

import pytest

from tasks.ports.code.fingerprint import program
from tests.stage_tasks import edited
from tests.task_types.test_keys import remade, with_statements

TRAINED_FOR_BITS = {"train-quantized", "train-with-static-ranges"}
SUPERNET = {"train-supernet", "cut-supernet", "judge-shapes"}
OWN = {
    # latencies: of narrower shapes; export: the maps of silent heads; training for few bits asks whether there are any
    "tasks.methods.pruning.widths": {
        "prune-width",
        "prune-heads",
        "prune-in-rounds",
        *SUPERNET,
        "measure-latencies",
        *TRAINED_FOR_BITS,
        "export-onnx",
        "export-executorch",
    },
    "tasks.methods.pruning.silent_heads": {"prune-heads", *TRAINED_FOR_BITS, "export-onnx", "export-executorch"},
    "tasks.methods.pruning.stream_importance": {"prune-width", "prune-heads", "prune-in-rounds", "train-supernet"},
    "tasks.training.shrinking.width_pruning": {"prune-width", "prune-heads", "prune-in-rounds", "train-supernet"},
    "tasks.methods.pruning.sub_networks": SUPERNET,
    "tasks.training.models.supernet": SUPERNET,
    "tasks.training.objectives.sub_networks": {"train-supernet"},
    "tasks.training.shrinking.head_pruning": {"prune-heads"},
    "tasks.training.shrinking.rounds": {"prune-in-rounds"},
    "tasks.training.shrinking.weight_pruning": {"prune-weights", "train-ticket"},
    "tasks.methods.pruning.weight_masks": {"prune-weights", "train-ticket"},
    "tasks.training.shrinking.tickets": {"train-ticket"},
    "tasks.methods.pruning.tickets": {"train-ticket"},
    "tasks.scoring.packing": {"pack-model"},
    "tasks.training.shrinking.quantization": TRAINED_FOR_BITS,
    "tasks.training.models.fake_quantization": TRAINED_FOR_BITS,
    "tasks.methods.quantization.grids": TRAINED_FOR_BITS,
    "tasks.methods.quantization.learned_steps": TRAINED_FOR_BITS,
    "tasks.methods.quantization.ternary": TRAINED_FOR_BITS,
    "tasks.training.shrinking.static_ranges": {"train-with-static-ranges"},
    "tasks.training.models.fixed_ranges": {"train-with-static-ranges"},
    "tasks.methods.quantization.learned_ranges": {"train-with-static-ranges"},
    "tasks.exports.trained_ranges": {"quantize-to-trained-ranges"},
    "tasks.training.pretraining.sentences": {"divide-corpus", "pretrain-encoder"},
    "tasks.training.pretraining.pair_batches": {"pretrain-encoder"},
    "tasks.methods.optimizers.lamb": {"pretrain-encoder"},
}


@pytest.mark.parametrize("name", OWN)
def test_an_edit_remakes_no_stage_of_another_recipe(name: str) -> None:
    there = edited({name: with_statements(program().sources[name])})
    assert remade(there, "classification") == OWN[name]


def test_an_edit_of_trained_codes_remakes_no_graph_of_another_model() -> None:
    name = "tasks.exports.trained_bits"
    there = edited({name: with_statements(program().sources[name])})
    timed = {"measure-latencies"}  # a latency table has graphs in several formats, and counts the code of all
    assert remade(there, "classification", ways=["dynamic", "static"]) == timed
    assert remade(there, "classification", ways=["four-bit"]) == timed
    assert "quantize-as-trained" in remade(there, "classification", ways=["four-bit-trained"])
