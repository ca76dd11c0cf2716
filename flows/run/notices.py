"""Notices about failed runs, refused candidates or promotions, and promoted models, sent through Prefect's notification
blocks.

A recipe names blocks by their slugs (``notify: [slack-webhook/team]``), the environment by ``LIMBECK_NOTIFY``;
addresses and passwords are in the blocks, on the Prefect server. A missing block is refused before any computation; a
notice that cannot be sent is a warning.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import LimbeckError, RecipeError
from tasks.gate.decided import AliasDecision
from tasks.recipe.knobs import BLOCK
from tasks.recipe.recipe import Recipe
from tasks.results.run import Promotion, Registered, RunResult

Notice = tuple[str, str]
"""Subject and body."""
SENDING_SECONDS = 20.0  # seconds for one block to send
NOTIFIED_ALIASES = ("champion", "challenger")
"""Aliases whose moves cause a notice; the others follow from them."""
MOST_LISTED = 5  # candidates listed with their reasons; the others by name only


def notification_blocks(named: Sequence[str]) -> list[str]:
    """Return the blocks to notify: those of the recipe, then those of ``LIMBECK_NOTIFY``, each once."""
    given = [slug.strip() for slug in os.environ.get("LIMBECK_NOTIFY", "").split(",") if slug.strip()]
    for slug in given:
        if not re.fullmatch(BLOCK, slug):
            raise RecipeError(
                f"LIMBECK_NOTIFY names {slug!r}; name notification blocks as type/name, separated by commas, for "
                f"example slack-webhook/team"
            )
    return list(dict.fromkeys([*named, *given]))


async def require_blocks(slugs: Sequence[str]) -> list[Any]:
    """Load blocks from the Prefect server; raise RecipeError if one is missing or is no notification block."""
    return [await load_block(slug) for slug in slugs]


async def load_block(slug: str) -> Any:
    """Load one notification block."""
    import prefect.blocks.notifications  # noqa: F401 - registers the kinds of blocks that come with Prefect
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block

    try:
        block: Any = await Block.aload(slug)
    except Exception as error:  # ValueError for a missing block, and any error of its settings or of the connection
        raise RecipeError(
            f"notify: no usable notification block {slug!r} on this Prefect server; save one there, or remove it "
            f"from notify and LIMBECK_NOTIFY"
        ) from error
    if not isinstance(block, NotificationBlock):
        raise RecipeError(
            f"notify: the block {slug!r} is a {type(block).__name__}, which sends no notifications; name another, for "
            f"example slack-webhook/team"
        )
    return block


async def send(slugs: Sequence[str], notice: Notice) -> list[str]:
    """Send a notice to every block, in parallel; return the slugs of those that failed. No error here can fail a
    run."""
    told = await asyncio.gather(*(send_one(slug, *notice) for slug in slugs))
    return [slug for slug, sent in zip(slugs, told, strict=True) if not sent]


async def send_one(slug: str, subject: str, body: str) -> bool:
    """Send a notice to one block; return whether that worked. Its address is a secret, so a warning names only the
    kind of the error."""
    try:
        async with asyncio.timeout(SENDING_SECONDS):
            block = await load_block(slug)
            with block.raise_on_failure():
                await block.anotify(body=body, subject=subject) if hasattr(block, "anotify") else await block.notify(
                    body=body, subject=subject
                )
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", "")
        warn(
            f"{slug} could not be notified of {subject!r}: "
            f"{error if isinstance(error, LimbeckError) else f'{type(error).__name__} {status}'.strip()}"
        )
        return False
    return True


def warn(words: str) -> None:
    """Log a warning: in the run's log if there is a run, else in the log of the command line."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        get_run_logger().warning(words)
    except MissingContextError:
        logging.getLogger("limbeck.notices").warning(words)


# --- texts of the notices ---------------------------------------------------------------------------------------------


def tell_failure(recipe: str, flow: str, message: str, page: str | None = None, *, run: str = "") -> Notice:
    """Return the notice of a failed run, with its error message; ``run`` names a run that has no recipe."""
    what = f"The flow {flow} of the recipe {recipe} failed." if recipe else f"The flow {flow} failed."
    return f"Limbeck: {recipe or run or flow} failed", with_links(f"{what}\n{sentence_of(message)}", {"Prefect": page})


def tell_refused_promotion(run: str, message: str, page: str | None = None) -> Notice:
    """Return the notice of a promotion refused by the gate or by the comparison with the champion; no alias has
    moved."""
    return f"Limbeck: {run} was refused", with_links(sentence_of(message).removeprefix(REFUSED), {"Prefect": page})


REFUSED = "GateError: "
"""Start of the message of a run that ended because the gate refused a promotion."""


def sentence_of(message: str) -> str:
    """Return the error message in the message of a Prefect state."""
    return re.sub(r"^Flow run encountered an exception: ", "", message.strip() or "no message")


