"""Commands for registered models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.shared import Reason, RegisteredName, open_home, open_home_for_a_run, out, tracker, written
from tasks.errors import ModelError, RegistryError
from tasks.report.format.numbers import megabytes, plural
from tasks.results.export_formats import EXPORT_FORMATS
from tasks.task_types.types import TASK_TYPES

ExportName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"Predict with an exported graph: {', '.join(EXPORT_FORMATS)} (onnx is fp32). By default with the model "
        "itself, or in an onnx folder with the fastest graph.",
    ),
]
NewTokens = Annotated[
    int | None,
    typer.Option(
        min=1, max=8192, help="Let a language model continue each text by up to so many tokens, the likeliest ones."
    ),
]


def models() -> None:
    """List every registered version with the gate's verdict."""
    from rich.table import Table

    table = Table("model", "version", "alias", "gate", "description", "reasons")
    found = tracker().models()
    if not found:
        return out.print("no registered models yet; a run registers them: limbeck demo, or limbeck run RECIPE")
    for row in found:
        reasons = "; ".join(json.loads(row.get("gate.reasons", "[]")))
        table.add_row(row["name"], row["version"], row["alias"], row.get("gate", ""), row["description"], reasons)
    out.print(table)


def pull(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@alias]", help="A registered model; without an alias: @champion.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    packed: Annotated[
        bool,
        typer.Option(
            "--packed", help="Write FOLDER.zip, too: small for a model with zeros; unzip restores the folder."
        ),
    ] = False,
) -> None:
    """Write a registered model as one plain Hugging Face folder, after a check of its hash."""
    from flows.inference.model_folders import split_version

    model, alias = split_version(name)
    folder = folder if folder.name else folder.resolve()  # "." has no name, and its archive would have none
    archive = folder.parent / f"{folder.name}.zip"
    if packed and archive.exists():
        raise ModelError(f"{archive} exists; remove it, or name another folder")
    found = tracker().download(model, alias or "champion", folder)
    out.print(f"{folder}: {found['name']} version {found['version']} ({found['description']})", highlight=False)
    if packed:
        from tasks.scoring.packing import WEIGHT_SUFFIXES, write_archive

        small = write_archive(folder, archive)
        weights = sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in WEIGHT_SUFFIXES)
        out.print(f"{archive}: {megabytes(small)} MB of weights, {megabytes(weights)} MB unpacked", highlight=False)
    from flows.inference.model_folders import refusal_of
    from tasks.scoring.predict import stored_type

    if refusal := refusal_of(found):
        out.print(f"version {found['version']}{refusal}", highlight=False, markup=False, soft_wrap=True)

    from tasks.modeling.registration import needs_of

    if needs := needs_of(folder):
        out.print(needs, highlight=False, markup=False, soft_wrap=True)
    auto_class = TASK_TYPES[stored_type(folder)].auto_class
    out.print(
        f'use it with transformers{"" if needs else " only"}: {auto_class}.from_pretrained("{folder}")',
        highlight=False,
        markup=False,
    )


def push(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@alias]", help="A registered model; without an alias: @champion.")
    ],
    repo: Annotated[str, typer.Argument(metavar="OWNER/REPO", help="A model repository at the Hugging Face Hub.")],
    really: Annotated[bool, typer.Option("--upload", help="Upload; otherwise the files are only listed.")] = False,
    public: Annotated[bool, typer.Option("--public", help="Everybody may read the repository.")] = False,
    licence: Annotated[
        str, typer.Option(help="Licence of the model for its card, for example apache-2.0; by default as registered.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Upload a version that the gate refused.")] = False,
) -> None:
    """Upload a registered model to the Hugging Face Hub, after a check of its hash; first a dry run, private by
    default.

    The token is read from HF_TOKEN, or from the store of `hf auth login`.
    """
    mlflow = tracker()
    from flows.inference.model_folders import split_version
    from flows.publish.hub_upload import push_version

    model, alias = split_version(name)
    push_version(
        mlflow,
        model,
        alias or "champion",
        repo,
        really=really,
        public=public,
        licence=licence,
        force=force,
        say=lambda line: out.print(line, highlight=False, markup=False, soft_wrap=True),
    )


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@alias|@version]", help="A registered model, or one version of it.")
    ],
) -> None:
    """Show a registered model: aliases, verdicts, figures and the history of decisions; or one version with every
    reason."""
    from flows.cli.registry_page import show_model, show_version
    from flows.inference.model_folders import split_version
    from tasks.ports.tracking.registry import Registry

    model, which = split_version(name)
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
    from tasks.gate.requests import require_promotable

    require_promotable(registry_of(name), version, to, force, reason)
    decide_by_hand("promote", name, version=version, to=to, force=force, reason=reason)


