"""The page of a run: what its first screen says, what it survives, and that it asks nobody for anything."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import pytest

from tasks.report.page.headline import gate_tag
from tasks.report.page.page import report_link, sweep_page
from tasks.report.page.page import run_page as page_of
from tasks.results.run import RunResult
from tests.report.figures import HELD_BACK, row, stated, undefined, written
from tests.report.test_sweep import WHOLE

HOSTILE = "<script>alert('x')</script><img src=http://evil.example/x onerror=y> \"'&"
VOID = {"meta", "link", "br", "img", "hr", "input"}


def run_page(result: dict[str, Any], **beside: Any) -> str:
    """Return the page of a result as it is read from a file."""
    return page_of(RunResult.model_validate(result), **beside)


class Read(HTMLParser):
    """Reads a page: its texts, its tags with attributes, and whether everything that opens closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def first_screen(page: str) -> str:
    """Return the text of the part above everything else."""
    return Read(page[page.index("<main>") : page.index("</section>")].replace("<main>", "") + "</section>").text


def figure(value: float | None, how: str = "measured") -> dict[str, Any]:
    return {"value": value, "how": how if value is not None else "unknown", "by": "some method"}


COST = {
    "seconds": figure(81.0),
    "gpu_seconds": figure(0.0),
    "kwh": figure(0.0123, "estimated"),
    "co2e_kg": figure(0.0051, "estimated"),
    "dollars_on_demand": figure(0.42, "estimated"),
    "dollars_spot": figure(None),
}
LOOK: dict[str, Any] = {
    "confusion": [[40, 2], [3, 55]],
    "ece": 0.0312,
    "nll": 0.2,
    "brier": 0.1,
    "bins": [
        {"low": 0.8, "high": 0.9, "rows": 20, "certainty": 0.85, "accuracy": 0.8},
        {"low": 0.9, "high": 1.0, "rows": 80, "certainty": 0.97, "accuracy": 0.99},
    ],
}
EXAMPLE = {
    "id": 7,
    "label": 1,
    "student": {"answer": 0, "probability": 0.91},
    "teacher": {"answer": 1, "probability": 0.97},
}
COUNTS = {"rows": 100, "differ": 4, "both_right": 94, "only_student": 1, "only_teacher": 3, "both_wrong": 2}


def whole(**changes: Any) -> dict[str, Any]:
    """Return a result with everything that a page can show."""
    look = LOOK | {"apart": {"counts": COUNTS, "examples": {"surest": [EXAMPLE], "corrected": []}}}
    models = [
        row("teacher", "teacher", inspection=LOOK, seeds=[0], checkpoint="a" * 64, bytes=437_000_000),
        row("4x312", gate="champion", cost=COST, inspection=look, seeds=[0, 1]),
        row("top-2", "dropped", gate="refused", bytes=1e6),
        row("4x312-int8", "export", of="4x312", engine="onnxruntime int8"),
    ]
    nodes = [
        {"id": "s0", "name": "data", "label": "", "cache": "source", "made": "d" * 64},
        {"id": "k1", "name": "prepare-rows", "label": "", "cache": "hit", "made": "e" * 64},
        {"id": "k2", "name": "distill-predictions", "label": "4x312", "cache": "miss", "made": "c" * 64},
        {"id": "k3", "name": "drop-layers", "label": "other", "cache": "miss", "made": "f" * 64},
    ]
    entry = {"name": "sst2-minilm", "new": True}
    registered = [
        {
            **entry,
            "version": "3",
            "candidate": "4x312",
            "alias": "champion",
            "decision": "accepted",
            "reasons": ["retained 0.981 ≥ 0.95: met"],
        },
        {
            **entry,
            "version": "4",
            "candidate": "top-2",
            "alias": None,
            "decision": "refused",
            "reasons": ["speedup 1.1 ≥ 2: missed by 0.9"],
        },
    ]
    stages = [
        {
            "name": "distill-predictions",
            "label": f"4x312 s{seed}",
            "state": "completed",
            "cache": "miss",
            "seconds": 3.2,
            "key": str(seed) * 64,
        }
        for seed in (0, 1)
    ]
    ledger = {
        "stages": [{"name": "finetune-teacher", "label": "", **COST}],
        "total": COST,
        "saved": COST | {"kwh": {**figure(None), "at_least": 0.25}},
    }
    lineage = {"nodes": nodes, "edges": [["s0", "k1"], ["k1", "k2"], ["s0", "k2"], ["k1", "k3"]]}
    more = {
        "registered": registered,
        "stages": stages,
        "labels": ["bad", "good"],
        "confidence": 0.95,
        "lineage": lineage,
        "ledger": ledger,
        "run": "5b1c" * 8,
    }
    return written(models=models) | more | {"links": {"run": "http://127.0.0.1:5000/#/experiments/1/runs/2"}} | changes


