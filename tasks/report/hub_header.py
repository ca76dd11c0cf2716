"""The header of a model card, in the Hugging Face Hub's form: from it the Hub draws the lineage of a model, filters
models, and shows their scores."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Any

from tasks.catalog import GLUE, GLUE_HUB
from tasks.ports.markdown import one_line
from tasks.recipe.recipe import Recipe
from tasks.results.roles import role_of
from tasks.results.row import ResultRow
from tasks.task_types.types import TASK_TYPES

HUB_METRICS = {"auroc": "roc_auc", "matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
"""Names of metrics at the Hub, where they differ from those in recipes."""
HUB_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]{0,60}")
"""The form of the Hub's licence ids; any other text is the name of a licence that the Hub does not know."""


def header(model: ResultRow, recipe: Recipe, teacher_licence: str) -> str:
    """Return the card's machine-readable part. A teacher or a data set that is only a folder is left out, as it has no
    page at the Hub; so is the language of a task that is not GLUE's, unless the recipe states it."""
    from huggingface_hub import ModelCardData

    base = None if recipe.pretraining else recipe.teacher.model
    hub_task = TASK_TYPES[recipe.spec.kind].hub_task
    rows = hub_data(recipe)
    licence, licence_name = licence_entries(one_line(teacher_licence))
    return ModelCardData(
        license=licence,
        license_name=licence_name,
        language=card_language(recipe),
        base_model=base if base and is_hub_id(base) else None,
        datasets=[rows] if rows else None,
        library_name="transformers",
        pipeline_tag=hub_task,
        tags=["limbeck", role_of(model.role).tag, hub_task],
        metrics=[HUB_METRICS.get(name, name) for name in model.metrics["validation"] if "/" not in name],  # own/NAME
        model_name=f"{recipe.name}-{model.name}",
        eval_results=hub_scores(model, recipe.spec.name, hub_task, rows),
    ).to_yaml()


def licence_entries(licence: str) -> tuple[str, str | None]:
    """Return the header's entries ``license`` and ``license_name``: the Hub's id, or ``other`` with the licence's own
    name."""
    known = licence.lower()
    return (known, None) if HUB_LICENCE.fullmatch(known) else ("other", licence)


def card_language(recipe: Recipe) -> str | None:
    """Return the language that the recipe states for its rows, or that of GLUE, which is English."""
    return recipe.data.language or ("en" if hub_data(recipe) == GLUE_HUB else None)


def hub_data(recipe: Recipe) -> str | None:
    """Return the hub id of the rows; None for a file or a folder that is not a copy of a GLUE task."""
    source = recipe.data.source
    if source and is_hub_id(source):
        return source
    return GLUE_HUB if not source and recipe.spec.name in GLUE else None


def is_hub_id(source: str) -> bool:
    """Return whether a source is the id of a repository at the Hub, not a path on a machine."""
    return public(source) == source == one_line(source) and not Path(source).exists()


def public(source: str) -> str:
    """Return a hub id unchanged, and only the last part of a local path: the rest describes a machine, not the
    model."""
    local = source.startswith(("/", ".", "~")) or source.count("/") > 1
    return PurePath(source).name if local else source


def hub_scores(model: ResultRow, task: str, hub_task: str, rows: str | None) -> list[Any] | None:
    """Return the defined scores in the format of the Hub's index of results."""
    from huggingface_hub import EvalResult

    found = [
        EvalResult(
            task_type=hub_task,
            dataset_type=rows or task,
            dataset_name=f"GLUE {task}" if rows == GLUE_HUB else task,
            dataset_config=task if rows == GLUE_HUB else None,
            dataset_split=split,
            metric_type=HUB_METRICS.get(name, name),
            metric_name=name,
            metric_value=score.value,
        )
        for split, metrics in model.metrics.items()
        for name, score in metrics.items()
        if score.value is not None
    ]
    return found or None