def tell_refusal(result: RunResult, page: str | None = None) -> Notice | None:
    """Return the notice of the candidates refused by the gate or in the comparison with the champion; None if there are
    none.

    If some candidates were accepted, the notice is sent only for a new decision, not again by every run that repeats
    it; if none was accepted, it is always sent.
    """
    judged, recipe, promotion = result.registered, result.recipe, result.promotion
    refused = [entry for entry in judged if "refused" in (entry.decision, entry.outcome)]
    nobody = all(entry.decision == "refused" for entry in judged)
    is_repeated = promotion is not None and "news" in promotion.model_fields_set and not promotion.news
    if not refused or (is_repeated and not nobody):
        return None
    if nobody:
        subject = f"Limbeck: {recipe}: the gate accepted none of {len(judged)}"
        head = f"The gate accepted no candidate of {recipe}; all are registered, and there is no new champion."
    else:
        subject = (
            f"Limbeck: {recipe}: {len(refused)} of {len(judged)} "
            f"{'candidates were' if len(judged) > 1 else 'candidate was'} refused"
        )
        head = f"Refused candidates of {recipe}; they are registered, and none became champion."
    more = (
        [f"… and {len(refused) - MOST_LISTED} more: {', '.join(entry.candidate for entry in refused[MOST_LISTED:])}"]
        if len(refused) > MOST_LISTED
        else []
    )
    body = "\n".join([head, *map(refusal_line, refused[:MOST_LISTED]), *more])
    return subject, with_links(body, {"MLflow": mlflow_link(result), "Prefect": page})


def mlflow_link(result: RunResult) -> str | None:
    """Return the link to a run in MLflow; None if MLflow is not a server."""
    return (result.links or {}).get("run")


def refusal_line(entry: Registered) -> str:
    """Return a line with the reasons for a refusal: failed gate criteria, or the comparison with the champion."""
    why = (
        "; ".join(entry.reasons)
        if entry.decision == "refused"
        else f"accepted by the gate, refused against the champion: {entry.why}"
    )
    return f"- {entry.candidate}{verdict_of(entry)}: {why}"


def tell_promotion(
    *,
    name: str,
    version: str | int,
    alias: str,
    candidate: str = "",
    before: str | int | None = None,
    figures: str = "",
    why: str = "",
    links: Mapping[str, str | None] | None = None,
) -> Notice:
    """Return the notice of a moved alias: the new version and its candidate, the version before, and the reason."""
    what = f"{name}@{alias} is now version {version}{f' ({candidate})' if candidate else ''}"
    was = [f"Before: version {before}."] if before not in (None, "") else []
    lines = [
        what + ".",
        *was,
        *([figures] if figures else []),
        *([why] if why else []),
        f"Pull it: limbeck pull {name}@{alias} my-model",
    ]
    return f"Limbeck: {what}", with_links("\n".join(lines), links or {})


def verdict_of(entry: Registered) -> str:
    """Return the gate's verdict in brackets; empty if there is none."""
    return "" if entry.verdict is None else f" ({entry.verdict})"


def with_links(body: str, links: Mapping[str, str | None]) -> str:
    """Append the non-empty links to a text, one a line."""
    return "\n".join([body, *(f"{name}: {link}" for name, link in links.items() if link)])


# --- occasions of the notices -----------------------------------------------------------------------------------------


async def on_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """Notify the recipe's blocks of a failed flow run (hook of Prefect); a run stopped by a person sends no notice."""
    from prefect.utilities.urls import url_for

    if "Interrupted:" in (state.message or ""):
        return  # stopped by a person, who knows of it
    name, named = recipe_behind(flow_run.parameters)
    try:
        slugs = notification_blocks(named)
    except RecipeError as error:
        return warn(str(error))
    message, page = state.message or "", url_for("flow-run", obj_id=flow_run.id)
    # A refused promotion arrives here as a failure: the flow raises, so that the command and the Prefect page show the
    # refusal.
    if flow.name == "promote" and sentence_of(message).startswith(REFUSED):
        await send(slugs, tell_refused_promotion(flow_run.name, message, page))
    else:
        await send(slugs, tell_failure(name, flow.name, message, page, run="" if name else flow_run.name))


def recipe_behind(parameters: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Return the name of a flow run's recipe and its notification blocks; for a recipe of the shelf, the parameters
    hold its name and the changes."""
    given, changes = parameters.get("recipe"), parameters.get("changes")
    if isinstance(given, str):
        told = changes.get("notify") if isinstance(changes, Mapping) else getattr(changes, "notify", None)
        return given, tuple(told or ())
    if isinstance(given, Recipe):
        return given.name, given.notify
    known = given if isinstance(given, Mapping) else {}
    return str(known.get("name", "")), tuple(known.get("notify") or ())


async def tell_of(recipe: Recipe, result: RunResult) -> None:
    """Send the notices of a finished run: refused candidates, and a new champion or challenger."""
    slugs = notification_blocks(recipe.notify)
    for notice in news_of(result) if slugs else []:
        await send(slugs, notice)


def news_of(result: RunResult) -> list[Notice]:
    """Return the notices of a finished run."""
    refusal = tell_refusal(result)
    name = result.registered[0].name if result.registered else ""
    moved = promotions_in(name, result.promotion, {"MLflow": mlflow_link(result)}) if result.promotion else []
    return [*([refusal] if refusal else []), *moved]


def promotions_in(name: str, decided: Promotion, links: Mapping[str, str | None] | None = None) -> list[Notice]:
    """Return a notice for each moved alias that concerns people: a new champion, or a challenger to be examined."""
    reasons = {word.version: word.reason for word in decided.words}
    return [
        tell_promotion(
            name=name,
            version=version,
            alias=alias,
            before=decided.moves.get("previous") if alias == "champion" else None,
            candidate=decided.champion.candidate if alias == "champion" and decided.champion else "",
            why=reasons.get(version, ""),
            links=links,
        )
        for alias in NOTIFIED_ALIASES
        if (version := decided.moves.get(alias))
    ]


async def tell_of_promotion(name: str, decided: AliasDecision) -> None:
    """Send the notices of a manual promotion or rollback to the blocks of ``LIMBECK_NOTIFY``; there is no recipe."""
    for notice in promotions_in(name, Promotion.model_validate(decided)):
        await send(notification_blocks(()), notice)
