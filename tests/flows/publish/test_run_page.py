"""What a finished run leaves on its pages, and that a page which cannot be had spoils nothing."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import flow

from flows.publish import run_page
from flows.publish.run_page import LARGEST, NO_SERVER, about_candidate, leave_pages
from flows.run.mlflow_run import link_to_mlflow
from tasks.ports.tracking.tracker import Tracker
from tasks.results.run import RunResult
from tests.ports.tracking.test_tracker import PICTURE, tracker
from tests.report.figures import row
from tests.stage.test_progress import left

__all__ = ["tracker"]  # a fixture

RESULT: dict[str, Any] = {
    "recipe": "sst2-tiny",
    "task": "sst2",
    "models": [row("teacher", "teacher"), row("4x312", gate="champion")],
    "headline": "accuracy",
    "split": "validation",
    "links": {},
    "registered": [
        {
            "candidate": "4x312",
            "name": "sst2-tiny",
            "alias": "champion",
            "decision": "accepted",
            "reasons": ["retained 0.981 ≥ 0.95: met"],
        }
    ],
}


def description_of(result: dict[str, Any], table: str) -> str:
    return run_page.description_of(RunResult.model_validate(result), table)


def where_lines(links: dict[str, str], files: dict[str, str]) -> list[str]:
    return run_page.where_lines(RunResult.model_validate(RESULT | {"links": links}), files)


def pages_of(tracker: Any) -> dict[str, dict[str, Any]]:
    """Leave the pages in a real flow run and read them back."""

    @flow
    async def leaving() -> str:
        from prefect.runtime import flow_run

        await link_to_mlflow(tracker)
        await leave_pages(RunResult.model_validate(RESULT), tracker)
        return str(flow_run.id)

    return {found["key"]: found for found in asyncio.run(left(flow_run_id=asyncio.run(leaving())))}


def test_without_a_server_the_chart_itself_is_left_and_the_table_says_where_the_rest_is(
    prefect_server: None, tracker: Tracker, tmp_path: Path
) -> None:
    (tmp_path / "pareto.svg").write_bytes(PICTURE)
    tracker.client.log_artifact(tracker.parent, str(tmp_path / "pareto.svg"), "report")
    tracker.client.log_text(tracker.parent, "<html>", "report/report.html")
    found = pages_of(tracker)
    assert set(found) == {"results", "pareto"}
    assert (
        found["pareto"]["type"] == "image"
        and base64.b64decode(found["pareto"]["data"].removeprefix("data:image/svg+xml;base64,")) == PICTURE
    )
    assert (
        "| 4x312 |" in found["results"]["data"]
        and "Report: `report/report.html` among the files of the MLflow run" in found["results"]["data"]
    )
    assert tracker.client.get_run(tracker.parent).data.tags["mlflow.note.content"].startswith("**4x312** is champion")
    tracker.close("FINISHED")


class Server(SimpleNamespace):
    """A tracker whose MLflow is a server that the browser may not ask: its pictures have addresses, which show nothing
    on a page of Prefect."""

    run_name = "sst2"

    def urls(self, base: str | None) -> dict[str, str]:
        return {"run": "http://mlflow/run"}

    def report_files(self) -> dict[str, str]:
        return {"pareto.svg": "http://mlflow/picture", "report.html": "http://mlflow/report"}

    def report_file(self, name: str) -> bytes:
        return bytes(self.picture)

    def describe(self, text: str) -> None:
        """Use the text."""


@pytest.mark.parametrize("size", [len(PICTURE), LARGEST + 1], ids=["usual", "too large for a page"])
def test_with_a_server_the_chart_itself_is_left_with_its_link_beside_it(prefect_server: None, size: int) -> None:
    """MLflow with accounts asks whoever loads a picture for a password; the Prefect page has none to give."""
    picture = PICTURE.ljust(size, b"x")
    found = pages_of(Server(picture=picture))
    assert found["pareto"]["description"].endswith("([in MLflow](http://mlflow/picture))")
    data = found["pareto"]["data"]
    assert (
        data == "http://mlflow/picture"
        if size > LARGEST
        else base64.b64decode(data.removeprefix("data:image/svg+xml;base64,")) == picture
    )
    assert "http://mlflow/report" in found["report"]["data"]


def test_a_tracker_that_takes_nothing_spoils_nothing(prefect_server: None, tracker: Tracker) -> None:
    tracker.close("FINISHED")
    tracker.parent = "0" * 32
    assert set(pages_of(tracker)) == {"results"}


def test_with_a_server_the_table_has_links() -> None:
    files = {
        "report.html": "http://mlflow/report",
        "pareto.svg": "http://mlflow/picture",
        "other.txt": "http://mlflow/other",
    }
    lines = where_lines({"run": "http://mlflow/run"}, files)
    assert lines == [
        "[MLflow run](http://mlflow/run)",
        "[report](http://mlflow/report)",
        "[Pareto chart](http://mlflow/picture)",
    ]
    assert where_lines({}, {}) == [NO_SERVER]


def test_where_nobody_won_the_text_says_so() -> None:
    refused = [
        entry | {"alias": None, "decision": "refused", "reasons": ["retained 0.9 ≥ 0.95: missed by 0.05"]}
        for entry in RESULT["registered"]
    ]
    text = description_of(RESULT | {"registered": refused}, "| table |")
    assert text.startswith("**The gate accepted no candidate.**") and text.endswith(
        "- 4x312: refused: retained 0.9 ≥ 0.95: missed by 0.05"
    )
    assert description_of(RESULT | {"registered": []}, "| table |").startswith("Nothing was registered.")


LOST = "the champion, version 3, is preferred: it is not less small"
ACCEPTED = {
    "candidate": "4x312",
    "name": "sst2-tiny",
    "version": "7",
    "alias": None,
    "decision": "accepted",
    "reasons": ["met"],
}


@pytest.mark.parametrize(
    ("champion", "alias", "why", "head"),
    [
        ({"version": "3", "candidate": "old"}, None, LOST, f"**The champion stays; 4x312 was accepted**: {LOST}."),
        (
            None,
            "challenger",
            "accepted, and there was no champion",
            "**No champion yet; 4x312 was accepted**: accepted, and there was no champion.",
        ),
        (
            None,
            None,
            "the recipe sets gate.promote: never",
            "**No champion yet; 4x312 was accepted**: the recipe sets gate.promote: never.",
        ),
    ],
    ids=["lost to the champion", "promote: manual", "promote: never"],
)
def test_an_accepted_candidate_is_not_called_refused(
    champion: dict[str, str] | None, alias: str | None, why: str, head: str
) -> None:
    """Accepted and not champion: what is said first must not be that the gate accepted nobody."""
    refused = ACCEPTED | {"candidate": "2x128", "decision": "refused", "why": "the gate's verdict is INFEASIBLE"}
    models = [row("teacher", "teacher"), row("2x128", gate="refused"), row("4x312", gate="accepted")]
    registered = [refused, ACCEPTED | {"alias": alias, "why": why}]
    text = description_of(
        RESULT | {"models": models, "registered": registered, "promotion": {"champion": champion}}, "| table |"
    )
    assert (
        text.startswith(f"{head} `limbeck pull sst2-tiny@7 my-model`\n\n| table |")
        and "accepted no candidate" not in text
    )


def test_the_page_of_a_candidate_says_what_it_is_and_how_it_ended() -> None:
    """Its description was empty: figures and tags alone did not say that it was refused, and why."""
    refused = row("4x312", gate="refused", reasons=("accuracy 0.81 < 0.9: [missed](http://x.example)",))
    entry = {"name": "sst2-bert", "version": "3", "candidate": "4x312", "decision": "refused"}
    teacher = row("teacher", "teacher")
    result = RunResult.model_validate({**RESULT, "models": [teacher, refused], "registered": [entry]})
    first, second = (about_candidate(model, result) for model in result.models)
    assert second.startswith("**4x312: ") and "A student" in second
    assert "The gate: refused: accuracy 0.81 &lt; 0.9: \\[missed\\]\\(http\\://x.example\\)." in second
    assert second.endswith("`limbeck pull sst2-bert@3 my-model`")
    assert "A teacher: accuracy on " in first and "gate" not in first and "pull" not in first
