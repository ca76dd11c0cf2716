"""The model card: what a person who pulls the model must know, with every figure marked as measured or computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.gate import Decision

TEMPLATE = """---
{header}
---

# {name}

{summary}

{warning}
## Figures

| figure | value | how |
|---|---|---|
{figures}

## Made from

- Teacher: `{teacher}`, licence: {teacher_licence}.
- Data: `{source}`, licence: {licence}; {rows}.
- Recipe: `{recipe}`.

| stage | key |
|---|---|
{stages}

Versions: {versions}. Source digests: {digests}.

## Gate

{gate}

## Use

```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("FOLDER")
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
```

No code of Limbeck is needed. Weights are safetensors.

## Limits

The model was judged on the rows named above and on nothing else: not on other domains, not on other languages, not for fairness.
Latency and memory belong to the machine on which they were measured.
"""


def model_card(
    model: Mapping[str, Any], teacher: Mapping[str, Any], recipe: Mapping[str, Any], decision: Decision, data: Mapping[str, Any],
    versions: Mapping[str, str], stages: Sequence[Mapping[str, Any]],
) -> str:  # fmt: skip
    """Return a model card in Markdown with the hub's header."""
    score = model["metrics"]["validation"][model["headline"]]
    verdict = "accepted" if decision.accepted else "refused"
    return TEMPLATE.format(
        header=header(model, recipe, data),
        name=f"{recipe['name']}: {model['name']}",
        summary=f"A {model['role']} of `{data['teacher']}` on `{data_task(recipe)}`: {model['headline']} {score['value']:.4f} "
        f"(teacher {teacher['metrics']['validation'][model['headline']]['value']:.4f}), {model['speedup']:.1f} times as fast.",
        warning="**The data is synthetic: these figures say nothing about natural language.**\n" if data.get("synthetic") else "",
        figures="\n".join(figure_rows(model)),
        teacher=data["teacher"],
        teacher_licence=data["teacher_licence"],
        source=data["source"],
        licence=data["licence"],
        rows=", ".join(f"{count:,} {split}" for split, count in data["rows"].items()) + " rows",
        recipe=recipe["name"],
        stages="\n".join(f"| {stage['name']}{' ' + stage['label'] if stage['label'] else ''} | `{stage['key'][:16]}` |" for stage in stages),
        versions=", ".join(f"{name} {number}" for name, number in versions.items()),
        digests=", ".join(f"{name} `{digest[:12]}`" for name, digest in data["digests"].items()),
        gate=f"{verdict.capitalize()}.\n\n" + "\n".join(f"- {reason}" for reason in decision.reasons),
    )


def header(model: Mapping[str, Any], recipe: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the card's machine-readable part."""
    from huggingface_hub import ModelCardData

    licence = data["teacher_licence"] if data["teacher_licence"] != "unknown" else None
    tags = ["limbeck", "distillation" if model["role"] != "dropped" else "layer-dropping", "text-classification"]
    return ModelCardData(license=licence, library_name="transformers", pipeline_tag="text-classification", tags=tags).to_yaml()


def data_task(recipe: Mapping[str, Any]) -> str:
    """Return the task's name."""
    return recipe["task"] if isinstance(recipe["task"], str) else recipe["task"]["name"]


def figure_rows(model: Mapping[str, Any]) -> list[str]:
    """Return the table of figures; each says whether it was measured or computed."""
    rows = []
    for split, metrics in model["metrics"].items():
        for name, value in metrics.items():
            rows.append(f"| {name}, {split} | {value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}] | measured |")
        retained = (model["retained"] or {}).get(split, {})
        if retained.get("value") is not None:
            rows.append(f"| share of the teacher, {split} | {retained['value']:.2%} [{retained['low']:.2%}, {retained['high']:.2%}] | measured |")
        rows.append(f"| agreement with the teacher, {split} | {model['agreement'][split]:.4f} | measured |")
    at = model["measured_at"]
    where = f"batch {at['batch']}, length {at['length']}, {at['threads']} thread(s), {at['engine']}"
    return [
        *rows,
        f"| parameters | {model['parameters']:,} | computed |",
        f"| weights on disk | {model['bytes']:,} bytes | measured |",
        f"| FLOPs at length {model['flops_length']} | {model['flops'] / 1e9:.3f} G | computed |",
        f"| latency p50 / p95 | {model['latency_ms']:.2f} / {model['latency_p95_ms']:.2f} ms, {where} | measured |",
        f"| peak memory of inference | {model['memory_bytes'] / 1e6:.0f} MB | measured |",
        f"| inputs longer than the limit | {model['truncated']:.2%} | measured |",
    ]
