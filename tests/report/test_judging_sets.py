"""What is said of judging sets: on the terminal, the page, the card, in MLflow and on the results page."""

from __future__ import annotations

import io
from typing import Any

from attrs import evolve
from rich.console import Console

from flows.branches.candidate import Candidate
from flows.branches.judging_sets import judged_of
from flows.run.judging_sources import with_purge
from tasks.contracts import Artifact
from tasks.gate.gate_inputs import gate_row
from tasks.ports.tracking.figures import judged_figures
from tasks.report.page.page import run_page
from tasks.report.results.results_cuts import trimmed
from tasks.report.results.results_file import Run
from tasks.report.results.results_page import results_page
from tasks.report.tables.held_back import held_back_lines, purge_lines
from tasks.report.tables.judging_sets import (
    GUESSING,
    MOST_PRINTED,
    card_rows,
    judging_markdown,
    judging_rows,
    judging_section,
    judging_table,
    printed_comparisons,
)
from tasks.results.facts import HeldBackFacts
from tasks.results.row import ResultRow
from tasks.results.run import RunResult
from tests.gate.test_worst_of import figures, recipe
from tests.report.figures import HELD_BACK, stated, written

MERGED = figures(0.71, 0.93, -0.05) | {"merges": ["neutral and contradiction"], "drop": None}
MODELS = [
    stated(
        "teacher",
        "teacher",
        judged={
            "snli": figures(0.78, 1.0),
            "ax-b": figures(0.76, 1.0) | {"merges": ["neutral and contradiction"], "drop": None},
        },
    ),
    stated("4x312", gate="champion", judged={"snli": figures(0.7, 0.897, -0.08), "ax-b": MERGED}),
    stated("4x312-int8", "export", judged={}),
]
SETS: dict[str, Any] = {
    "snli": {
        "rows": 500,
        "left_out": 12,
        "unlabelled": 3,
        "merges": [],
        "leaked": {"training rows": 4, "general text": 0},
        "learned": {"training rows": 9},
    },
    "ax-b": {"rows": 1104, "left_out": 0, "unlabelled": 0, "merges": ["neutral and contradiction"]},
}


def result_of(models: list[ResultRow], **more: Any) -> RunResult:
    """Return the results of a run with these rows."""
    return RunResult(recipe="r", task="mnli", headline="accuracy", split="validation", models=tuple(models), **more)


def drawn(table: Any) -> str:
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(table)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_the_terminal_shows_every_set_with_the_drop_and_cuts_nothing() -> None:
    text = drawn(judging_table(MODELS, "validation"))
    assert max(len(line) for line in text.splitlines()) <= 110 and "…" not in text and text.count("snli") == 1
    ours = next(line for line in text.splitlines() if "4x312" in line)
    assert (
        ours.split()[:3] == ["4x312", "0.700", "[0.680,"]
        and "89.7%" in ours
        and "-0.080 [-0.090, -0.070]" in ours
        and ours.endswith("+0.212")
    )
    assert next(line for line in text.splitlines() if "0.710" in line).endswith("—"), (
        "with classes merged there is no drop"
    )
    assert (
        judging_table([stated("teacher", "teacher")], "validation") is None
        and judging_markdown([stated("teacher", "teacher")], "validation") == []
    )


def test_markdown_and_mlflow_say_the_same() -> None:
    assert "| snli | teacher | 0.780 [0.760, 0.800] | — | — | +0.132 |" in judging_markdown(MODELS, "validation")
    assert "|  | 4x312 | 0.700 [0.680, 0.720] | 89.7% | -0.080 [-0.090, -0.070] | +0.212 |" in judging_markdown(
        MODELS, "validation"
    )
    found = judged_figures(MODELS[1])
    assert found["judge/snli/score"] == found["judge/snli/accuracy"] == 0.7 and found["judge/ax-b/drop_pts"] is None
    assert round(found["judge/snli/retained_pct"] or 0, 6) == 89.7
    assert judged_figures(stated("teacher", "teacher")) == {}


def test_the_card_has_a_line_for_every_figure_of_every_set() -> None:
    rows = card_rows(MODELS[1])
    assert "| accuracy, judging set snli, 500 rows | 0.700 [0.680, 0.720] | measured |" in rows
    assert "| accuracy, drop from the task's own rows, judging set snli, 500 rows | +0.2120 | computed |" in rows
    assert (
        "| share of the teacher, judging set ax-b, 500 rows, neutral and contradiction as one | 93.00% | measured |"
        in rows
    )
    assert len(rows) == 7 and card_rows(stated("4x312")) == []


