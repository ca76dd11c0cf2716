"""The cloud's templates as cfn-lint and checkov see them, and how they fit together: parameters and imports."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.servers.worker_tokens import WORKERS_AUTH
from tests.infra.cloudformation.templates import FOLDER, ORDER, Templates, load_templates, parameters_of

ROOT = FOLDER.parents[1]


@pytest.fixture(scope="module")
def templates() -> Templates:
    return load_templates()


def test_the_guard_is_told_the_token_that_workers_send(templates: Templates) -> None:
    """By the variable that it reads: by another name, every request of a worker would be refused."""

    def secrets(task: str) -> dict[str, object]:
        (container,) = templates["control"]["Resources"][task]["Properties"]["ContainerDefinitions"]
        return {entry["Name"]: entry["ValueFrom"] for entry in container["Secrets"]}

    given = secrets("PrefectTask")[WORKERS_AUTH]
    for task in ("CpuWorkerTask", "DispatcherTask"):
        assert secrets(task)["PREFECT_API_AUTH_STRING"] == given, task


def test_alarms_watch_services_that_there_are(templates: Templates) -> None:
    resources = {name: one for template in templates.values() for name, one in template["Resources"].items()}
    services = {one["Properties"]["ServiceName"] for one in resources.values() if one["Type"] == "AWS::ECS::Service"}
    watched = {
        entry["Value"]
        for one in resources.values()
        if one["Type"] == "AWS::CloudWatch::Alarm"
        for entry in one["Properties"].get("Dimensions", ())
        if entry["Name"] == "ServiceName"
    }
    assert watched == {"cpu-worker", "dispatcher"} and watched < services


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_parameters_are_known_and_legal(stage: str, templates: Templates) -> None:
    """What somebody must choose is left out of the file; what is in it fits."""
    given, declared = (
        parameters_of(stage),
        {name: rule for template in templates.values() for name, rule in template["Parameters"].items()},
    )
    for name, value in given.items():
        rule = declared[name]
        assert value in rule.get("AllowedValues", [value]), name
        assert re.match(rule.get("AllowedPattern", ""), value), name
        assert (
            rule.get("MinValue", 0) <= (float(value) if rule["Type"] == "Number" else 0) <= rule.get("MaxValue", 1e9)
            or rule["Type"] != "Number"
        ), name
    chosen = {name for name, rule in declared.items() if "Default" not in rule} - set(given)
    assert chosen == {"ImageDigest", "DispatcherDigest", "CertificateArn", "PrefectHost", "MlflowHost", "Email"}


def test_what_is_imported_is_exported_before(templates: Templates) -> None:
    exported: set[str] = set()
    for name in ORDER:
        text = (FOLDER / f"{name}.yaml").read_text()
        imported = set(re.findall(r'"Fn::ImportValue": !Sub "\$\{Project\}-\$\{Stage\}-(\w+)"', text))
        assert text.count("ImportValue") == len(
            re.findall(r'"Fn::ImportValue": !Sub "\$\{Project\}-\$\{Stage\}-\w+"', text)
        )
        assert imported <= exported, f"{name} imports {imported - exported}"
        exported |= {
            output["Export"]["Name"]["Fn::Sub"].rsplit("-", 1)[-1]
            for output in templates[name]["Outputs"].values()
            if "Export" in output
        }


def test_cfn_lint_finds_nothing() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "cfn-lint"), *(str(FOLDER / f"{name}.yaml") for name in ORDER)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_checkov_finds_nothing_and_skips_with_reasons(tmp_path: Path) -> None:
    """checkov wants old versions of libraries that we have, so it has an environment of its own: ``make checkov`` sets
    it up."""
    command = [checkov(), "-d", str(FOLDER), "--framework", "cloudformation", "--skip-download", "-o", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["summary"]["failed"] == 0 and found["summary"]["parsing_errors"] == 0, [
        (check["check_id"], check["resource"]) for check in found["results"]["failed_checks"]
    ]
    assert found["summary"]["passed"] > 100 and found["summary"]["resource_count"] >= 80
    written = sum(text.count("id: CKV_") for text in ((FOLDER / f"{name}.yaml").read_text() for name in ORDER))
    skipped = found["results"]["skipped_checks"]
    assert len(skipped) == written, "a skip that skips nothing hides what comes after it"
    assert all(len(check["check_result"]["suppress_comment"]) > 30 for check in skipped)


def checkov() -> str:
    """Return where checkov is; a machine without it skips, and says so."""
    found = (
        os.environ.get("LIMBECK_CHECKOV")
        or shutil.which("checkov")
        or shutil.which("checkov", path=str(ROOT / ".venv-checkov" / "bin"))
    )
    if not found:
        pytest.skip(
            "NO CHECKOV HERE: run `make checkov`, or name one by LIMBECK_CHECKOV; the templates were checked by "
            "cfn-lint and by our own checks alone"
        )
    return found