CURVES = {
    str(seed) * 64: {"loss": [[50, 0.7], [100, 0.3 + seed / 10]], "selection_score": [[50, 0.8], [100, 0.9]]}
    for seed in (0, 1)
}
TEXTS = {"7": ["a fine film", None]}


def test_the_first_screen_answers() -> None:
    said = first_screen(run_page(whole(), curves=CURVES, texts=TEXTS))
    for words in (
        "Use 4x312",
        "0.912 accuracy",
        "[0.900, 0.924]",
        "98.1 % of the teacher's 0.912",
        "4.32 ms",
        "9.4 times as fast as the teacher",
        "57.4 MB",
        "7.6 times smaller than the teacher",
        "$0.42 on demand",
        "0.0123 kWh, 0.0051 kg CO2e",
        "limbeck pull sst2-minilm@champion my-model",
        "retained 0.981 ≥ 0.95: met",
    ):
        assert words in said, words


def test_exports_that_travel_with_the_model_are_named_with_their_figures_and_refused_ones_are_not() -> None:
    result = whole()
    graph = row("4x312-onnx", "export", of="4x312", gate="refused", export={"format": "onnx"})
    packed = row(
        "4x312-int8", "export", of="4x312", gate="published", export={"format": "int8"}, latency_ms=1.5, bytes=15.7e6
    )
    result["models"] += [graph, packed]
    said = first_screen(run_page(result))
    assert "onnx/model_int8.onnx: 0.912 accuracy, 1.50 ms, 15.7 MB" in said and "model.onnx" not in said


def test_where_a_person_is_to_promote_no_champion_is_said_to_stay() -> None:
    result = whole(promotion={"champion": None})
    result["models"][1]["gate"] = "accepted"
    result["registered"][0] |= {"alias": None, "why": "the recipe sets gate.promote: never"}
    said = first_screen(run_page(result))
    assert (
        "No champion yet; 4x312 was accepted" in said
        and "gate.promote: never" in said
        and "champion of an earlier run" not in said
    )
    before = first_screen(run_page(result | {"promotion": {"champion": {"version": "2", "candidate": "old"}}}))
    assert "The champion stays; 4x312 was accepted" in before


def test_a_standing_is_said_as_far_as_the_gate_was_asked() -> None:
    said = [
        gate_tag(stated("4x312", **found))
        for found in (
            {"gate": "champion", "verdict": "ACCEPT"},
            {"gate": "accepted", "verdict": "ACCEPT"},
            {"gate": "refused", "verdict": "INFEASIBLE", "closest": True},
            {"gate": "refused", "verdict": "REGRESSION"},
            {},
        )
    ]
    assert said == ["champion", "accepted, not champion", "refused", "refused", "not evaluated"]


def test_every_source_is_named_with_its_licence_and_an_older_result_says_nothing_of_them() -> None:
    stated = [
        {"what": "Corpus", "source": "wiki", "licence": "cc-by-sa-3.0"},
        {"what": "Data", "source": HOSTILE, "licence": "unknown"},
    ]
    page = run_page(whole(licences=stated))
    assert (
        "<li>Corpus: wiki, licence: cc-by-sa-3.0</li>" in page
        and "licence: unknown</li>" in page
        and HOSTILE not in page
    )
    assert "licence" not in run_page(whole())


def test_what_was_purged_and_what_leaks_stands_on_the_page_and_an_older_result_says_nothing_of_it() -> None:
    page = run_page(whole(held_back=HELD_BACK))
    assert (
        "200 of 1,000 training rows (20.0%) were removed" in page
        and "overlap with the general text: 3 of 872 validation" in page
    )
    assert "Held-out rows" not in run_page(whole())


