"""The front door. Everything heavy is imported inside the commands, so that ``limbeck --help`` answers at once."""

from __future__ import annotations

import gc as garbage
import json
import logging
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console

from flows.home import Home
from flows.output_files import OF_THE_DISK, disk_sentence, writable
from tasks.errors import LimbeckError, RecipeError

app = typer.Typer(
    name="limbeck", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Make big transformer language models small: cached Prefect stages in, registered small models out.",
)  # fmt: skip
MAKE, LOOK, REGISTRY, HOUSE = "Make small models", "Look at what ran", "Choose, pull and promote", "Keep the house in order"
SERVERS = "Run the servers of a team"
"""Under what a command stands in --help."""
WRITTEN = ("--json", "--plot")
STOPPED = 130  # what shells call a command that Ctrl-C ended
PACE = 50_000  # new objects between two looks for garbage; Python takes 700
out = Console(width=None if sys.stdout.isatty() else 120, markup=False)  # a name in square brackets is a name

written = partial(typer.Option, callback=writable)
"""An option that names a file to write: whether it can be is asked before the command does anything."""
Sets = Annotated[list[str], typer.Option("--set", metavar="a.b=value", help="Change one knob of the recipe; may be given several times.")]
JsonFile = Annotated[Path | None, written("--json", metavar="FILE", help="Write stages, models and registered versions as JSON.")]
RegisteredName = Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept in the history.")]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a recipe on the shelf.")]


@app.command(rich_help_panel=MAKE)
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the language and of everything trained on it.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=50, help="How many seeds, from --seed on; what distillation gains gets an interval over them.")] = 1,
    json_file: JsonFile = None,
) -> None:
    """Compress a small teacher of a generated language, in minutes and without any hub."""
    home = open_home_for_a_run()
    from flows.servers import prefect_for_a_run

    out.print("The demo's data is synthetic: a small generated language, so the figures say nothing about natural language.\n")
    with prefect_for_a_run(home) as ready:
        from flows.console import show_results
        from flows.drive import run_demo

        result = run_demo(seed=seed, seeds=seeds, home=home, console=out, ready=ready, json_path=json_file)
    show_results(out, result)
    out.print(f"\n{result['last_words']}", highlight=False, markup=False)


@app.command(rich_help_panel=MAKE)
def init(
    table: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Your rows: csv, tsv, jsonl or parquet.")],
    output: Annotated[Path | None, written("--output", "-o", help="Where the recipe goes; by default beside the data.")] = None,
) -> None:
    """Write a starter recipe for rows of your own."""
    from flows.recipe_file import starter_recipe

    target = output or table.with_suffix(".yaml")
    if target.exists():
        raise RecipeError(f"{target} is there already; name another file with --output")
    target.write_text(starter_recipe(table, target))
    out.print(f"wrote {target}; next: limbeck validate {target}", highlight=False)


@app.command(rich_help_panel=MAKE)
def shelf() -> None:
    """List the recipes that come with Limbeck: one for each method of the literature, and some for real tasks."""
    from rich.table import Table

    from flows.recipe_file import SHELF, read_yaml

    table = Table("recipe", "what it is", box=None, pad_edge=False)
    for path in sorted(SHELF.glob("*.yaml"), key=lambda path: path.stem):
        table.add_row(path.stem, str(read_yaml(path).get("about", "")))
    out.print(table, highlight=False, markup=False)
    out.print("\nread one: its file says what it makes and what it costs; run one: limbeck run NAME; change it: --set task=mrpc", highlight=False, markup=False)


@app.command(rich_help_panel=MAKE)
def run(
    recipe: RecipeName,
    sets: Sets = [],  # noqa: B006 - typer copies it
    json_file: JsonFile = None,
    force: Annotated[list[str], typer.Option("--force", metavar="STAGE", help="Run a stage again although its result is there.")] = [],  # noqa: B006
) -> None:
    """Run a recipe: teacher, students, dropped models, scores, gate, registry."""
    from flows.recipe_file import load_recipe

    start(load_recipe(recipe, sets), json_file, force)


