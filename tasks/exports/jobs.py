"""The jobs of the export engine, by name. Outputs are arrays by name, rows first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.architectures.known_architectures import architecture_of
from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.exports.checkpoints import (
    ask_together,
    ask_torch,
    card_of_checkpoint,
    facts_of,
    part_of,
    rows_to_compare,
    unmade,
)
from tasks.exports.graph import LARGEST, opset_of, tidy
from tasks.exports.package import copy_beside, has_own_tokenizer, write_card
from tasks.exports.parity import apart, loss, score
from tasks.exports.programs import export_program
from tasks.exports.quantizing import WayFacts, best, draw, quantize_by
from tasks.exports.trained_ranges import WAYS_OF_RANGES, quantize_with_ranges, ranges_by_weights
from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.recipe.slices import ExportSlice, QuantizeSlice, RangesSlice
from tasks.scoring.continuing import largest_step_difference
from tasks.scoring.onnx_models import FILES, OnnxModel, QuantizedWay, card_of
from tasks.scoring.predict import outputs_of_graph
from tasks.scoring.speed.flops import weight_bytes
from tasks.scoring.writing.graph_writer import WRITING_GRAPHS
from tasks.scoring.writing.rules import LEAST_LENGTHS, least_lengths, rules_of
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.units import Parts, Units, frame_of, texts_as_asked


def export(job: Job) -> dict[str, object]:
    """Write a checkpoint as an fp32 graph, and compare the graph's outputs on padded batches with the checkpoint's
    outputs on single rows."""
    from torch.onnx import OnnxExporterError

    from tasks.exports.tracing import reason
    from tasks.scoring.predict import load

    folder, knobs = job.inputs["model"], job.read(ExportSlice)
    model, tokenizer = load(folder, knobs.task_type)
    texts, pairs = rows_to_compare(job, knobs)
    card = card_of_checkpoint(folder, model, tokenizer, knobs, opset=knobs.opset, pairs=pairs is not None)
    path = job.output / FILES["onnx"]
    if weight_bytes(folder) > LARGEST:
        return unmade(
            job, card, f"its weights take {weight_bytes(folder):,} bytes, and one ONNX file holds {LARGEST:,}"
        )
    try:
        copy_beside(folder, job.output)
        job.log("torch traces the model with two rows")
        traced = traced_graph(model, tokenizer, texts, pairs, path, knobs)
    except OnnxExporterError as error:
        path.unlink(missing_ok=True)
        return unmade(job, card, reason(model, error))
    except ModelError as error:
        return unmade(job, card, str(error))
    tidy(path)
    own = {"own_tokenizer": True} if has_own_tokenizer(folder) else {}
    write_card(job.output, {**card, **traced, **own, "engine": "onnxruntime fp32"})
    near = parity_of(job, knobs, texts, pairs, card["max_length"])
    note = architecture_of(model.config).graph_note(model.config)
    if note:
        job.log(note)
    return {**facts_of(path, card), "rows": len(texts), **near, **({"note": note} if note else {})}


def parity_of(
    job: Job, knobs: ExportSlice, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int
) -> Mapping[str, object]:
    """Return how far the graph is from its checkpoint on some rows, and the number of rows where it is not theirs."""
    from tasks.exports.two_stacks import TWO_STACKS
    from tasks.scoring.predict import load

    graph, (model, tokenizer) = GRAPHS[knobs.task_type], load(job.inputs["model"], knobs.task_type)
    if knobs.task_type in TWO_STACKS:
        made = OnnxModel(job.output, threads=job.threads)
        return TWO_STACKS[knobs.task_type].compare(model, tokenizer, made, texts, max_length)
    names = [output.name for output in graph.outputs]
    theirs = ask_torch(model, tokenizer, texts, pairs, max_length, names, graph.units)
    near = apart(ask_together(job, texts, pairs, max_length, graph.units), theirs, knobs.task_type)
    if graph.remembers:
        parts = largest_step_difference(OnnxModel(job.output, threads=job.threads), texts)
        near["largest_difference"] = max(parts, near["largest_difference"])
    return near


def traced_graph(
    model: Any, tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, path: Path, knobs: ExportSlice
) -> dict[str, object]:
    """Write the graph; return the entries of its card that are known from its inputs."""
    from tasks.exports.tracing import trace, trace_with_memory
    from tasks.exports.two_stacks import TWO_STACKS

    graph = GRAPHS[knobs.task_type]
    names = [output.name for output in graph.outputs]
    if knobs.task_type in TWO_STACKS:
        return TWO_STACKS[knobs.task_type].trace(model, tokenizer, texts, path, opset=knobs.opset)
    if not graph.remembers:
        return {"inputs": trace(model, tokenizer, texts, pairs, path, outputs=names, opset=knobs.opset)}
    inputs, memory = trace_with_memory(model, tokenizer, texts, path, outputs=names, opset=knobs.opset)
    # a prescribed first word is that of an empty text, which is never continued
    rules = {**rules_of(model.generation_config, tokenizer.eos_token_id), "first": None}
    stated = {"writing": rules, LEAST_LENGTHS: least_lengths(model.generation_config)}
    return {"inputs": inputs, "memory": memory, **stated, "frame": stated_frame(tokenizer, graph.units)}


def stated_frame(tokenizer: Any, units: Units | Parts | None) -> dict[str, str]:
    """Return the frame of texts for a card. A chat begins as its template says."""
    frame = frame_of(tokenizer)
    if isinstance(units, Units) and units.are_chats:
        return {"begin": frame.begin or "", "end": frame.end or "", "chat_template": frame.chat_template}
    return {"begin": frame.begin or frame.end or "", "end": frame.end or ""}


def quantize(job: Job) -> dict[str, object]:
    """Write one int8 graph for each requested mode (dynamic, static), score each on the selection rows, and keep the
    one with the smallest loss of quality."""
    source, knobs = job.inputs["export"], job.read(QuantizeSlice)
    card, rows = card_of(source), read_split(job.inputs["rows"], "selection")
    if not len(rows):
        raise DataError(
            "int8 is evaluated on selection rows, and there are none; set data.selection_rows and provide enough "
            "training rows"
        )
    theirs = asked(job, knobs, source / FILES["onnx"], rows, 0, "fp32")
    full = score(theirs, rows, knobs.metric, knobs.task_type)
    found: dict[str, WayFacts] = {}
    for number, way in enumerate(knobs.ways, start=1):
        found[way] = quantize_and_score(job, knobs, way, rows, theirs, full, number)
    chosen = best(found)
    copy_beside(source, job.output)
    if chosen is None:
        return unmade(
            job,
            card,
            "no int8 quantization worked: " + "; ".join(f"{way}: {facts['because']}" for way, facts in found.items()),
        )
    path = job.output / FILES["int8"]
    scratch(job, chosen).replace(path)
    how: QuantizedWay = {
        "way": chosen,
        "reduce_range": knobs.reduce_range,
        "calibration_rows": knobs.calibration_rows if chosen == "static" else 0,
    }
    write_card(job.output, {**card, "engine": f"onnxruntime int8 {chosen}", "int8": how})
    return {
        **facts_of(path, card),
        **how,
        "metric": knobs.metric,
        "fp32": {"score": full},
        "ways": found,
        "rows": len(rows),
        **found[chosen],
    }


def quantize_in_blocks(job: Job) -> dict[str, object]:
    """Write one graph with weights in four bits as ``quantize`` writes one in int8; state its format, the version of
    its operations and its calibration."""
    facts, card, knobs = quantize(job), card_of(job.output), job.read(QuantizeSlice)
    name = "four-bit" if "four-bit" in knobs.ways else "int8-table4"
    if not facts["made"]:
        because = str(facts["because"]).replace("int8", name, 1)
        write_card(job.output, {**card, "because": because})
        return {**facts, "because": because}
    how = card.pop("int8")
    how["calibration_rows"] = knobs.calibration_rows if facts["way"] == "static-table4" else 0
    engine = "onnxruntime four-bit" if name == "four-bit" else f"onnxruntime int8 {facts['way']}"
    opset = opset_of(job.output / FILES["int8"])
    write_card(job.output, {**card, "engine": engine, name: how, "opset": opset})
    return {**facts, **how, "opset": opset}


def write_trained_codes(job: Job) -> dict[str, object]:
    """Write the graph for which a model was trained, in four bits or fewer, as ``quantize`` writes one in int8."""
    job.log(f"codes as they were trained: {', '.join(job.read(QuantizeSlice).ways)}")
    facts, card = quantize(job), card_of(job.output)
    if not facts["made"]:
        because = str(facts["because"]).replace("int8", "four-bit", 1)
        write_card(job.output, {**card, "because": because})
        return {**facts, "because": because}
    how, opset = card.pop("int8"), opset_of(job.output / FILES["int8"])
    write_card(job.output, {**card, "engine": "onnxruntime four-bit", "four-bit": how, "opset": opset})
    return {**facts, "opset": opset}


def write_trained_ranges(job: Job) -> dict[str, object]:
    """Write the graph in int8 with the static ranges that a model states, and score it on the selection rows. Raises
    ModelError for a model without."""
    from tasks.scoring.predict import load

    source, knobs = job.inputs["export"], job.read(RangesSlice)
    card, rows, way = card_of(source), read_split(job.inputs["rows"], "selection"), WAYS_OF_RANGES[knobs.format]
    if not len(rows):
        raise DataError(
            f"{knobs.format} is evaluated on selection rows, and there are none; set data.selection_rows and provide "
            f"enough training rows"
        )
    ranges = ranges_by_weights(load(job.inputs["model"], knobs.task_type)[0])
    path = job.output / FILES["int8"]
    copy_beside(source, job.output)
    job.log(f"{way}: {len(ranges)} ranges of the model")
    quantize_with_ranges(
        source / FILES["onnx"],
        path,
        ranges,
        reduce_range=knobs.reduce_range,
        four_bit_tables=knobs.format == "int8-table4",
    )
    theirs, ours = (answers_on_rows(job, knobs, one, rows) for one in (source / FILES["onnx"], path))
    full, value = (score(one, rows, knobs.metric, knobs.task_type) for one in (theirs, ours))
    how: QuantizedWay = {"way": way, "reduce_range": knobs.reduce_range, "calibration_rows": 0}
    opset = opset_of(path)
    write_card(job.output, {**card, "engine": f"onnxruntime int8 {way}", knobs.format: how, "opset": opset})
    near = apart(ours, theirs, knobs.task_type)
    figures: WayFacts = {
        "score": value,
        "loss": loss(value, full, knobs.metric),
        "bytes": path.stat().st_size,
        "largest_difference": near["largest_difference"],
        "equal_answers": near["equal_answers"],
    }
    return {
        **facts_of(path, card),
        **how,
        "metric": knobs.metric,
        "fp32": {"score": full},
        "ways": {way: figures},
        "rows": len(rows),
        "opset": opset,
        **figures,
    }


def answers_on_rows(job: Job, knobs: RangesSlice, graph: Path, rows: StoredRows) -> dict[str, np.ndarray]:
    """Return a graph's outputs on some rows."""
    model = OnnxModel(job.inputs["export"], threads=job.threads, graph=graph)
    return outputs_of_graph(model, rows.texts, rows.pairs, knobs.max_length, task_type=knobs.task_type)


