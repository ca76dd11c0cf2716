"""Notices, through a real notification block to a real server that writes down what came."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.promotion import delete, promote, rollback
from flows.run.notices import (
    Notice,
    news_of,
    notification_blocks,
    on_failure,
    require_blocks,
    send,
    tell_failure,
    tell_promotion,
    tell_refusal,
)
from tasks.errors import GateError, RecipeError, RegistryError
from tasks.ports.tracking.tracker import Tracker
from tasks.results.run import RunResult
from tests.databases import is_unused
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import FAST, recipe_for

BLOCK = "custom-webhook/limbeck-tests"


class Heard(HTTPServer):
    """A server that keeps what it is told, and answers as it is bidden."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Ear)
        self.notices: list[dict[str, str]] = []
        self.status = 200


class Ear(BaseHTTPRequestHandler):
    """Takes notices."""

    server: Heard

    def do_POST(self) -> None:
        self.server.notices.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def heard(prefect_server: None) -> Iterator[Heard]:
    """Save a block on the Prefect server that tells a server of ours."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    server = Heard()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    body = {"subject": "{{subject}}", "body": "{{body}}"}
    block = CustomWebhookNotificationBlock(
        name="tests", url=f"http://127.0.0.1:{server.server_port}/hooks/a-secret", json_data=body
    )
    asyncio.run(block.asave("limbeck-tests", overwrite=True))
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def silence(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test with nothing heard."""
    heard.notices.clear()
    heard.status = 200
    monkeypatch.delenv("LIMBECK_NOTIFY", raising=False)


@pytest.fixture(scope="module")
def home(home: Home, engines_here: None) -> Home:
    return home


GATE: dict[str, Any] = {"criteria": [{"metric": "parameters", "at_most": 1e9}], "register_as": "tiny-model"}


