"""The report of a sweep: the table of strategies by dropped layers, the sentences of the answer, and the change of each
layer by fine-tuning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tasks.report.tables.results import DASH
from tasks.results.row import Bounds
from tasks.results.sweep import DroppedLayers, LayersAnswer, SweepCell, SweepResult

if TYPE_CHECKING:
    from rich.table import Table

OUT = "out"
NOTE = (
    "* best of its row on the selection rows: the answer uses this cell, so that no figure is selected by its own "
    "value."
)
SIMILAR = "Similarity of the teacher's layers (counted from 0) before and after fine-tuning; 1 is unchanged:"
HALVED = "out: eliminated after the first rung (a quarter of the steps, one seed)."


def sweep_table(result: SweepResult) -> Table:
    """Return the table for rich: a row for each number of dropped layers, a column for each strategy; ``title`` goes
    above it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("dropped", no_wrap=True)
    for strategy in result["strategies"]:
        table.add_column(strategy, justify="right", overflow="fold")
    for drop in result["drop"]:
        cells = row_of(result, drop)
        shown = [
            Text(text, style="bold" if cell.get("chosen") else "dim" if text in (OUT, DASH) else "")
            for cell, text in cells
        ]
        table.add_row(f"{drop} of {result['layers']}", *shown)
    return table


def similarity_table(result: SweepResult) -> Table:
    """Return the table of each layer's similarity between the fine-tuned teacher and the pretrained model; ``SIMILAR``
    goes above it."""
    from rich import box
    from rich.table import Table

    table = Table("layer", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("linear CKA", "cosine of the summary token"):
        table.add_column(name, justify="right")
    for row in result["similarity"]:
        table.add_row(str(row["layer"]), f"{row['cka']:.3f}", f"{row['cosine']:.3f}")
    return table


def sweep_markdown(result: SweepResult) -> str:
    """Return answer, table and similarity as Markdown."""
    lines = [
        "## How many layers does the task need?",
        "",
        *(f"- {line}" for line in answer_lines(result)),
        "",
        title(result) + ".",
        "",
    ]
    lines += ["| dropped | " + " | ".join(result["strategies"]) + " |", "|---|" + "---:|" * len(result["strategies"])]
    for drop in result["drop"]:
        shown = [f"**{text}**" if cell.get("chosen") else text for cell, text in row_of(result, drop)]
        lines.append(
            f"| {drop} of {result['layers']} | "
            + " | ".join(text.replace("*", "\\*") if "**" not in text else text for text in shown)
            + " |"
        )
    lines += [
        "",
        *(note.replace("*", "\\*") for note in notes(result)),
        "",
        SIMILAR,
        "",
        "| layer | linear CKA | cosine |",
        "|---|---:|---:|",
    ]
    lines += [f"| {row['layer']} | {row['cka']:.3f} | {row['cosine']:.3f} |" for row in result["similarity"]]
    return "\n".join(lines) + "\n"


def title(result: SweepResult) -> str:
    """Return the title of the table: the kind of its figures, and the teacher's score."""
    score, seeds = result["teacher"]["score"], len(result["seeds"])
    over = f"mean of {seeds} seeds ± deviation" if seeds > 1 else "one seed"
    return (
        f"{result['headline']} x 100 on {result['rows']:,} {result['split']} rows, {over}; teacher "
        f"{hundred(score['value'])} {interval(score)}"
    )


def notes(result: SweepResult) -> list[str]:
    """Return the meaning of the marks that occur in the table."""
    return [NOTE, *([HALVED] if any(cell["state"] == "dropped out" for cell in result["cells"]) else [])]


def row_of(result: SweepResult, drop: int) -> list[tuple[SweepCell, str]]:
    """Return the cells of one number of dropped layers with their text, in the order of the columns."""
    found = {cell["strategy"]: cell for cell in result["cells"] if cell["drop"] == drop}
    return [(found[strategy], format_cell(found[strategy])) for strategy in result["strategies"]]


def format_cell(cell: SweepCell) -> str:
    """Return the text of one cell; a cell that dropped out has no final figure, so none is displayed."""
    if cell["state"] != "scored":
        return OUT if cell["state"] == "dropped out" else DASH
    spread = f" ± {hundred(cell['deviation'])}" if cell["deviation"] is not None else ""
    return f"{hundred(cell['score']['value'])}{spread}{'*' if cell.get('chosen') else ''}"


def answer_lines(result: SweepResult) -> list[str]:
    """Return one or two sentences for each distance from the teacher, and a warning if there is only one seed."""
    lines = [answer_line(result, answer) for answer in result["answer"]]
    if len(result["seeds"]) == 1:
        lines.append("One seed gives no estimate of the noise of training. Use several: --seeds 0,1,2.")
    return lines


def answer_line(result: SweepResult, answer: LayersAnswer) -> str:
    """Return the number of layers that can be dropped within one distance from the teacher: by the interval, and by the
    mean alone if that allows more."""
    points, holds, mean = answer["points"], answer["holds"], answer["mean"]
    head = f"Within {points:g} point{'s' if points != 1 else ''} of the teacher: "
    sure = (
        f"{layers(result, holds['drop'])} can be dropped ({described(holds)})"
        if holds
        else "no number of layers is confirmed"
    )
    if mean is None and holds is None:
        return f"{head}none of the tried numbers of layers, and {first(result)}."
    alone = (
        f" Dropping {', '.join(map(str, answer['alone']))} would be confirmed alone, but a smaller number is not."
        if answer["alone"]
        else ""
    )
    if holds is not None and (mean is None or mean["drop"] <= holds["drop"]):
        most = (
            ", the largest number that was tried" if holds["drop"] == max(result["drop"]) < result["layers"] - 1 else ""
        )
        return f"{head}{sure}{most}.{alone}"
    assert mean is not None
    return (
        f"{head}{sure}; by the mean alone {layers(result, mean['drop'])} ({described(mean)}), which the interval "
        f"does not confirm.{alone}"
    )


def first(result: SweepResult) -> str:
    """Return the loss by the smallest number of dropped layers, in words."""
    cell = min((cell for cell in result["cells"] if cell.get("chosen")), key=lambda cell: cell["drop"], default=None)
    return "nothing was scored" if cell is None else f"dropping {cell['drop']} is {described(cell)}"


def described(found: DroppedLayers | SweepCell) -> str:
    """Return a strategy with its difference to the teacher in points."""
    gap = found["difference"]
    return f"{found['strategy']}: {signed(gap['value'])} points {interval(gap, signed)}" if gap else found["strategy"]


def layers(result: SweepResult, drop: int) -> str:
    """Return a number of layers in words."""
    return f"{drop} of {result['layers']} layers"


def interval(figure: Bounds, form: Callable[[float], str] | None = None) -> str:
    """Return the bounds of a figure in points."""
    form = form or hundred
    return f"[{form(figure['low'])}, {form(figure['high'])}]"


def hundred(value: float) -> str:
    """Return a score in points."""
    return f"{100 * value:.1f}"


def signed(value: float) -> str:
    """Return a difference in points, with its sign; two digits, because a tenth of a point may decide."""
    return f"{100 * value:+.2f}"
