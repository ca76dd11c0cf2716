"""What our ways to make a model smaller are worth beside those of other libraries: the same fine-tuned model, the same
budget, and no training after the cut.

Needs a fine-tuned classifier and two tables with the columns sentence and label: ``MODEL=folder ROWS=validation.parquet
LEARNED=train.parquet``. Importance is measured on 512 rows of LEARNED; accuracy is that of the first rows of ROWS, one
text at a time, as are milliseconds. Every line says accuracy, MB and ms; the figure is how many times faster than the
whole model in torch in fp32. Half of the neurons are the same number in each layer, half of the heads are compared
across layers. Peers that are not installed, or do not run beside this torch, are left out with their reason:
TextPruner (its masks of heads are kept as zeros, since transformers no longer removes heads), torch.ao, torchao and
neural-compressor. Shape letters: L layers, F neurons, H heads.
"""

from __future__ import annotations

import copy
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

from flows.branches.export import fits_seven_bits
from tasks.exports.graph import tidy
from tasks.exports.quantizing import quantize_by
from tasks.exports.tracing import trace
from tasks.methods.pruning.importance import OF_ROWS, most_important
from tasks.methods.pruning.neurons import feed_forward_maps, keep_neurons
from tasks.methods.pruning.silent_heads import kept_heads, leave_out_silent_heads, silence_heads, sounding_heads
from tasks.recipe.judging import Exports
from tasks.scoring.onnx_models import open_session
from tasks.task_types.heads import HEADS
from tasks.training.data.rows import Rows, Task, load_tokenizer
from tasks.training.finetune import labelled_loss
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.neuron_pruning import measured_on
from tasks.training.shrinking.width_pruning import importance_on_rows
from tests.benchmarks.measure import Figure, Lap, interleave, timed
from tests.benchmarks.setting import Setting

CPU, WIDTH, MEASURED, JUDGED, TIMED = torch.device("cpu"), 64, 512, 1000, 24
WHOLE = "the whole model in torch, fp32"
Answer = Callable[[dict[str, torch.Tensor]], np.ndarray]
"""Maps the inputs of one text to its logits."""


@dataclass(frozen=True)
class Shared:
    """The model that all make smaller, and the rows."""

    model: Any
    tokenizer: Any
    learned: Rows
    judged: Rows
    scratch: Path
    threads: int

    def whole(self) -> Any:
        """Return a copy of the model."""
        return copy.deepcopy(self.model)

    def texts(self, rows: Sequence[str]) -> list[dict[str, torch.Tensor]]:
        """Return the inputs of single texts."""
        return [
            dict(self.tokenizer(text, truncation=True, max_length=WIDTH, return_tensors="pt").items()) for text in rows
        ]


@dataclass(frozen=True)
class Contender:
    """A smaller model: its answers, and its bytes."""

    answer: Answer
    size: int


def shrinking_peers(setting: Setting) -> list[Figure]:
    """Make every smaller model, score it, and time all in turn."""
    with tempfile.TemporaryDirectory() as folder:
        shared = read_all(Path(folder), setting)
        made: dict[str, Contender] = {}
        for name, make in CONTENDERS.items():
            try:
                made[name] = make(shared)
            except Exception as error:  # a peer may raise anything; ours are meant to run
                if name.startswith("ours") or name == WHOLE:
                    raise
                setting.tell(f"{name} is left out: {type(error).__name__}: {str(error).strip().splitlines()[0][:160]}")
        inputs = shared.texts(shared.judged.texts)
        right = {name: accuracy(one, inputs, shared.judged.labels_N) for name, one in made.items()}
        for name, one in made.items():
            setting.tell(f"{name}: accuracy {right[name]:.4f}, {one.size / 1e6:.1f} MB")
        contest = interleave(
            {name: partial(lap, one, inputs[:TIMED]) for name, one in made.items()}, setting.repeats, tell=setting.tell
        )
    clock = "cpu" if setting.threads == 1 else "wall"
    figures = []
    for name, one in made.items():
        ms = 1e3 * float(np.median([each.per_unit(clock) for each in contest.laps[name]]))
        told = f"accuracy {right[name]:.4f}, {one.size / 1e6:.1f} MB, {ms:.2f} ms"
        figures.append(contest.figure(told, of=name, against=WHOLE, target=None, clock=clock))
    return figures


