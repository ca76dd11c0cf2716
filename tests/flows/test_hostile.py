"""What someone plants who can write where we read: no code of theirs runs, and each thing is refused with one sentence.

The bait is real: loaded the way a careless program would load it, it writes a canary file, and each test shows that
first where it can.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import pickle
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import planned_records, run_recipe
from flows.home import Home
from flows.run.recipe_file import load_recipe
from tasks.errors import LimbeckError, StoreError
from tasks.ports.store.artifacts import digest_of
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.s3 import S3Store, object_name
from tasks.ports.tracking.tracker import Tracker
from tests.command_line import Command, Done
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import executed, recipe_for
from tests.s3_server import BUCKET, S3Server

ROOT = Path(__file__).resolve().parents[2]


class Bait:
    """Something that writes the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.write_text, (self.canary, "code ran")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def pickled(canary: Path) -> bytes:
    """A pickle that writes the canary, seen to do it."""
    body = pickle.dumps(Bait(canary))
    pickle.loads(body)
    assert canary.exists()
    canary.unlink()
    return body


@pytest.fixture
def home(tmp_path: Path, engines_here: None, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)  # MLflow writes it when it is used
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home").create()


def is_one_sentence(done: Done, said: str) -> bool:
    """Tell whether a command ended with one line that says why."""
    return (
        done.status == 1
        and said in done.error
        and len(done.error.strip().splitlines()) == 1
        and "Traceback" not in done.error
    )


# --- models and files that a recipe names -----------------------------------------------------------------------------


def test_pickles_beside_the_weights_are_never_opened(
    prefect_server: None, home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path, pickled: bytes, canary: Path
) -> None:
    bait = tmp_path / "bait"
    shutil.copytree(tiny_bert, bait)
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "tokenizer.pkl", "rng_state.pth"):
        (bait / name).write_bytes(pickled)
    teacher = dict(recipe_for(tiny_bert, tiny_rows).teacher) | {"model": str(bait)}
    run_recipe(recipe_for(tiny_bert, tiny_rows, **SHORT | {"teacher": teacher}), home=home)
    assert not canary.exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_model_that_brings_code_is_refused(
    home: Home, command: Command, tmp_path: Path, tiny_bert: Path, tiny_rows: Path, canary: Path, file: str
) -> None:
    bait = tmp_path / "bait"
    shutil.copytree(tiny_bert, bait)
    (bait / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(canary)!r}).write_text('code ran')\nclass Evil: pass\n"
    )
    classes = {
        "AutoConfig": "evil.Evil",
        "AutoModelForSequenceClassification": "evil.Evil",
        "AutoTokenizer": ["evil.Evil", "evil.Evil"],
    }
    config = json.loads((bait / file).read_text())
    (bait / file).write_text(
        json.dumps(config | {"auto_map": classes, "model_type": "evil", "tokenizer_class": "Evil"})
    )
    changes = ("--set", f"data.source={tiny_rows.parent}", "--set", f"teacher.model={bait}")
    done = command("plan", "sst2-tinybert", *changes)
    assert is_one_sentence(done, "refers to its own code"), done.error
    (tmp_path / "texts.txt").write_text("the film was good\n")
    assert is_one_sentence(command("predict", str(bait), str(tmp_path / "texts.txt")), "refers to its own code")
    assert not canary.exists()


def test_a_pickle_of_word_vectors_is_text_that_does_not_fit(
    prefect_server: None, home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path, pickled: bytes, canary: Path
) -> None:
    (tmp_path / "vectors.pkl").write_bytes(pickled)
    augmentation = {"word_vectors": str(tmp_path / "vectors.pkl"), "max_length": 16}
    students = [{"name": "half", "layers": 2, "stages": ["augmentation"]}]
    with pytest.raises(LimbeckError, match="contains no word vectors"):
        run_recipe(
            recipe_for(tiny_bert, tiny_rows, **SHORT | {"augmentation": augmentation, "students": students}), home=home
        )
    assert not canary.exists()


@pytest.mark.parametrize(
    "setting",
    [
        "name=../../climb",
        "students.3x384.name=../climb",
        "task={name: ../climb}",
        "gate.register_as=../climb",
        "gate.register_as=models:/other",
    ],
)
def test_names_that_climb_are_refused(home: Home, tiny_bert: Path, tiny_rows: Path, setting: str) -> None:
    sets = [setting, f"data.source={tiny_rows}", f"teacher.model={tiny_bert}"]
    with pytest.raises(LimbeckError) as caught:
        load_recipe("sst2-tinybert", sets)
    assert "climb" in str(caught.value) or "other" in str(caught.value)


# --- the store --------------------------------------------------------------------------------------------------------


def forged(manifest: dict[str, Any], name: str, body: bytes) -> dict[str, Any]:
    """Return a manifest that names one more file, with every digest in order."""
    inventory = manifest["inventory"] | {name: {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}}
    return manifest | {"inventory": inventory, "sha256": digest_of(inventory), "bytes": manifest["bytes"] + len(body)}


