"""Pulling: the folder is the judged one to the last byte, and whatever someone planted in the registry is refused in
one sentence."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.architectures.known_architectures import JUDGED_LENGTH, JUDGED_PAIRS
from tasks.contracts import Artifact
from tasks.errors import RegistryError
from tasks.ports.files.model_settings import settings_in
from tasks.ports.store.artifacts import digest_of, take_inventory
from tasks.ports.tracking.verified_download import files_of, folder_digest, require_judged
from tests.ports.tracking.test_tracker import NAME, checkpoint, damaged, moved, new_tracker, registered, stored

__all__ = ["checkpoint", "registered"]  # fixtures

ONES = "1" * 64
POSITIONS = 64
"""Of the tiny BERT: fewer than the 128 tokens of the evaluation, so they are the longest input."""


def test_a_pulled_folder_is_the_judged_checkpoint_with_its_length_and_its_card(
    registered: Path, checkpoint: Path, tmp_path: Path
) -> None:
    new_tracker(registered).download(NAME, "champion", tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} - {path.name for path in checkpoint.iterdir()} == {
        "README.md"
    }
    whole = digest_of(take_inventory(tmp_path / "model", "any"))
    assert new_tracker(registered).versions(NAME)[0]["model.folder.sha256"] == whole
    stated: dict[str, dict[str, object]] = {  # inputs of the evaluation
        "config.json": {JUDGED_LENGTH: POSITIONS, JUDGED_PAIRS: False},
        "tokenizer_config.json": {"model_max_length": POSITIONS},
    }
    for path in checkpoint.iterdir():
        pulled = tmp_path / "model" / path.name
        if path.name in stated:
            assert json.loads(pulled.read_text()) == json.loads(path.read_text()) | stated[path.name]
        else:
            assert pulled.read_bytes() == path.read_bytes()


def test_what_travels_beside_the_weights_is_pulled_and_counted(registered: Path, tmp_path: Path) -> None:
    package = stored(moved(registered, tmp_path))
    before = folder_digest(files_of(package))
    for place in ("model/onnx/model_int8.onnx", "evaluation/predictions.parquet"):
        (package / place).parent.mkdir(exist_ok=True)
        (package / place).write_bytes(b"x")
    files = files_of(package)
    assert {"onnx/model_int8.onnx", "evaluation/predictions.parquet", "config.json"} <= files.keys() and folder_digest(
        files
    ) != before


def edit(name: str, **values: object) -> Callable[[Path], None]:
    """Return what changes settings of a stored JSON file."""

    def change(package: Path) -> None:
        path = package / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def link(name: str, target: str) -> Callable[[Path], None]:
    """Return what plants a link."""
    return lambda package: (package / name).symlink_to(target)


def plant(name: str, body: bytes = b"x") -> Callable[[Path], None]:
    """Return what plants a file."""
    return lambda package: (package / name).write_bytes(body)


CONFIG, TOKENIZER = "model/config.json", "components/tokenizer/tokenizer_config.json"
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a class of its own": (
        edit(CONFIG, auto_map={"AutoModel": "modeling.Evil"}),
        "refers to its own code or weights .auto_map in config.json.",
    ),
    "a nested class": (edit(CONFIG, text_config={"auto_map": {"AutoConfig": "x.Y"}}), "auto_map in config.json"),
    "a tokenizer class": (
        edit(TOKENIZER, auto_map={"AutoTokenizer": ["x.Y", None]}),
        "auto_map in tokenizer_config.json",
    ),
    "a pipeline": (edit(CONFIG, custom_pipelines={"evil": {"impl": "x.Y"}}), "custom_pipelines in config.json"),
    "other weights": (edit(CONFIG, transformers_weights="other.safetensors"), "transformers_weights in config.json"),
    "a kernel of a hub": (edit(CONFIG, attn_implementation="evil/kernel"), "attn_implementation in config.json"),
    "a kernel under an inner name": (
        edit(CONFIG, _attn_implementation_internal={"": "evil/kernel"}),
        "_attn_implementation_internal in config.json",
    ),
    "a config nested five thousand deep": (plant(CONFIG, b"[" * 5000), "config.json of the stored model is not JSON"),
    "code": (plant("model/modeling.py"), "modeling.py, which may contain code"),
    "code in a corner": (plant("metadata.pkl"), "metadata.pkl, which may contain code"),
    "a program": (plant("model/helper.so"), "helper.so, which is not a file"),
    "an archive": (plant("model/weights.zip"), "weights.zip, which is not a file"),
    "a link to a file": (link("model/notes.txt", "/etc/hostname"), "notes.txt, which may contain code"),
    "a link to a folder": (link("model/etc", "/etc"), "etc, which may contain code"),
    "a link in a circle": (link("model/again", "."), "again, which may contain code"),
    "a link to nothing": (link("components/more", "nowhere"), "more, which may contain code"),
    "a second config": (plant("components/tokenizer/config.json", b"{}"), "two files for config.json"),
    "another label order": (
        edit(CONFIG, id2label={"0": "good", "1": "bad"}),
        "config, tokenizer, card or another file was changed",
    ),
    "another tokenizer": (
        edit(TOKENIZER, do_lower_case=False, unk_token="the"),
        "config, tokenizer, card or another file was changed",
    ),
    "a file more": (plant("model/notes.txt"), "another file was changed"),
    "a card of its own": (plant("README.md", b"# Trust me\n"), "another file was changed"),
    "a config that is none": (plant(CONFIG, b"no json"), "config.json of the stored model is not JSON"),
    "no config": (lambda package: (package / CONFIG).unlink(), "is incomplete"),
    "no tokenizer": (lambda package: shutil.rmtree(package / "components"), "is incomplete"),
    "a pickle in place of the weights": (
        plant("model/model.safetensors", b"\x80\x04."),
        "weights of sst2-tiny version 1 are not the evaluated",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_someone_planted_is_refused_and_leaves_nothing(registered: Path, tmp_path: Path, what: str) -> None:
    tracker, package = damaged(registered, tmp_path)
    spoil, said = HOSTILE[what]
    spoil(package)
    with pytest.raises(RegistryError, match=said) as caught:
        tracker.download(NAME, "champion", tmp_path / "model")
    assert "nothing was written" in str(caught.value) and "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("bucket", ["s3://another-bucket/models", "file:///etc", "/etc", "https://example.com/models"])
def test_a_whole_experiment_elsewhere_is_not_fetched(registered: Path, tmp_path: Path, bucket: str) -> None:
    home = moved(registered, tmp_path)
    with sqlite3.connect(home / "mlflow.db") as database:
        database.execute("update experiments set artifact_location = ? where name like '%/%'", (bucket,))
        database.execute("update logged_models set artifact_location = ? || '/models/m/artifacts'", (bucket,))
    with pytest.raises(RegistryError, match="where this MLflow stores no models; nothing was fetched"):
        new_tracker(home).download(NAME, "champion", tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_version_of_an_older_release_has_a_digest_of_its_weights_alone(checkpoint: Path) -> None:
    files = {path.name: path for path in checkpoint.iterdir()}
    weights = take_inventory(checkpoint, "any")["model.safetensors"]["sha256"]
    require_judged(files, {"model.sha256": weights}, "it")
    with pytest.raises(RegistryError, match="the files of it are not"):
        require_judged(files, {"model.sha256": weights, "model.folder.sha256": ONES}, "it")
    with pytest.raises(RegistryError, match="the weights of it are not"):
        require_judged(files, {"model.sha256": ONES}, "it")
    assert Artifact("checkpoint", digest_of(take_inventory(checkpoint, "any")), "", 1).sha256 == folder_digest(files)


def test_words_of_a_vocabulary_are_no_settings() -> None:
    assert list(settings_in({"a": [{"b": 1}, 2], "c": {"d": None}})) == [
        ("a", [{"b": 1}, 2]),
        ("b", 1),
        ("c", {"d": None}),
        ("d", None),
    ]


@pytest.mark.parametrize(
    ("name", "taken"),
    [("spm.model", True), ("sentencepiece.bpe.model", True), ("weights.model", False), ("spm.bin", False)],
)
def test_a_vocabulary_of_sentencepiece_may_be_pulled_and_no_other_file_of_that_ending(
    tmp_path: Path, name: str, taken: bool
) -> None:
    for place in ("model/config.json", "model/model.safetensors", f"components/tokenizer/{name}"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("{}")
    if taken:
        assert set(files_of(tmp_path)) == {"config.json", "model.safetensors", name}
    else:
        with pytest.raises(RegistryError, match="nothing was written"):
            files_of(tmp_path)