@app.command(rich_help_panel=LOOK)
def results(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the page and its files are, for example deployments/results.")],
    add: Annotated[Path | None, typer.Option("--add", metavar="OUT.json", help="What --json wrote of a finished run or sweep.")] = None,
    note: Annotated[str, typer.Option("--note", help="A sentence that stands beside the run that is added.")] = "",
    table: Annotated[str | None, typer.Option("--table", metavar="FILE", help="Only print one file of the folder as a short table, as README has it.")] = None,
) -> None:
    """Write the results page of a folder from its files, one per finished run, after adding one to them."""
    from flows.results_folder import add_result, table_of, write_page

    if table is not None and (note or add is not None):
        raise RecipeError("--table only prints what is there; leave --add and --note out")
    if table is not None:
        typer.echo(table_of(folder, table))
        return
    if note and add is None:
        raise RecipeError("--note belongs to a run that is added; name its file with --add")
    if add is not None:
        out.print(f"wrote {add_result(folder, add, note)}", highlight=False, markup=False)
    out.print(f"wrote {write_page(folder)}", highlight=False, markup=False)


@app.command(rich_help_panel=MAKE)
def sweep(
    recipe: RecipeName,
    strategies: Annotated[str | None, typer.Option(metavar="top,symmetric,…", help="Strategies to try, greedy among them; see layer_dropping.")] = None,
    drop: Annotated[str | None, typer.Option(metavar="1,2,3", help="Numbers of layers to remove.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1,2", help="Trainings of each strategy and number.")] = None,
    halving: Annotated[bool, typer.Option("--halving", help="A quarter of the steps and one seed for all first; the better half goes on.")] = False,
    sets: Sets = [],  # noqa: B006
    json_file: Annotated[Path | None, written("--json", metavar="FILE", help="Write every figure, the answer and the stages as JSON.")] = None,
    plot: Annotated[Path | None, written("--plot", metavar="FILE.svg", help="Write the plot: score against dropped layers, by strategy.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many trainings it takes and what is cached.")] = False,
) -> None:
    """How many layers does the task need? Drop them by every strategy, number and seed, from one teacher; the answer has an interval.

    What is not given comes from the recipe's sweep section, then from its layer_dropping section, which also says how a dropped model is trained;
    without either: six strategies, every number of layers, seeds 0, 1, 2, 500 steps of batch 64. Nothing is registered.
    """
    from flows.recipe_file import load_recipe
    from flows.sweep_options import sweep_sets

    given = sweep_sets(strategies=strategies, drop=drop, seeds=seeds, halving=halving)
    chosen = load_recipe(recipe, [*sets, *given], ["sweep"])
    if not dry_run:
        return start(chosen, json_file, [], "sweep", plot)
    home = open_home()
    from flows.console import show_sweep_plan
    from flows.drive import plan_recipe

    show_sweep_plan(out, chosen.name, plan_recipe(chosen, home=home, kind="sweep"), duration)


@app.command(rich_help_panel=MAKE)
def plan(
    recipe: RecipeName,
    sets: Sets = [],  # noqa: B006
    json_file: Annotated[Path | None, written("--json", metavar="FILE", help="Write every stage, and what it would take, as JSON.")] = None,
) -> None:
    """Say what a run would do, stage by stage, why, and what it would take, before anything is spent."""
    from flows.recipe_file import load_recipe

    chosen = load_recipe(recipe, sets)
    home = open_home()
    from flows.drive import plan_of, planned_rows, planned_session
    from flows.run import write_json
    from tasks.report.held_back import held_back_lines
    from tasks.report.ledger import plan_lines, plan_table

    session = planned_session(chosen, home)
    found = plan_of(session) | {"held_back": planned_rows(chosen, session)}
    out.print(plan_table(found["stages"], f"plan of {chosen.name}"))
    for line in plan_lines(found) + held_back_lines(found["held_back"]) + ([f"It would be refused: {found['refused']}."] if found["refused"] else []):
        out.print(line, highlight=False, markup=False)
    if json_file is not None:
        write_json(json_file, found)