def test_a_forged_result_is_not_read_but_made_again(
    prefect_server: None,
    home: Home,
    tiny_bert: Path,
    tiny_rows: Path,
    pickled: bytes,
    canary: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recipe = recipe_for(tiny_bert, tiny_rows, **SHORT)
    run_recipe(recipe, home=home)
    store = FolderStore(Path(home.store))
    victims = [
        manifest
        for manifest in store.manifests()
        if manifest["stage"] in ("finetune-teacher", "answer-rows", "distill-predictions")
    ]
    for victim, name in zip(victims, ["pytorch_model.bin", "modeling_evil.py", "../../../climbed.txt"], strict=True):
        fake = forged(victim, name, pickled)
        shutil.copytree(store.object_path(victim["sha256"]), store.object_path(fake["sha256"]))
        (store.object_path(fake["sha256"]) / name).resolve().write_bytes(pickled)
        store.manifest_path(victim["key"]).write_text(json.dumps(fake))

    logging.getLogger("limbeck.store").addHandler(caplog.handler)  # Prefect's set-up keeps records from the root
    again = run_recipe(recipe, home=home)
    assert executed(again) == {victim["stage"] for victim in victims}
    assert all(
        f"names '{name}'" in caplog.text for name in ("pytorch_model.bin", "modeling_evil.py", "../../../climbed.txt")
    )
    assert (
        all(store.manifest(victim["key"])["sha256"] == victim["sha256"] for victim in victims) and not canary.exists()
    )


def test_objects_that_climb_out_of_the_cache_are_not_fetched(s3: S3Server, tmp_path: Path) -> None:
    store = S3Store(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "cache", patience=10)
    inventory = {"a.txt": {"size": 1, "sha256": hashlib.sha256(b"a").hexdigest()}}
    digest = digest_of(inventory)
    store.bucket.write(object_name(digest, "a.txt"), b"a")
    store.bucket.write(object_name(digest, "../../../../climbed.txt"), b"out")
    with pytest.raises(StoreError, match="names a file outside its folder"):
        store.fetch(digest, tmp_path / "cache" / "inner" / "folder")
    assert not list(tmp_path.rglob("climbed.txt"))


@pytest.mark.parametrize(
    "store",
    ["ftp://host/x", "gs://bucket/x", "file:///etc", "s3://", "s3://bucket/../other", "s3://user:secret@bucket"],
)
def test_stores_of_other_kinds_are_refused(
    home: Home, command: Command, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("LIMBECK_STORE", store)
    done = command("verify")
    assert is_one_sentence(done, "is not a store"), done.error
    assert "secret" not in done.error


# --- Prefect ----------------------------------------------------------------------------------------------------------


def test_a_planted_result_record_is_never_opened(
    prefect_server: None, home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path, canary: Path
) -> None:
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings

    recipe, storage = recipe_for(tiny_bert, tiny_rows, **SHORT), tmp_path / "storage"
    keys = [record.key for record in planned_records(recipe, home)]
    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: storage}):
        plant(storage, ["careless", *keys], canary)
        assert careless_flow() and canary.exists(), "the record does run code where a task trusts Prefect's results"
        canary.unlink()
        plant(storage, ["careless", *keys], canary)
        run_recipe(recipe, home=home)
    assert not canary.exists()


def plant(storage: Path, keys: list[str], canary: Path) -> None:
    """Write a result record that runs code when it is read, under each key."""
    from prefect.results import ResultRecord, ResultRecordMetadata
    from prefect.serializers import PickleSerializer

    storage.mkdir(exist_ok=True)
    for key in keys:
        metadata = ResultRecordMetadata(storage_key=str(storage / key), serializer=PickleSerializer(picklelib="pickle"))
        (storage / key).write_bytes(ResultRecord(result=Bait(canary), metadata=metadata).serialize())


def careless_flow() -> bool:
    """Run a flow whose task trusts Prefect's own result records; tell whether it took the planted one."""
    from prefect import flow, task
    from prefect.cache_policies import CacheKeyFnPolicy

    @task(cache_policy=CacheKeyFnPolicy(cache_key_fn=lambda context, given: "careless"))
    async def trusting() -> int:
        return 1

    @flow
    async def outer() -> bool:
        state = await trusting(return_state=True)
        return state.name == "Cached"

    return bool(asyncio.run(outer()))


# --- the registry -----------------------------------------------------------------------------------------------------


def test_a_version_that_points_elsewhere_is_not_fetched(
    prefect_server: None, home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    result = run_recipe(recipe_for(tiny_bert, tiny_rows, **SHORT), home=home)
    database = home.root / "mlflow.db"
    ((own,),) = changed(database, "select artifact_location from experiments where name like '%/%'")
    for place in (
        "file:///etc",
        "s3://another-bucket/model",
        "https://example.com/model",
        f"{own}/../../../etc",
        f"{own}/%2e%2e/%2e%2e/etc",
    ):
        changed(database, f"update logged_models set artifact_location = '{place}'")
        for column in ("source", f"'{place}'"):
            changed(database, f"update model_versions set source = {column}")
            with pytest.raises(LimbeckError, match="outside the files of its experiment; nothing was fetched"):
                Tracker(home.own_tracking_uri, home.artifacts).download(
                    result["registered"][0]["name"], "champion", tmp_path / "model"
                )
        changed(
            database, "update model_versions set source = 'models:/' || (select model_id from logged_models limit 1)"
        )
    assert not (tmp_path / "model").exists()


def changed(database: Path, statement: str) -> list[Any]:
    """Do what someone with access to MLflow's database can do."""
    with sqlite3.connect(database) as connection:
        return connection.execute(statement).fetchall()