def test_where_nobody_passed_the_nearest_is_named_with_its_version() -> None:
    result = whole()
    result["models"][1]["gate"], result["registered"][0]["alias"] = "refused", None
    said = first_screen(run_page(result))
    assert (
        "No candidate passed the gate" in said
        and "The closest is 4x312" in said
        and "limbeck pull sst2-minilm@3 my-model" in said
    )


def test_an_accepted_model_beside_an_earlier_champion_is_told_as_such() -> None:
    result = whole()
    result["models"][1]["gate"], result["registered"][0]["alias"] = "accepted", None
    said = first_screen(run_page(result))
    assert (
        "The champion stays; 4x312 was accepted" in said
        and "the champion of an earlier run is preferred" in said
        and "@3 my-model" in said
    )


def test_of_refused_models_the_one_that_missed_least_is_named() -> None:
    result = whole()
    result["models"][1]["gate"], result["registered"][0]["alias"], result["models"][2]["closest"] = (
        "refused",
        None,
        True,
    )
    assert "The closest is top-2" in first_screen(run_page(result))


def test_a_run_with_a_manifest_says_how_to_compare_with_it() -> None:
    text = Read(
        run_page(whole(manifest={"schema": 1, "versions": {"onnx": "1.22"}, "hardware": {"cpu": "a cpu"}}))
    ).text
    assert "limbeck reproduce 5b1c5b1c" in text and "limbeck reproduce" not in Read(run_page(whole())).text


def test_twins_of_the_same_weights_are_named_together() -> None:
    result = whole()
    for entry in result["registered"]:
        entry["aliases"] = ["champion-fast"]
    assert "sst2-minilm@champion-fast is 4x312 and top-2" in first_screen(run_page(result))


def test_unknown_cost_is_called_so_and_is_never_zero() -> None:
    result = whole()
    result["models"][1] |= {"cost": {name: figure(None) for name in COST}, "train_seconds": [60.0, 63.0]}
    said = first_screen(run_page(result))
    assert "2 min of computation" in said and "dollars, energy, CO2e: unknown" in said and "$" not in said


def test_hostile_texts_stay_texts() -> None:
    result = whole(
        labels=[HOSTILE, "good"],
        recipe=HOSTILE,
        task=HOSTILE,
        made={"command": HOSTILE, "hardware": HOSTILE, "versions": {}, "date": HOSTILE},
    )
    result["models"][2] |= {"name": HOSTILE, "note": HOSTILE}
    result["registered"][1] |= {"candidate": HOSTILE, "reasons": [HOSTILE], "name": HOSTILE}
    result["stages"][0]["label"] = HOSTILE
    page = run_page(result, curves=CURVES, texts={"7": [HOSTILE, HOSTILE]})
    read = Read(page)
    assert HOSTILE in " ".join(read.texts) and not {"script", "img", "iframe", "object"} & {tag for tag, _ in read.tags}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert "<script>" not in sweep_page(
        WHOLE | {"recipe": HOSTILE, "task": HOSTILE, "headline": HOSTILE, "split": HOSTILE, "stages": [], "links": {}}
    )


def addresses(page: str) -> list[str]:
    """Return every address that a browser would fetch by itself."""
    read = Read(page)
    fetched = [
        str(value)
        for tag, given in read.tags
        for name, value in given.items()
        if name in ("src", "srcset", "data", "poster", "action", "background", "xlink:href")
        or (name == "href" and tag != "a")
    ]
    return fetched + re.findall(r"url\([^)]*\)|@import[^;]*", page)


def test_nothing_is_fetched_and_links_lead_to_web_addresses_alone() -> None:
    page = run_page(whole(), curves=CURVES, texts=TEXTS)
    assert addresses(page) == []
    links = {given["href"] for tag, given in Read(page).tags if tag == "a"}
    assert {link for link in links if not link.startswith("#")} == {"http://127.0.0.1:5000/#/experiments/1/runs/2"}
    assert "default-src 'none'" in page
    assert "javascript:" not in run_page(whole(links={"run": "javascript:alert(1)"}))
    ids = {given["id"] for _, given in Read(page).tags if "id" in given}
    assert {link[1:] for link in links if link.startswith("#")} <= ids