def scratch(job: Job, way: str) -> Path:
    """Return the path of a mode's graph until one is chosen."""
    folder = job.output.with_name("ways")
    folder.mkdir(exist_ok=True)
    return folder / f"{way}.onnx"


def quantize_and_score(
    job: Job,
    knobs: QuantizeSlice,
    way: str,
    rows: StoredRows,
    theirs: Mapping[str, np.ndarray],
    full: float,
    number: int,
) -> WayFacts:
    """Quantize in one mode and score the graph; if a library fails, record the reason, so that the other modes are
    tried."""
    path = scratch(job, way)
    try:
        source = job.inputs["export"] / FILES["onnx"]
        feeds, clip = calibration(job, knobs), knobs.clip_percentile
        quantize_by(way, source, path, reduce_range=knobs.reduce_range, feeds=feeds, percentile=clip)
        ours = asked(job, knobs, path, rows, number, way)
    except MemoryError:
        raise
    except Exception as error:  # a quantizer can raise any exception of its graph library
        said = str(error).strip().splitlines()
        return {"because": f"{type(error).__name__}: {said[0][:160] if said else ''}"}
    value, near = score(ours, rows, knobs.metric, knobs.task_type), apart(ours, theirs, knobs.task_type)
    if knobs.task_type in WRITING_GRAPHS:
        both = [OnnxModel(source.parent, threads=job.threads, graph=one) for one in (path, source)]
        own = WRITING_GRAPHS[knobs.task_type].differ
        near["largest_difference"] = own(both[0], both[1], rows.texts, theirs, knobs.max_length)
    return {
        "score": value,
        "loss": loss(value, full, knobs.metric),
        "bytes": path.stat().st_size,
        "largest_difference": near["largest_difference"],
        "equal_answers": near["equal_answers"],
    }