def rollback(name: RegisteredName, reason: Reason = "") -> None:
    """Make the previous champion the champion again; later runs do not promote the withdrawn version."""
    from tasks.gate.requests import require_rollback

    require_rollback(registry_of(name))
    decide_by_hand("rollback", name, reason=reason)


def delete(
    name: RegisteredName,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Number of the version.")],
    reason: Reason = "",
) -> None:
    """Delete a registered version that has no alias."""
    from tasks.gate.requests import require_deletable

    require_deletable(registry_of(name), version)
    gone = decided_in_prefect("delete", name, version=version, reason=reason)
    out.print(f"{name} version {gone['version']} ({gone['candidate']}) was deleted.", highlight=False, markup=False)


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A folder written by pull, its onnx folder, or NAME[@alias] without a pull."
        ),
    ],
    given: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT|FILE|-]",
            help="One text; a table (csv, tsv, jsonl, parquet, txt); or - for lines of text or JSON from a pipe.",
        ),
    ] = None,
    second: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, where MODEL reads pairs.")
    ] = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The table's column of texts, or a template.")] = "text",
    pair: Annotated[str | None, typer.Option(metavar="COLUMN", help="The table's column of second texts.")] = None,
    output: Annotated[
        Path | None,
        written("--output", "-o", metavar="FILE", help="Write a table: csv, tsv, jsonl or parquet, by its ending."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=8, max=8192, help="Longest input in tokens; by default that of the model's evaluation."),
    ] = None,
    export_format: ExportName = None,
    new_tokens: NewTokens = None,
) -> None:
    """Predict one text, a pipe, or every row of a table; prints one JSON line for each, with all columns of the
    table."""
    from flows.inference.inputs import text_inputs
    from flows.inference.predictions import asked_of, json_lines, predicted, require_output, save_predictions

    if output is not None:
        require_output(output, given)
    if export_format is not None:
        from tasks.scoring.onnx_models import require_export_format

        require_export_format(export_format)
    inputs = text_inputs(given, text=text, pair=pair, second=second, stdin=sys.stdin)
    open_home()
    from flows.inference.model_folders import opened_model

    with opened_model(model, tracker) as found:
        for note in (found.note, missing_texts(asked_of(found.path, inputs))):
            if note:
                print(f"limbeck: {note}", file=sys.stderr)
        table = predicted(found.path, inputs, max_length, export_format, new_tokens)
    if output is not None:
        save_predictions(table, output)
        return out.print(f"wrote {output}: {plural(table.num_rows, 'row')}", highlight=False, markup=False)
    for line in json_lines(table):
        print(line)


def missing_texts(inputs: Any) -> str:
    """Return a sentence on rows without text; empty if there are none."""
    missing = inputs.table.num_rows - len(inputs.filled)
    return f"{plural(missing, 'row')} without text: their predictions are null" if missing else ""


def registry_of(name: str) -> Any:
    """Return a registered model to check a request, before servers are started; without a lock it changes nothing.
    Raises RegistryError for a name with an alias, and for an unknown one."""
    model, sign, _ = name.partition("@")
    if sign:
        raise RegistryError(f"{name} names one version; write the name of the model alone: {model}")
    mlflow = tracker()
    if not mlflow.has_model(name):
        raise RegistryError(mlflow.unknown_model(name))
    from tasks.ports.tracking.registry import Registry

    return Registry(mlflow, name)


def decide_by_hand(what: str, name: str, **given: Any) -> None:
    """Run a promotion flow for a registered model, and print the moved aliases."""
    decided = decided_in_prefect(what, name, **given)
    from flows.promotion import promotion_sentence

    out.print(f"{promotion_sentence(name, decided)}.", highlight=False, markup=False, soft_wrap=True)


def decided_in_prefect(what: str, name: str, **given: Any) -> Any:
    """Run one of the promotion flows, with a Prefect server of its own unless PREFECT_API_URL names one."""
    home = open_home_for_a_run()
    from flows.servers.local import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows import promotion
        from flows.servers import watch as server_watch

        ready()
        return server_watch.run(getattr(promotion, what)(name, **given))