@pytest.mark.parametrize(
    "gone", ["registered", "ledger", "lineage", "labels", "confidence", "run", "made", "links", "stages", "manifest"]
)
def test_every_part_may_be_missing(gone: str) -> None:
    empty = {"registered": [], "stages": [], "links": {}}
    result = whole()
    result |= {gone: empty[gone]} if gone in empty else {}
    if gone not in empty:
        result.pop(gone, None)
    read = Read(run_page(result, curves=CURVES, texts=TEXTS))
    assert "Use 4x312" in read.text


def test_a_bare_result_of_an_older_version_has_a_page() -> None:
    text = Read(run_page(written())).text
    for said in (
        "has no ledger",
        "has no error analysis",
        "recorded no graph",
        "No curves were found",
        "This model was not registered.",
    ):
        assert said in text, said


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf")])
def test_what_is_undefined_is_a_dash_and_never_a_number(nothing: float | None) -> None:
    result = whole()
    new = undefined("new") | {
        "seeds": [0],
        "inspection": LOOK | {"ece": nothing, "nll": nothing, "brier": nothing, "bins": []},
        "gate": "champion",
    }
    for name in ("latency_ms", "bytes", "parameters", "speedup", "flops", "memory_bytes"):
        new[name] = nothing
    new["metrics"] = {"validation": {"accuracy": {"value": nothing, "low": nothing, "high": nothing}}}
    result["models"].append(new)
    for chosen in ("champion", "refused"):
        result["models"][1]["gate"] = chosen
        text = Read(run_page(result)).text
        assert not re.search(r"\b(nan|inf|None)\b", text) and "—" in text


def test_headings_tables_and_drawings_speak() -> None:
    read = Read(run_page(whole(), curves=CURVES, texts=TEXTS))
    headings = [int(tag[1]) for tag, _ in read.tags if re.fullmatch(r"h\d", tag)]
    assert (
        headings[0] == 1
        and headings.count(1) == 1
        and all(second - first <= 1 for first, second in zip(headings, headings[1:], strict=False))
    )
    drawings = [given for tag, given in read.tags if tag == "svg"]
    assert all(given.get("aria-label") for given in drawings)
    assert {given["role"] for given in drawings} == {"img", "group"}, "a group where marks have names of their own"
    marks = [given for tag, given in read.tags if tag == "g" and "tabindex" in given]
    assert marks and all(given.get("aria-label") and given.get("role") == "img" for given in marks)
    assert all(given.get("scope") for tag, given in read.tags if tag == "th")
    assert ("html", {"lang": "en"}) in read.tags


def test_drawings_are_whole() -> None:
    for drawing in re.findall(r"<svg.*?</svg>", run_page(whole(), curves=CURVES, texts=TEXTS), re.DOTALL):
        ET.fromstring(drawing)
        assert "nan" not in drawing and "inf" not in re.sub(r"[\w-]*inf\w+", "", drawing)


def test_texts_are_shown_or_left_out() -> None:
    assert "a fine film" in run_page(whole(), texts=TEXTS)
    without = run_page(whole())
    assert "a fine film" not in without and "row 7" in without and "This page contains no texts" in without


def test_many_candidates_make_a_page_of_less_than_a_megabyte() -> None:
    result = whole()
    look = result["models"][1]["inspection"]
    look["apart"]["examples"] = {"surest": [EXAMPLE] * 6, "corrected": [EXAMPLE] * 6}
    many = [
        row(
            f"candidate-number-{number}",
            inspection=look,
            latency_ms=1.0 + number,
            bytes=1e6 * (number + 1),
            seeds=[0, 1, 2],
        )
        for number in range(30)
    ]
    stages = [
        {
            "name": name,
            "label": f"{model['name']} s{seed}",
            "state": "completed",
            "cache": "miss",
            "seconds": 1.0,
            "key": f"{name}{model['name']}{seed}",
        }
        for model in many
        for name in ("distill-layers", "distill-predictions")
        for seed in range(3)
    ]
    curve = {
        "loss": [[step, 1 / step] for step in range(1, 2000)],
        "selection_score": [[step, 0.5] for step in range(1, 9)],
    }
    curves = {stage["key"]: curve for stage in stages}
    page = run_page(
        result | {"models": [result["models"][0], *many], "stages": stages},
        curves=curves,
        texts={"7": ["word " * 5000, None]},
    )
    assert len(page.encode()) < 1_000_000


