"""The model card: the information needed by users of the model, with every figure marked as measured or computed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tasks.architectures.albert import SHARED_PARTS
from tasks.catalog import TaskSpec
from tasks.gate.verdicts import Decision
from tasks.modeling.names import DISTRIBUTION, IMPORT_NAME, INSTALLED_BY, VERSION
from tasks.ports.markdown import code_span, escaped, one_line
from tasks.recipe.chains import mixers_of, what_layers_share
from tasks.recipe.judging import Gate
from tasks.recipe.recipe import Recipe
from tasks.report.format.baseline_comparison import Bounded, baseline_sentence
from tasks.report.format.means import VARIED
from tasks.report.format.numbers import plural, share_label
from tasks.report.format.speeds import format_latency, milliseconds, times_as_fast
from tasks.report.hub_header import header
from tasks.report.tables.card_rows import explained_figures, limit_row, more_rows
from tasks.report.tables.exports_section import arguments_with_prompt, exports_section
from tasks.report.tables.held_back import held_back_lines
from tasks.report.tables.judging_sets import card_rows
from tasks.results.row import Conditions, Estimate, ResultRow
from tasks.results.run import CardFacts, StageLine
from tasks.task_types.texts.templates import beginning, has_further_words, prompt_in
from tasks.task_types.texts.truncation import TRUNCATIONS
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.views import VIEWS

DASH = "—"
TEMPLATE = """---
{header}
---

# {name}

{summary}

{warning}## Figures

| figure | value | how |
|---|---|---|
{figures}

{explained}## Sources

{licences}
- Rows: {rows}.
{held}{seeds}- Recipe: `{recipe}`; run `{run}`. `limbeck reproduce {run}` repeats the run without the cache and compares the artifacts of all stages.

| stage | key |
|---|---|
{stages}

Versions: {versions}. Source digests: {digests}.

## Gate

{gate}

## Use

```python
{register}from transformers import {auto_class}, AutoTokenizer

model = {auto_class}.from_pretrained("FOLDER")
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
{use}
```

{longest}{needs} Weights are safetensors.

{exports}## Limits