def read_all(scratch: Path, setting: Setting) -> Shared:
    """Read the model and the rows that the environment names."""
    folder = Path(os.environ["MODEL"])
    labels = ["0", "1"]
    task = Task("peers", "classification", labels, "accuracy", False, HEADS["classification"])
    model = load_classifier(folder, task, CPU).eval()
    rows = (read_table(Path(os.environ[name])) for name in ("LEARNED", "ROWS"))
    learned, judged = (first(rows, most) for rows, most in zip(rows, (MEASURED, JUDGED), strict=True))
    return Shared(model, load_tokenizer(folder), learned, judged, scratch, setting.threads)


def read_table(path: Path) -> Rows:
    """Read sentences and labels in a random order, which is always the same."""
    table = pq.read_table(path, columns=["sentence", "label"]).to_pydict()
    order = np.random.default_rng(0).permutation(len(table["label"]))
    return Rows(order, [table["sentence"][row] for row in order], None, np.asarray(table["label"])[order])


def first(rows: Rows, most: int) -> Rows:
    """Return the first rows."""
    return Rows(rows.ids_N[:most], rows.texts[:most], None, rows.labels_N[:most])


def accuracy(one: Contender, inputs: Sequence[dict[str, torch.Tensor]], labels_N: np.ndarray) -> float:
    """Return the share of right answers, asked one by one."""
    return float(np.mean([one.answer(given).argmax() == label for given, label in zip(inputs, labels_N, strict=True)]))


def lap(one: Contender, inputs: Sequence[dict[str, torch.Tensor]]) -> Lap:
    """Time some texts, one by one."""
    with timed(len(inputs)) as found:
        for given in inputs:
            one.answer(given)
    return found


# --- ours -------------------------------------------------------------------------------------------------------------


def in_torch(model: Any, size: int | None = None) -> Contender:
    """Return a model in torch; its bytes are those of its state, as torch would save it."""
    model = model.eval()
    if size is None:
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        size = buffer.tell()

    def answer(given: dict[str, torch.Tensor]) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(model(**given).logits[0])

    return Contender(answer, size)


def as_graph(shared: Shared, model: Any, name: str, way: str = "") -> Contender:
    """Return a model's graph in fp32, or quantized in a way."""
    path = shared.scratch / f"{name}.onnx"
    leave_out_silent_heads(model)
    texts = shared.learned.texts[:2]
    inputs = trace(model, shared.tokenizer, texts, None, path, outputs=("logits",), opset=20)
    tidy(path)
    if way:
        full, path = path, path.with_suffix(f".{way}.onnx")
        quantize_by(way, full, path, reduce_range=fits_seven_bits(Exports()), feeds=lambda: iter(()))
    session = open_session(path, shared.threads)
    return Contender(
        lambda given: session.run(None, {one: given[one].numpy() for one in inputs})[0][0], path.stat().st_size
    )


def measured(shared: Shared, model: Any) -> tuple[Any, Any, np.ndarray, int]:
    """Return what importance is measured with: loss, tokens, rows and the padding's number."""
    task = Task("peers", "classification", ["0", "1"], "accuracy", False, HEADS["classification"])
    encoded, pad = shared.learned.tokens(shared.tokenizer, WIDTH), shared.tokenizer.pad_token_id
    loss = labelled_loss(model, task, shared.learned, encoded, pad)
    return loss, encoded, np.arange(len(shared.learned)), pad


