"""The results page: what is kept of a run, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.errors import RecipeError
from tasks.report.results.further_splits import further_losses
from tasks.report.results.literature import literature_of
from tasks.report.results.results_cuts import file_name, parsed, trimmed, without_places
from tasks.report.results.results_file import Run, Sweep
from tasks.report.results.results_page import NOTHING, results_page
from tests.report.figures import HELD_BACK, row, swept, written


def kept(values: dict[str, Any], note: str = "") -> Any:
    return trimmed(json.loads(json.dumps(values)), note, "out.json")


def rows_of(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| `")]


def test_what_is_kept_is_small_and_comes_back_the_same() -> None:
    run = kept(written(), "On a quiet machine.")
    text = json.dumps(run.model_dump(mode="json"))
    assert parsed(json.loads(text), "x.json") == run and isinstance(run, Run)
    assert run.made.minutes.run == 12.346 and run.note == "On a quiet machine."
    for gone in ("checkpoint", "stages", "registered", "links", "provenance", "not kept"):
        assert gone not in text


def test_a_search_is_kept_with_the_error_and_the_rank_correlation_of_its_latencies() -> None:
    """They stood in a note that was written by hand."""
    layer = {"fixed": 0.0, "layer": 1.0}
    part = dict.fromkeys(("ms", "parameters", "flops", "bytes"), layer)
    cell = {"width": 1, "neurons": 1, "hidden": 8, "heads": 1, "feed_forward": 8, "format": "torch", "row_bytes": 32}
    check = {"layers": 2, "hidden": 8, "feed_forward": 8, "format": "torch", "predicted_ms": 1.0, "measured_ms": 1.02}
    table = {
        "layers": 4, "vocabulary": 9, "reference_ms": 1.0, "cells": [{**cell, **part}], "checks": [check] * 12,
        "error": 0.0196, "largest_error": 0.02, "rank_correlation": 0.98765,
    }  # fmt: skip
    search = {"budgets": ["bytes"], "points": 24, "fitting": 12, "table": table, "tau": 1.0, "supernet_tau": 0.62}
    run = kept(written() | {"search": search})
    assert isinstance(run, Run) and run.search is not None
    assert (run.search.checks, run.search.error, run.search.rank_correlation) == (12, 0.0196, 0.98765)
    assert (
        "; 24 points searched, 12 shapes fit, error 2.0 % on 12 shapes that are no part of its latency table, rank "
        "correlation 0.988, tau 0.62 of the supernet to shapes trained alone, tau 1.00 to the whole trainings of its "
        "candidates;" in results_page([run])
    )
    assert kept(written()).search is None and "searched" not in results_page([kept(written())])


def test_no_folder_of_a_machine_is_kept() -> None:
    command = kept(written()).made.command
    assert command == "limbeck run tinybert-4 --set teacher.model=FOLDER/minilm --set 'students.4x312.seeds=[0, 1, 2]'"
    at_home = kept(written(command="limbeck run ~/mine.yaml --set data.source=./glue/sst2")).made.command
    assert at_home == "limbeck run FOLDER/mine.yaml --set data.source=FOLDER/sst2"
    nested = without_places(
        {
            "command": "limbeck run demo --set=data.source=/home/me/sst2 --set 'students=[{start: /home/me/own, "
            "layers: 3}]'"
        }
    )["command"]
    assert nested == "limbeck run demo --set=data.source=FOLDER/sst2 --set 'students=[{start: FOLDER/own, layers: 3}]'"
    assert without_places({"command": "limbeck run demo --set data.source=s3://bucket/rows"})["command"].endswith(
        "s3://bucket/rows"
    )
    assert kept(written(command="limbeck run deployments/recipes/a.yaml")).made.command.endswith(
        "deployments/recipes/a.yaml"
    )


def test_a_result_that_was_made_before_splits_were_purged_says_so_in_a_table_of_its_own() -> None:
    after = kept(written("later") | {"held_back": HELD_BACK})
    assert after.purged is not None and after.purged.rows == 200
    page = results_page([kept(written()), after])
    lines = {
        name: next(line for line in page.splitlines() if line.startswith(f"- `{name}`"))
        for name in ("tinybert-4", "later")
    }
    assert (
        "computed before splits were purged" in lines["tinybert-4"]
        and "200 of 1,000 training rows purged" in lines["later"]
    )
    assert page.count("| model |") == 2


def test_the_table_is_sorted_and_says_what_was_compared() -> None:
    values = written()
    values["models"][0]["latency_ms"] = 40.6
    page = results_page([kept(values)])
    names = [line.split(" | ")[0] for line in rows_of(page)]
    assert names == ["| `teacher`", "| `finetuned`", "| `4x312`"]
    assert "0.912 ±0.004 [0.900, 0.924]" in page and "better, `finetuned`: +0.012 [+0.004, +0.020]" in page
    assert "| 3 | 14.35 M | 57.4 | 1.20 | 4.32 | 9.4x of 40.60 | 1,000 | 2.0 | `tinybert-4` |" in page
    assert (
        "872 validation rows" in page
        and "12 min, and 30 min in stages that were cached; AMD EPYC 9R14, 4 cores, no GPU" in page
    )
    assert len({line.replace("\\|", "").count("|") for line in page.splitlines() if line.startswith("|")}) == 1


def test_a_size_says_what_is_known_of_its_zeros_its_bits_and_its_pieces() -> None:
    """A recipe of vocabularies, zeros or bits was compared by parameters alone, which are the same."""
    values = written()
    sizes = {"packed_bytes": 21e6, "nonzero_share": 0.1, "bits": 2.0, "fertility": 1.274, "fertility_elsewhere": 1.4}
    values["models"][1] |= {"bytes": 90867952, **sizes, "ms_per_text": 5.281}
    page = results_page([kept(values)])
    said = "90.9 (21.0 packed, 10% not 0, 2 bits, 1.27 pieces a word, 1.40 elsewhere, 5.28 ms a text)"
    assert page.count(said) == 1, rows_of(page)


def test_flops_stand_with_their_length_and_what_a_candidate_cost_beside_its_minutes() -> None:
    """Half of the FLOPs, and of the energy, could not be read off a stored result."""
    values = written()
    cost = {"kwh": {"value": 0.0123}, "dollars_on_demand": {"value": 0.5}, "seconds": {"value": 9.0}}
    values["models"][1] |= {"flops": 2_400_000_000, "cost": cost}
    run = kept(values)
    assert (run.models[1].flops, run.models[1].flops_length) == (2.4e9, 128)
    assert (run.models[1].kwh, run.models[1].dollars, run.models[0].kwh) == (0.0123, 0.5, None)
    page = results_page([run])
    assert "| 57.4 | 2.40 | 4.32 | 9.4x of 4.32 | 1,000 | 2.0 (0.012 kWh, $0.50) |" in page
    assert "1 thread, torch, eager, GFLOPs at length 128" in page
    values["models"][1]["cost"] = {"kwh": {"value": None, "at_least": 0.01}, "dollars_on_demand": {"value": 0.5}}
    assert "| 2.0 ($0.50) |" in results_page([kept(values)]), "a sum with unknown parts is unknown"


def test_a_file_without_flops_has_a_dash() -> None:
    older = kept(written()).model_dump(mode="json")
    for entry in older["models"]:
        for name in ("flops", "flops_length", "kwh", "dollars"):
            del entry[name]
    page = results_page([parsed(older, "older.json")])
    assert "| 57.4 | — | 4.32 |" in page and "GFLOPs at length" not in page


def test_runs_of_one_task_and_teacher_share_a_table_and_what_both_made_stands_once() -> None:
    other = written("pkd-skip")
    other["models"][1]["name"] = "pkd"
    runs = [kept(written()), kept(other), kept(written("cola-run", "cola")), kept(written("big", teacher="bert"))]
    page = results_page(runs)
    assert page.index("## cola") < page.index("## sst2") and page.count("| model |") == 3
    shared = page.split("Teacher `minilm`")[2]
    assert len(rows_of(shared)) == 4 and shared.count("| `tinybert-4`, `pkd-skip` |") == 2


def test_a_speed_up_is_the_quotient_of_two_latencies_that_are_printed() -> None:
    """A student of two runs was one row, beside the teacher of another one than its speed-up."""
    first, again = written(), written("pkd-skip")
    for one, teacher, ours in ((first, 12.0, 4.0), (again, 15.0, 5.0)):
        one["models"][0] |= {"latency_ms": teacher, "latency_low_ms": None, "latency_high_ms": None}
        one["models"][1] |= {"latency_ms": ours, "speedup": teacher / ours, "unsteady": None}
    rows = rows_of(results_page([kept(first), kept(again)]))
    [teacher_row] = [row for row in rows if row.startswith("| `teacher`")]
    students = [row for row in rows if row.startswith("| `4x312`")]
    assert "| by run |" in teacher_row and teacher_row.endswith("`tinybert-4`, `pkd-skip` |")
    assert ["3.0x of 12.00" in students[0], "3.0x of 15.00" in students[1]] == [True, True] and len(students) == 2


def test_scores_on_a_second_split_stand_beside_those_that_a_run_reports() -> None:
    """Scores on dev were in the files, and on no page: what looks kept on held-back rows may be lost there."""
    values = written()
    for model, score in zip(values["models"], (0.95, 0.93, 0.90), strict=True):
        known = model["metrics"]["validation"]["accuracy"]
        on_both = {"validation": {"accuracy": known}, "holdout": {"accuracy": {**known, "value": score}}}
        alike = {name: model[name] | {"holdout": model[name]["validation"]} for name in ("per_seed", "deviation")}
        model |= {"metrics": on_both, **alike}
    run = kept(values)
    teacher, student, plain = (one.scores["validation"]["accuracy"].value for one in run.models)
    page = results_page([run])
    assert "| model | kind | accuracy | on holdout | registered |" in page
    losses = [0.95 - score - (teacher - known) for score, known in ((0.93, student), (0.90, plain))]
    assert [round(found, 9) for _, found in further_losses(run, "holdout")] == [round(one, 9) for one in losses]
    mean, many = sum(losses) / 2, sum(one > 0.015 for one in losses)
    word = "less" if mean < 0 else "more"
    assert f"lose to it {100 * abs(mean):.1f} points {word} than on validation rows, on the mean; {many} of" in page
    assert "on holdout" not in results_page([kept(written())])


def test_the_score_on_both_splits_together_stands_beside_them() -> None:
    values = written()
    for model, score in zip(values["models"], (0.95, 0.93, 0.90), strict=True):
        both = {"value": score, "low": score - 0.01, "high": score + 0.01}
        model["pooled"] = {"rows": 2872, "metrics": {"accuracy": both}, "retained": both, "difference": both}
        model["pooled"] |= {"per_seed": {"accuracy": [score, 0.9]}, "deviation": {"accuracy": 0.002}}
        model["pooled"]["means"] = {"metrics": {"accuracy": both}, "retained": both, "difference": both}
    run = kept(values)
    assert run.models[1].pooled.rows == 2872 and run.models[1].pooled.scores["accuracy"].per_seed == (0.93, 0.9)
    page = results_page([run, kept(written("older"))])
    assert "| model | kind | accuracy | on both together | registered |" in page
    assert "| 0.930 ±0.002 [0.920, 0.940] |" in page
    assert len({line.replace("\\|", "").count("|") for line in page.splitlines() if line.startswith("|")}) == 1
    assert "both together" not in results_page([kept(written())])


def test_nothing_is_promised() -> None:
    assert NOTHING in results_page([]) and "##" not in results_page([])
    page = results_page([kept(swept())])
    assert "Teacher `" not in page and NOTHING not in page


def test_one_seed_is_said_beside_the_word() -> None:
    values = written()
    values["models"][1]["against"]["finetuned"]["validation"]["seeds"] = [1, 3]
    assert "+0.020] (one seed: noise of training not included)" in results_page([kept(values)])


def test_methods_are_compared_by_means_and_the_registered_model_stands_beside_them() -> None:
    values = written()
    mean, own = {"value": 0.9, "low": 0.88, "high": 0.92}, {"value": -0.021, "low": -0.03, "high": -0.012}
    values["models"][1] |= {
        "means": {"validation": {"metrics": {"accuracy": mean}, "retained": mean, "difference": mean}},
        "difference": {"validation": own},
        "selected_seed": 2,
    }
    entry = kept(values).models[1]
    assert entry.difference["validation"].own.model_dump() == own, "the page says it of the registered version"
    assert entry.retained["validation"].own.value == 0.981
    assert (
        entry.scores["validation"]["accuracy"].value
        == entry.retained["validation"].value
        == entry.difference["validation"].value
        == 0.9
    )
    line = next(line for line in rows_of(results_page([kept(values)])) if "4x312" in line)
    assert "| 0.900 ±0.004 [0.880, 0.920] | 0.912 [0.900, 0.924] (seed 2) | 90.0% [88.0%, 92.0%] |" in line
    assert kept(written()).models[1].retained["validation"].own is None
    older = next(line for line in rows_of(results_page([kept(written())])) if "4x312" in line)
    assert "| 0.912 ±0.004 [0.900, 0.924] | — | 98.1%" in older, (
        "a file of before keeps its means, and nothing is made up for it"
    )


def test_what_is_undefined_is_a_dash() -> None:
    values = written()
    nothing = {"validation": {"value": None, "low": None, "high": None}}
    values["models"][1] |= {
        "metrics": {"validation": {"accuracy": nothing["validation"]}},
        "retained": nothing,
        "speedup": None,
        "steps": [0],
        "against": {},
    }
    line = next(line for line in rows_of(results_page([kept(values)])) if "4x312" in line)
    assert "None" not in line and line.count("—") == 6


def test_a_sweep_is_a_table_of_strategies_by_layers() -> None:
    page = results_page([kept(swept())])
    assert "| strategy | 1 of 6 dropped | 2 of 6 dropped |" in page
    assert "| top | **0.930 ±0.002 [0.920, 0.940]** | **0.910 ±0.002 [0.900, 0.920]** |" in page
    assert "| bottom | 0.920 ±0.002 [0.910, 0.930] | — |" in page
    assert "- Within 1 point of the teacher: 1 of 6 layers can be dropped, confirmed by the interval." in page
    assert (
        "- Within 3 points of the teacher: 1 of 6 layers can be dropped, confirmed by the interval; by the mean "
        "alone 2." in page
    )
    assert "- Within 0.5 points of the teacher: no number of layers is confirmed by its interval." in page


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (written(), "tinybert-4-sst2.json"),
        (written("sst2-tinybert"), "sst2-tinybert.json"),
        (swept(), "sst2-tinybert-layers.json"),
    ],
    ids=["recipe", "task in the name", "sweep"],
)
def test_a_file_is_named_after_recipe_and_task(values: dict[str, Any], name: str) -> None:
    assert file_name(kept(values)) == name


@pytest.mark.parametrize("values", [[], {}, {"recipe": "x"}, {"kind": "demo"}, {"kind": "run"}, "text", None])
def test_other_json_is_refused(values: Any) -> None:
    with pytest.raises(RecipeError, match=r"out\.json is not a file that limbeck run --json"):
        trimmed(values, "", "out.json")


def test_a_run_of_an_older_version_is_refused_in_one_sentence() -> None:
    values = written()
    del values["models"][1]["deviation"]
    with pytest.raises(RecipeError, match="lacks a part of a finished run"):
        kept(values)
    with pytest.raises(RecipeError, match=r"models: .*2 items"):
        kept(
            written(
                models=[
                    row(
                        "teacher",
                        "teacher",
                        **{k: v for k, v in written()["models"][0].items() if k != "name" and k != "role"},
                    )
                ]
            )
        )
    with pytest.raises(RecipeError, match="command"):
        parsed(kept(written()).model_dump(mode="json") | {"command": "x"}, "x.json")


def test_the_literature_names_its_sources() -> None:
    found = literature_of(
        {"rows": [{"model": "BERT", "scores": {"sst2": 92.7}, "source": "README of a repository"}]}, "literature.json"
    )
    page = results_page([], found)
    assert (
        "other teachers, other training and other data splits" in page
        and "| BERT | 92.7 | README of a repository |" in page
    )
    with pytest.raises(RecipeError, match=r"rows\.0\.source"):
        literature_of({"rows": [{"model": "BERT", "scores": {"sst2": 92.7}}]}, "literature.json")


def test_a_sweep_is_a_sweep() -> None:
    assert isinstance(kept(swept()), Sweep) and kept(swept()).identity != kept(written("sst2-tinybert")).identity
