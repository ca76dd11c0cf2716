"""Commands that make small models."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.shared import (
    JsonFile,
    RecipeName,
    Sets,
    open_environment,
    open_home,
    open_home_for_a_run,
    out,
    start,
    tracker,
    written,
)
from tasks.errors import RecipeError


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the language and of all trainings on it.")] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, max=50, help="Number of seeds, from --seed on; the gain of distillation gets an interval over them."
        ),
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Compress a small teacher of a generated language, in minutes and without a model hub."""
    home = open_home_for_a_run()
    from flows.servers.local import prefect_for_a_run

    out.print(
        "The demo's data is synthetic: a small generated language; its figures do not apply to natural language.\n"
    )
    with prefect_for_a_run(home) as ready:
        from flows.cli.console import show_results
        from flows.cli.runner import run_demo

        result = run_demo(seed=seed, seeds=seeds, home=home, console=out, ready=ready, json_path=json_file)
    show_results(out, result.last)
    out.print(f"\n{result.words}", highlight=False, markup=False)


def init(
    table: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Your rows: csv, tsv, json, jsonl, conll, parquet or arrow, a folder of them, or a hub id.",
        ),
    ],
    text: Annotated[str | None, typer.Option("--text", metavar="COLUMN", help="Column of the text.")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column of the label.")] = None,
    pair: Annotated[str | None, typer.Option("--pair", metavar="COLUMN", help="Column of a second text.")] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TYPE", help="Type of the task, such as classification or tokens.")
    ] = None,
    teacher: Annotated[
        str | None, typer.Option("--teacher", metavar="MODEL", help="The model to make small: a hub id, or a folder.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Add trials of ways to train the student, for limbeck search.")
    ] = False,
    output: Annotated[
        Path | None, written("--output", "-o", help="File of the recipe; by default in the folder of the data.")
    ] = None,
) -> None:
    """Write a starter recipe for your own data, and say what was chosen, and why."""
    from flows.recipes.starter import Wishes, starter_recipe

    target = output or recipe_beside(table)
    if target.exists():
        raise RecipeError(f"{target} already exists; name another file with --output")
    wishes = Wishes(text, label, pair, task, teacher, search)
    starter = starter_recipe(
        table, target, wishes, ask_on_terminal if sys.stdin.isatty() and sys.stdout.isatty() else None
    )
    target.write_text(starter.text, encoding="utf-8")
    for note in starter.notes:
        out.print(note, highlight=False, markup=False, soft_wrap=True)
    out.print(f"wrote {target}; next: limbeck validate {shlex.quote(str(target))}", highlight=False, soft_wrap=True)


def recipe_beside(table: str) -> Path:
    """Return the file of the recipe for a table: beside a file or folder, in this folder for a hub id."""
    path = Path(table).expanduser()
    name = re.split(r"\.(?=csv|tsv|json|parquet|arrow|txt)", path.name)[0] or "mine"
    return (path.parent if path.exists() else Path()) / f"{name}.yaml"


def ask_on_terminal(question: str, answers: Sequence[str]) -> str:
    """Ask the user for one of several answers, of which the first is the default."""
    from rich.prompt import Prompt

    return Prompt.ask(question, choices=list(answers), default=answers[0])


def shelf(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A recipe on the shelf, to print it with its path.")
    ] = None,
) -> None:
    """List the recipes that come with Limbeck: one for each method of the literature, and some for real tasks; or print
    one of them."""
    from rich.table import Table

    from flows.run.recipe_file import SHELF, find_recipe, read_yaml

    if name is not None:
        path = find_recipe(name)
        typer.echo(f"# {path}\n{path.read_text(encoding='utf-8')}", nl=False)
        return
    table = Table("recipe", "description", box=None, pad_edge=False)
    for path in sorted(SHELF.glob("*.yaml"), key=lambda path: path.stem):
        table.add_row(path.stem, str(read_yaml(path).get("about", "")))
    out.print(table, highlight=False, markup=False)
    out.print(
        "\nprint one: limbeck shelf NAME; run one: limbeck run NAME; change it: --set task=mrpc, and other knobs of "
        "limbeck knobs",
        highlight=False,
        markup=False,
    )


