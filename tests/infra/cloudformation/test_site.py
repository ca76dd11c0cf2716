"""``limbeck site``: the site file of the stacks that stand, and a sentence where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.deploy.pools import read_site
from flows.deploy.site_file import from_stacks, write_site
from tasks.errors import RecipeError, ServerError
from tests.infra.cloudformation.moto_cloud import Cloud, moto_cloud
from tests.infra.cloudformation.test_stacks import outputs, up

MANIFEST = '{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"}'


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with moto_cloud() as running:
        up(running, "dev", ("network", "storage", "workers", "control"))
        yield running


@pytest.fixture
def here(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    return cloud


@pytest.fixture(scope="module")
def digest(cloud: Cloud) -> str:
    """The digest of an image in the repository."""
    pushed = cloud.client("ecr").put_image(
        repositoryName="limbeck-dev/worker", imageManifest=MANIFEST, imageTag="gpu-1"
    )
    return str(pushed["image"]["imageId"]["imageDigest"])


def test_the_site_file_is_filled_from_the_stacks(here: Cloud, digest: str, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    old = f"old@sha256:{'0' * 64}"
    site.write_text(f"k8s-gpu: {{gpu_count: 2}}\necs-gpu: {{gpu_count: '4', image: '{old}'}}\n")
    done = CliRunner().invoke(app, ["site", str(site), "--image", "gpu-1"])
    assert done.exit_code == 0, done.output
    found, storage, workers = (
        read_site(site),
        outputs(here, "limbeck-dev-storage"),
        outputs(here, "limbeck-dev-workers"),
    )
    assert found["k8s-gpu"] == {"gpu_count": 2} and found["ecs-gpu"]["gpu_count"] == "4"
    pool = found["ecs-gpu"]
    assert pool["device"] == "cuda-a10g", "with it, runs send their stages there"
    assert pool["image"] == f"{storage['RepositoryUri']}@{digest}"
    assert pool["family"] == "limbeck-dev-gpu", "the dispatcher may register definitions of its own project alone"
    assert pool["cluster"] == workers["Cluster"] and pool["task_role_arn"] == workers["TaskRole"]
    assert pool["env"]["LIMBECK_STORE"] == storage["Store"] and pool["env"]["LIMBECK_SPOT"] == "aws"
    assert pool["env"]["MLFLOW_TRACKING_URI"] == "https://mlflow.example.com"
    assert {each["valueFrom"] for each in pool["secrets"]} == {
        f"{storage['MlflowWorker']}:username::",
        f"{storage['MlflowWorker']}:password::",
    }
    assert pool["labels"] == {"Project": "limbeck", "Stage": "dev"}, "tags of its tasks, by which costs are added up"
    assert pool["configure_cloudwatch_logs"] and pool["cloudwatch_logs_options"]["awslogs-group"] == workers["LogGroup"]
    assert not (tmp_path / "site.yaml.unfinished").exists()


@pytest.mark.parametrize(
    ("stage", "image", "said"),
    [
        ("prod", "gpu-1", "the outputs of the stack limbeck-prod-storage .*check the region, the credentials"),
        ("dev", "gpu-2", "the digest of the image limbeck-dev/worker:gpu-2"),
    ],
)
def test_what_is_not_there_is_said(here: Cloud, digest: str, stage: str, image: str, said: str) -> None:
    with pytest.raises(ServerError, match=said):
        from_stacks("limbeck", stage, image)


def test_a_file_that_is_no_site_file_stays(here: Cloud, digest: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("notes")
    done = CliRunner().invoke(app, ["site", str(tmp_path / "site.yaml"), "--image", "gpu-1"])
    assert done.exit_code == 1 and (tmp_path / "site.yaml").read_text() == "notes"


def test_settings_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ServerError, match="set AWS_DEFAULT_REGION, or run aws configure"):
        from_stacks("limbeck", "dev", "gpu-1")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be written"):
        write_site(tmp_path / "nowhere" / "site.yaml", {"image": "x"})
