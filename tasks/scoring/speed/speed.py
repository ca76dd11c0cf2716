"""Latency and memory of inference, measured: candidate and teacher in turn, so that a busy moment affects both.

Shape letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from tasks.errors import ModelError
from tasks.scoring.executorch_programs import exported_model
from tasks.scoring.onnx_models import card_of, is_export
from tasks.scoring.speed.timing import NEAR, Median, median_of, quotient_of, time_in_turn
from tasks.scoring.writing.graph_writer import WRITING_GRAPHS
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.units import Writing

Inputs = Mapping[str, np.ndarray]
"""Inputs of a model by name, each [B, T]."""
ENGINE = "torch fp32 sdpa"
FORGET_THE_PEAK = "5"  # tells Linux to reset the peak resident size to the present one
TRIAL_REPEATS, TRIAL_WARMUP = 9, 2
"""Calls of the timing that finds the faster library."""


class Checkpoint:
    """A checkpoint in torch, ready to be timed."""

    engine = ENGINE

    def __init__(self, model: Any, tokenizer: Any, write: Any = None) -> None:
        self.model, self.tokenizer, self.write = model, tokenizer, write
        self.config, self.vocabulary = self.model.config, self.model.config.vocab_size

    def call(self, inputs: Inputs) -> Callable[[], Any]:
        """Return a function that runs the model once on these inputs: on all that its tokenizer would return, because
        some cost time, such as XLNet's segments."""
        import torch

        given = {name: torch.from_numpy(inputs[name]) for name in self.tokenizer.model_input_names if name in inputs}
        if self.write is not None:  # as many tokens as it reads
            tokens = given["input_ids"].shape[1]
            both, exactly = (given["input_ids"], given["attention_mask"]), Writing(most=tokens, least=tokens)
            return lambda: self.write(self.model, *both, exactly)
        return lambda: self.model(**given)


class Export:
    """An export in ONNX Runtime, ready to be timed."""

    def __init__(self, folder: Path, threads: int, write: Any = None) -> None:
        from transformers import AutoConfig

        self.write = write
        self.model = exported_model(folder, threads=threads)
        self.config = AutoConfig.from_pretrained(folder, local_files_only=True)
        self.engine, self.vocabulary = str(card_of(folder)["engine"]), self.config.vocab_size

    def call(self, inputs: Inputs) -> Callable[[], Any]:
        """Return a function that runs the model once on these inputs."""
        given = {name: inputs[name] for name in self.model.card["inputs"]}
        if self.write is not None:  # as many tokens as it reads
            return lambda: self.write(self.model, given, given["input_ids"].shape[1])
        return lambda: self.model.ask(given)


def opened(folder: Path, threads: int, task_type: str) -> Checkpoint | Export:
    """Load the model in a folder, a checkpoint or an export."""
    from tasks.scoring.predict import load

    if is_export(folder):
        writes = task_type in WRITING_GRAPHS
        return Export(folder, threads, WRITING_GRAPHS[task_type].timed if writes else None)
    from tasks.task_types.heads import HEADS

    return Checkpoint(*load(folder, task_type), HEADS[task_type].write)


def fastest_call(
    folder: Path, model: Checkpoint | Export, task_type: str, inputs: Inputs
) -> tuple[str, Callable[[], Any]]:
    """Return the name of the fastest engine for a model on this machine, and its call; for a checkpoint, each library
    for fp32 products is tried."""
    from tasks.scoring.speed.matmul_libraries import ONEDNN, by_onednn, libraries

    if isinstance(model, Export):
        return model.engine, model.call(inputs)
    first, *others = libraries()
    calls = {first: model.call(inputs)}
    if ONEDNN in others:
        packed = opened(folder, 1, task_type)
        by_onednn(packed.model, inputs["input_ids"].size)
        calls[ONEDNN] = packed.call(inputs)
    times = {first: [0.0]}
    if others:
        times = time_in_turn(calls, repeats=TRIAL_REPEATS, warmup=TRIAL_WARMUP, seconds=0.0)
    best = min(times, key=lambda library: float(np.median(times[library])))
    return f"{model.engine}, {best}", calls[best]