def half_of_the_neurons(shared: Shared) -> Any:
    """Return our model with half of its neurons, by taylor."""
    model = shared.whole()
    found_LF = measured_on(OF_ROWS["taylor"], model, *measured(shared, model))
    keep_neurons(model, [most_important(one, feed_forward_maps(model)[0][0].out_features // 2) for one in found_LF])
    return model


def half_of_the_heads(shared: Shared) -> Any:
    """Return our model with half of its heads, by taylor, compared across layers."""
    model = shared.whole()
    found = importance_on_rows("taylor", model, *measured(shared, model))
    silence_heads(model, kept_heads(found.of_heads_LH, sounding_heads(model), 0.5, "global"))
    return model


# --- theirs -----------------------------------------------------------------------------------------------------------


def by_textpruner(shared: Shared, part: str) -> Any:
    """Return TextPruner's model (arXiv:2203.15996) with half of its neurons or heads, by the loss."""
    from textpruner import GeneralConfig, TransformerPruner, TransformerPruningConfig
    from textpruner.pruners.utils import generate_mask

    model, heads = shared.whole().requires_grad_(True), part == "heads"
    config = TransformerPruningConfig(pruning_method="iterative", ffn_even_masking=True, head_even_masking=False)
    general = GeneralConfig(use_device="cpu", output_dir=str(shared.scratch))
    pruner = TransformerPruner(model, transformer_pruning_config=config, general_config=general)
    batches = []
    for start in range(0, len(shared.learned), 32):
        rows = slice(start, start + 32)
        batch = shared.tokenizer(
            shared.learned.texts[rows], truncation=True, max_length=WIDTH, padding=True, return_tensors="pt"
        )
        batches.append({**batch, "labels": torch.from_numpy(shared.learned.labels_N[rows])})
    of_heads_LH, of_neurons_LF = pruner.get_importance_score(batches, lambda outputs: outputs.loss)
    kept = of_heads_LH if heads else of_neurons_LF
    mask = generate_mask(kept, kept.numel() // 2, even_masking=not heads)
    pruner.prune_with_masks(**{"head_mask" if heads else "ffn_mask": mask}, keep_shape=heads, save_model=False)
    return model


def by_torch_ao(shared: Shared) -> Contender:
    """Quantize linear maps to int8 with torch's own dynamic quantization."""
    from torch.ao.quantization import quantize_dynamic

    return in_torch(quantize_dynamic(shared.whole(), {nn.Linear}, dtype=torch.qint8))


def by_torchao(shared: Shared) -> Contender:
    """Quantize linear maps to int8 with torchao's dynamic quantization."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = shared.whole()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return in_torch(model)


def by_neural_compressor(shared: Shared) -> Contender:
    """Quantize with neural-compressor's dynamic quantization of a captured program."""
    from neural_compressor.torch.export import export
    from neural_compressor.torch.quantization import DynamicQuantConfig, convert, prepare

    given = shared.texts(shared.learned.texts[:1])[0]
    sizes = {name: {1: torch.export.Dim("length", min=2, max=WIDTH)} for name in given}
    whole = shared.whole()
    whole.set_attn_implementation("eager")
    captured = export(whole, example_inputs=tuple(given.values()), dynamic_shapes=tuple(sizes.values()))
    prepared = prepare(captured, DynamicQuantConfig())
    prepared(*given.values())
    model = convert(prepared)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)

    def answer(each: dict[str, torch.Tensor]) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(model(*each.values()).logits[0])

    answer(given)
    return Contender(answer, buffer.tell())


CONTENDERS: dict[str, Callable[[Shared], Contender]] = {
    WHOLE: lambda shared: in_torch(shared.whole()),
    "ours: the whole model as a graph": lambda shared: as_graph(shared, shared.whole(), "whole"),
    "ours: half of the neurons, torch": lambda shared: in_torch(half_of_the_neurons(shared)),
    "TextPruner: half of the neurons, torch": lambda shared: in_torch(by_textpruner(shared, "neurons")),
    "ours: half of the heads, graph": lambda shared: as_graph(shared, half_of_the_heads(shared), "heads"),
    "TextPruner: half of the heads, our graph": lambda shared: as_graph(
        shared, by_textpruner(shared, "heads"), "their-heads"
    ),
    "ours: int8 dynamic, graph": lambda shared: as_graph(shared, shared.whole(), "int8", "dynamic"),
    "torch.ao: int8 dynamic": by_torch_ao,
    "torchao: int8 dynamic": by_torchao,
    "neural-compressor: int8 dynamic": by_neural_compressor,
}
