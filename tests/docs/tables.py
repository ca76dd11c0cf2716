"""Tables of the READMEs, made from the code and the files that they are about.

A table stands between the marks ``<!-- table: NAME -->`` and ``<!-- end of table -->``; ``python -m tests.docs`` writes
all of them anew, and a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

from tests.docs.readmes import MARKED, ROOT
from tests.families import NAMES

RESULTS = ROOT / "deployments" / "results"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cells)} |".replace("| --- |", "|---|").replace(" --- |", "---|") for cells in lines
    )


def shelf() -> str:
    """Return every recipe of the shelf with what it says about itself."""
    from flows.run.recipe_file import SHELF, read_yaml

    paths = sorted(SHELF.glob("*.yaml"), key=lambda path: path.stem)
    return markdown(["recipe", "description"], ([f"`{path.stem}`", read_yaml(path)["about"]] for path in paths))


def methods() -> str:
    """Return the ways to copy the inside of a teacher, with their phases and knobs."""
    from tasks.recipe.distillation import GeneralDistillation, Intermediate
    from tasks.recipe.methods import sections_of

    phases = {"general text": GeneralDistillation, "task": Intermediate}
    kinds = {
        name: (section, phase.model_fields[section].annotation)
        for phase in phases.values()
        for name, section in sections_of(phase).items()
    }
    rows = []
    for name, (section, kind) in sorted(kinds.items()):
        where = [
            f"{place} (default)" if phase.model_fields["method"].default == name else place
            for place, phase in phases.items()
            if name in sections_of(phase)
        ]
        knobs = [f"`{section}.{knob}` {shown(field.default)}" for knob, field in kind.model_fields.items()]
        rows.append([f"`{name}`", " ".join((kind.__doc__ or "").split()), ", ".join(where), "; ".join(knobs)])
    return markdown(["method", "what it does", "where", "knobs and their defaults"], rows)


def shown(default: Any) -> str:
    """Return a default as a recipe would have it."""
    return "empty" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def families() -> str:
    """Return what can be read of each family of encoders, families of which the same is known in one row."""
    from tasks.architectures.architecture import HIDDEN, SCORES, STATES
    from tasks.architectures.known_architectures import ARCHITECTURES

    rows: dict[tuple[str, ...], list[str]] = {}
    for name, family in ARCHITECTURES.items():
        missing = [signal for signal in (HIDDEN, SCORES, STATES) if signal not in family.signals]
        known = (
            *(yes(signal in family.signals) for signal in (SCORES, STATES)),
            *(yes(able) for able in (family.word_head, family.stands_alone, family.has_masked_lm)),
            yes(name in NAMES),
            "; ".join(particular(family, missing)),
        )
        rows.setdefault(known, []).append(f"`{name}`")
    head = ["`model_type`", "attention scores", "queries, keys, values", "`triple`", "`replacing`", "substitutes"]
    return markdown([*head, "tested", "particular"], ([", ".join(names), *known] for known, names in rows.items()))


def particular(family: Any, missing: Sequence[str]) -> list[str]:
    """Return what a user must know of a family."""
    from tasks.architectures.architecture import everywhere

    return [
        *([f"{' and '.join(missing)} cannot be read: {family.because}"] if missing else []),
        *([family.on_dropping] if family.on_dropping else []),
        *(["pairs of tokens beyond a local layer's window are not copied"] if family.reach is not everywhere else []),
        *(["`self-attention` is refused"] if family.reach is not everywhere else []),
        *(["heads have an even size"] if family.even_heads else []),
        *(["padded on the left, because its summary token is the last"] if family.summary_last else []),
    ]


def yes(able: bool) -> str:
    """Return a mark."""
    return "yes" if able else "—"


def deployments() -> str:
    """Return every deployment with what starts it and what it does."""
    from flows.deploy.timetable import timetable

    rows = []
    for entry in timetable():
        said = " ".join(entry.fields["description"].split("\n\n")[0].split())
        rows.append([f"`{entry.full_name}`", started(entry), said])
    return markdown(["deployment", "starts", "what it does"], rows)


def started(entry: Any) -> str:
    """Say what starts a deployment."""
    clock = [
        f"by the clock (`{given['cron']}`, {given['timezone']}){'' if given['active'] else ', paused'}"
        for given in entry.schedules
    ]
    events = [f"by the event `{name}`" for trigger in entry.triggers for name in trigger["expect"]]
    asked = "by runs, where its pool names its hardware" if entry.flow == "stage" else "by its form"
    return ", ".join(clock + events) or asked


def result(name: str) -> str:
    """Return the short table of a finished run, or the part of the results page that is about a sweep."""
    from flows.publish.results_folder import table_of
    from tasks.report.results.results_cuts import parsed
    from tasks.report.results.results_page import sweep_section

    written = json.loads((RESULTS / name).read_text())
    return sweep_section(parsed(written, name)) if written["kind"] == "sweep" else table_of(RESULTS, name)


def sections() -> str:
    """Return every section of a recipe with its sentence."""
    from tasks.recipe.recipe import Recipe

    rows = []
    for name, field in Recipe.model_fields.items():
        said = field.description or (kind_of(field.annotation).__doc__ or "").split("\n\n")[0]
        rows.append([f"`{name}`", " ".join(said.split())])
    return markdown(["section", "description"], rows)


def knobs() -> str:
    """Return every knob of a recipe with its legal values, its default and its sentence."""
    from flows.run.knob_list import listed_once

    rows = ([f"`{knob.path}`", knob.limits, knob.default, knob.sentence] for knob in listed_once())
    return markdown(
        ["knob", "legal values", "default", "description"],
        ([cell.replace("|", "\\|").replace("<name>", "NAME") for cell in row] for row in rows),
    )


def write_schema() -> bool:
    """Write the JSON schema of recipes anew; tell whether anything changed."""
    from flows.run.knob_list import SCHEMA_FILE, schema_text

    before = SCHEMA_FILE.read_text(encoding="utf-8") if SCHEMA_FILE.is_file() else ""
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    return schema_text() != before


def kind_of(annotation: Any) -> Any:
    """Return the model of a section that may be left out."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return kinds[0] if kinds else annotation


