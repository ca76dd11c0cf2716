"""What a finished run leaves on its pages, and that a page which cannot be had spoils nothing."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from prefect import flow

from flows.run_page import NO_SERVER, description_of, leave_pages, link_to_mlflow, where_lines
from tasks.ports.tracker import Tracker
from tests.ports.test_tracker import PICTURE, tracker
from tests.report.figures import row
from tests.test_stage_progress import left

__all__ = ["tracker"]  # a fixture

RESULT: dict[str, Any] = {
    "models": [row("teacher", "teacher"), row("4x312", gate="champion")], "headline": "accuracy", "split": "validation", "links": {},
    "registered": [{"candidate": "4x312", "name": "sst2-tiny", "alias": "champion", "decision": "accepted", "reasons": ["retained 0.981 ≥ 0.95: met"]}],
}  # fmt: skip


def pages_of(tracker: Tracker) -> dict[str, dict[str, Any]]:
    """Leave the pages in a real flow run and read them back."""

    @flow
    async def leaving() -> str:
        from prefect.runtime import flow_run

        await link_to_mlflow(tracker)
        await leave_pages(RESULT, tracker)
        return str(flow_run.id)

    return {found["key"]: found for found in asyncio.run(left(flow_run_id=asyncio.run(leaving())))}


def test_without_a_server_the_chart_itself_is_left_and_the_table_says_where_the_rest_is(prefect_server: None, tracker: Tracker, tmp_path: Path) -> None:
    (tmp_path / "pareto.png").write_bytes(PICTURE)
    tracker.client.log_artifact(tracker.parent, str(tmp_path / "pareto.png"), "report")
    tracker.client.log_text(tracker.parent, "<html>", "report/report.html")
    found = pages_of(tracker)
    assert set(found) == {"results", "pareto"}
    assert found["pareto"]["type"] == "image" and base64.b64decode(found["pareto"]["data"].removeprefix("data:image/png;base64,")) == PICTURE
    assert "| 4x312 |" in found["results"]["data"] and "Report: `report/report.html` among the files of the MLflow run" in found["results"]["data"]
    assert tracker.client.get_run(tracker.parent).data.tags["mlflow.note.content"].startswith("**4x312** is champion")
    tracker.close("FINISHED")


def test_a_tracker_that_takes_nothing_spoils_nothing(prefect_server: None, tracker: Tracker) -> None:
    tracker.close("FINISHED")
    tracker.parent = "0" * 32
    assert set(pages_of(tracker)) == {"results"}


def test_with_a_server_there_are_links_alone() -> None:
    files = {"report.html": "http://mlflow/report", "pareto.png": "http://mlflow/picture", "other.txt": "http://mlflow/other"}
    lines = where_lines({"links": {"run": "http://mlflow/run"}}, files)
    assert lines == ["[MLflow run](http://mlflow/run)", "[report](http://mlflow/report)", "[Pareto chart](http://mlflow/picture)"]
    assert where_lines({"links": {}}, {}) == [NO_SERVER]


def test_where_nobody_won_the_text_says_so() -> None:
    refused = [entry | {"alias": None, "decision": "refused", "reasons": ["retained 0.9 ≥ 0.95: missed by 0.05"]} for entry in RESULT["registered"]]
    text = description_of(RESULT | {"registered": refused}, "| table |")
    assert text.startswith("**The gate accepted nobody.**") and text.endswith("- 4x312: refused: retained 0.9 ≥ 0.95: missed by 0.05")
    assert description_of(RESULT | {"registered": []}, "| table |").startswith("Nothing was registered.")