def asked(
    job: Job, knobs: QuantizeSlice, graph: Path, rows: StoredRows, number: int, what: str
) -> dict[str, np.ndarray]:
    """Return a graph's outputs on the selection rows, and report progress in rows."""
    count, total = len(rows), len(rows) * (1 + len(knobs.ways))
    model = OnnxModel(job.inputs["export"], threads=job.threads, graph=graph)
    job.log(f"{what}: running {count:,} rows")
    return outputs_of_graph(
        model,
        rows.texts,
        rows.pairs,
        knobs.max_length,
        task_type=knobs.task_type,
        generation=knobs.generation,
        report=lambda done: job.progress(number * count + done, total, unit="rows"),
    )


def calibration(job: Job, knobs: QuantizeSlice) -> Callable[[], Iterator[Mapping[str, np.ndarray]]]:
    """Return a function that yields the calibration rows, drawn from train with the seed."""

    def feeds() -> Iterator[Mapping[str, np.ndarray]]:
        rows = read_split(job.inputs["rows"], "train")
        model = OnnxModel(job.inputs["export"], threads=job.threads)
        chosen = draw(len(rows), knobs.calibration_rows, knobs.seed)
        texts, pairs = texts_as_asked(GRAPHS[knobs.task_type].units, *part_of(rows, chosen))
        for row, text in enumerate(texts):
            given = model.given(model.encode([text], None if pairs is None else [pairs[row]], knobs.max_length))
            if knobs.task_type in WRITING_GRAPHS:
                given |= WRITING_GRAPHS[knobs.task_type].taught(model, str(rows.labels_N[chosen[row]]))
            yield given

    return feeds


JOBS = {
    "export": export,
    "export-program": export_program,
    "quantize": quantize,
    "quantize-as-trained": write_trained_codes,
    "quantize-to-trained-ranges": write_trained_ranges,
    "quantize-to-four-bits": quantize_in_blocks,
}