{limits}
"""  # noqa: E501
LIMITS = """The model was evaluated on the rows named above only: not on other domains, not on other languages, not for fairness.
Latency and memory are specific to the machine on which they were measured."""  # noqa: E501
SYNTHETIC = "**The data is synthetic: these figures say nothing about natural language.**"
MEANS = f"Means over seeds are given as well, to compare methods: {VARIED}."
SHARED_WEIGHTS = "Layers of this model share their weights: it has fewer bytes than a model with weights for each layer"
SHARED_BLOCKS = (
    "Layers of this model share one block each ({share}): it has fewer parameters than a model with weights for each "
    "layer, but its folder holds copies of the block and is as large; its exports have one"
)
NOT_FASTER = ". It is not faster, because every layer is still computed."
NEEDS = (
    f"Its attention ({{mixers}}) is not in transformers: `import {IMPORT_NAME}`, of the small distribution "
    f"{DISTRIBUTION} {VERSION}, makes the auto classes know it; no code is fetched. Exported graphs need neither."
)
UNLICENSED = "The recipe does not state the licences given as unknown: clarify them before you redistribute the model."


def model_card(
    model: ResultRow,
    teacher: ResultRow,
    recipe: Recipe,
    decision: Decision,
    data: CardFacts,
    versions: Mapping[str, str],
    stages: Sequence[StageLine],
    *,
    exports: Sequence[ResultRow] = (),
) -> str:
    """Return a model card in Markdown with the hub's header; ``exports`` are the rows of the exports published with the
    model."""
    task = recipe.spec
    known = {one.name: one for one in recipe.planned}
    share = what_layers_share(model.name, known, recipe.pretraining)
    shared = share and (SHARED_BLOCKS.format(share=share) if share in SHARED_PARTS else SHARED_WEIGHTS) + NOT_FASTER
    mixers = mixers_of(model.name, known)
    synthetic = SYNTHETIC if data["synthetic"] else ""
    unlicensed = UNLICENSED if any(one["licence"] == "unknown" for one in data["licences"]) else ""
    return TEMPLATE.format(
        header=header(model, recipe, data["teacher_licence"]),
        name=f"{recipe.name}: {model.name}",
        summary=summary(model, teacher, recipe, data),
        warning=f"{synthetic}\n\n" if synthetic else "",
        figures="\n".join(figure_rows(model, task)),
        explained=explained_figures(model, recipe),
        licences="\n".join(
            f"- {one['what']}: {code_span(one['source'])}, licence: {escaped(one['licence'])}."
            for one in data["licences"]
        ),
        rows=", ".join(f"{count:,} {split}" for split, count in data["rows"].items()),
        held="".join(f"- {line}\n" for line in held_back_lines(data.get("held_back"))),
        seeds="".join(f"- {line}\n" for line in seed_lines(model)),
        recipe=recipe.name,
        run=data["run"][:8],
        stages="\n".join(
            f"| {stage.name}{' ' + stage.label if stage.label else ''} | `{stage.key[:16]}` |" for stage in stages
        ),
        versions=", ".join(f"{name} {number}" for name, number in versions.items()),
        digests=", ".join(f"{name} `{digest[:12]}`" for name, digest in data["digests"].items()),
        gate=gate_words(decision, recipe.gate, data["registered"]),
        auto_class=TASK_TYPES[task.kind].auto_class,
        use=usage(task),
        register=f"import {IMPORT_NAME}  # {INSTALLED_BY}, from the repository of Limbeck\n" if mixers else "",
        needs=NEEDS.format(mixers=", ".join(dict.fromkeys(mixers))) if mixers else "No code of Limbeck is needed.",
        longest=longest_input(recipe),
        exports=exports_section(exports, task, recipe.gate.split),
        limits="\n\n".join(part for part in (LIMITS, sentence(model.note), shared, synthetic, unlicensed) if part),
    )


def gate_words(decision: Decision, gate: Gate, registered: str) -> str:
    """Return the gate's verdict with its reasons.

    The card is written before promotion, and the champion is known only at promotion: criteria relative to the champion
    have no verdict here, so that no card calls a version accepted that the registry calls refused.
    """
    pending = [criterion.metric for criterion in gate.criteria if criterion.relative_to == "champion"]
    said = f"{'Accepted' if decision.accepted else 'Refused'}{f' ({decision.verdict})' if decision.verdict else ''}."
    if pending:
        so_far = (
            "Not yet decided: the model meets"
            if decision.accepted
            else f"Refused ({decision.verdict}). The reasons refer to"
        )
        said = (
            f"{so_far} the criteria that need no champion. Those relative to the champion ({', '.join(pending)}) "
            f"are evaluated at promotion, under the registry's lock, against the champion at that time; `limbeck "
            f"show {registered}` displays the outcome."
        )
    return "\n\n".join(
        part for part in (said, "\n".join(f"- {one_line(reason, 1000)}" for reason in decision.reasons)) if part
    )


def longest_input(recipe: Recipe) -> str:
    """Return a sentence on the longest input of the evaluation, in tokens; none of a type that reads texts otherwise,
    which the figures explain."""
    tokens = recipe.scoring.max_length
    if VIEWS[recipe.spec.kind].judged:
        return ""
    cut = python_of(recipe.spec)
    sentence = f"The model was evaluated with inputs of at most {tokens} tokens; `truncation={cut}` applies that limit"
    return f"{sentence}, in a `pipeline`, too.\n\n"


def sentence(note: str | None) -> str:
    """Return the note of a stage as a sentence; empty if there is none."""
    return f"Note: {escaped(note, 1000)}." if note else ""


def summary(model: ResultRow, teacher: ResultRow, recipe: Recipe, data: CardFacts) -> str:
    """Return a sentence that describes the model, and one that compares it with the same shape trained without a
    teacher."""
    split = recipe.gate.split
    ours, theirs = (row.score(split, model.headline).value for row in (model, teacher))
    pace = f", {times_as_fast(model)}" if model.speedup is not None else ""
    what = f"A {model.role} of {code_span(data['teacher'])} on {code_span(recipe.spec.name)}"
    sentence = baseline_sentence(model, split)
    beside = f"{format_figure(ours)} (teacher {format_figure(theirs)}){pace}"
    made = f" It is {escaped(model.making)}." if model.making else ""
    return f"{what}: {model.headline} on {split} {beside}.{made} {sentence}".rstrip()


def usage(task: TaskSpec) -> str:
    """Return the lines of code that run the model; a pair is passed as two texts."""
    code = VIEWS[task.kind].code
    asked = arguments_with_prompt(task)
    lines = with_stated_prompts(task, code.checkpoint.replace("{text}", asked), f".encode([{asked}])")
    for which, name in (("second", task.pair), ("first", task.text)):
        if name and has_further_words(name) and not (which == "first" and prompt_in(name)):  # the example has a prompt
            lines = f"# {which} texts are written as {json.dumps(name, ensure_ascii=False)}\n{lines}"
    return lines.replace("truncation=True", f"truncation={python_of(task)}")


def with_stated_prompts(task: TaskSpec, lines: str, call: str) -> str:
    """Return the lines of code of an embedder in which the ``call`` of sentence-transformers names its prompts: a text
    that had one already would be read with both where the folder states one of every text."""
    first, second = (json.dumps(beginning(name), ensure_ascii=False) for name in (task.text, task.pair or ""))
    if (first, second) == ('""', '""'):
        return lines
    plain = VIEWS[task.kind].code.text(bool(task.pair))
    also = f"\n# and of second texts: .encode([{plain}], prompt={second})" if first != second else ""
    return lines.replace(call, f".encode([{plain}], prompt={first})  # without it in the text{also}")


def python_of(task: TaskSpec) -> str:
    """Return how Python states the truncation of a task's rows."""
    return f'"{TRUNCATIONS[task.truncate]}"' if task.truncate in TRUNCATIONS else "True"


