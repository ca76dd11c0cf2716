"""The front door. Everything heavy is imported inside the commands, so that ``limbeck --help`` answers at once."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.home import Home
from tasks.errors import LimbeckError, RecipeError

app = typer.Typer(
    name="limbeck", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Make big transformer language models small: cached Prefect stages in, registered small models out.",
)  # fmt: skip
WRITTEN = ("--json", "--plot")
STOPPED = 130  # what shells call a command that Ctrl-C ended
out = Console(width=None if sys.stdout.isatty() else 120)

Sets = Annotated[list[str], typer.Option("--set", metavar="a.b=value", help="Change one knob of the recipe; may be given several times.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write stages, models and registered versions as JSON.")]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a recipe on the shelf.")]


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the language and of everything trained on it.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=50, help="How many seeds, from --seed on; the margin gets an interval.")] = 1,
    json_file: JsonFile = None,
) -> None:
    """Compress a small teacher of a generated language, in minutes and without any hub."""
    home = open_home()
    from flows.servers import prefect_for_a_run

    out.print("The demo's data is synthetic: a small generated language, so the figures say nothing about natural language.\n")
    with prefect_for_a_run(home) as ready:
        from flows.console import show_results
        from flows.drive import run_demo

        result = run_demo(seed=seed, seeds=seeds, home=home, console=out, ready=ready, json_path=json_file)
    show_results(out, result)
    margin = result["margin"]
    interval = f" [{margin['low']:.1f}, {margin['high']:.1f}], {seeds} seeds" if margin["low"] is not None else ", one seed; see --seeds"
    out.print(f"\nDistillation lifts the same student by {margin['mean']:.1f} points{interval}. The data is synthetic.", highlight=False, markup=False)


@app.command()
def init(
    table: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Your rows: csv, tsv, jsonl or parquet.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the recipe goes; by default beside the data.")] = None,
) -> None:
    """Write a starter recipe for rows of your own."""
    from flows.recipe_file import starter_recipe

    target = output or table.with_suffix(".yaml")
    if target.exists():
        raise RecipeError(f"{target} is there already; name another file with --output")
    target.write_text(starter_recipe(table, target))
    out.print(f"wrote {target}; next: limbeck validate {target}", highlight=False)


@app.command()
def shelf() -> None:
    """List the recipes that come with Limbeck: one for each method of the literature, and some for real tasks."""
    from rich.table import Table

    from flows.recipe_file import SHELF, read_yaml

    table = Table("recipe", "what it is", box=None, pad_edge=False)
    for path in sorted(SHELF.glob("*.yaml"), key=lambda path: path.stem):
        table.add_row(path.stem, str(read_yaml(path).get("about", "")))
    out.print(table, highlight=False, markup=False)
    out.print("\nread one: its file says what it makes and what it costs; run one: limbeck run NAME; change it: --set task=mrpc", highlight=False, markup=False)


@app.command()
def run(
    recipe: RecipeName,
    sets: Sets = [],  # noqa: B006 - typer copies it
    json_file: JsonFile = None,
    force: Annotated[list[str], typer.Option("--force", metavar="STAGE", help="Run a stage again although its result is there.")] = [],  # noqa: B006
) -> None:
    """Run a recipe: teacher, students, dropped models, scores, gate, registry."""
    from flows.recipe_file import load_recipe

    start(load_recipe(recipe, sets), json_file, force)


@app.command()
def results(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the page and its files are, for example deployments/results.")],
    add: Annotated[Path | None, typer.Option("--add", metavar="OUT.json", help="What --json wrote of a finished run or sweep.")] = None,
    note: Annotated[str, typer.Option("--note", help="A sentence that stands beside the run that is added.")] = "",
) -> None:
    """Write the results page of a folder from its files, one per finished run, after adding one to them."""
    from flows.results_folder import add_result, write_page

    if note and add is None:
        raise RecipeError("--note belongs to a run that is added; name its file with --add")
    if add is not None:
        out.print(f"wrote {add_result(folder, add, note)}", highlight=False, markup=False)
    out.print(f"wrote {write_page(folder)}", highlight=False, markup=False)


@app.command()
def sweep(
    recipe: RecipeName,
    strategies: Annotated[str | None, typer.Option(metavar="top,symmetric,…", help="Strategies to try, greedy among them; see layer_dropping.")] = None,
    drop: Annotated[str | None, typer.Option(metavar="1,2,3", help="Numbers of layers to remove.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1,2", help="Trainings of each strategy and number.")] = None,
    halving: Annotated[bool, typer.Option("--halving", help="A quarter of the steps and one seed for all first; the better half goes on.")] = False,
    sets: Sets = [],  # noqa: B006
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every figure, the answer and the stages as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Write the plot: score against dropped layers, by strategy.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many trainings it takes and what is cached.")] = False,
) -> None:
    """How many layers does the task need? Drop them by every strategy, number and seed, from one teacher; the answer has an interval.

    What is not given comes from the recipe's sweep section, then from its layer_dropping section, which also says how a dropped model is trained;
    without either: six strategies, every number of layers, seeds 0, 1, 2, 500 steps of batch 64. Nothing is registered.
    """
    from flows.recipe_file import load_recipe
    from flows.sweep_options import sweep_sets

    for file in (json_file, plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise RecipeError(f"there is no folder {str(file.absolute().parent)!r} to write {file.name} to; make it, or name another file")
    given = sweep_sets(strategies=strategies, drop=drop, seeds=seeds, halving=halving)
    chosen = load_recipe(recipe, [*sets, *given], ["sweep"])
    if not dry_run:
        return start(chosen, json_file, [], "sweep", plot)
    home = open_home()
    from flows.console import show_sweep_plan
    from flows.drive import plan_recipe

    show_sweep_plan(out, chosen.name, plan_recipe(chosen, home=home, kind="sweep"), duration)


@app.command()
def plan(recipe: RecipeName, sets: Sets = []) -> None:  # noqa: B006
    """Say what a run would do, stage by stage, and why, before anything is spent."""
    from flows.recipe_file import load_recipe

    chosen = load_recipe(recipe, sets)
    home = open_home()
    from rich.table import Table

    from flows.drive import plan_recipe

    table = Table("stage", "cache", "why", "about", title=f"plan of {chosen.name}", title_justify="left")
    rows = plan_recipe(chosen, home=home)
    missing = [row for row in rows if row["cache"] == "miss"]
    for row in rows:
        table.add_row(row["stage"], row["cache"], row["why"], "" if row["seconds"] is None else duration(row["seconds"]))
    out.print(table)
    known = [row["seconds"] for row in missing if row["seconds"] is not None]
    guess = f", about {duration(sum(known))} of work by what the like of {len(known)} of them took before" if known else ""
    out.print(f"{len(missing)} of {len(rows)} stages would run{guess}.", highlight=False)


@app.command()
def validate(recipe: RecipeName, sets: Sets = []) -> None:  # noqa: B006
    """Check a recipe without running anything."""
    from flows.recipe_file import load_recipe

    chosen = load_recipe(recipe, sets)
    made = [student.name for student in chosen.students]
    dropped = [f"{s}-{k}" for s in chosen.layer_dropping.strategies for k in chosen.layer_dropping.drop] if chosen.layer_dropping else []
    out.print(f"{chosen.name} is valid: task {chosen.spec.name}, students {', '.join(made) or 'none'}, dropped {', '.join(dropped) or 'none'}", highlight=False)


@app.command()
def runs(limit: Annotated[int, typer.Option(min=1, max=1000)] = 20) -> None:
    """List the newest runs."""
    from rich.table import Table

    table = Table("run", "started", "kind", "recipe", "experiment", "status", "winner")
    for row in tracker().runs(limit):
        table.add_row(row["run"][:8], moment(row["started"]), row["kind"], row["recipe"], row["experiment"], row["status"], row["winner"])
    out.print(table)


@app.command()
def explain(run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest.")] = None) -> None:
    """Say what a past run did, stage by stage, and why."""
    from rich.table import Table

    from flows.upkeep import find_run

    mlflow = tracker()
    found = find_run(mlflow, run)
    title = f"{found['kind']} {found['run'][:8]} of {found['recipe']}: {found['status']}"
    table = Table("stage", "cache", "why", "took", "key", title=title, title_justify="left")
    for row in mlflow.recall(found["run"], "stages")["stages"]:
        made = f"made by run {row['made_by_run'][:8]}" if row["made_by_run"] else "made before" if row["cache"] == "hit" else row["why"]
        table.add_row(row["stage"], row["cache"] if row["cache"] == "hit" else row["state"], made, duration(row["seconds"]), row["key"][:12])
    out.print(table)


@app.command()
def resume(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest that did not finish.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Go on with a run or a sweep that was stopped or failed: its recipe again, from its results and checkpoints."""
    mlflow = tracker()
    from flows.upkeep import UNFINISHED, find_run, recipe_of

    found = find_run(mlflow, run, UNFINISHED)
    start(recipe_of(mlflow, found), json_file, [], found["kind"])