SEEDS = figures(0.7, 0.897, -0.08) | {
    "means": figures(0.68, 0.87) | {"drop": 0.23},
    "per_seed": {"accuracy": [0.66, 0.7]},
    "deviation": {"accuracy": 0.0283},
}


def test_figures_are_the_models_own_and_means_over_seeds_stand_beside_them() -> None:
    model = stated("4x312", judged={"snli": SEEDS})
    assert (
        "|  | 4x312 | 0.700 [0.680, 0.720] (0.680 ±0.028) | 89.7% | -0.080 [-0.090, -0.070] | +0.212 |"
        in judging_markdown([MODELS[0], model], "validation")
    )
    rows = card_rows(model)
    assert "| accuracy, judging set snli, 500 rows | 0.700 [0.680, 0.720] | measured |" in rows
    assert rows[-1] == (
        "| accuracy, judging set snli, 500 rows, mean of 2 seeds ± 0.0283, to compare methods | 0.680 [0.660, "
        "0.700] | measured |"
    )
    assert judged_figures(model)["judge/snli/score"] == 0.7
    run = written()
    run["models"][1] |= {"judged": {"snli": SEEDS}, "selected_seed": 1}
    kept = trimmed(run, "", "out.json")
    assert isinstance(kept, Run)
    found = kept.models[1].judged["snli"]
    assert (found.scores["accuracy"].value, found.retained.value, found.drop) == (0.68, 0.87, 0.23), (
        "methods are compared by means"
    )
    assert (found.retained.own.value, found.difference.own.value) == (0.897, -0.08)
    assert "| 0.680 ±0.028 [0.660, 0.700] | 0.700 [0.680, 0.720] (seed 1) | 87.0% |" in results_page([kept])


COMPARED = {"value": 0.02, "low": 0.005, "high": 0.035, "p": 0.01, "seeds": [3, 3], "verdict": "better"}
BESIDE = {"one-seed": {**COMPARED, "seeds": [1, 3], "differs": ["hard_weight", "seeds"]}, "plain": COMPARED}


def test_a_difference_on_a_set_stands_with_its_interval_wherever_the_set_does() -> None:
    """Words on two candidates were given on the task's own rows alone, where both had learned."""
    judged = {name: figures(0.7, 0.9) | {"against": BESIDE} for name in ("snli", "sick")}
    models = [MODELS[0], stated("4x312", judged=judged), stated("other", judged={"snli": figures(0.6, 0.8)})]
    said = [
        "On snli, 4x312 against one-seed (other hard_weight, seeds): +0.020 [+0.005, +0.035], better",
        "On snli, 4x312 against plain: +0.020 [+0.005, +0.035], better",
    ]
    lines = printed_comparisons(models)
    assert lines[:2] == said and lines[2].startswith("On sick, 4x312 against one-seed") and len(lines) == 5
    assert "corrected for all comparisons on the same rows (Holm)" in lines[-1] and "one seed" in lines[-1]
    assert judging_markdown(models, "validation")[-5].strip() == f"- {said[0]}"
    part = judging_section(result_of(models))
    assert part is not None and [len(one.compared) for one in part.sets] == [3, 0, 3]
    assert "verdicts are corrected for all 2 comparisons" in part.sets[0].compared[-1]
    page = run_page(RunResult.model_validate(written(models=[one.as_json() for one in models])))
    assert page.count("<li>4x312 against plain: +0.020 [+0.005, +0.035], better</li>") == 2
    row = "| accuracy, difference to `plain` over seeds, judging set snli, 500 rows | +0.020 [+0.005, +0.035], better |"
    assert sum(line.startswith(row) for line in card_rows(models[1])) == 1
    many = {f"other-{number}": COMPARED for number in range(MOST_PRINTED + 1)}
    crowd = stated("4x312", judged={"snli": figures(0.7, 0.9) | {"against": many}})
    assert printed_comparisons([crowd]) == [
        "13 comparisons on judging sets are on the run's page: limbeck report --open"
    ]
    assert printed_comparisons(MODELS) == []


def test_a_results_file_keeps_the_comparisons_on_sets() -> None:
    run = written()
    run["models"][1]["judged"] = {"snli": figures(0.7, 0.9) | {"against": BESIDE}}
    run["models"][2]["judged"] = {"snli": figures(0.6, 0.8)}
    kept = trimmed(run, "", "out.json")
    assert isinstance(kept, Run) and kept.models[1].judged["snli"].against["one-seed"].differs == (
        "hard_weight",
        "seeds",
    )
    assert kept.models[1].judged["snli"].against["plain"].p == 0.01 and not kept.models[2].judged["snli"].against
    page = results_page([kept])
    assert "| to the teacher | drop | against a baseline or control | run |" in page
    assert "+0.020 [+0.005, +0.035] (one seed: noise of training not included); better, `plain`: +0.020" in page
    again = run["models"][1]["judged"]["snli"].pop("against")
    assert again and "drop | run |" in results_page([trimmed(run, "", "out.json")])


