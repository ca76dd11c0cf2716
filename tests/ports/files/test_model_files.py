"""Models in folders: which files count, what a weight map may name, and tokenizers of SentencePiece."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.errors import ModelError
from tasks.ports.files.model_files import INDEX, model_files
from tasks.ports.files.sources import resolve_model
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.inputs import HeldInputs
from tasks.task_types.heads import HEADS
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import load_classifier, load_encoder
from tests.tiny import WORDS


@pytest.fixture
def copied(sharded_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded_bert, tmp_path / "model"))


class Planted:
    """Leaves a mark when it is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def map_all(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the weight map of a model."""
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(change(index)))


def test_a_sharded_teacher_works_and_gives_the_same_numbers(
    sharded_bert: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    source = resolve_model(str(sharded_bert), None)
    held = HeldInputs(FolderStore(tmp_path.resolve() / "store"), [source])
    place = torch.device("cpu")
    ours, plain = load_encoder(held.folder(source), place).state_dict(), load_encoder(tiny_bert, place).state_dict()
    trained = [name for name in plain if not name.startswith("pooler")]  # a masked LM is saved without
    assert len(trained) > 50 and all(torch.equal(ours[name], plain[name]) for name in trained)
    assert len(list(held.folder(source).glob("*.safetensors"))) == len(list(sharded_bert.glob("*.safetensors")))


def test_every_shard_and_the_map_are_in_the_key(copied: Path) -> None:
    before = resolve_model(str(copied), None).sha256
    digests = {before}
    for path in (*sorted(copied.glob("*.safetensors")), copied / INDEX):
        body = path.read_bytes()
        path.write_bytes(body[:-1] + b" " if path.suffix == ".json" else body[:-1] + bytes([body[-1] ^ 1]))
        if path.suffix == ".json":
            path.write_bytes(body + b" ")
        digests.add(resolve_model(str(copied), None).sha256)
        path.write_bytes(body)
    assert (
        len(digests) == 2 + len(list(copied.glob("*.safetensors")))
        and resolve_model(str(copied), None).sha256 == before
    )


def test_a_weight_map_that_names_a_pickle_is_refused_and_nothing_is_loaded(copied: Path, tmp_path: Path) -> None:
    torch.save(Planted(tmp_path / "canary"), copied / "pytorch_model.bin")
    map_all(copied, lambda index: index | {"weight_map": dict.fromkeys(index["weight_map"], "pytorch_model.bin")})
    with pytest.raises(
        ModelError, match=r"names 'pytorch_model.bin'; only .safetensors files of the same folder are loaded"
    ):
        resolve_model(str(copied), None)
    assert not (tmp_path / "canary").exists()


BAD_NAMES = [
    "../model.safetensors",
    "/etc/x.safetensors",
    "inner/model.safetensors",
    "a\\b.safetensors",
    "a\0.safetensors",
    "model.SAFETENSORS",
    "x.bin",
    "x.safetensors.bin",
    "",
    ".",
    "..",
    "pytorch_model.bin.index.json",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_weight_map_names_plain_safetensors_of_its_folder_alone(copied: Path, name: str) -> None:
    first = next(iter(json.loads((copied / INDEX).read_text())["weight_map"]))
    map_all(copied, lambda index: index | {"weight_map": index["weight_map"] | {first: name}})
    with pytest.raises(ModelError, match="only .safetensors files of the same folder are loaded"):
        resolve_model(str(copied), None)


SPOILT = {
    "no map": lambda index: {"metadata": {}},
    "a list": lambda index: [],
    "an empty map": lambda index: index | {"weight_map": {}},
    "no metadata": lambda index: {"weight_map": index["weight_map"]},
    "numbers": lambda index: index | {"weight_map": {"a": 1}},
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_weight_map_that_cannot_be_read_is_one_sentence(copied: Path, name: str) -> None:
    map_all(copied, SPOILT[name])
    with pytest.raises(ModelError, match="save the model again"):
        resolve_model(str(copied), None)


def test_a_shard_that_is_missing_or_leads_out_of_the_folder_is_refused(copied: Path, tmp_path: Path) -> None:
    shard = sorted(copied.glob("*.safetensors"))[1]
    shard.rename(tmp_path / "elsewhere.safetensors")
    with pytest.raises(ModelError, match="which does not exist"):
        resolve_model(str(copied), None)
    shard.symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(ModelError, match="is a link to another folder"):
        resolve_model(str(copied), None)


def test_what_transformers_would_not_read_is_not_in_the_key_and_not_handed_on(copied: Path) -> None:
    before = resolve_model(str(copied), None).sha256
    for name in (
        "pytorch_model.bin.index.json",
        "model.fp16.safetensors",
        "modeling_evil.py",
        "checkpoint-5/model.safetensors",
        "training_args.bin",
    ):
        (copied / name).parent.mkdir(exist_ok=True)
        (copied / name).write_text("{}")
    assert resolve_model(str(copied), None).sha256 == before and not any("evil" in name for name in model_files(copied))


@pytest.mark.parametrize(
    ("file", "values", "words"),
    [
        ("adapter_config.json", {"base_model_name_or_path": "another/model"}, "merge it"),
        ("config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}, "full precision"),
        ("tokenizer_config.json", {"vocab": "/elsewhere/vocab.txt"}, "refers to other files"),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.9.json"]}, "refers to other files"),
    ],
)
def test_settings_that_lead_to_files_or_libraries_no_key_knows_are_refused(
    copied: Path, file: str, values: dict[str, Any], words: str
) -> None:
    before = json.loads((copied / file).read_text()) if (copied / file).is_file() else {}
    (copied / file).write_text(json.dumps(before | values))
    with pytest.raises(ModelError, match=words):
        resolve_model(str(copied), None)


# --- SentencePiece ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real vocabulary of SentencePiece."""
    from sentencepiece import SentencePieceTrainer

    place = tmp_path_factory.mktemp("pieces") / "spm"
    lines = [" ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3, 5)) for number in range(200)]
    options = {
        "vocab_size": 60,
        "hard_vocab_limit": False,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": 2,
        "eos_id": 3,
        "minloglevel": 2,
    }
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(place), **options)
    return place.with_suffix(".model")


def deberta(folder: Path, pieces: Path) -> Path:
    """Write a tiny DeBERTa-v2 whose tokenizer is SentencePiece's file alone, as the hub's are."""
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    config = DebertaV2Config(
        vocab_size=80,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    DebertaV2ForSequenceClassification(config).save_pretrained(folder)
    shutil.copyfile(pieces, folder / "spm.model")
    return folder


def test_a_tokenizer_of_sentencepiece_is_read_and_saved_for_whoever_loads_the_student(
    pieces: Path, tmp_path: Path
) -> None:
    source = resolve_model(str(deberta(tmp_path / "model", pieces)), None)
    held = HeldInputs(FolderStore(tmp_path.resolve() / "store"), [source])
    tokenizer = load_tokenizer(held.folder(source))
    ids = tokenizer("the film was good")["input_ids"]
    assert len(tokenizer) > 40 and tokenizer.unk_token_id not in ids
    tokenizer.save_pretrained(tmp_path / "saved")
    shutil.copyfile(held.folder(source) / "config.json", tmp_path / "saved" / "config.json")
    assert load_tokenizer(tmp_path / "saved")("the film was good")["input_ids"] == ids


def test_a_vocabulary_of_sentencepiece_is_in_the_key_and_must_fit_its_model(pieces: Path, tmp_path: Path) -> None:
    folder = deberta(tmp_path / "model", pieces)
    before = resolve_model(str(folder), None).sha256
    shutil.copyfile(pieces, folder / "sentencepiece.bpe.model")
    assert resolve_model(str(folder), None).sha256 != before
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 30}))
    with pytest.raises(ModelError, match="use the tokenizer that the model was trained with"):
        resolve_model(str(folder), None)
    for name in ("spm.model", "sentencepiece.bpe.model"):
        (folder / name).write_bytes(b"not a vocabulary")
    with pytest.raises(ModelError, match="cannot be read as a SentencePiece vocabulary"):
        resolve_model(str(folder), None)


def test_a_model_without_a_tokenizer_is_refused(pieces: Path, tmp_path: Path) -> None:
    folder = deberta(tmp_path / "model", pieces)
    (folder / "spm.model").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        resolve_model(str(folder), None)


def test_a_sharded_teacher_is_loaded_as_a_classifier(sharded_bert: Path, tmp_path: Path) -> None:
    source = resolve_model(str(sharded_bert), None)
    held = HeldInputs(FolderStore(tmp_path.resolve() / "store"), [source])
    task = Task("mine", "classification", ["bad", "good"], "accuracy", False, HEADS["classification"])
    assert load_classifier(held.folder(source), task, torch.device("cpu")).config.num_labels == 2