@app.command(rich_help_panel=MAKE)
def validate(recipe: RecipeName, sets: Sets = []) -> None:  # noqa: B006
    """Check a recipe without running anything."""
    from flows.recipe_file import load_recipe

    chosen = load_recipe(recipe, sets)
    made = [student.name for student in chosen.students]
    dropped = [f"{s}-{k}" for s in chosen.layer_dropping.strategies for k in chosen.layer_dropping.drop] if chosen.layer_dropping else []
    judged = f", judged on {', '.join(chosen.judging_sets)} too" if chosen.judging_sets else ""
    said = f"task {chosen.spec.name}, students {', '.join(made) or 'none'}, dropped {', '.join(dropped) or 'none'}{judged}"
    out.print(f"{chosen.name} is valid: {said}", highlight=False)


@app.command(rich_help_panel=LOOK)
def runs(limit: Annotated[int, typer.Option(min=1, max=1000)] = 20) -> None:
    """List the newest runs."""
    from flows.console import runs_table

    out.print(runs_table(tracker().runs(limit)))


@app.command(rich_help_panel=LOOK)
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


@app.command(rich_help_panel=LOOK)
def ledger(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest.")] = None,
    json_file: Annotated[Path | None, written("--json", metavar="FILE", help="Write every figure as JSON, and how it was come by.")] = None,
) -> None:
    """Say what a past run took, stage by stage, in time, kWh, CO2e and dollars, and what the cache saved."""
    mlflow = tracker()
    from flows.run import write_json
    from flows.upkeep import find_run
    from tasks.report.ledger import LEGEND, counted_lines, ledger_table

    found = find_run(mlflow, run)
    noted = mlflow.recall(found["run"], "ledger")
    out.print(ledger_table(noted, f"{found['kind']} {found['run'][:8]} of {found['recipe']}: what it took"))
    for line in [*counted_lines(noted), LEGEND]:
        out.print(line, highlight=False, markup=False)
    if json_file is not None:
        write_json(json_file, noted)


@app.command(rich_help_panel=LOOK)
def report(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest that finished.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    output: Annotated[Path | None, written("--output", "-o", metavar="FILE.html", help="Where it goes; by default into the home folder.")] = None,
    no_texts: Annotated[bool, typer.Option("--no-texts", help="Leave the texts out on which student and teacher disagree.")] = False,
) -> None:
    """Write the page of a past run: one HTML file that says which model to take, how good, fast and big it is, and why."""
    mlflow = tracker()
    from flows.report import open_page, past_report, place_of_report, write_page
    from flows.upkeep import find_run

    home, found = Home.from_environment(), find_run(mlflow, run, () if run else ("FINISHED",))
    path = place_of_report(output, found["run"], home)
    write_page(past_report(mlflow, found, home=home, texts=not no_texts), path)
    out.print(str(path), highlight=False, markup=False, soft_wrap=True)
    if show and not open_page(path):
        out.print("no browser was found here; open the file yourself", highlight=False)


@app.command(rich_help_panel=MAKE)
def resume(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest that did not finish.")] = None,
    sets: Sets = [],  # noqa: B006
    json_file: JsonFile = None,
) -> None:
    """Go on with a run or a sweep that was stopped or failed: its recipe again, from its results and checkpoints."""
    mlflow = tracker()
    from flows.upkeep import UNFINISHED, find_run, recipe_of

    found = find_run(mlflow, run, UNFINISHED)
    start(recipe_of(mlflow, found, sets), json_file, [], found["kind"])