def test_a_drop_is_that_of_one_model_and_seeds_stand_as_in_the_recipe() -> None:
    """The second seed is the model: its scores come first on a scorecard, and second in a row of the results."""
    seeds = [
        Artifact("checkpoint", letter * 64, "", 1, {"selection_score": score})
        for letter, score in (("a", 0.6), ("b", 0.8))
    ]
    candidate = Candidate("small", "student", seeds, (3, 4))
    card = figures(0.7, 0.9) | {"means": figures(0.68, 0.87), "per_seed": {"accuracy": [0.7, 0.66]}}
    own = stated("small", means={"validation": {"metrics": {"accuracy": {"value": 0.9}}}})
    artifact, rows = (
        Artifact("scorecard", "c" * 64, "", 1, card),
        Artifact("rows", "d" * 64, "", 1, {"merged": None, "merges": []}),
    )
    found = judged_of(candidate, {"snli": artifact}, {"snli": rows}, own, "validation")["snli"]
    assert found.per_seed == {"accuracy": (0.66, 0.7)} and round(found.deviation["accuracy"], 4) == 0.0283
    assert round(found.drop, 4) == round(0.912 - 0.7, 4) and round(found.means.drop, 4) == round(0.9 - 0.68, 4)
    merged = Artifact("rows", "d" * 64, "", 1, {"merged": [0, 1, 1], "merges": ["neutral and contradiction"]})
    found = judged_of(candidate, {"snli": artifact}, {"snli": merged}, own, "validation")["snli"]
    assert found.drop is None and found.means.drop is None


def test_what_overlaps_is_told_where_held_back_rows_are() -> None:
    lines = held_back_lines(HeldBackFacts.model_validate(HELD_BACK | {"judging": SETS}))
    assert lines[:-2] == held_back_lines(HeldBackFacts.model_validate(HELD_BACK))
    assert lines[-2] == (
        "Judging set: snli has 500 rows; 12 that overlap with training rows were excluded; 3 without a label were "
        "excluded. "
        "Of these overlap: 4 with the training rows (9 of those), 0 with the general text."
    )
    assert lines[-1] == "Judging set: ax-b has 1,104 rows; neutral and contradiction count as one class."


def test_a_purge_for_a_set_is_counted_with_the_other() -> None:
    rows = Artifact("rows", "0" * 64, "", 0, {name: HELD_BACK[name] for name in ("rows", "purged")})
    purge = evolve(rows, facts={"rows": 10, "by": {"snli": 10}, "left": 740, "words_left": 8.4})
    found = with_purge(rows, purge)
    assert purge_lines(found.rows, found.purged)[0] == (
        "210 of 1,000 training rows (21.0%) were removed, because their text overlaps with that of held-out rows "
        "(holdout 200, snli 10); 740 training rows of 8.4 words on average remain (9.4 before)."
    )
    assert with_purge(rows, None).as_json() == rows.facts
    assert with_purge(rows, evolve(purge, facts={})).as_json() == rows.facts, "a plan has no figures"


def test_the_page_has_a_table_for_every_set() -> None:
    part = judging_section(result_of(MODELS, held_back={"judging": SETS}))
    assert part is not None and [one.name for one in part.sets] == ["snli", "ax-b"]
    assert [cells[0] for cells in part.sets[0].rows] == ["teacher", "4x312"], "an export that was not scored has no row"
    assert judging_section(result_of([stated("teacher", "teacher")])) is None


def test_the_results_page_keeps_judging_sets() -> None:
    run = written()
    for model in run["models"][:2]:
        model["judged"] = {"snli": figures(0.7, 0.897, -0.08), "ax-b": MERGED}
    kept = trimmed(run, "", "out.json")
    assert isinstance(kept, Run) and kept.models[1].judged["snli"].drop == 0.212 and kept.models[2].judged == {}
    page = results_page([kept])
    assert (
        "| `snli` | 500 | `4x312` | 0.700 [0.680, 0.720] | 0.700 [0.680, 0.720] | 89.7% | -0.080 [-0.090, -0.070] | "
        "+0.212 | `tinybert-4` |" in page
    )
    assert "| `ax-b` (neutral and contradiction as one) | 500 | `teacher` | 0.710" in page
    assert "judging sets" not in results_page([trimmed(written(), "", "out.json")])


