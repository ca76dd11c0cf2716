"""Conversion of a checkpoint to a program of ExecuTorch for phones: torch exports the model with an open length, and
XNNPACK, the library of CPU kernels, takes the parts of it that it knows.

In eight bits, weights have a scale for each output and states one for each token, found in every call; embedding tables
stay in fp32, since ExecuTorch has no kernel that reads rows of a table in eight bits. A program takes one text.
Shape letter: T tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.engine.job import Job
from tasks.exports.checkpoints import (
    ask_together,
    ask_torch,
    card_of_checkpoint,
    facts_of,
    rows_to_compare,
    unmade,
)
from tasks.exports.package import copy_beside, write_card
from tasks.exports.parity import apart, loss, score
from tasks.ports.rows.row_files import read_split
from tasks.recipe.slices import ProgramSlice
from tasks.scoring.executorch_programs import NOT_INSTALLED, exported_model, is_installed
from tasks.scoring.onnx_models import FILES
from tasks.task_types.graphs import GRAPHS

USUAL_TEXT = 512
"""Most tokens of a text, or those of the evaluation where they are more: memory is planned for the longest one."""


def export_program(job: Job) -> dict[str, object]:
    """Write a checkpoint as a program, in fp32 or with weights in eight bits, and compare its outputs with the
    checkpoint's; report the reason where there is none."""
    from tasks.exports.tracing import reason
    from tasks.scoring.predict import load

    folder, knobs = job.inputs["model"], job.read(ProgramSlice)
    graph, (model, tokenizer) = GRAPHS[knobs.task_type], load(folder, knobs.task_type)
    names = [output.name for output in graph.outputs]
    texts, pairs = rows_to_compare(job, knobs)
    card = card_of_checkpoint(folder, model, tokenizer, knobs, opset=0, pairs=pairs is not None)
    copy_beside(folder, job.output)
    if not is_installed():
        return unmade(job, card, NOT_INSTALLED)
    path, engine = job.output / FILES["executorch"], f"executorch {'int8' if knobs.eight_bits else 'fp32'}"
    job.log("torch and ExecuTorch lower the model")
    try:
        most = max(USUAL_TEXT, card["max_length"])
        inputs = lower(model, tokenizer, texts, pairs, path, outputs=names, most=most, eight_bits=knobs.eight_bits)
    except MemoryError:
        raise
    except Exception as error:  # each part of the lowering has exceptions of its own
        return unmade(job, card, reason(model, error).replace("torch.onnx", "ExecuTorch", 1))
    card["made_with"] = {**card["made_with"], **{name: version(name) for name in ("executorch", "torchao")}}
    write_card(job.output, {**card, "inputs": inputs, "program_outputs": names, "engine": engine})
    own = {name: value for name, value in facts_of(path, card).items() if name != "opset"}
    checkpoint = load(folder, knobs.task_type)
    if knobs.eight_bits:
        return {**own, **score_program(job, knobs, checkpoint, card["max_length"])}
    theirs = ask_torch(*checkpoint, texts, pairs, card["max_length"], names, graph.units)
    ours = ask_together(job, texts, pairs, card["max_length"], graph.units)
    return {**own, "rows": len(texts), **apart(ours, theirs, knobs.task_type)}


def score_program(job: Job, knobs: ProgramSlice, checkpoint: tuple[Any, Any], max_length: int) -> dict[str, object]:
    """Score a program in eight bits and its checkpoint on the selection rows."""
    graph, rows = GRAPHS[knobs.task_type], read_split(job.inputs["rows"], "selection")
    names = [output.name for output in graph.outputs]
    theirs = ask_torch(*checkpoint, rows.texts, rows.pairs, max_length, names, graph.units)
    model = exported_model(job.output, threads=job.threads)
    ours = model.outputs(rows.texts, rows.pairs, max_length, units=graph.units)
    value, full = (score(one, rows, knobs.metric, knobs.task_type) for one in (ours, theirs))
    how = {"way": "dynamic", "metric": knobs.metric, "fp32": {"score": full}, "rows": len(rows)}
    return {**how, "score": value, "loss": loss(value, full, knobs.metric), **apart(ours, theirs, knobs.task_type)}


def lower(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    path: Path,
    *,
    outputs: Sequence[str],
    most: int,
    eight_bits: bool,
) -> list[str]:
    """Write a model's program of texts of at most ``most`` tokens, with the outputs of these names; return the names of
    its inputs. Raises what torch and ExecuTorch raise for a model that they cannot express."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from tasks.architectures.known_architectures import longest
    from tasks.exports.tracing import Answering, example

    model.set_attn_implementation("eager")
    given = example(model, tokenizer, texts, pairs)
    inputs = tuple(value[:1] for value in given.values())
    length = {1: torch.export.Dim("length", min=2, max=longest(model.config, most))}
    shapes = tuple(length for _ in inputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exported = torch.export.export(Answering(model, outputs).eval(), inputs, dynamic_shapes=shapes)
        if eight_bits:
            exported = torch.export.export(with_eight_bits(exported, inputs), inputs, dynamic_shapes=shapes)
        program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    path.write_bytes(program.buffer)
    return list(given)


def with_eight_bits(exported: Any, inputs: tuple[Any, ...]) -> Any:
    """Return an exported model whose linear maps have weights in eight bits; one text is enough, as ranges of states
    are found in every call."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    grid = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    prepared = prepare_pt2e(exported.module(), XNNPACKQuantizer().set_global(grid))
    prepared(*inputs)
    return convert_pt2e(prepared)