@app.command(rich_help_panel=LOOK)
def reproduce(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A finished run, as `limbeck runs` shows it; by default the newest.")] = None,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="FOLDER", help="Keep what the second run makes, in a new folder.")] = None,
    from_cache: Annotated[bool, typer.Option("--from-cache", help="Run nothing: compare what the store holds.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on although a source has changed since.")] = False,
    json_file: Annotated[Path | None, written("--json", metavar="FILE", help="Write the comparison as JSON.")] = None,
) -> None:
    """Run a past run again from nothing, in a home of its own, and compare what every stage makes, byte for byte.

    Ends with status 0 if all digests are equal, and with 3 if some are not; what measures speed is not compared.
    """
    before = dict(os.environ)  # the second run gets the environment of this command, without what is set for this home
    mlflow = tracker()
    from flows.console import show_reproduction
    from flows.reproduce import DIFFERENT
    from flows.reproduce import reproduce as run_twice
    from flows.run import write_json
    from flows.upkeep import find_run

    found = find_run(mlflow, run, ("FINISHED",))
    if not from_cache:
        out.print(f"running {found['recipe']} again, in a home of its own: nothing is taken from the cache or enters your registry", highlight=False)
    compared = run_twice(mlflow, found, home=Home.from_environment(), environment=before, keep=keep, from_cache=from_cache, anyway=anyway)
    if json_file is not None:
        write_json(json_file, compared)
    show_reproduction(out, compared)
    if not compared["equal"]:
        raise typer.Exit(DIFFERENT)


@app.command(rich_help_panel=HOUSE)
def verify() -> None:
    """Hash everything in the store anew; what is damaged is set aside, so that the next run makes it again."""
    home = open_home()
    from flows.upkeep import verify_store

    good = bad = 0
    for manifest, problem in verify_store(home):
        good, bad = good + (problem is None), bad + (problem is not None)
        if problem:
            out.print(f"{manifest['stage']} {manifest['key'][:12]}: {problem}", highlight=False, markup=False)
    out.print(f"{good} results are whole, {bad} are damaged.", highlight=False)
    if bad:
        raise typer.Exit(1)


@app.command(rich_help_panel=HOUSE)
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


@app.command(rich_help_panel=REGISTRY)
def models() -> None:
    """List every registered version and the gate's word on it."""
    from rich.table import Table

    table = Table("model", "version", "alias", "gate", "what", "reasons")
    for row in tracker().models():
        reasons = "; ".join(json.loads(row.get("gate.reasons", "[]")))
        table.add_row(row["name"], row["version"], row["alias"], row.get("gate", ""), row["description"], reasons)
    out.print(table)