def test_a_set_of_another_type_has_its_own_metric_and_guessing_beside_it() -> None:
    """A language model is judged by perplexity, and by accuracy on questions that it has not learned."""
    asked, perplexity = figures(0.4, 0.9, -0.05), {"value": 9.0, "low": 8.0, "high": 10.0}
    asked |= {"drop": None, "means": {**asked["means"], "drop": None}, "chance": 0.25}
    more = {**figures(12.0, 0.8), "metrics": {"word_perplexity": perplexity}, "headline": "word_perplexity"}
    more |= {"per_seed": {"word_perplexity": [12.0]}, "deviation": {"word_perplexity": None}}
    more["means"] = {**more["means"], "metrics": more["metrics"]}
    own = {"headline": "word_perplexity", "metrics": {"validation": {"word_perplexity": perplexity}}}
    models = [
        stated("teacher", "teacher", **own, judged={"asked": asked, "more": more}),
        stated("half", **own, judged={"asked": asked, "more": more}),
        stated("half-onnx", "export", **own, judged={}),
    ]
    text = drawn(judging_table(models, "validation"))
    assert "word_perplexity, or the metric beside a set, on judging sets" in " ".join(text.split())
    rows = judging_rows(models)
    assert [(row[0], row[1]) for row in rows] == [
        ("asked (accuracy)", "teacher"),
        ("", "half"),
        ("", GUESSING),
        ("more", "teacher"),
        ("", "half"),
    ]
    assert rows[1][2:] == ("0.400 [0.380, 0.420]", "90.0%", "-0.050 [-0.060, -0.040]", "—")
    assert rows[2][2:] == ("0.250", "—", "—", "—")
    part = judging_section(result_of(models))
    assert part is not None and [one.name for one in part.sets] == ["asked (accuracy)", "more"]
    assert part.sets[0].rows[-1][0] == GUESSING
    card = "\n".join(card_rows(models[1]))
    assert (
        "| accuracy of guessing, judging set asked, 500 rows, which no model has learned | 0.250 | computed |" in card
    )
    assert "| accuracy, difference to the teacher, judging set asked" in card and "drop" not in card.split("more")[0]
    logged = judged_figures(models[1])
    assert logged["judge/asked/score"] == 0.4 and logged["judge/asked/drop_pts"] is None
    seen = gate_row(recipe(), models[1]).on["asked"]
    assert seen.headline == 0.4 and seen.quality == 0.4, "more of accuracy is better, of perplexity less"
    run = written()
    run["models"][0]["judged"] = {"asked": {**asked, "headline": "share_right"}, "snli": figures(0.7, 0.9)}
    run["models"][0]["judged"]["asked"]["metrics"] = {"share_right": asked["metrics"]["accuracy"]}
    run["models"][0]["judged"]["asked"] |= {"per_seed": {"share_right": [0.4]}, "deviation": {"share_right": None}}
    run["models"][0]["judged"]["asked"]["means"] = None
    kept = trimmed(run, "", "out.json")
    assert isinstance(kept, Run) and kept.models[0].judged["snli"].headline == ""
    assert "| `asked` (share_right; guessing 0.250) | 500 |" in results_page([kept])
    assert "| 0.400 [0.380, 0.420] | " in results_page([kept])


def test_a_set_that_the_same_outputs_answer_has_its_own_metric_and_no_guessing() -> None:
    """An embedder is judged by similarity, and by search: the file, the page, the card and MLflow read nDCG there."""
    found = figures(0.7, 0.95, -0.03) | {"headline": "ndcg", "drop": None}
    found |= {"metrics": {"ndcg": found["metrics"]["accuracy"]}, "per_seed": {"ndcg": [0.7]}}
    found |= {"deviation": {"ndcg": None}, "means": None}
    run = written()
    for model in run["models"][:2]:
        model["judged"] = {"search": found}
    kept = trimmed(run, "", "out.json")
    assert isinstance(kept, Run) and kept.models[0].judged["search"].headline == "ndcg"
    assert "| `search` (ndcg) | 500 | `teacher` | 0.700 [0.680, 0.720] | " in results_page([kept])
    row = stated("half", judged={"search": found})
    assert judging_rows([row])[0][:3] == ("search (ndcg)", "half", "0.700 [0.680, 0.720]")
    assert not [line for line in card_rows(row) if "drop" in line or "guessing" in line]
    assert judged_figures(row)["judge/search/score"] == 0.7 == judged_figures(row)["judge/search/ndcg"]
