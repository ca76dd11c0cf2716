"""A registered model goes to the Hugging Face Hub as one commit, private, and only when a person says so; the Hub here
is a stand-in on this machine that is asked over real HTTP."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants

from flows.publish.hub_upload import push_version
from tasks.errors import RegistryError
from tests.command_line import Command
from tests.hub_server import TOKEN, Hub, Repository, hub_server
from tests.ports.tracking.test_tracker import NAME, checkpoint, new_tracker, registered

__all__ = ["checkpoint", "registered"]  # fixtures


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the stand-in has the Hub's older way of uploads
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


def pushed(home: Path, repo: str = "ann/small", **changes: Any) -> list[str]:
    """Push the champion; return the printed lines."""
    said: list[str] = []
    given = {"really": True, "public": False, "licence": "", "force": False} | changes
    push_version(new_tracker(home), NAME, "champion", repo, say=said.append, **given)
    return said


def test_the_command_line_shows_first_and_uploads_when_asked_to(
    registered: Path, checkpoint: Path, hub: Hub, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(registered))
    dry = command("push", NAME, "ann/small")
    assert dry.status == 0 and "nothing was uploaded. Add --upload" in dry.output, dry.error
    assert "model.safetensors" in dry.output and f"{hub.url}/ann/small, private" in dry.output
    assert not hub.repositories and not hub.tokens, "a dry run asks the Hub nothing"
    done = command("push", NAME, "ann/small", "--upload")
    assert done.status == 0 and f"{hub.url}/ann/small/commit/" in done.output, done.error
    found = hub.repositories["ann/small"]
    assert found.private and found.commits == [f"{NAME} version 1: 4x312: 98.1% of the teacher"]
    digest = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert hashlib.sha256(found.files["model.safetensors"]).hexdigest() == digest
    assert {"config.json", "tokenizer.json", "README.md"} <= set(found.files)
    assert TOKEN not in dry.output + dry.error + done.output + done.error


def test_the_card_on_the_hub_has_the_stated_licence_and_the_judged_folder_stays(registered: Path, hub: Hub) -> None:
    lines = pushed(registered, public=True, licence="Apache-2.0")
    found = hub.repositories["ann/small"]
    assert not found.private and any("public, licence: apache-2.0" in line for line in lines)
    assert ModelCard(found.files["README.md"].decode()).data.license == "apache-2.0"
    assert "license" not in (next(registered.rglob("README.md"))).read_text()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"repo": "small"}, "give OWNER/NAME"),
        ({"repo": "ann/../small"}, "give OWNER/NAME"),
        ({"repo": "bob/small"}, "status 403"),
        ({"public": True}, "licence of .* is unknown"),
        ({"token": "hf_wrong"}, "token is not valid"),
        ({"token": ""}, "there is no token"),
        ({"there": Repository(private=False)}, "ann/small is public, .* add --public"),
        ({"broken": True}, "could not be written"),
    ],
    ids=["no owner", "path", "another's", "no licence", "wrong token", "no token", "already public", "broken"],
)
def test_a_mistake_uploads_nothing_and_is_one_sentence(
    registered: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    given = dict(changes)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    if "token" in given:
        monkeypatch.setenv("HF_TOKEN", given.pop("token"))
    if "there" in given:
        hub.repositories["ann/small"] = given.pop("there")
    hub.broken = given.pop("broken", False)
    with pytest.raises(RegistryError, match=sentence) as caught:
        pushed(registered, **given)
    assert "\n" not in str(caught.value) and TOKEN not in str(caught.value)
    assert not [name for name, one in hub.repositories.items() if one.files]


def test_a_refused_version_needs_force(registered: Path, hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(registered, home)
    tracker = new_tracker(home)
    tracker.client.set_model_version_tag(NAME, "1", "gate", "refused")
    with pytest.raises(RegistryError, match="the gate refused .* version 1 .* add --force"):
        pushed(home)
    assert not hub.repositories