@app.command()
def verify() -> None:
    """Hash everything in the store anew; what is damaged is set aside, so that the next run makes it again."""
    home = open_home()
    from flows.upkeep import verify_store

    good = bad = 0
    for manifest, problem in verify_store(home):
        good, bad = good + (problem is None), bad + (problem is not None)
        if problem:
            out.print(f"{manifest['stage']} {manifest['key'][:12]}: {problem}; set aside", highlight=False, markup=False)
    out.print(f"{good} results are whole, {bad} are damaged.", highlight=False)
    if bad:
        raise typer.Exit(1)


@app.command()
def gc(
    keep_days: Annotated[float, typer.Option(min=0, help="Results younger than this stay in any case.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove results that no registered model, no running stage and no recent result was made from."""
    mlflow = tracker()
    from flows.upkeep import collect

    swept = collect(Home.from_environment(), mlflow, keep_days=keep_days, dry=dry_run)
    for stage, key in swept.results:
        out.print(f"{stage} {key[:12]}", highlight=False, markup=False)
    for name in swept.leftovers:
        out.print(f"left over: {name}", highlight=False, markup=False)
    verb = "would go" if dry_run else "are gone"
    out.print(f"{len(swept.results)} results and {swept.bytes / 1e6:,.1f} MB {verb}; {swept.kept} results stay.", highlight=False)


@app.command()
def models() -> None:
    """List every registered version and the gate's word on it."""
    from rich.table import Table

    table = Table("model", "version", "alias", "gate", "what", "reasons")
    for row in tracker().models():
        reasons = "; ".join(json.loads(row.get("gate.reasons", "[]")))
        table.add_row(row["name"], row["version"], row["alias"], row.get("gate", ""), row["description"], reasons)
    out.print(table)


@app.command()
def pull(
    name: Annotated[str, typer.Argument(metavar="NAME[@alias]", help="A registered model; without an alias: @champion.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a registered model as one plain Hugging Face folder, its hash checked."""
    model, _, alias = name.partition("@")
    found = tracker().download(model, alias or "champion", folder)
    out.print(f"{folder}: {found['name']} version {found['version']} ({found['description']})", highlight=False)
    out.print(f'use it with transformers alone: AutoModelForSequenceClassification.from_pretrained("{folder}")', highlight=False, markup=False)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder, as pull writes it.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: txt, csv, tsv, jsonl or parquet.")],
    text: Annotated[str, typer.Option(help="Name of the text column.")] = "text",
    pair: Annotated[str | None, typer.Option(help="Name of the second text's column.")] = None,
    max_length: Annotated[int, typer.Option(min=8, max=8192, help="Longest input in tokens.")] = 128,
) -> None:
    """Answer every text of a file; one JSON line each."""
    open_home()
    from tasks.ports.sources import resolve_model
    from tasks.ports.tables import read_texts

    resolve_model(str(folder), None)
    texts, pairs = read_texts(checked(file), text, pair)
    from tasks.scoring.predict import predict_texts

    for words, answer in zip(texts, predict_texts(folder, texts, pairs, max_length), strict=True):
        print(json.dumps({"text": words, **answer}, ensure_ascii=False))


@app.command()
def janitor() -> None:
    """End the runs that crashed workers left open, in MLflow and in Prefect, and remove what they left half-written."""
    home = open_home()
    from flows.servers import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        import asyncio

        from flows.janitor import janitor as sweep_up

        ready()
        swept = asyncio.run(sweep_up())
    for run in swept["ended"]:
        out.print(f"ended run {run[:8]}: its process is gone", highlight=False)
    counts = f"{len(swept['ended'])} runs ended, {len(swept['pending'])} unfinished models and {len(swept['leftovers'])} left-overs removed"
    out.print(counts, highlight=False)


@app.command()
def ui(
    prefect_port: Annotated[int, typer.Option(min=1024, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(min=1024, max=65535)] = 5000,
) -> None:
    """Serve Prefect and MLflow on this machine until Ctrl-C; runs started meanwhile use them."""
    from flows.servers import serve

    serve(Home.from_environment().create(), prefect_port, mlflow_port, out)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    out.print(f"limbeck {installed('limbeck')}", highlight=False)


def start(recipe: Any, json_file: Path | None, force: list[str], kind: str = "run", plot: Path | None = None) -> None:
    """Run a recipe, or its sweep, before a person's eyes and show what came out."""
    home = open_home()
    from flows.servers import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows.console import show_results, show_sweep
        from flows.drive import watched_run

        result = watched_run(
            recipe, home=home, console=out, ready=ready, force=frozenset(force), json_path=json_file, command=typed(sys.argv[1:]), kind=kind
        )
    if plot is not None:
        from tasks.report.sweep_plot import sweep_svg

        plot.write_text(sweep_svg(result), encoding="utf-8")
    show_sweep(out, result) if kind == "sweep" else show_results(out, result)


def typed(words: list[str]) -> str:
    """Return a command as it was typed, without the files that it writes; what a resumed run was started with is not known any more."""
    kept = [word for before, word in zip(["", *words], words, strict=False) if before not in WRITTEN and word not in WRITTEN]
    return shlex.join(["limbeck", *(word for word in kept if word.split("=")[0] not in WRITTEN)]) if words[:1] != ["resume"] else ""


def open_home() -> Home:
    """Make the home folder and set the environment before Prefect or MLflow are imported."""
    home = Home.from_environment().create()
    home.prepare_environment()
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    return home


def tracker() -> Any:
    """Return a tracker that only reads."""
    home = open_home()
    from tasks.ports.tracker import Tracker

    return Tracker(home.tracking_uri, home.artifacts)


def checked(file: Path) -> Path:
    """Refuse a file that is not there."""
    if not file.is_file():
        raise RecipeError(f"there is no file {str(file)!r}; name a file with texts")
    return file


def duration(seconds: float) -> str:
    """Return a length of time for people."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def moment(milliseconds: int) -> str:
    """Return a time for people."""
    from datetime import datetime

    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M")


def main() -> None:
    """Run a command; a user's mistake ends in one sentence, never in a traceback."""
    logging.getLogger("limbeck").setLevel(logging.WARNING)
    try:
        status = typer.main.get_command(app).main(standalone_mode=False, prog_name="limbeck")
        if status == STOPPED:  # typer turns Ctrl-C into a status of its own
            raise KeyboardInterrupt
        raise SystemExit(status if isinstance(status, int) else 0)
    except LimbeckError as error:
        Console(stderr=True, width=10_000).print(f"limbeck: {error}", highlight=False, markup=False)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, typer.Abort):
        print("limbeck: stopped; run the same command again to go on from there", file=sys.stderr)
        raise SystemExit(STOPPED) from None
    except Exception as error:
        # A wrong command line: typer carries a copy of click, whose exceptions have no public name but know how to show themselves.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        error.show()
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
