"""Alarms and dashboard name metrics that the exporter has, and each alarm fires for the fault that it is about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

MONITORING = Path(__file__).resolve().parents[3] / "infra" / "monitoring"
SOURCES = Path(__file__).resolve().parents[3] / "flows" / "monitoring"
PROMTOOL = shutil.which("promtool")
NAME = r"\blimbeck_[a-z0-9_]+"


def read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((MONITORING / name).read_text())


def emitted() -> set[str]:
    """Return the names of the exporter's metrics, with the ending that counters get."""
    text = "\n".join(path.read_text() for path in SOURCES.glob("*.py"))
    named = set(re.findall(r'"(limbeck_[a-z0-9_]+)"', text))
    assert len(named) > 20
    return named | {f"{name}_total" for name in named}


def alarms() -> list[dict[str, Any]]:
    return [rule for group in read("alarms.yml")["groups"] for rule in group["rules"]]


def test_alarms_and_dashboard_name_metrics_that_exist() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    used = set(re.findall(NAME, "\n".join([*queries, *(rule["expr"] for rule in alarms())])))
    assert len(queries) > 20 and used and used <= emitted(), used - emitted()
    forgotten = {name for name in emitted() - used if not name.endswith("_total") and f"{name}_total" not in used}
    assert forgotten <= {
        "limbeck_pool_paused",
        "limbeck_gpu_power_watts",
        "limbeck_gpu_temperature_celsius",
        "limbeck_cost_co2e_kg",
        "limbeck_cost_energy_kwh",
        "limbeck_exporter_part_seconds",
    }, "a metric that nobody looks at"


def test_every_alarm_has_an_example_and_a_remedy() -> None:
    shown = {
        one["alertname"]
        for test in read("alarms-test.yml")["tests"]
        for one in test["alert_rule_test"]
        if one["exp_alerts"]
    }
    assert shown == {rule["alert"] for rule in alarms()}
    for rule in alarms():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".") and rule["annotations"]["remedy"]


@pytest.mark.skipif(PROMTOOL is None, reason="NO PROMTOOL HERE (Debian: apt-get install prometheus): no alarm is tried")
@pytest.mark.parametrize("words", ["check config prometheus.yml", "test rules alarms-test.yml"])
def test_prometheus_itself_accepts_them_and_each_fires_for_its_fault(words: str, tmp_path: Path) -> None:
    shutil.copytree(MONITORING, tmp_path, dirs_exist_ok=True)
    (tmp_path / "limbeck-metrics-password").write_text("secret")
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words.split()], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
