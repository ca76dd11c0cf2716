"""Stage tasks: a finished checkpoint as an ONNX graph, that graph in int8 and with weights in four bits, and a
program for phones."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import ExportSlice, ProgramSlice, QuantizeSlice, RangesSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.keys import ENGINE_LIBRARIES

PACKERS = ("numpy", "onnx", "onnx-ir", "onnxruntime", "pyarrow", "tokenizers")
"""Libraries that write, quantize and run a graph."""
QUANTIZERS = (*PACKERS, "scipy", "transformers", "sentencepiece", "safetensors")
"""The same with the scores of graphs; transformers writes chats by the template of a card."""


@stage(
    makes="export",
    engine="export",
    module="tasks.exports",
    threads="branch",
    libraries=(*ENGINE_LIBRARIES, "onnxscript", *PACKERS),
)
async def export_onnx(context: StageContext, knobs: ExportSlice, *, model: Artifact, rows: Artifact) -> None:
    """Write a checkpoint as an fp32 graph and compare their logits; a model that ONNX cannot express is reported, not
    raised."""
    await context.run(knobs.model_dump(mode="json"), inputs={"model": model, "rows": rows})


@stage(makes="export", engine="quantize", module="tasks.exports", threads="branch", libraries=QUANTIZERS)
async def quantize_onnx(context: StageContext, knobs: QuantizeSlice, *, export: Artifact, rows: Artifact) -> None:
    """Quantize an fp32 graph to int8 in every mode, score each on the selection rows, and keep the best one."""
    await context.run(knobs.model_dump(mode="json"), inputs={"export": export, "rows": rows})


@stage(
    makes="export",
    engine="quantize-to-four-bits",
    module="tasks.exports",
    threads="branch",
    libraries=QUANTIZERS,
)
async def quantize_to_four_bits(
    context: StageContext, knobs: QuantizeSlice, *, export: Artifact, rows: Artifact
) -> None:
    """Quantize weights of an fp32 graph, its embedding tables or all of them, to four bits in every mode of one
    format, score each on the selection rows, and keep the best one."""
    await context.run(knobs.model_dump(mode="json"), inputs={"export": export, "rows": rows})


@stage(
    makes="export",
    engine="quantize-as-trained",
    module="tasks.exports",
    threads="branch",
    libraries=QUANTIZERS,
)
async def quantize_as_trained(context: StageContext, knobs: QuantizeSlice, *, export: Artifact, rows: Artifact) -> None:
    """Write the codes for which a model was trained, of four bits or fewer, into its graph, and score it on the
    selection rows."""
    await context.run(knobs.model_dump(mode="json"), inputs={"export": export, "rows": rows})


@stage(
    makes="export",
    engine="quantize-to-trained-ranges",
    module="tasks.exports",
    threads="branch",
    libraries=(*ENGINE_LIBRARIES, *QUANTIZERS),
)
async def quantize_to_trained_ranges(
    context: StageContext, knobs: RangesSlice, *, export: Artifact, model: Artifact, rows: Artifact
) -> None:
    """Write a model's graph in int8 with the static ranges that the model states, and score it on the selection
    rows."""
    await context.run(knobs.model_dump(mode="json"), inputs={"export": export, "model": model, "rows": rows})


@stage(
    makes="export",
    engine="export-program",
    module="tasks.exports",
    threads="branch",
    libraries=(*ENGINE_LIBRARIES, *PACKERS, "scipy", "executorch", "torchao"),
)
async def export_executorch(context: StageContext, knobs: ProgramSlice, *, model: Artifact, rows: Artifact) -> None:
    """Write a checkpoint as a program of ExecuTorch and compare their outputs; where ExecuTorch is not installed, that
    is reported, not raised."""
    await context.run(knobs.model_dump(mode="json"), inputs={"model": model, "rows": rows})
