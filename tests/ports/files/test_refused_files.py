"""Files from outside, and disks that end: a teacher's settings and sizes, a store's name, a full disk; each is one
sentence, soon."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows.publish.results_folder import read_json
from tasks.catalog import GLUE
from tasks.errors import DataError, ModelError, RecipeError, StoreError
from tasks.ports.files.bounded_json import LARGEST
from tasks.ports.files.sources import resolve_data, resolve_file, resolve_model
from tasks.ports.store import artifacts
from tasks.ports.store.artifacts import disk_trouble
from tasks.ports.store.folder import FolderStore

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
KERNELS: list[tuple[str, dict[str, Any], str]] = [
    (CONFIG, {"_attn_implementation": "evil/kernel"}, "_attn_implementation in config.json"),
    (CONFIG, {"attn_implementation": "kernels-community/flash-attn2"}, "attn_implementation in config.json"),
    (
        CONFIG,
        {"_attn_implementation_internal": "evil/kernel@main:attention"},
        "_attn_implementation_internal in config.json",
    ),
    (CONFIG, {"experts_implementation": {"": "evil/kernel"}}, "experts_implementation in config.json"),
    (
        CONFIG,
        {"text_config": {"inner": [{"attn_implementation": {"text": "evil/kernel"}}]}},
        "attn_implementation in config.json",
    ),
    (CONFIG, {"text_config": {"auto_map": {"AutoConfig": "x.Y"}}}, "auto_map in config.json"),
    (CONFIG, {"custom_pipelines": {"evil": {"impl": "x.Y"}}}, "custom_pipelines in config.json"),
    (CONFIG, {"use_kernels": True}, "use_kernels in config.json"),
    (CONFIG, {"inner": {"transformers_weights": "../other.safetensors"}}, "transformers_weights in config.json"),
    (TOKENIZER, {"auto_map": {"AutoTokenizer": ["x.Y", None]}}, "auto_map in tokenizer_config.json"),
    ("generation_config.json", {"custom_generate": "evil/generate"}, "custom_generate in generation_config.json"),
]
SIZES: list[dict[str, Any]] = [
    {"num_hidden_layers": 10**12},
    {"num_hidden_layers": "12"},
    {"num_hidden_layers": True},
    {"hidden_size": 10**9},
    {"hidden_size": 16.0},
    {"intermediate_size": -1},
    {"num_attention_heads": [4]},
    {"vocab_size": 10**12},
    {"max_position_embeddings": 10**15},
    {"type_vocab_size": "2"},
    {"num_hidden_layers": 1000, "hidden_size": 100_000},
    {"num_hidden_layers": 10**4000},
]


@pytest.fixture
def model(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def edit(model: Path, name: str, values: dict[str, Any]) -> None:
    known = json.loads((model / name).read_text()) if (model / name).exists() else {}
    (model / name).write_text(json.dumps(known | values))


def refused(model: Path, said: str) -> str:
    began = time.monotonic()
    with pytest.raises(ModelError, match=said) as caught:
        resolve_model(str(model), None)
    assert time.monotonic() - began < 20 and "\n" not in str(caught.value) and len(str(caught.value)) < 1000
    return str(caught.value)


@pytest.mark.parametrize(("file", "values", "said"), KERNELS, ids=range(len(KERNELS)))
def test_a_teacher_that_asks_for_a_kernel_or_code_is_refused_as_pull_refuses_it(
    model: Path, file: str, values: dict[str, Any], said: str
) -> None:
    resolve_model(str(model), None)
    edit(model, file, values)
    refused(model, f"{said}.*never run|other weights")


def test_what_only_looks_like_a_kernel_is_no_reason_to_refuse_a_teacher(model: Path) -> None:
    edit(
        model,
        CONFIG,
        {
            "_attn_implementation": "sdpa",
            "conv_kernel_size": 3,
            "use_kernels": False,
            "label2id": {"auto_map": 0},
            "_name_or_path": "a/b",
        },
    )
    resolve_model(str(model), None)


@pytest.mark.parametrize("values", SIZES, ids=range(len(SIZES)))
def test_sizes_that_no_model_has_are_refused_before_anything_is_built(model: Path, values: dict[str, Any]) -> None:
    text = json.dumps(
        json.loads((model / CONFIG).read_text())
        | {name: size for name, size in values.items() if type(size) is not int or size < 10**3999}
    )
    huge = next((name for name, size in values.items() if type(size) is int and size >= 10**3999), None)
    text = text if huge is None else text.replace(f'"{huge}": 4', f'"{huge}": 1{"0" * 4000}')
    (model / CONFIG).write_text(text)
    refused(model, "is legal|parameters")


@pytest.mark.parametrize("file", [CONFIG, TOKENIZER, "tokenizer.json"])
@pytest.mark.parametrize(
    "body",
    [b"[" * 1_000_000, b'{"a":' * 5000, b"[]", b"\xff\xfe", b'{"vocab_size": ' + b"9" * 5000 + b"}"],
    ids=range(5),
)
def test_json_that_would_end_a_process_is_a_sentence(model: Path, file: str, body: bytes) -> None:
    (model / file).write_bytes(body)
    refused(model, f"{file}.*(save the model again|save the tokenizer again)")


@pytest.mark.parametrize("file", [CONFIG, "tokenizer.json"])
def test_a_file_of_many_gigabytes_is_not_read(model: Path, file: str) -> None:
    with (model / file).open("r+b") as stream:
        stream.truncate(100 * LARGEST)  # a hole: it takes no room
    refused(model, "at most .* are read")


def test_a_results_file_of_brackets_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("[" * 1_000_000)
    with pytest.raises(RecipeError, match="its lists are nested too deeply"):
        read_json(tmp_path / "out.json")


# --- the store --------------------------------------------------------------------------------------------------------


def empty(place: Path) -> None:
    place.write_text("")


def linked(place: Path) -> None:
    shutil.move(place, place.with_name("elsewhere"))
    place.symlink_to(place.with_name("elsewhere"))


def dangling(place: Path) -> None:
    place.unlink()
    place.symlink_to(place.with_name("nowhere"))


def a_folder(place: Path) -> None:
    place.unlink()
    place.mkdir()


def strange(place: Path) -> None:
    place.write_text("../../x")


@pytest.mark.parametrize("spoil", [empty, linked, dangling, a_folder, strange])
def test_a_store_without_a_name_of_its_own_is_refused(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """Two stores with an empty name would be one store to the lock of promotions, and not keep each other out."""
    store = FolderStore(tmp_path / "store")
    assert store.identity() == store.identity()
    spoil(tmp_path / "store" / artifacts.IDENTITY)
    with pytest.raises(StoreError, match="contains no store name|is a link or is not a file"):
        store.identity()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let this process write no larger files: the operating system then says of each what it says of a disk that is
    full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_inside_publish_is_said_to_be_full(tmp_path: Path) -> None:
    """A folder is copied as a whole, and the error that comes of it has no number: it was told as a file that cannot be
    read."""
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "weights").write_bytes(os.urandom(50_000))
    with files_of_at_most(10_000), pytest.raises(OSError) as caught:
        shutil.copytree(tmp_path / "source", tmp_path / "target", dirs_exist_ok=True)
    assert disk_trouble(caught.value, tmp_path).startswith(f"the disk under {tmp_path} is full; nothing was published")


@contextmanager
def as_another_user(uid: int = 65534) -> Iterator[None]:
    """Let this process be a user without rights for a while, if it is root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(uid)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("closed", ["folder above", "folder", "file"])
def test_what_the_user_of_a_worker_cannot_read_is_one_sentence(closed: str) -> None:
    """Workers are users of their own, and what a person can read may be closed to them."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    table = place / "rows" / "train.csv"
    try:
        table.parent.mkdir()
        table.write_text("text,label\na,0\n")
        place.chmod(0o755)
        shut = {"folder above": place, "folder": table.parent, "file": table}[closed]
        shut.chmod(0)
        with as_another_user():
            with pytest.raises(DataError, match=r"cannot (open|be read)") as found:
                resolve_data(str(table.parent), None, GLUE["sst2"])
            with pytest.raises(DataError, match=r"cannot (open|be read)"):
                resolve_file(str(table))
        assert "\n" not in str(found.value) and str(table.parent) in str(found.value)
    finally:
        for one in (place, table.parent, table):
            one.chmod(0o755)
        shutil.rmtree(place)
