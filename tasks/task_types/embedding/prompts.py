"""Prompts of embedders: what a teacher reads before each text, such as ``query: ``, must stand in texts of its rows.

A recipe writes them as templates (``text: "query: {question}"``), so that they are in keys and in every stage; a
teacher that states prompts in its folder is compared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tasks.errors import RecipeError
from tasks.task_types.embedding.modules import ENCODER_FILE, PROMPTS_IN_CONFIG, Prompts, prompts_in
from tasks.task_types.texts.templates import beginning, is_template
from tasks.task_types.types import RETRIEVAL, SENTENCE_VECTORS, TASK_TYPES

OF_QUERIES, OF_PASSAGES = ("query",), ("document", "passage", "corpus")
"""Names under which sentence-transformers looks for the prompts of the texts of a search, in its order."""


def state_prompts(config: Any, text: str, pair: str) -> None:
    """State in the config of an embedder the prompts before texts and second texts of a recipe, where its own folder
    states none: the folders of its students then name them, as sentence-transformers reads them. One prompt of both is
    that of every text; two are those of queries and documents."""
    if hasattr(config, PROMPTS_IN_CONFIG) or not (text or pair):
        return
    both = text == pair
    named = {OF_QUERIES[0]: text, OF_PASSAGES[0]: pair}
    setattr(config, PROMPTS_IN_CONFIG, Prompts(named, OF_QUERIES[0] if both else None).stated)


class TextColumns(Protocol):
    """A section of a recipe that names columns of texts."""

    @property
    def text(self) -> str:
        """The column, or template, of the text."""

    @property
    def pair(self) -> str | None:
        """That of the second text."""


def require_prompts(teacher: Path, kind: str, task: TextColumns, transfer: TextColumns | None) -> None:
    """Raise RecipeError if texts of a task of embedders, by its ``kind``, or text for transfer, lack the prompts that
    the folder of the teacher states; ModelError for a folder whose files cannot be read."""
    if TASK_TYPES[kind].outputs is not SENTENCE_VECTORS:
        return
    query, passage = prompts_of_texts(teacher, searches=kind == RETRIEVAL.name)
    columns = [("task.text", task.text, [query]), ("task.pair", task.pair, [passage])]
    if transfer is not None:
        either = list(dict.fromkeys([query, passage]))
        columns += [("transfer.text", transfer.text, either), ("transfer.pair", transfer.pair, either)]
    for knob, column, prompts in columns:
        if column is not None:
            require_prompt(teacher, knob, column, prompts)


def require_prompt(teacher: Path, knob: str, column: str, prompts: Sequence[str]) -> None:
    """Raise RecipeError if a column, or a template, does not begin with one of some prompts."""
    if any(beginning(column).startswith(prompt) for prompt in prompts):
        return
    written = " or ".join(repr(with_prompt(prompt, column)) for prompt in prompts)
    raise RecipeError(
        f"the teacher reads {' or '.join(map(repr, prompts))} before such a text ({ENCODER_FILE} of {teacher.name}), "
        f"and {knob} is {column!r}; write {knob}: {written}"
    )


def prompts_of_texts(folder: Path, *, searches: bool) -> tuple[str, str]:
    """Return the prompts of texts and of second texts that a model states: of queries and passages where it
    ``searches``, else that of every text. Raises ModelError for a file that cannot be read."""
    prompts = prompts_in(folder)
    if not searches:
        return prompts.of_every_text, prompts.of_every_text
    query, passage = (
        next((prompts.named[name] for name in names if name in prompts.named), prompts.of_every_text)
        for names in (OF_QUERIES, OF_PASSAGES)
    )
    return query, passage


def with_prompt(prompt: str, column: str) -> str:
    """Return the template of a prompt before a column, or before a template."""
    return prompt.replace("{", "{{").replace("}", "}}") + (column if is_template(column) else f"{{{column}}}")