def knobs(
    section: Annotated[
        str | None,
        typer.Argument(metavar="[SECTION]", help="A section or a knob, for example teacher or students.layers."),
    ] = None,
) -> None:
    """List the sections of a recipe, or the knobs of one section with their sentences, defaults and limits."""
    from rich.table import Table

    from flows.run.knob_list import SCHEMA_FILE, knobs_under, sections

    table = Table("knob", "legal values", "default", "description", box=None, pad_edge=False)
    for knob in sections() if section is None else knobs_under(section):
        table.add_row(knob.path, knob.limits, knob.default, knob.sentence)
    out.print(table, highlight=False, markup=False)
    if section is None:
        out.print("\nthe knobs of a section: limbeck knobs teacher", highlight=False)
        out.print(f"for editors: {SCHEMA_FILE}", highlight=False, markup=False, soft_wrap=True)


def run(
    recipe: RecipeName,
    sets: Sets = [],  # noqa: B006 - typer copies it
    json_file: JsonFile = None,
    force: Annotated[
        list[str], typer.Option("--force", metavar="STAGE", help="Run a stage again although its result is cached.")
    ] = [],  # noqa: B006
) -> None:
    """Run a recipe: train the teacher, students and dropped models, score them, apply the gate, register them."""
    from flows.run.recipe_file import load_recipe

    start(load_recipe(recipe, sets), json_file, force)


def sweep(
    recipe: RecipeName,
    strategies: Annotated[
        str | None,
        typer.Option(metavar="top,symmetric,…", help="Strategies to try, for example greedy; see layer_dropping."),
    ] = None,
    drop: Annotated[str | None, typer.Option(metavar="1,2,3", help="Numbers of layers to remove.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1,2", help="Seeds for each strategy and number.")] = None,
    halving: Annotated[
        bool,
        typer.Option(
            "--halving",
            help="Train all candidates with a quarter of the steps and one seed first; the better half continues.",
        ),
    ] = False,
    sets: Sets = [],  # noqa: B006
    json_file: Annotated[
        Path | None, written("--json", metavar="FILE", help="Write every figure, the result and the stages as JSON.")
    ] = None,
    plot: Annotated[
        Path | None,
        written("--plot", metavar="FILE.svg", help="Write the plot: score against dropped layers, by strategy."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of trainings and the cached ones, without running them.")
    ] = False,
) -> None:
    """Find how many layers the task needs: drop layers of one teacher by every strategy, number and seed. The answer
    has an interval.

    Omitted options come from the recipe's sweep section, then from its layer_dropping section, which also defines the
    training of a dropped model; without either: six strategies, every number of layers, seeds 0, 1, 2, 500 steps of
    batch 64. Nothing is registered.
    """
    from flows.cli.sweep_options import require_no_results, sweep_sets
    from flows.run.recipe_file import load_recipe

    given = sweep_sets(strategies=strategies, drop=drop, seeds=seeds, halving=halving)
    chosen = load_recipe(recipe, [*sets, *given], ["sweep"])
    if not dry_run:
        return start(chosen, json_file, [], "sweep", plot)
    require_no_results({"--json": json_file, "--plot": plot})
    from flows.cli.console import show_sweep_plan
    from flows.cli.runner import plan_of, planned_session

    show_sweep_plan(out, chosen.name, plan_of(planned_session(chosen, open_home(), "sweep")).stages)


def search(
    recipe: RecipeName,
    budget: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=AMOUNT",
            help="What a model may cost at most: latency_ms=2, bytes=10MB, flops=500M, joules=10mJ, memory=50MB, or a "
            "share of the teacher's, latency_ms=0.3x; can be repeated.",
        ),
    ] = [],  # noqa: B006
    minutes: Annotated[
        float | None,
        typer.Option(
            help="With a section search.recipes: minutes of training in which to try ways to train its shape.",
            show_default=False,
        ),
    ] = None,
    sets: Sets = [],  # noqa: B006
    json_file: JsonFile = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the shapes that fit and what would run, without running it.")
    ] = False,
) -> None:
    """Find the best shape within a budget: predict latency and size of every shape from parts measured on this machine,
    train those that fit in rounds, and make candidates of the best. Or try ways to train one shape, for some minutes.

    The recipe's search section has the space, the training and the rounds; its budget can be given by --budget. A dry
    run knows the shapes that fit once the latency table is measured, which is the first stage of a search. A recipe
    with search.recipes has a shape, and starts, methods and learning rates, of which the best are candidates.
    """
    from flows.cli.sweep_options import budget_sets, minutes_sets, require_no_results
    from flows.run.recipe_file import load_recipe

    given = [*sets, *budget_sets(budget)]
    chosen = load_recipe(recipe, given, ["search"])
    if minutes is not None:
        chosen = load_recipe(recipe, [*given, *minutes_sets(chosen, minutes)], ["search"])
    if not dry_run:
        return start(chosen, json_file, [], "search")
    require_no_results({"--json": json_file})
    from flows.cli.runner import plan_of, planned_search
    from tasks.report.tables.ledger import plan_lines, plan_table
    from tasks.report.tables.trials import section_of_search

    session, found, lines = planned_search(chosen, open_home())
    planned = plan_of(session)
    out.print(plan_table(planned.stages, f"search of {chosen.name}"))
    section = section_of_search(found)
    if section.rows:
        out.print(section.table())
    for line in [*lines, *plan_lines(planned)]:
        out.print(line, highlight=False, markup=False)


