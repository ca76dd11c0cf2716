"""Commands for registered models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.shared import Reason, RegisteredName, checked, open_home, open_home_for_a_run, out, tracker
from tasks.task_types.types import TASK_TYPES


def models() -> None:
    """List every registered version with the gate's verdict."""
    from rich.table import Table

    table = Table("model", "version", "alias", "gate", "description", "reasons")
    for row in tracker().models():
        reasons = "; ".join(json.loads(row.get("gate.reasons", "[]")))
        table.add_row(row["name"], row["version"], row["alias"], row.get("gate", ""), row["description"], reasons)
    out.print(table)


def pull(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@alias]", help="A registered model; without an alias: @champion.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a registered model as one plain Hugging Face folder, after a check of its hash."""
    model, _, alias = name.partition("@")
    found = tracker().download(model, alias or "champion", folder)
    out.print(f"{folder}: {found['name']} version {found['version']} ({found['description']})", highlight=False)
    from tasks.scoring.predict import stored_type

    auto_class = TASK_TYPES[stored_type(folder)].auto_class
    out.print(
        f'use it with transformers only: {auto_class}.from_pretrained("{folder}")',
        highlight=False,
        markup=False,
    )


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@alias|@version]", help="A registered model, or one version of it.")
    ],
) -> None:
    """Show a registered model: aliases, verdicts, figures and the history of decisions; or one version with every
    reason."""
    from flows.cli.registry_page import show_model, show_version
    from tasks.ports.tracking.registry import Registry

    model, _, which = name.partition("@")
    mlflow = tracker()
    standing = Registry(mlflow, model).read()
    if which or not standing.versions:
        show_version(out, model, standing, str(mlflow.find_version(model, which).version))
    else:
        show_model(out, model, standing)


def promote(
    name: RegisteredName,
    version: Annotated[
        str | None, typer.Argument(metavar="[VERSION]", help="A version by number or alias; by default the challenger.")
    ] = None,
    to: Annotated[
        str, typer.Option(help="The alias: champion, challenger, champion-small or champion-fast.")
    ] = "champion",
    force: Annotated[
        bool, typer.Option("--force", help="Override the gate's verdict and the comparison with the champion.")
    ] = False,
    reason: Reason = "",
) -> None:
    """Make a version the champion; a version that the gate refused, or that is certainly worse than the champion,
    requires --force."""
    decide_by_hand("promote", name, version=version, to=to, force=force, reason=reason)


def rollback(name: RegisteredName, reason: Reason = "") -> None:
    """Make the previous champion the champion again; later runs do not promote the withdrawn version."""
    decide_by_hand("rollback", name, reason=reason)


def delete(
    name: RegisteredName,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Number of the version.")],
    reason: Reason = "",
) -> None:
    """Delete a registered version that has no alias."""
    gone = decided_in_prefect("delete", name, version=version, reason=reason)
    out.print(f"{name} version {gone['version']} ({gone['candidate']}) was deleted.", highlight=False, markup=False)


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A model folder written by pull, or its onnx folder.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: txt, csv, tsv, jsonl or parquet.")],
    text: Annotated[str, typer.Option(help="Name of the text column.")] = "text",
    pair: Annotated[str | None, typer.Option(help="Name of the second text's column.")] = None,
    max_length: Annotated[int, typer.Option(min=8, max=8192, help="Longest input in tokens.")] = 128,
) -> None:
    """Predict every text of a file; prints one JSON line for each."""
    open_home()
    from tasks.ports.files.sources import resolve_model
    from tasks.ports.rows.tables import read_texts
    from tasks.scoring.onnx_models import is_export

    if not is_export(folder):
        resolve_model(str(folder), None)
    texts, pairs = read_texts(checked(file), text, pair)
    from tasks.scoring.predict import predict_texts

    for words, answer in zip(texts, predict_texts(folder, texts, pairs, max_length), strict=True):
        print(json.dumps({"text": words, **answer}, ensure_ascii=False))


def decide_by_hand(what: str, name: str, **given: Any) -> None:
    """Run a promotion flow for a registered model, and print the moved aliases."""
    decided = decided_in_prefect(what, name, **given)
    from flows.promotion import promotion_sentence

    out.print(f"{promotion_sentence(name, decided)}.", highlight=False, markup=False, soft_wrap=True)


def decided_in_prefect(what: str, name: str, **given: Any) -> dict[str, Any]:
    """Run one of the promotion flows, with a Prefect server of its own unless PREFECT_API_URL names one."""
    home = open_home_for_a_run()
    from flows.servers.local import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows import promotion
        from flows.servers import watch as server_watch

        ready()
        decided: dict[str, Any] = server_watch.run(getattr(promotion, what)(name, **given))
    return decided
