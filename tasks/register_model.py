"""Stage task: registration of models, each with its evaluation; refused ones too, with their reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tasks.exports.package import PublishedExport, files_for_a_model
from tasks.gate.decided import RunDecision
from tasks.gate.gate_inputs import GateInputs, gate_row, tag_of_figures, verdict_tags
from tasks.gate.verdicts import Decision
from tasks.ports.tracking.packer import Packer, started
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.report.format.numbers import megabytes
from tasks.report.model_card import model_card
from tasks.results.roles import role_of
from tasks.results.row import ResultRow
from tasks.results.run import Registered, RunDescription
from tasks.scoring.evaluation import FOLDER
from tasks.stage.session import current_session
from tasks.stage.task_ends import prefect_task


@prefect_task("register-models")
async def register_models(
    tracker: Tracker,
    folders: Mapping[str, Callable[[], Path]],
    gate_inputs: GateInputs,
    about: RunDescription,
    workspace: Path,
    exports: Mapping[str, Mapping[str, PublishedExport]],
) -> list[Registered]:
    """Register every candidate with its evaluation, unless its version exists; return name and version of each.

    Criteria relative to the champion are left out: the champion is only known when aliases move. ``exports`` are no
    versions of their own: those of a candidate are part of its version.
    """
    recipe = gate_inputs.recipe
    alone = recipe.gate.model_copy(
        update={"criteria": tuple(one for one in recipe.gate.criteria if one.reference != "champion")}
    )
    decisions = await asyncio.to_thread(replace(gate_inputs, recipe=recipe.model_copy(update={"gate": alone})).decide)
    registered: list[Registered] = []
    engines = current_session().engines
    start = engines.lend if engines is not None and engines.used else started
    with Packer(workspace, start, max_length=recipe.scoring.max_length) as packer:
        for candidate in gate_inputs.models[1:]:
            if role_of(candidate.role).registered:
                folder, decision = folders[candidate.name], decisions[candidate.name]
                own = exports.get(candidate.name, {})
                registered.append(
                    await asyncio.to_thread(
                        register_one, recipe, tracker, folder, candidate, gate_inputs, decision, about, packer, own
                    )
                )
    return registered


def register_one(
    recipe: Recipe,
    tracker: Tracker,
    folder: Callable[[], Path],
    candidate: ResultRow,
    gate_inputs: GateInputs,
    decision: Decision,
    about: RunDescription,
    packer: Packer,
    exports: Mapping[str, PublishedExport],
) -> Registered:
    """Register one candidate, or find the version with the same weights, judged on the same rows with the same
    decision."""
    name, teacher = registered_name(recipe, about["teacher"]), gate_inputs.models[0]
    card = model_card(
        candidate,
        teacher,
        recipe,
        decision,
        {**about["data"], "registered": name, "run": tracker.parent},
        about["versions"],
        about["stages"],
        exports=[one.row for one in exports.values()],
    )
    version = tracker.register(
        name,
        candidate.name,
        folder,
        card=card,
        tags=tags(recipe, candidate, decision, about) | digests_of(exports) | gate_inputs.digests,
        description=describe(candidate, recipe.gate.split),
        task=recipe.spec,
        packer=packer,
        alias=None,
        beside={FOLDER: partial(gate_inputs.evaluation, candidate.name)},
        files=partial(export_files, exports, packer.workspace / f"{candidate.name}.onnx"),
    )
    return Registered(name=name, version=version["version"], candidate=candidate.name, new=version["new"])


def decided(registered: Sequence[Registered], promoted: RunDecision) -> list[Registered]:
    """Add the outcome to each registered version: verdict, reasons, outcome and aliases."""
    words = {word["version"]: word for word in promoted["words"]}
    rows = []
    for entry in registered:
        decision, word = promoted["decisions"][entry.candidate], words[entry.version]
        aliases = [alias for alias, version in promoted["aliases"].items() if version == entry.version]
        rows.append(
            entry.replaced(
                alias="champion" if "champion" in aliases else next(iter(aliases), None),
                aliases=aliases,
                verdict=decision.verdict,
                decision="accepted" if decision.accepted else "refused",
                reasons=decision.reasons,
                closest=decision.closest,
                outcome=word["outcome"],
                why=word["reason"],
            )
        )
    return rows


def export_files(exports: Mapping[str, PublishedExport], workspace: Path) -> dict[str, Path]:
    """Fetch a candidate's exports, and return their files by their path in its folder."""
    return files_for_a_model({way: one.folder() for way, one in exports.items()}, workspace) if exports else {}


def digests_of(exports: Mapping[str, PublishedExport]) -> dict[str, str]:
    """Return the tags with the digests that a pulled export must match."""
    return {f"{way}.sha256": one.row.export.sha256 or "" for way, one in exports.items() if one.row.export}


def registered_name(recipe: Recipe, teacher: str) -> str:
    """Return the registered model's name: one per task and teacher."""
    return recipe.gate.register_as or f"{recipe.spec.name}-{teacher}"


def describe(candidate: ResultRow, split: str) -> str:
    """Return a version's description in one line."""
    retained = candidate.share(split).value
    share = f"{retained:.1%} of the teacher, " if retained is not None else ""
    known = "speed unknown" if candidate.speedup is None else f"{candidate.speedup:.1f} times as fast"
    pace = "speed unsteady" if candidate.unsteady else known
    return f"{candidate.name}: {share}{pace}, {megabytes(candidate.bytes)} MB"


def figure_tag(figure: float | None, form: str) -> str:
    """Return a figure for a tag; one that was not measured is unknown."""
    return "unknown" if figure is None else f"{figure:{form}}"


def tags(recipe: Recipe, candidate: ResultRow, decision: Decision, about: RunDescription) -> dict[str, str]:
    """Return the tags by which a person chooses a version in the registry's table."""
    row = gate_row(recipe, candidate)
    return {
        "candidate": candidate.name,
        "role": candidate.role,
        **({"made": candidate.making.removeprefix("made ")} if candidate.making else {}),
        "quality": figure_tag(row.headline, ".4f"),
        "retained": figure_tag(row.retained, ".1%"),
        "size_mb": f"{(candidate.bytes or 0) / 1e6:.1f}",
        "params_m": f"{(candidate.parameters or 0) / 1e6:.2f}",
        "latency_ms": figure_tag(candidate.latency_ms, ".2f"),
        "speedup": "unsteady" if candidate.unsteady else figure_tag(candidate.speedup, ".2f"),
        **verdict_tags(decision),
        "gate.alone": "accepted" if decision.accepted else "refused",
        **tag_of_figures(row),
        "checkpoint.sha256": candidate.checkpoint or "",
        "seed": str(candidate.selected_seed if "selected_seed" in candidate.model_fields_set else ""),
        "task": recipe.spec.name,
        "scoring.max_length": str(recipe.scoring.max_length),
        "teacher": about["teacher"],
        "recipe": recipe.name,
    }
