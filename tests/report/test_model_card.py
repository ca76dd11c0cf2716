"""The model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from tasks.catalog import GLUE
from tasks.gate.verdicts import Decision
from tasks.recipe.recipe import Recipe
from tasks.report.model_card import model_card
from tasks.report.tables.exports_section import exports_section
from tasks.results.facts import HeldBackFacts
from tasks.results.row import ExportFacts, ResultRow
from tasks.results.run import StageLine
from tests.report.figures import HELD_BACK, row, stated, undefined

LICENCES = [
    {"what": "Teacher", "source": "bert-base-uncased", "licence": "apache-2.0"},
    {"what": "Data", "source": "sst2", "licence": "unknown"},
    {"what": "Corpus", "source": "wikimedia/wikipedia", "licence": "cc-by-sa-3.0, gfdl"},
]
DATA = {
    "licences": LICENCES,
    "teacher_licence": "apache-2.0",
    "teacher": "bert-base-uncased",
    "synthetic": False,
    "digests": {"data": "d" * 64},
    "run": "f" * 32,
    "registered": "sst2-bert",
    "rows": {"train": 60_000, "validation": 872},
}
RECIPE = {
    "name": "sst2-tinybert",
    "task": "sst2",
    "teacher": {"model": "google-bert/bert-base-uncased"},
    "pretraining": None,
}
STAGES = [
    StageLine(name="finetune-teacher", key="a" * 64),
    StageLine(name="distill-predictions", label="4x312", key="b" * 64),
]
ACCEPTED = Decision("4x312", "ACCEPT", ("retained 0.981 ≥ 0.95: met",))


def recipe_of(values: dict[str, Any]) -> Recipe:
    """Return a recipe with these values, one student and no extra text."""
    gate = {"split": "validation", **values.get("gate", {})}
    data = {"holdout_rows": 100 if gate["split"] == "holdout" else 0, **values.get("data", {})}
    student = {"name": "4x312", "layers": 4, "stages": []}
    return Recipe.model_validate({"students": [student], **values, "gate": gate, "data": data})


def card(
    model: dict[str, Any] | None = None,
    *,
    decision: Decision = ACCEPTED,
    recipe: dict[str, Any] = RECIPE,
    teacher: dict[str, Any] | None = None,
    **data: Any,
) -> str:
    return model_card(
        ResultRow.model_validate(model or row("4x312")),
        ResultRow.model_validate(teacher or row("teacher", "teacher")),
        recipe_of(recipe),
        decision,
        DATA | data,
        {"torch": "2.13.0"},
        STAGES,
    )


def test_the_header_is_what_the_hub_reads_to_draw_lineage() -> None:
    header = ModelCard(card()).data
    assert (header.license, header.base_model) == ("apache-2.0", "google-bert/bert-base-uncased")
    assert (header.datasets, header.language) == (["nyu-mll/glue"], "en")
    assert (header.library_name, header.pipeline_tag) == ("transformers", "text-classification")
    [result] = header.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_split) == ("accuracy", 0.912, "validation")
    assert (result.dataset_type, result.dataset_config) == ("nyu-mll/glue", "sst2")


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("onnxruntime int8 dynamic", "within a batch int8 activations share one scale"),
        ("onnxruntime int8 static", "sums in a batch may round differently"),
        ("onnxruntime four-bit", "sums in a batch may round differently"),
    ],
)
def test_a_scale_that_is_fixed_is_not_said_to_be_shared_by_a_batch(engine: str, why: str) -> None:
    scores = {"equal_answers": 1.0, "rows": 64, "metric": "accuracy", "score": 0.9, "fp32": {"score": 0.91}}
    facts = ExportFacts.model_validate({"format": "int8", "published": True, **scores})
    graph = stated("4x312-int8", "export", engine=engine, export=facts)
    assert f"exactly: {why}." in exports_section([graph], GLUE["sst2"], "validation")


def header_of(task: dict[str, Any] | str, source: str, licence: str = "mit", **data: Any) -> Any:
    """Return the header of a card for rows of a source."""
    recipe = RECIPE | {"task": task, "data": {"source": source, **data}}
    return ModelCard(card(recipe=recipe, teacher_licence=licence)).data


OWN = {"name": "tickets", "kind": "classification", "pair": None, "headline": "accuracy"}


def test_rows_of_the_hub_are_named_and_rows_of_a_machine_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert header_of(OWN, "ann/tickets", language="de").datasets == ["ann/tickets"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tickets").mkdir()
    for source in (str(tmp_path), "./rows.csv", "data/tickets", ""):
        found = header_of(OWN, source)
        assert found.datasets is None and found.language is None, source
    assert header_of(OWN, str(tmp_path), language="de").language == "de"
    assert header_of("sst2", str(tmp_path)).datasets is None


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("Apache-2.0", ("apache-2.0", None)),
        ("unknown", ("unknown", None)),
        ("Our own terms", ("other", "Our own terms")),
    ],
)
def test_a_licence_that_the_hub_does_not_know_keeps_its_name(given: str, written: tuple[str, str | None]) -> None:
    found = header_of("sst2", "", given)
    assert (found.license, found.get("license_name")) == written


def test_every_figure_says_how_it_came_about() -> None:
    table = card().split("## Figures")[1].split("##")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9 and all(line.endswith(("| measured |", "| computed |")) for line in rows)
    assert "| parameters | 14,350,248 | computed |" in rows
    assert "| inputs longer than the limit | 1.00% | measured |" in rows


def test_the_share_of_long_inputs_names_the_column_that_is_cut() -> None:
    task = {"name": "boolq", "text": "passage", "pair": "question", "truncate": "first"}
    table = card(recipe=RECIPE | {"task": task, "data": {"source": "ann/own"}}).split("## Figures")[1]
    assert "| inputs longer than the limit, of which `passage` alone is cut | 1.00% | measured |" in table


def test_no_path_of_a_machine_and_licences_are_stated() -> None:
    text = card(recipe=RECIPE | {"teacher": {"model": "/home/someone/models/bert"}})
    assert "someone" not in text and "base_model" not in text
    assert "- Data: `sst2`, licence: unknown." in text and "clarify them before you redistribute the model" in text
    assert "- Corpus: `wikimedia/wikipedia`, licence: cc-by-sa-3.0, gfdl." in text
    assert "clarify" not in card(licences=[one for one in LICENCES if one["licence"] != "unknown"])


HOSTILE = [
    "mit\n---\n# Trusted\n",
    "<script>alert(1)</script>",
    "[free](http://evil.example)",
    "![x](http://evil.example/x.png)",
    "see https://evil.example or www.evil.example",
    "mit`\n\n## Gate\n\nAccepted.\n",
    "a | b | c",
    "mit\r\nlicense: apache-2.0",
    "\u202eevil\u2028# Trusted",
    "*free* __free__ ~~free~~ <b>free</b>",
    "x" * 5000,
    "&lt;b&gt;",
]


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_words_of_a_recipe_stay_words_on_the_card(words: str) -> None:
    """A licence was pasted in as Markdown: it could end the header, add a heading, a link or a script to what a person
    trusts."""
    licences = [{"what": "Teacher", "source": words, "licence": words}]
    about = DATA | {"licences": licences, "teacher_licence": words, "teacher": words}
    text = model_card(
        stated("4x312", note=words),
        stated("teacher", "teacher"),
        recipe_of(RECIPE | {"teacher": {"model": words}}),
        ACCEPTED,
        about,
        {"torch": "2.13.0"},
        STAGES,
    )
    header = ModelCard(text).data
    assert "\n" not in header.license and header.base_model in (None, words) and header.license != "apache-2.0"
    drawn, plain = (
        MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(ModelCard(one).text)
        for one in (text, card(row("4x312", note="said")))
    )
    kinds = [sorted(token.type for token in tokens if token.type != "inline") for tokens in (drawn, plain)]
    assert [kinds[0].count(kind) for kind in ("heading_open", "html_block", "table_open", "hr")] == [
        kinds[1].count(kind) for kind in ("heading_open", "html_block", "table_open", "hr")
    ]
    inner = [child.type for token in drawn for child in token.children or ()]
    assert not {"link_open", "image", "html_inline", "s_open"} & set(inner)
    said = [child.content for token in drawn for child in token.children or () if child.type == "text"]
    assert len(text) < 20_000 and any(said)


def test_what_was_purged_and_what_leaks_stands_on_the_card() -> None:
    text = card(held_back=HeldBackFacts.model_validate(HELD_BACK)).split("## Sources")[1].split("## Gate")[0]
    assert (
        "- 200 of 1,000 training rows (20.0%) were removed, because their text overlaps with that of held-out rows "
        "(holdout 200);" in text
    )
    assert "- Held-out rows that overlap with the general text: 3 of 872 validation, 1 of 50 holdout." in text
    assert "removed" not in card()


def test_synthetic_data_is_said_at_the_top_and_among_the_limits() -> None:
    assert card(synthetic=True).count("The data is synthetic") == 2
    assert "synthetic" not in card()


def test_a_refusal_and_its_reason_are_written_down() -> None:
    text = card(decision=Decision("4x312", "INFEASIBLE", ("latency_ms 9.1 ≤ 5: missed by 4.1",)))
    assert "Refused (INFEASIBLE)." in text and "- latency_ms 9.1 ≤ 5: missed by 4.1" in text


@pytest.mark.parametrize(
    ("verdict", "word"), [("ACCEPT", "Not yet decided: the model meets"), ("INFEASIBLE", "Refused (INFEASIBLE)")]
)
def test_what_is_relative_to_the_champion_is_not_decided_on_the_card(verdict: str, word: str) -> None:
    """The card is written before promotion, which may refuse what this gate has nothing against."""
    gate = {
        "criteria": [
            {"metric": "retained", "at_least": 0.95},
            {"metric": "accuracy", "relative_to": "champion", "test": "superiority"},
        ]
    }
    said = (
        card(recipe=RECIPE | {"gate": gate}, decision=Decision("4x312", verdict, ("retained 0.981 ≥ 0.95: met",)))
        .split("## Gate")[1]
        .split("## Use")[0]
    )
    assert word in said and "Accepted" not in said and "ACCEPT" not in said and "- retained 0.981 ≥ 0.95: met" in said
    assert (
        "relative to the champion (accuracy) are evaluated at promotion" in said and "`limbeck show sst2-bert`" in said
    )
    assert "Accepted (ACCEPT)." in card() and "evaluated at promotion" not in card()


def test_the_first_sentence_is_about_the_split_that_the_gate_judged() -> None:
    low, high = ({"accuracy": {"value": value, "low": None, "high": None}} for value in (0.111, 0.888))
    text = card(
        row("4x312", metrics={"validation": low, "holdout": high}),
        recipe=RECIPE | {"gate": {"split": "holdout"}},
        teacher=row("teacher", "teacher", metrics={"validation": low, "holdout": high}),
    )
    assert "accuracy on holdout 0.8880 (teacher 0.8880)" in text and "on validation 0.1110" not in text


def test_what_it_cost_is_named_in_every_unit_and_the_unknown_is_no_zero() -> None:
    measured, estimated = {"how": "measured", "by": "wall clock"}, {"how": "estimated", "by": "kWh x 0.4 kg"}
    cost = {
        "seconds": {"value": 812.0, **measured},
        "gpu_seconds": {"value": 64.0, **measured},
        "co2e_kg": {"value": 2.0, **estimated},
        "co2e_lb": {"value": 4.409, **estimated},
    }
    text = card(row("4x312", cost=cost))
    for line in (
        "| time of its own stages | 812 s |",
        "| GPU time of its own stages | 64 s |",
        "| CO2e in pounds of its own stages | 4.409 lb | estimated",
    ):
        assert line in text, line
    unknown = card(
        row("4x312", cost={part: {"value": None, "how": "unknown", "by": "no grid factor"} for part in cost})
    )
    assert (
        "| CO2e in pounds of its own stages | — | unknown: no grid factor |" in unknown
        and "| GPU time of its own stages | — |" in unknown
    )
    assert " 0 s" not in unknown and " 0 lb" not in unknown


def test_it_says_how_to_make_the_run_again() -> None:
    assert "`limbeck reproduce ffffffff`" in card()


def test_what_is_undefined_is_a_dash() -> None:
    text = card(undefined("new"))
    assert "None" not in text and "nan" not in text and "| peak memory of inference | — MB | measured |" in text


def test_pairs_and_regression_are_loaded_as_they_must_be() -> None:
    text = card(recipe=RECIPE | {"task": "stsb"})
    assert 'tokenizer("first text", "second text"' in text and "logits.item()" in text


def test_one_sentence_says_how_it_stands_to_the_same_size_without_a_teacher() -> None:
    gap = {"value": 0.012, "low": 0.004, "high": 0.02, "p": 0.002, "seeds": [3, 3], "verdict": "better"}
    mean = {"metrics": {"accuracy": {"value": 0.905, "low": 0.89, "high": 0.92}}}
    spread = {
        "deviation": {"validation": {"accuracy": 0.004}},
        "per_seed": {"validation": {"accuracy": [0.9] * 3}},
        "means": {"validation": mean},
    }
    spread |= {"selected_seed": 7, "selection_scores": [0.9, 0.93, 0.91]}
    model = row("4x312", against={"finetuned": {"validation": gap}}, **spread)
    text = card(model)
    said = (
        "Over seeds, its accuracy on validation is better than that of `finetuned` (+0.012 [+0.004, +0.020], 3 "
        "seeds against 3), a model of the same size"
    )
    assert said in text
    assert "| accuracy, validation | 0.9120 [0.9000, 0.9240] | measured |" in text
    assert (
        "| accuracy, validation, mean of 3 seeds ± 0.0040, to compare methods | 0.9050 [0.8900, 0.9200] | measured |"
        in text
    )
    assert "this is the model of seed 7: best score on the selection rows (0.9000, 0.9300, 0.9100)" in text
    assert (
        "its teacher, general distillation, augmentation and rows are the same for all seeds" in text
        and "Seeds:" not in card()
    )
    noise = card(row("4x312", against={"finetuned": {"validation": gap | {"verdict": "inside the noise"}}}))
    assert "indistinguishable from" in noise and "better" not in noise
    assert "trained on labels alone" not in card() and "better" not in card()


def test_what_a_stage_noted_is_among_the_limits() -> None:
    limits = card(row("top-1", "dropped", note="layers share their weights")).split("## Limits")[1]
    assert "Note: layers share their weights." in limits and "Note:" not in card()


def test_a_card_says_what_its_model_is_made_from_and_what_that_cost() -> None:
    behind = {"seconds": {"value": 30.0, "how": "measured"}, "stages": ["drop-layers/cut-8"]}
    cost = {"seconds": {"value": 7.0, "how": "measured"}, "ancestors": behind}
    text = model_card(
        stated("small", made_from="cut-8", made_by="distillation", cost=cost),
        stated("teacher", "teacher"),
        recipe_of(RECIPE),
        ACCEPTED,
        DATA,
        {"torch": "2.13.0"},
        STAGES,
    )
    assert "| time of its own stages | 7 s |" in text
    assert "| time of the candidates that it is made from | 30 s | measured |" in text
    assert "It is made from cut-8 by distillation." in text.replace("\\", "")
    assert "made from" not in model_card(
        stated("small"), stated("teacher", "teacher"), recipe_of(RECIPE), ACCEPTED, DATA, {"torch": "2.13.0"}, STAGES
    )


def test_an_albert_whose_sharing_the_section_on_pretraining_states_is_said_to_be_no_faster() -> None:
    """The note was left out where the candidate did not state it itself, as in three rows of recipe albert-tables."""
    recipe = {
        "name": "tables",
        "task": "sst2",
        "students": [],
        "corpus": {"source": "wiki"},
        "pretraining": {"family": "albert", "layers": 4},
        "candidates": [{"name": "words", "by": "pretraining", "from": "pretrained", "start": "pretrained"}],
    }
    note = "not faster, because every layer is still computed"
    assert note in card(row("words"), recipe=recipe)
    assert note not in card(row("words"), recipe=recipe | {"pretraining": {"layers": 4}})


@pytest.mark.parametrize(
    ("kind", "metric", "sentences"),
    [
        (
            "seq2seq",
            "bleu",
            [
                "- `bleu`: sacreBLEU of all sentences together as a share: cased, tokenizer 13a, exponential "
                "smoothing. sacreBLEU's signature: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`.",
                "written with 3 beams (1: the likeliest word), length penalty 0.6 and at most 40 tokens",
                "of sources of at most 96 tokens; `truncation=True` applies that limit",
            ],
        ),
        ("next-words", "word_perplexity", ["windows of at most 96 tokens", "judged with 48 before it, at least"]),
        ("chats", "word_perplexity", ["- `word_perplexity`: Perplexity of a word or line end, of all models alike."]),
        ("masked-words", "masked_perplexity", ["hidden tokens, 15 % of a text", "at most 96 tokens that share none"]),
    ],
)
def test_figures_of_texts_are_explained(kind: str, metric: str, sentences: list[str]) -> None:
    task = {"name": "own", "kind": kind, "metrics": [metric]}
    recipe = RECIPE | {"task": task, "data": {"source": "ann/own"}, "scoring": {"max_length": 96}}
    if kind == "seq2seq":
        recipe["generation"] = {"beams": 3, "length_penalty": 0.6, "max_length": 40}
    own = row("4x312")
    own["metrics"] = {split: {metric: one["accuracy"]} for split, one in own["metrics"].items()}
    own |= {
        "headline": metric,
        "inspection": {"signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"},
    }
    written = card(model=own, teacher=own, recipe=recipe)
    for sentence in sentences:
        assert sentence in written.partition("## Sources")[0]
    assert "evaluated with inputs of at most" not in written, "nothing was truncated, or the figures say it"
    assert "evaluated with inputs of at most" in card() and "sacreBLEU" not in card()
