"""The steps of a chain: which models are compared with which, and what page and terminal say of them."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tasks.report.format.chains import chains
from tasks.report.page.waterfall import step_bar, steps_section
from tasks.report.tables.steps import MOST_CHAINS, printed_steps, steps_markdown
from tasks.results.run import RunResult
from tests.report.figures import row, stated, typed, undefined, written
from tests.report.test_page import HOSTILE, Read, run_page


def scored(value: float) -> dict[str, Any]:
    """Return the scores of a row."""
    return {"metrics": {"validation": {"accuracy": {"value": value, "low": value - 0.01, "high": value + 0.01}}}}


def made(name: str, origin: str, by: str, **changes: Any) -> dict[str, Any]:
    """Return the row of a candidate that is made from another model."""
    return row(name, made_from=origin, made_by=by, **changes)


EXPORT = {"format": "int8", "published": True}
CHAIN = [
    row("teacher", "teacher", bytes=400e6, latency_ms=40.0, **scored(0.93)),
    row("plain", "baseline", made_from="teacher", made_by="distillation"),
    made("layers", "teacher", "distillation", bytes=260e6, latency_ms=20.0, **scored(0.92)),
    made("neurons", "layers", "neuron-pruning", role="pruned", bytes=200e6, latency_ms=15.0, **scored(0.89)),
    made("again", "neurons", "distillation", bytes=200e6, latency_ms=15.0, **scored(0.915)),
    made("vocabulary", "again", "vocabulary-trimming", role="trimmed", bytes=100e6, latency_ms=15.0, **scored(0.91)),
    row("vocabulary-int8", "export", of="vocabulary", export=EXPORT, bytes=25e6, latency_ms=5.0, **scored(0.908)),
    row("layers-int8", "export", of="layers", export=EXPORT),
]


def changes_of(name: str) -> tuple[float | None, ...]:
    """Return the changes of score, size and latency by one step."""
    step = next(step for step in chains(typed(CHAIN))[0].steps if step.row.name == name)
    return tuple(
        None if one is None else round(one, 6)
        for one in (step.score_change("validation"), step.size_change, step.latency_change)
    )


def test_each_step_is_compared_with_the_one_before_it_and_not_with_the_teacher() -> None:
    (chain,) = chains(typed(CHAIN))
    assert chain.names == ("teacher", "layers", "neurons", "again", "vocabulary", "vocabulary-int8")
    assert chain.last.name == "vocabulary"
    assert changes_of("teacher") == (None, None, None)
    assert changes_of("neurons") == (-0.03, round(200 / 260 - 1, 6), -0.25)
    assert changes_of("again") == (0.025, 0.0, 0.0)


def test_exports_are_compared_with_their_candidate_and_not_with_each_other() -> None:
    more = row("vocabulary-onnx", "export", of="vocabulary", bytes=101e6, latency_ms=12.0, **scored(0.91))
    (chain,) = chains(typed([*CHAIN, more]))
    assert [(step.row.name, step.before and step.before.name) for step in chain.steps[-2:]] == [
        ("vocabulary-int8", "vocabulary"),
        ("vocabulary-onnx", "vocabulary"),
    ]
    assert chain.steps[-2].making == "int8 export" and chain.steps[-1].making == "export, not published"


def test_a_chain_that_divides_has_every_end_and_begins_with_the_displayed_one() -> None:
    other = made("other", "neurons", "distillation")
    assert [chain.last.name for chain in chains(typed([*CHAIN, other]))] == ["vocabulary", "other"]
    assert [chain.last.name for chain in chains(typed([*CHAIN, other]), "other")] == ["other", "vocabulary"]


def test_a_student_of_the_short_section_is_a_step() -> None:
    (chain,) = chains(typed([CHAIN[0], row("small"), made("trimmed", "small", "vocabulary-trimming")]))
    assert [(step.row.name, step.making) for step in chain.steps] == [
        ("teacher", "teacher"),
        ("small", "distilled student"),
        ("trimmed", "vocabulary-trimming"),
    ]


def test_runs_without_a_chain_say_nothing_of_steps() -> None:
    for models in ([CHAIN[0], row("4x312")], CHAIN[:3], []):
        assert chains(typed(models)) == [] and printed_steps(typed(models), "validation") == ([], [])
        assert steps_markdown(typed(models), "validation") == []
    page = run_page(written(models=[row("teacher", "teacher"), row("4x312")]))
    assert "What each step bought" not in page and "#steps" not in page


def test_an_unsteady_latency_is_no_change() -> None:
    shaky = [one | ({"unsteady": "it varied"} if one["name"] == "neurons" else {}) for one in CHAIN]
    steps = {step.row.name: step for step in chains(typed(shaky))[0].steps}
    assert steps["neurons"].latency_change is steps["again"].latency_change is None
    assert steps["vocabulary"].latency_change == 0
    page = Read(run_page(written(models=shaky))).text
    assert "neurons neuron-pruning 0.890 [0.880, 0.900] −3.0 points 98.1 % 200.0 −23 % 15.00 unsteady" in page


def test_the_page_states_score_size_and_latency_after_each_step_and_the_whole_way() -> None:
    said = Read(run_page(written(models=CHAIN))).text
    for words in (
        "What each step bought",
        "neurons neuron-pruning 0.890 [0.880, 0.900] −3.0 points 98.1 % 200.0 −23 % 15.00 −25 %",
        "vocabulary-int8 int8 export 0.908 [0.898, 0.918] −0.2 points 98.1 % 25.0 −75 % 5.00 −67 %",
        "From teacher to vocabulary: −2.0 points, 4.0 times smaller, 2.7 times as fast.",
        "From teacher to vocabulary-int8: −2.2 points, 16.0 times smaller, 8.0 times as fast.",
    ):
        assert words in said, words


def test_a_bar_shows_the_part_that_a_step_removed_or_added() -> None:
    step = chains(typed(CHAIN))[0].steps[2]
    place = {0.0: 100.0, 50.0: 150.0, 80.0: 180.0}.__getitem__

    def widths(value: float | None, before: float | None) -> list[tuple[str, str]]:
        parts = [str(one) for one in step_bar(lambda one: place(float(one)), 20, value, before, step.row.role)]
        return [
            (one.split('class="')[1].split('"')[0].split()[0], one.split('width="')[1].split('"')[0]) for one in parts
        ]

    assert widths(50.0, 80.0) == [("kept", "50"), ("removed", "30")]
    assert widths(80.0, 50.0) == [("kept", "50"), ("added", "30")]
    assert widths(50.0, 50.0) == widths(50.0, None) == [("kept", "50")] and widths(None, 50.0) == []


def test_unknown_figures_are_dashes_and_never_zeros() -> None:
    models = [*CHAIN[:3], undefined("unknown") | {"made_from": "layers", "made_by": "neuron-pruning"}]
    parts = steps_section(RunResult.model_validate(written(models=models)), "")
    (row_of,) = [one for one in parts[0]["rows"] if one["name"] == "unknown"]
    assert {row_of[name] for name in ("score", "score_change", "size", "size_change", "latency", "latency_change")} == {
        "—"
    }
    assert parts[0]["said"] == "From teacher to unknown: nothing is known."


def test_texts_of_a_chain_are_escaped() -> None:
    models = [*CHAIN[:3], made(HOSTILE, "layers", HOSTILE, note=HOSTILE)]
    assert "<script>" not in run_page(written(models=models))


def test_the_table_fits_in_110_columns_and_a_crowd_of_chains_is_cut_with_a_sentence() -> None:
    ends = [made(f"end-{number}", "neurons", "distillation") for number in range(5)]
    tables, said = printed_steps(typed([*CHAIN, *ends]), "validation")
    console = Console(width=110, record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= 110 and "…" not in text
    assert len(tables) == MOST_CHAINS and said[-1] == "3 more chains are on the page of the run."
    assert "vocabulary-trimming" in text and "−75 %" in text and "0.890 [0.880, 0.900]" in text


def test_markdown_has_every_chain() -> None:
    lines = steps_markdown(typed([*CHAIN, made("other|x", "neurons", "distillation")]), "validation")
    assert "Step by step to vocabulary:" in lines and "Step by step to other|x:" in lines
    assert any(line.startswith("| other\\|x | distillation |") for line in lines)


def test_an_error_changes_in_its_own_unit() -> None:
    figures = {"headline": "mse", "metrics": {"validation": {"mse": {"value": 0.5, "low": 0.4, "high": 0.6}}}}
    models = [row("teacher", "teacher", **figures), row("small", **figures)]
    worse = {**figures, "metrics": {"validation": {"mse": {"value": 0.75, "low": 0.7, "high": 0.8}}}}
    said = steps_markdown(
        [stated(**one) for one in [*models, made("cut", "small", "layer-dropping", **worse)]], "validation"
    )
    assert any("| 0.750 [0.700, 0.800] | +0.250 |" in line for line in said)