def test_a_run_tells_of_its_champion_and_later_that_nobody_was_accepted(
    heard: Heard, home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    recipe = recipe_for(tiny_bert, tiny_rows, **SHORT, gate=GATE, notify=[BLOCK])
    run_recipe(recipe, home=home)
    [notice] = heard.notices
    assert (
        notice["subject"] == "Limbeck: tiny-model@champion is now version 1 (half)"
        and "limbeck pull tiny-model@champion" in notice["body"]
    )
    heard.notices.clear()
    run_recipe(recipe, home=home)
    assert heard.notices == [], "nothing is news in a run that found everything done"
    harsh = GATE | {"criteria": [{"metric": "parameters", "at_most": 1}]}
    run_recipe(recipe_for(tiny_bert, tiny_rows, **SHORT, gate=harsh, notify=[BLOCK]), home=home)
    [notice] = heard.notices
    assert (
        notice["subject"] == "Limbeck: tiny: the gate accepted none of 1"
        and "- half" in notice["body"]
        and "missed by" in notice["body"]
    )


def test_what_becomes_of_a_persons_decision_is_told_once(
    heard: Heard, home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused promotion is no failure; a rollback and a deletion that cannot be are. Each is one notice."""
    gate = {"criteria": [{"metric": "parameters", "at_most": 3}], "register_as": "refused-model"}
    run_recipe(recipe_for(tiny_bert, tiny_rows, **SHORT, gate=gate), home=home)
    for name, value in (
        ("LIMBECK_HOME", str(home.root)),
        ("MLFLOW_TRACKING_URI", home.own_tracking_uri),
        ("LIMBECK_NOTIFY", BLOCK),
    ):
        monkeypatch.setenv(name, value)
    for flow, given in (
        (promote, ("refused-model", "1")),
        (rollback, ("refused-model",)),
        (delete, ("refused-model", "9")),
    ):
        with pytest.raises((GateError, RegistryError)):
            asyncio.run(flow(*given))
    refused, back, gone = heard.notices
    assert refused["subject"] == "Limbeck: promote refused-model was refused"
    assert (
        refused["body"].startswith(
            "refused-model version 1 was not promoted: the gate's verdict is INFEASIBLE; --force"
        )
        and "/runs/flow-run/" in refused["body"]
    )
    assert (
        back["subject"] == "Limbeck: rollback refused-model failed"
        and "cannot be rolled back" in back["body"]
        and "recipe" not in back["body"]
    )
    assert gone["subject"] == "Limbeck: delete refused-model 9 failed" and "has no version 9" in gone["body"]


def test_a_failed_run_tells_its_one_sentence(
    heard: Heard, home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMBECK_NOTIFY", f"{BLOCK}, {BLOCK}")
    with pytest.raises(GateError):
        run_recipe(
            recipe_for(tiny_bert, tiny_rows, **SHORT, teacher={"model": str(tiny_bert), "floor": 1.0, **FAST}),
            home=home,
        )
    [notice] = heard.notices
    assert (
        notice["subject"] == "Limbeck: tiny failed"
        and "the floor is 1.000" in notice["body"]
        and "Traceback" not in notice["body"]
    )
    assert "/runs/flow-run/" in notice["body"], "it says where the run's page is"


@pytest.mark.parametrize("slug", ["slack-webhook/nobody", "custom-webhook/other"])
def test_a_block_that_is_not_there_is_refused_before_anything_is_spent(
    heard: Heard, tmp_path: Path, tiny_bert: Path, tiny_rows: Path, slug: str
) -> None:
    home = Home(tmp_path / "home").create()
    with pytest.raises(RecipeError, match=f"no usable notification block '{slug}'") as caught:
        run_recipe(recipe_for(tiny_bert, tiny_rows, **SHORT, notify=[BLOCK, slug]), home=home)
    assert "\n" not in str(caught.value) and is_unused(home.root / "mlflow.db")
    assert not list(Path(home.store).rglob("*.json"))


def test_a_block_that_notifies_nobody_is_refused(prefect_server: None) -> None:
    from prefect.blocks.system import Secret

    async def save_and_ask() -> None:
        await Secret(value="quiet").asave("limbeck-tests", overwrite=True)
        await require_blocks(["secret/limbeck-tests"])

    with pytest.raises(RecipeError, match="is a Secret, which sends no notifications"):
        asyncio.run(save_and_ask())


def test_what_cannot_be_told_is_a_warning_without_the_address(
    heard: Heard, home: Home, tiny_bert: Path, tiny_rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard.status = 500
    harsh = {"criteria": [{"metric": "parameters", "at_most": 2}], "register_as": "tiny-model"}
    run_recipe(recipe_for(tiny_bert, tiny_rows, **SHORT, gate=harsh, notify=[BLOCK]), home=home)
    assert len(heard.notices) == 1 and Tracker(home.own_tracking_uri, None).runs(1)[0]["status"] == "FINISHED"
    assert asyncio.run(send([BLOCK, "custom-webhook/gone"], ("subject", "body"))) == [BLOCK, "custom-webhook/gone"]
    said = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("limbeck"))
    assert f"{BLOCK} could not be notified of 'subject': HTTPStatusError 500" in said and "a-secret" not in said
    assert "no usable notification block 'custom-webhook/gone'" in said


@pytest.mark.parametrize("given", ["slack", "https://hooks.example.com/a-secret", "Slack/Team"])
def test_an_address_in_place_of_a_block_is_refused(
    given: str, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="notify"):
        recipe_for(tiny_bert, tiny_rows, notify=[given])
    monkeypatch.setenv("LIMBECK_NOTIFY", given)
    with pytest.raises(RecipeError, match="LIMBECK_NOTIFY names"):
        notification_blocks(())


def test_blocks_are_told_once_and_decide_no_key(
    tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMBECK_NOTIFY", f"a/b,{BLOCK},")
    assert notification_blocks((BLOCK,)) == [BLOCK, "a/b"]
    assert (
        recipe_for(tiny_bert, tiny_rows, notify=[BLOCK]).key_values() == recipe_for(tiny_bert, tiny_rows).key_values()
    )


def test_the_hook_reads_a_recipe_that_came_as_plain_values(heard: Heard) -> None:
    from types import SimpleNamespace
    from uuid import uuid4

    run = SimpleNamespace(parameters={"recipe": {"name": "scheduled", "notify": [BLOCK]}}, id=uuid4())
    asyncio.run(on_failure(SimpleNamespace(name="compress"), run, SimpleNamespace(message=None)))
    stopped = SimpleNamespace(
        message="Flow run encountered an exception: Interrupted: the engine of 'finetune' was stopped"
    )
    asyncio.run(on_failure(SimpleNamespace(name="compress"), run, stopped))
    assert [notice["subject"] for notice in heard.notices] == ["Limbeck: scheduled failed"]


# --- what is said -----------------------------------------------------------------------------------------------------


def entry(candidate: str, decision: str = "refused", alias: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": "sst2-bert",
        "version": "7",
        "candidate": candidate,
        "alias": alias,
        "new": True,
        "decision": decision,
        "reasons": ["a", "b"],
    } | more


def result(*entries: dict[str, Any]) -> dict[str, Any]:
    about = {"recipe": "tiny", "task": "tiny", "headline": "accuracy", "split": "validation", "models": ()}
    return about | {"registered": list(entries), "links": {"run": "http://mlflow/run"}}


def news(written: dict[str, Any]) -> list[Notice]:
    """Return the notices of a result as it is read."""
    return news_of(RunResult.model_validate(written))


def refusal(written: dict[str, Any]) -> Notice | None:
    """Return the notice of the refusals in a result as it is read."""
    return tell_refusal(RunResult.model_validate(written))


def test_a_refusal_names_what_was_missed_and_stays_short() -> None:
    notice = refusal(result(*(entry(f"c{number}", verdict="INFEASIBLE") for number in range(7))))
    assert notice is not None
    subject, body = notice
    assert subject == "Limbeck: tiny: the gate accepted none of 7"
    assert "- c0 (INFEASIBLE): a; b" in body and "… and 2 more" in body and body.endswith("MLflow: http://mlflow/run")
    assert "… and 2 more: c5, c6" in body
    assert refusal(result()) is None and refusal(result(entry("y", "accepted", outcome="champion"))) is None


def test_one_notice_names_all_that_were_refused_by_the_gate_or_against_the_champion() -> None:
    worse = "certainly worse by more than 0: -0.02 [-0.03, -0.01] to the champion, version 3"
    missed = entry("small", verdict="INFEASIBLE", outcome="refused", why="the gate's verdict is INFEASIBLE")
    lost = entry("quick", "accepted", verdict="ACCEPT", outcome="refused", why=worse)
    found = result(missed, lost, entry("good", "accepted", "champion", verdict="ACCEPT", outcome="champion"))
    [(subject, body)] = news(found)
    assert subject == "Limbeck: tiny: 2 of 3 candidates were refused"
    assert (
        "- small (INFEASIBLE): a; b" in body
        and f"- quick (ACCEPT): accepted by the gate, refused against the champion: {worse}" in body
    )
    assert "good" not in body and body.endswith("MLflow: http://mlflow/run")
    [(subject, _)] = news(result(lost))
    assert subject == "Limbeck: tiny: 1 of 1 candidate was refused", (
        "the gate accepted it, so that it accepted none would be false"
    )
    again = {"promotion": {"moves": {}, "words": [], "champion": None, "news": False}}
    assert news(found | again) == [], "a run that found everything as it was tells it no second time"
    assert len(news(result(missed) | again)) == 1, "that nobody was accepted is told each time"


def test_a_promotion_says_what_stood_there_before() -> None:
    subject, body = tell_promotion(
        name="m", version=3, alias="champion-small", candidate="4x312", before=2, why="smallest accepted"
    )
    assert (
        subject == "Limbeck: m@champion-small is now version 3 (4x312)"
        and "Before: version 2." in body
        and "smallest accepted" in body
    )
    assert "before" not in tell_promotion(name="m", version=1, alias="champion")[1]


def test_only_what_moved_is_news() -> None:
    there = result(entry("old", "accepted", "champion", new=False))
    assert (
        news(there | {"promotion": {"moves": {}, "words": [], "champion": {"version": "7", "candidate": "old"}}}) == []
    )
    moves = {"champion": "7", "previous": "3", "champion-small": "7"}
    words = [{"version": "7", "outcome": "champion", "reason": "smaller"}]
    [(subject, body)] = news(
        there | {"promotion": {"moves": moves, "words": words, "champion": {"version": "7", "candidate": "old"}}}
    )
    assert (
        subject == "Limbeck: sst2-bert@champion is now version 7 (old)"
        and "Before: version 3.\nsmaller" in body
        and "http://mlflow/run" in body
    )
    waiting = {
        "moves": {"challenger": "7"},
        "words": [{"version": "7", "outcome": "challenger", "reason": "not compared"}],
        "champion": None,
    }
    [(subject, body)] = news(there | {"promotion": waiting})
    assert subject == "Limbeck: sst2-bert@challenger is now version 7" and "not compared" in body


def test_a_failure_is_told_in_the_errors_own_words() -> None:
    subject, body = tell_failure(
        "tiny", "compress", "Flow run encountered an exception: DataError: no rows", "http://prefect/run"
    )
    assert (subject, body) == (
        "Limbeck: tiny failed",
        "The flow compress of the recipe tiny failed.\nDataError: no rows\nPrefect: http://prefect/run",
    )