def survey() -> str:
    """Return the efficient transformers of the literature, with where each is; transformers is asked for its own."""
    from transformers import CONFIG_MAPPING

    from tasks.modeling.survey import SURVEY, where_built

    missing = [one.model_type for one in SURVEY if one.model_type and one.model_type not in CONFIG_MAPPING]
    assert not missing, f"transformers has no {missing}"
    rows = [
        [one.name, f"arXiv:{one.paper}", one.cost, "yes" if one.decodes else "no", where_built(one)] for one in SURVEY
    ]
    return markdown(["model", "paper", "cost of a layer, from memory", "can write, as published", "where"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "shelf": shelf,
    "sections": sections,
    "knobs": knobs,
    "methods": methods,
    "families": families,
    "deployments": deployments,
    "survey": survey,
}


@cache
def table(name: str) -> str:
    """Return a table by its name: one of ``TABLES``, or a file of the results."""
    if name in TABLES:
        return TABLES[name]()
    if not (RESULTS / name).is_file():
        raise KeyError(f"there is no table {name!r}; there are {', '.join(TABLES)}, and the files of {RESULTS.name}")
    return result(name)


def with_tables(text: str) -> str:
    """Return a page with all of its tables made anew."""
    return MARKED.sub(lambda found: f"{found[1]}{table(found[2])}\n{found[4]}", text)


def write(path: Path) -> bool:
    """Write a page's tables anew; tell whether anything changed."""
    before = path.read_text(encoding="utf-8")
    after = with_tables(before)
    path.write_text(after, encoding="utf-8")
    return after != before