def test_regression_shows_its_points() -> None:
    look = {
        "bias": -0.02,
        "mae": 0.31,
        "rmse": 0.4,
        "residuals": [],
        "points": [[0.0, 0.2], [5.0, 4.1]],
        "apart": {
            "counts": {"rows": 2, "student_nearer": 1, "teacher_nearer": 1},
            "gap": 0.1,
            "examples": {
                "surest": [{"id": 7, "label": 2.0, "student": {"answer": 2.5}, "teacher": {"answer": 4.0}}],
                "corrected": [],
            },
        },
    }
    result = whole(labels=None, task_type="regression")
    for model in result["models"][:2]:
        model["inspection"] = look
    text = Read(run_page(result, texts=TEXTS)).text
    assert (
        "mean error (predicted − true) −0.020" in text
        and "Largest differences" in text
        and "2.50" in text
        and "4.00" in text
    )


def test_many_classes_name_their_confusions() -> None:
    counts = [[50 if row == column else 0 for column in range(20)] for row in range(20)]
    counts[3][4] = 9
    result = whole(labels=None)
    result["models"][1]["inspection"] = LOOK | {"confusion": counts}
    assert "3 predicted as 4: 9 rows" in Read(run_page(result)).text


def test_seeds_of_one_training_share_a_chart_and_cached_ones_say_so() -> None:
    result = whole()
    text = run_page(result, curves=CURVES)
    assert text.count('aria-label="distill-predictions 4x312: loss over steps') == 1 and "2 seeds<" in text
    for stage in result["stages"]:
        stage["cache"] = "hit"
    assert "from the run that computed it: cached here" in run_page(result, curves=CURVES)


def test_the_lineage_is_the_models_own_without_shortcuts() -> None:
    page = run_page(whole())
    drawing = re.search(r"<svg[^>]*lineage.*?</svg>", page, re.DOTALL)
    assert drawing and drawing[0].count('class="thread"') == 2, "data reaches the student by way of its rows"
    assert "drop-layers" not in drawing[0] and "distill-predictions" in drawing[0]


def test_the_ledger_says_how_each_figure_is_known() -> None:
    text = Read(run_page(whole())).text
    assert "the whole run 81 measured" in text and "≥ 0.25 unknown" in text and "$ spot" in text


def test_a_sweep_has_a_page_with_its_answer_first() -> None:
    page = sweep_page(WHOLE | {"stages": [], "links": {}, "task": "sst2", "made": {"command": "limbeck sweep x"}})
    assert addresses(page) == []
    assert "Within 1 point of the teacher" in first_screen(page) and "limbeck sweep x" in Read(page).text


def test_the_link_to_the_page() -> None:
    assert (
        report_link({"run": "http://h/#/experiments/1/runs/2"})
        == "http://h/#/experiments/1/runs/2/artifacts/report/report.html"
    )
    assert report_link({}) is None


def test_the_table_says_what_a_candidate_is_made_from_and_the_chart_of_layers_leaves_it_out() -> None:
    """By its name it would be a strategy with 2 layers dropped; it may have lost layers before."""
    chained = row("lean-2", "dropped", made_from="4x312", made_by="layer-dropping")
    page = run_page(whole(models=[*whole()["models"], chained]))
    assert "dropped, made from 4x312 by layer-dropping" in Read(page).text
    assert "lean, 2 dropped" not in page and "made from 4x312 by" not in run_page(whole())


def test_both_held_out_splits_together_are_a_table_of_their_own() -> None:
    both = {"value": 0.931, "low": 0.92, "high": 0.94}
    scores = {"rows": 2872, "metrics": {"accuracy": both}, "retained": both, "difference": both}
    models = [row("teacher", "teacher", pooled=scores), row("4x312", pooled=scores), row("4x312-int8", "export")]
    read = Read(run_page(written(models=models) | {"rows": {"train": 9, "validation": 872, "holdout": 2000}}))
    assert "accuracy on 2,000 holdout and 872 validation rows. Nothing is chosen by it." in read.text
    assert read.text.count("0.931 [0.920, 0.940]") == 2
    assert "Both held-out splits" not in run_page(written())
