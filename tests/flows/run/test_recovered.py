"""A run that is killed: the janitor ends what it left open, and `resume` goes on."""

from __future__ import annotations

import time
from pathlib import Path

from tests.flows.run.test_interrupted import PATIENCE, asked, limbeck, recipe, start, wait_for_training

__all__ = ["recipe"]  # a fixture


def test_after_kill_9_the_janitor_ends_the_run_and_resume_goes_on(tmp_path: Path, recipe: Path) -> None:
    home = tmp_path / "home"
    first = start(recipe, home)
    wait_for_training(first)
    first.kill()
    first.wait()
    time.sleep(3)  # engine and server see that their parent is gone
    assert "RUNNING" in {status for (status,) in asked(home / "mlflow.db", "select status from runs")}
    (home / "store" / "temporary" / "half-written").mkdir(parents=True, exist_ok=True)

    janitor = limbeck(home, "janitor")
    out, err = janitor.communicate(timeout=PATIENCE)
    assert janitor.returncode == 0, err
    assert "1 runs ended" in out and "its process no longer exists" in out
    assert {status for (status,) in asked(home / "mlflow.db", "select status from runs")} == {"KILLED", "FINISHED"}
    assert {
        state for (state,) in asked(home / "prefect.db", "select state_type from flow_run where name = 'stopped'")
    } == {"CRASHED"}
    assert {state for (state,) in asked(home / "prefect.db", "select state_type from task_run")} <= {
        "CRASHED",
        "COMPLETED",
    }

    second = limbeck(home, "resume")
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert "finetune-teacher: resuming at step" in out

    explained, err = limbeck(home, "explain").communicate(timeout=PATIENCE)
    assert "stopped: FINISHED" in explained and "computed by run" in explained and "never computed" in explained, (
        explained + err
    )
    again, err = limbeck(home, "janitor").communicate(timeout=PATIENCE)
    assert again.startswith("0 runs ended"), again + err
