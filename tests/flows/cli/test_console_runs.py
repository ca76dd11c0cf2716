"""What ``limbeck runs`` shows of past runs."""

from __future__ import annotations

from rich.console import Console

from flows.cli.console import runs_table, show_sweep
from tests.report.test_ledger import LEDGER
from tests.report.test_sweep import WHOLE


def test_a_refused_candidates_figures_are_listed_and_what_is_unknown_is_a_dash() -> None:
    row = {
        "run": "5b1c" * 8,
        "started": 1_700_000_000_000,
        "kind": "run",
        "recipe": "sst2-tinybert-4",
        "experiment": "sst2/bert",
        "status": "FINISHED",
    }
    figures = {"score": 0.9123, "retained_pct": 98.14, "size_mb": 57.4}
    console = Console(width=160)
    with console.capture() as said:
        console.print(
            runs_table([row | {"best": "4x312: refused", "figures": figures}, row | {"best": "", "figures": {}}])
        )
    first, second = (line.split("│")[1:-1] for line in said.get().splitlines() if "sst2-tinybert-4" in line)
    assert [cell.strip() for cell in first[-5:]] == ["4x312: refused", "0.912", "98.1", "—", "57.4"]
    assert [cell.strip() for cell in second[-5:]] == ["", "—", "—", "—", "—"]


def test_square_brackets_of_a_name_are_no_markup() -> None:
    """A teacher's folder called [/b] ended ``limbeck runs`` in a traceback."""
    from flows.cli.shared import out

    row = {
        "run": "a" * 32,
        "started": 0,
        "kind": "run",
        "recipe": "r",
        "experiment": "tiny/[/b] [red]x",
        "status": "FINISHED",
        "best": "",
        "figures": {},
    }
    with out.capture() as shown:
        out.print(runs_table([row]))
    assert "[/b]" in shown.get() and "[red]x" in shown.get()


def test_a_finished_sweep_ends_with_what_it_cost() -> None:
    """The ledger came as plain JSON and was read as a model: every `limbeck sweep` ended in a traceback."""
    console = Console(width=160)
    with console.capture() as said:
        show_sweep(console, WHOLE | {"stages": [{"cache": "hit"}, {"cache": "miss"}], "ledger": LEDGER})
    assert "1 of 2 stages cached; nothing was registered." in said.get()
    assert "The stages of this run took" in said.get() and "see limbeck ledger" in said.get()