def measure_latency(
    folders: Mapping[str, Path],
    *,
    task_type: str,
    batch: int,
    length: int,
    threads: int,
    repeats: int,
    warmup: int,
    seconds: float,
) -> Latency:
    """Time ``model`` and ``teacher`` in turn on the same random tokens; return the milliseconds of each, their
    quotient, and the reason if they are unsteady."""
    import torch

    torch.set_num_threads(threads)
    models: dict[str, Checkpoint | Export] = {}
    for name, folder in folders.items():
        models[name] = opened(folder, threads, task_type)
        require_length(models[name].config, length, further=int(GRAPHS[task_type].remembers))
    smallest = min(model.vocabulary for model in models.values())
    ids_BT = torch.randint(
        min(1000, smallest // 2), smallest, (batch, length), generator=torch.Generator().manual_seed(0)
    ).numpy()
    inputs = GRAPHS[task_type].timed_inputs(ids_BT)
    with torch.inference_mode():
        found = {}
        for name, model in models.items():
            found[name] = fastest_call(folders[name], model, task_type, inputs)
        times = time_in_turn(
            {name: call for name, (_, call) in found.items()}, repeats=repeats, warmup=warmup, seconds=seconds
        )
    return {**paces_of(times), "engines": {name: engine for name, (engine, _) in found.items()}}


class PaceFigures(TypedDict):
    """The latency of one of two models that were timed in turn, in ms."""

    p50_ms: float
    low_ms: float
    high_ms: float
    p95_ms: float


class Paces(TypedDict):
    """The figures of two models that were timed in turn."""

    model: PaceFigures
    teacher: PaceFigures
    speedup: float
    speedup_low: float
    speedup_high: float
    calls: int
    unsteady: str
    """The reason why they are unsteady; empty if they are steady."""


class Latency(Paces):
    """The same with the name of each model's engine."""

    engines: dict[str, str]


def paces_of(times: Mapping[str, list[float]]) -> Paces:
    """Return the figures computed from the milliseconds of model and teacher, timed in turn."""
    middles = {name: median_of(values) for name, values in times.items()}
    apart = quotient_of(times["teacher"], times["model"])
    figures: dict[str, PaceFigures] = {
        name: {
            "p50_ms": figure_of(middle.value),
            "low_ms": middle.low,
            "high_ms": middle.high,
            "p95_ms": float(np.quantile(times[name], 0.95)),
        }
        for name, middle in middles.items()
    }
    return {
        "model": figures["model"],
        "teacher": figures["teacher"],
        "speedup": figures["teacher"]["p50_ms"] / figures["model"]["p50_ms"],
        "speedup_low": apart.low,
        "speedup_high": apart.high,
        "calls": len(times["model"]),
        "unsteady": unsteady_because({**middles, "quotient": apart}, len(times["model"])),
    }


def figure_of(milliseconds: float) -> float:
    """Round a latency to the printed digits, so that the quotient of two printed figures is the printed speed-up."""
    return round(milliseconds, 2) if milliseconds >= 1 else float(f"{milliseconds:.3g}")


def unsteady_because(found: Mapping[str, Median], calls: int) -> str:
    """Return the reason why figures are unsteady; empty if every interval is narrow enough."""
    wide = {name: one.spread for name, one in found.items() if not one.known}
    said = ", ".join(f"{WHOSE[name]} ± {100 * spread:.1f} %" for name, spread in wide.items())
    return f"after {calls:,} calls each {said}, beyond {100 * NEAR:g} %" if wide else ""


WHOSE = {"model": "its median", "teacher": "its teacher's median", "quotient": "its speed-up"}


def require_length(config: object, length: int, further: int = 0) -> None:
    """Raise ModelError for a length beyond the model's positions, of which ``further`` are for tokens behind it."""
    from tasks.architectures.known_architectures import longest

    if length + further > (most := longest(config, length + further)):
        behind = f", {further} of them behind the text" if further else ""
        raise ModelError(
            f"speed.length is {length} and a model takes at most {most} tokens{behind}; lower speed.length"
        )


def memory(field: str) -> int:
    """Return a figure of this process's memory in bytes: VmRSS is its present size, VmHWM its peak.

    Not ``ru_maxrss``: a process inherits that from its parent, so it would report the parent's size.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def forget_peak() -> None:
    """Reset the peak of memory if the system allows it; otherwise the peak while importing libraries may count too."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(FORGET_THE_PEAK)


def import_family(folder: Path) -> None:
    """Import the code of a model's family by building it without weights, and read the kernels of a layer by running
    a tiny one: they take some 120 and 40 MB, which are the library's, not the model's."""
    import torch
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if is_export(folder):
        import onnxruntime  # noqa: F401 - its code is no more the model's than torch's is
        import tokenizers  # noqa: F401
    else:
        with torch.device("meta"):
            AutoModel.from_config(config)
        with torch.inference_mode():
            torch.nn.TransformerEncoderLayer(64, 4, 64, activation="gelu", batch_first=True).eval()(
                torch.zeros(1, 8, 64)
            )


def peak_increase(folder: Path, *, task_type: str, batch: int, length: int, threads: int) -> int:
    """Load and run a model in this process; return the increase of the peak memory in bytes.

    Call it before any other model is loaded: memory freed by another model would be reused and not be counted.
    """
    import torch

    import_family(folder)
    torch.set_num_threads(threads)
    forget_peak()
    before = memory("VmRSS")
    model = opened(folder, threads, task_type)
    require_length(model.config, length)
    call = model.call(GRAPHS[task_type].timed_inputs(np.full((batch, length), 7)))
    with torch.inference_mode():
        for _ in range(3):
            call()
    return memory("VmHWM") - before