def figure_rows(model: ResultRow, task: TaskSpec) -> list[str]:
    """Return the rows of the table of figures, each marked as measured or computed."""
    at, shaky = model.measured_at or Conditions(), f"; unsteady: {model.unsteady}" if model.unsteady else ""
    where = f"batch {at.batch}, length {at.length}, {at.threads} thread(s), {at.engine}"
    return [
        *quality_rows(model),
        *card_rows(model),
        f"| parameters | {format_figure(model.parameters, ',')} | computed |",
        f"| weights on disk | {format_figure(model.bytes, ',')} bytes | measured |",
        f"| FLOPs at length {model.flops_length} | {format_figure(model.flops, '.3f', 1e-9)} G | computed |",
        f"| latency p50 / p95 | {format_latency(model)} / {milliseconds(model.latency_p95_ms)} ms, "
        f"{where}{shaky} | measured |",
        "| speed-up: the teacher's latency divided by this model's, timed alternately | "
        f"{format_figure(model.speedup, '.2f')}{shaky} | "
        "computed |",
        f"| peak memory of inference | {format_figure(model.memory_bytes, '.0f', 1e-6)} MB | measured |",
        *rows_on_tokens(model),
        *rows_on_zeros(model),
        *rows_on_bits(model),
        *text_rows(model),
        limit_row(model, task),
        *more_rows(model, VIEWS[task.kind].card_figure),
    ]