def plan(
    recipe: RecipeName,
    sets: Sets = [],  # noqa: B006
    json_file: Annotated[
        Path | None, written("--json", metavar="FILE", help="Write every stage with its estimated cost as JSON.")
    ] = None,
) -> None:
    """Show the stages of a run without running it: whether each is cached, why, and its estimated cost; and which
    held-out rows overlap with training data."""
    from flows.run.recipe_file import load_recipe

    chosen = load_recipe(recipe, sets)
    home = open_home()
    from flows.cli.runner import plan_of, planned_session
    from flows.publish.results_folder import write_json
    from flows.recipes.planned_rows import compared_rows
    from tasks.report.tables.held_back import held_back_lines
    from tasks.report.tables.kept_answers import kept_answer_lines
    from tasks.report.tables.ledger import plan_lines, plan_table
    from tasks.report.tables.teacher_layers import layer_lines

    session = planned_session(chosen, home)
    held = compared_rows(chosen, session)
    found = plan_of(session)
    out.print(plan_table(found.stages, f"plan of {chosen.name}"))
    for line in (
        [session.placed] * bool(session.placed)
        + plan_lines(found)
        + layer_lines(session.teacher_layers)
        + kept_answer_lines(chosen, held, session.vocabulary)
        + held_back_lines(held)
        + ([f"The run would be refused: {found.refused}."] if found.refused else [])
    ):
        out.print(line, highlight=False, markup=False)
    if json_file is not None:
        write_json(json_file, {**found.as_json(), "placed": session.placed, "held_back": held.as_json()})


MADE_BY = {"distillation": "students", "layer-dropping": "dropped"}
"""The names of the candidates of two makers, for people."""


def validate(recipe: RecipeName, sets: Sets = []) -> None:  # noqa: B006
    """Check a recipe, its rows and its models without running anything."""
    from flows.run.recipe_file import load_recipe

    chosen = load_recipe(recipe, sets)
    open_environment()
    from flows.recipes.checks import check_recipe

    for line in check_recipe(chosen):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    made: dict[str, list[str]] = {maker: [] for maker in MADE_BY}
    for one in chosen.planned:
        made.setdefault(one.by, []).append(one.name)
    listed = ", ".join(f"{MADE_BY.get(maker, maker)} {', '.join(names) or 'none'}" for maker, names in made.items())
    chains = [f"{one.name} from {one.made_from}" for one in chosen.planned if one.is_follower]
    chained = f", made in chains: {', '.join(chains)}" if chains else ""
    judged = f", also evaluated on {', '.join(chosen.judging_sets)}" if chosen.judging_sets else ""
    said = f"task {chosen.spec.name}, {listed}{chained}{judged}"
    out.print(f"{chosen.name} is valid: {said}", highlight=False)


def resume(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="A run, as `limbeck runs` shows it; by default the newest unfinished one."
        ),
    ] = None,
    sets: Sets = [],  # noqa: B006
    json_file: JsonFile = None,
) -> None:
    """Resume a stopped or failed run or sweep: run its recipe again, from its results and checkpoints."""
    mlflow = tracker()
    from flows.run.history import UNFINISHED, find_run, recipe_of

    found = find_run(mlflow, run, UNFINISHED)
    start(recipe_of(mlflow, found["run"], sets), json_file, [], found["kind"])