@app.command(rich_help_panel=REGISTRY)
def pull(
    name: Annotated[str, typer.Argument(metavar="NAME[@alias]", help="A registered model; without an alias: @champion.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a registered model as one plain Hugging Face folder, its hash checked."""
    model, _, alias = name.partition("@")
    found = tracker().download(model, alias or "champion", folder)
    out.print(f"{folder}: {found['name']} version {found['version']} ({found['description']})", highlight=False)
    out.print(f'use it with transformers alone: AutoModelForSequenceClassification.from_pretrained("{folder}")', highlight=False, markup=False)


@app.command(rich_help_panel=REGISTRY)
def show(name: Annotated[str, typer.Argument(metavar="NAME[@alias|@version]", help="A registered model, or one version of it.")]) -> None:
    """Show a registered model: aliases, verdicts, figures and the history of decisions; or one version with every reason."""
    from flows.registry_page import show_model, show_version
    from tasks.ports.registry import Registry

    model, _, which = name.partition("@")
    mlflow = tracker()
    standing = Registry(mlflow, model).read()
    if which or not standing.versions:
        show_version(out, model, standing, str(mlflow.find_version(model, which).version))
    else:
        show_model(out, model, standing)


@app.command(rich_help_panel=REGISTRY)
def promote(
    name: RegisteredName,
    version: Annotated[str | None, typer.Argument(metavar="[VERSION]", help="A version by number or alias; by default the challenger.")] = None,
    to: Annotated[str, typer.Option(help="The alias: champion, challenger, champion-small or champion-fast.")] = "champion",
    force: Annotated[bool, typer.Option("--force", help="Pass over the gate's verdict and the comparison with the champion.")] = False,
    reason: Reason = "",
) -> None:
    """Make a version champion; one that the gate refused, or that is certainly worse than the champion, only by force."""
    decide_by_hand("promote", name, version=version, to=to, force=force, reason=reason)


@app.command(rich_help_panel=REGISTRY)
def rollback(name: RegisteredName, reason: Reason = "") -> None:
    """Make the champion before the champion again; the one that goes is not promoted by runs any more."""
    decide_by_hand("rollback", name, reason=reason)


@app.command(rich_help_panel=REGISTRY)
def delete(name: RegisteredName, version: Annotated[str, typer.Argument(metavar="VERSION", help="Its number.")], reason: Reason = "") -> None:
    """Delete a registered version; one that has an alias is refused."""
    gone = decided_in_prefect("delete", name, version=version, reason=reason)
    out.print(f"{name} version {gone['version']} ({gone['candidate']}) is deleted.", highlight=False, markup=False)


@app.command(rich_help_panel=REGISTRY)
def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder, as pull writes it, or the onnx folder in it.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: txt, csv, tsv, jsonl or parquet.")],
    text: Annotated[str, typer.Option(help="Name of the text column.")] = "text",
    pair: Annotated[str | None, typer.Option(help="Name of the second text's column.")] = None,
    max_length: Annotated[int, typer.Option(min=8, max=8192, help="Longest input in tokens.")] = 128,
) -> None:
    """Answer every text of a file; one JSON line each."""
    open_home()
    from tasks.ports.sources import resolve_model
    from tasks.ports.tables import read_texts
    from tasks.scoring.onnx_models import is_export

    if not is_export(folder):
        resolve_model(str(folder), None)
    texts, pairs = read_texts(checked(file), text, pair)
    from tasks.scoring.predict import predict_texts

    for words, answer in zip(texts, predict_texts(folder, texts, pairs, max_length), strict=True):
        print(json.dumps({"text": words, **answer}, ensure_ascii=False))


@app.command(rich_help_panel=HOUSE)
def janitor() -> None:
    """End the runs that crashed workers left open, in MLflow and in Prefect, and remove what they left half-written."""
    home = open_home_for_a_run()
    from flows.servers import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows import server_watch
        from flows.janitor import janitor as sweep_up

        ready()
        swept = server_watch.run(sweep_up())
    for run in swept["ended"]:
        out.print(f"ended run {run[:8]}: its process is gone", highlight=False)
    counts = f"{len(swept['ended'])} runs ended, {len(swept['pending'])} unfinished models and {len(swept['leftovers'])} left-overs removed"
    out.print(counts, highlight=False)


@app.command(rich_help_panel=LOOK)
def ui(
    prefect_port: Annotated[int, typer.Option(min=1024, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(min=1024, max=65535)] = 5000,
) -> None:
    """Serve Prefect and MLflow on this machine until Ctrl-C; runs started meanwhile use them."""
    from flows.servers import serve

    serve(Home.from_environment().create(), prefect_port, mlflow_port, out)


@app.command(rich_help_panel=SERVERS)
def up(
    host: Annotated[str | None, typer.Option(help="Address or name of this machine to listen on; by default 127.0.0.1, this machine alone.")] = None,
    prefect_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 4200.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 5000.")] = None,
    s3: Annotated[str | None, typer.Option(help="radosgw, folder, aws, or the URL of an endpoint; AWS_ENDPOINT_URL counts.")] = None,
    buckets: Annotated[str | None, typer.Option(help="What the names of both buckets begin with; by default limbeck.")] = None,
    pools: Annotated[str | None, typer.Option(help="Work pools that get a worker here; by default cpu,gpu-local.")] = None,
) -> None:
    """Bring up the servers of a team as processes that are watched: PostgreSQL, Redis, S3, Prefect, MLflow, workers. Again: what is missing of them."""
    home = Home.from_environment().create()
    from flows.stack.bringup import up as bring_up
    from flows.stack.words import how_to_use, tell

    wanted = {"host": host, "prefect_port": prefect_port, "mlflow_port": mlflow_port, "s3": s3, "buckets": buckets, "pools": pools and tuple(pools.split(","))}
    stack = bring_up(home, wanted, tell(out))
    out.print(how_to_use(stack), highlight=False, markup=False, soft_wrap=True)


@app.command(rich_help_panel=SERVERS)
def down() -> None:
    """Stop every server that `limbeck up` started; what they hold stays."""
    from flows.stack.bringup import down as bring_down
    from flows.stack.words import tell

    stopped = bring_down(Home.from_environment(), tell(out))
    out.print("stopped; all data stays, limbeck up goes on with it" if stopped else "nothing of this home is running", highlight=False)


@app.command(rich_help_panel=SERVERS)
def env() -> None:
    """Print what other programs need to use the servers, passwords too: eval "$(limbeck env)"."""
    from flows.stack.words import exports

    print(exports(Home.from_environment()))


@app.command(rich_help_panel=SERVERS)
def doctor() -> None:
    """Look for what is missing, wrong or unsafe on this machine, and say what mends it. Ends with status 1 if the stack could not do its work."""
    from flows.stack.doctor import BAD, examine

    findings = examine(Home.from_environment())
    for finding in findings:
        out.print(f"{finding.state:<8} {finding.what:<18} {finding.said}", highlight=False, markup=False, soft_wrap=True)
        if finding.mend:  # on a line of its own, so that it can be copied
            out.print(f"{'':<27} → {finding.mend}", highlight=False, markup=False, soft_wrap=True)
    if any(finding.state == BAD for finding in findings):
        raise typer.Exit(1)


@app.command(rich_help_panel=SERVERS)
def backup(target: Annotated[Path, typer.Argument(metavar="FOLDER|FILE.tar.gz", help="A new folder or file. There will be passwords in it.")]) -> None:
    """Save the stack while it runs: databases, models and results, secrets."""
    from flows.stack.backup import backup as save
    from flows.stack.words import tell

    contents = save(Home.from_environment(), target, tell(out))
    out.print(f"wrote {target}: {len(contents['files'])} files; keep it where you keep passwords", highlight=False, markup=False, soft_wrap=True)


@app.command(rich_help_panel=SERVERS)
def restore(
    source: Annotated[Path, typer.Argument(metavar="FOLDER|FILE.tar.gz", help="What limbeck backup wrote.")],
    prefect_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 4200.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(min=1024, max=65535, help="By default 5000.")] = None,
    s3: Annotated[str | None, typer.Option(help="Another S3 server than the back-up's: radosgw, aws, or the URL of an endpoint.")] = None,
) -> None:
    """Make a new stack of a back-up, in a home that has none, and bring it up."""
    from flows.stack.backup import restore as bring_back
    from flows.stack.words import how_to_use, tell

    wanted = {"prefect_port": prefect_port, "mlflow_port": mlflow_port, "s3": s3}
    stack = bring_back(Home.from_environment().create(), source, wanted, tell(out))
    out.print(how_to_use(stack), highlight=False, markup=False, soft_wrap=True)


@app.command(rich_help_panel=HOUSE)
def deploy(
    site: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="What this place sets for the work pools: image, cluster, roles, secrets.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, max=10_000, help="How many GPU stages may train at once; 1 where it was never set.")] = None,
    gpu_pool: Annotated[str | None, typer.Option(metavar="POOL", help="The work pool that GPU stages go to; ecs-gpu where it was never set.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Take back what was changed in the Prefect UI: parameters, schedules, pools' defaults.")] = False,
) -> None:
    """Set up work pools, limits, deployments and automations on the Prefect server; a second time it changes nothing.

    Which server: PREFECT_API_URL, else that of a running limbeck up or ui. What people changed in the Prefect UI stays as it is.
    """
    open_home()
    import asyncio

    from flows.deploy import Ways
    from flows.deploy import deploy as set_up
    from flows.deploy_pools import read_site

    lines = asyncio.run(set_up(Ways(read_site(site), gpus, gpu_pool, reset)))
    for line in lines:
        out.print(f"{line.kind:18} {line.name:38} {line.done}", highlight=False, markup=False, soft_wrap=True)
    changed = sum(line.done != "unchanged" for line in lines)
    out.print(f"{changed} of {len(lines)} changed." if changed else f"All {len(lines)} unchanged.", highlight=False)


@app.command(rich_help_panel=HOUSE)
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    out.print(f"limbeck {installed('limbeck')}", highlight=False)


def start(recipe: Any, json_file: Path | None, force: list[str], kind: str = "run", plot: Path | None = None) -> None:
    """Run a recipe, or its sweep, before a person's eyes and show what came out."""
    home = open_home_for_a_run()
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


def decide_by_hand(what: str, name: str, **given: Any) -> None:
    """Let a flow decide on a registered model's aliases, and say what moved."""
    decided = decided_in_prefect(what, name, **given)
    from flows.promotion import told

    out.print(f"{told(name, decided)}.", highlight=False, markup=False, soft_wrap=True)


def decided_in_prefect(what: str, name: str, **given: Any) -> dict[str, Any]:
    """Run one of the flows of promotion, with a Prefect server of its own where none is named."""
    home = open_home_for_a_run()
    from flows.servers import prefect_for_a_run

    with prefect_for_a_run(home) as ready:
        from flows import promotion, server_watch

        ready()
        decided: dict[str, Any] = server_watch.run(getattr(promotion, what)(name, **given))
    return decided


def typed(words: list[str]) -> str:
    """Return a command as it was typed, without the files that it writes; what a resumed run was started with is not known any more."""
    kept = [word for before, word in zip(["", *words], words, strict=False) if before not in WRITTEN and word not in WRITTEN]
    return shlex.join(["limbeck", *(word for word in kept if word.split("=")[0] not in WRITTEN)]) if words[:1] != ["resume"] else ""


def open_home() -> Home:
    """Make the home folder and set the environment before Prefect or MLflow are imported."""
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        try:
            _ = urlsplit(os.environ.get(name, "")).port
        except ValueError as error:  # Prefect would not even be imported
            raise RecipeError(f"{name} is no address ({error}); correct it, or leave it out") from error
    home = Home.from_environment().create()
    home.prepare_environment()
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    logging.raiseExceptions = False  # Prefect would print every line that its server does not take
    return home


def open_home_for_a_run() -> Home:
    """Do the same, and refuse an MLflow that is not there before anything is started for it."""
    home = open_home()
    from tasks.ports.tracker import require_reachable

    require_reachable(home.tracking_uri)
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


def main() -> None:
    """Run a command; a user's mistake ends in one sentence, never in a traceback."""
    # Loading Prefect and MLflow makes a quarter of a million objects that stay; looking for garbage among them at Python's pace takes a fifth of that time.
    garbage.set_threshold(PACE)
    logging.getLogger("limbeck").setLevel(logging.WARNING)
    try:
        status = typer.main.get_command(app).main(standalone_mode=False, prog_name="limbeck")
        if status == STOPPED:  # typer turns Ctrl-C into a status of its own
            raise KeyboardInterrupt
        raise SystemExit(status if isinstance(status, int) else 0)
    except LimbeckError as error:
        Console(stderr=True, width=10_000).print(f"limbeck: {error}", highlight=False, markup=False)
        raise SystemExit(1) from None
    except BrokenPipeError:  # whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in OF_THE_DISK:
            raise
        print(f"limbeck: {disk_sentence(error)}", file=sys.stderr)
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