def rows_on_zeros(model: ResultRow) -> list[str]:
    """Return the rows on zeros; none unless the model was packed."""
    if model.packed_bytes is None:
        return []
    share = (
        []
        if model.nonzero_share is None
        else [("parameters that are not 0", format_figure(model.nonzero_share, ".1%"))]
    )
    found = [("weights in a zip file", f"{format_figure(model.packed_bytes, ',')} bytes"), *share]
    return [f"| {name} | {value} | measured |" for name, value in found]


def rows_on_tokens(model: ResultRow) -> list[str]:
    """Return the rows on a further token of a language model; none of other models."""
    if model.token_ms is None:
        return []
    faster = format_figure(model.token_speedup, ".2f")
    return [
        f"| milliseconds of one further token | {format_figure(model.token_ms, '.2f')}, {faster} times the teacher's "
        f"speed | measured |",
        f"| memory of a token | {format_figure(model.token_bytes, ',')} bytes | counted |",
    ]


def rows_on_bits(model: ResultRow) -> list[str]:
    """Return the row on bits; none unless it was trained for few, or another model of its run was."""
    if model.bits is None:
        return []
    return [
        f"| bits of a weight of its matrices, in its quantized graph | {format_figure(model.bits, 'g')} | counted |"
    ]


def text_rows(model: ResultRow) -> list[str]:
    """Return the rows on real texts; none unless they were measured."""
    found = (
        ("pieces per word, validation", model.fertility, ".3f"),
        ("pieces per word, judging sets", model.fertility_elsewhere, ".3f"),
        ("milliseconds per text, validation", model.ms_per_text, ".2f"),
    )
    return [f"| {name} | {format_figure(value, form)} | measured |" for name, value, form in found if value is not None]


def quality_rows(model: ResultRow) -> list[str]:
    """Return the rows on quality for every split."""
    rows = []
    for split, metrics in model.metrics.items():
        rows += [f"| {name}, {split} | {with_interval(score, '.4f')} | measured |" for name, score in metrics.items()]
        rows.append(f"| {share_label(model.headline, split)} | {with_interval(model.share(split), '.2%')} | measured |")
        rows.append(
            f"| agreement with the teacher, {split} | {format_figure((model.agreement or {}).get(split))} | measured |"
        )
        rows += [
            f"| {name}, {split}, mean of {plural(seeds, 'seed')} ± {deviation:.4f}, to compare methods | "
            f"{with_interval(mean, '.4f')} | measured |"
            for name, mean, deviation, seeds in means(model, split)
        ]
    return rows


def means(model: ResultRow, split: str) -> list[tuple[str, Estimate, float, int]]:
    """Return, for each metric, its name, the mean over seeds, their standard deviation and the number of seeds; empty
    for one seed."""
    found = {name: (model.mean(split, name), model.spread(split, name)) for name in model.metrics[split]}
    return [
        (name, mean, deviation, len(model.per_seed[split][name]))
        for name, (mean, deviation) in found.items()
        if mean is not None and deviation is not None
    ]


def seed_lines(model: ResultRow) -> list[str]:
    """Return a line on the seed of the model, the reason of its choice, and the differences between seeds; empty for
    one seed."""
    scores = model.selection_scores or ()
    if len(scores) < 2:
        return []
    taken = f"best score on the selection rows ({', '.join(format_figure(score) for score in scores)})"
    why = taken if None not in scores else "the first seed, because seeds were not scored on selection rows"
    which = f"of {len(scores)} models, each trained with its own seed, this is the model of seed {model.selected_seed}"
    return [f"Seeds: {which}: {why}. The figures above are those of this seed. {MEANS}"]


def with_interval(score: Bounded, form: str) -> str:
    """Return a figure and its interval."""
    low, high = score.low, score.high
    return format_figure(score.value, form) + (
        f" [{low:{form}}, {high:{form}}]" if low is not None and high is not None else ""
    )


def format_figure(value: float | None, form: str = ".4f", factor: float | None = None) -> str:
    """Return a figure, or a dash if it is undefined."""
    return DASH if value is None else f"{value if factor is None else value * factor:{form}}"
