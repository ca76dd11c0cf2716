"""Predicted tokens of documents: windows, likelihoods that are those of transformers, answers that are kept block by
block, students, and layers that go."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import tasks.training.data.answer_blocks
from tasks.engine.job import Job, serve_order
from tasks.errors import ModelError, StoreError
from tasks.methods.layers.layer_dropping import drop_layers
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import AnswerSlice, KeptSlice
from tasks.scoring.windows import outputs_of_checkpoint_units
from tasks.task_types.heads import HEADS
from tasks.task_types.next_words.document import (
    JUDGED_TOKENS,
    LEARNED_TOKENS,
    LIKELIHOOD,
    NATS,
    predicted_tokens,
    shared_in_judging,
)
from tasks.task_types.next_words.models import AutoModelForCausalLM
from tasks.task_types.types import WORD_NATS
from tasks.training.answers import answer
from tasks.training.data.answer_blocks import AnswerBlocks
from tasks.training.data.encoded import Encoded, encode_windows
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.jobs import JOBS
from tasks.training.models.students import load_classifier
from tasks.training.selection import all_outputs
from tests.task_types.next_words.tables import documents, write_decoder, write_documents
from tests.task_types.next_words.test_rows import knobs

CPU, TEXTS = torch.device("cpu"), documents(5)


def model_in(folder: Path) -> Any:
    task = Task("tiny", "next-words", None, "", False, HEADS["next-words"])  # type: ignore[arg-type]
    return load_classifier(folder, task, CPU).eval()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("llama"))


def read(folder: Path, length: int) -> Encoded:
    return encode_windows(load_tokenizer(folder), TEXTS, length, LEARNED_TOKENS, None, [""] * len(TEXTS))


def test_each_token_but_the_first_is_predicted_once() -> None:
    windows = [
        np.asarray([[i, i + 1] for i in range(start, start + many)]) for start, many in ((0, 8), (7, 8), (14, 3))
    ]
    windows = [one + 1 for one in windows]  # only padding stands at 0
    padded = [np.vstack([np.zeros((8 - len(one), 2), int), one]) for one in windows]
    found = predicted_tokens("", padded, judged=False)
    assert np.concatenate(found).max() == 15  # 17 tokens
    assert sorted(unit for unit in np.concatenate(found).tolist() if unit >= 0) == [*range(16)]
    assert found[2].tolist() == [-1, -1, -1, -1, -1, 14, 15, -1]
    half = [windows[0][:8], windows[1] - 3]  # four tokens are shared
    judged = predicted_tokens("", half, judged=True)
    assert shared_in_judging(8) == 4 and judged[1].tolist() == [-1, -1, -1, 7, 8, 9, 10, -1]


def nats_of_sliding_windows(plain: Any, tokenizer: Any, text: str, length: int) -> np.ndarray:
    """Return the nats of every token but the first, by the loop of transformers' guide to perplexity: windows that move
    by half of their length, of which the tokens that no earlier one has had count."""
    ids_1T = tokenizer(f"<|end|>{text}<|end|>", return_tensors="pt", add_special_tokens=False).input_ids
    nats, read = list[float](), 1
    for begin in range(0, ids_1T.shape[1], length // 2):
        window_1T = ids_1T[:, begin : begin + length]
        with torch.no_grad():
            logits_TV = plain(window_1T).logits[0]
        for place in range(read - begin, window_1T.shape[1]):
            nats.append(float(torch.nn.functional.cross_entropy(logits_TV[place - 1], window_1T[0, place])))
        read = begin + window_1T.shape[1]
        if read == ids_1T.shape[1]:
            break
    return np.asarray(nats)


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "qwen3"])
def test_likelihoods_are_those_of_transformers(model_type: str, tmp_path: Path) -> None:
    """Documents in one batch, padded on the left, and one by one; in small windows tokens have fewer before them."""
    from transformers import AutoModelForCausalLM

    folder = write_decoder(tmp_path, model_type)
    tokenizer, model, plain = load_tokenizer(folder), model_in(folder), AutoModelForCausalLM.from_pretrained(folder)
    found = outputs_of_checkpoint_units(model, tokenizer, TEXTS, [NATS], 128, JUDGED_TOKENS, together=64)
    for text, nats_U, likelihood in zip(TEXTS, found[NATS], found[LIKELIHOOD], strict=True):
        ids_1T = tokenizer(f"<|end|>{text}<|end|>", return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            logp_TV = plain(ids_1T).logits[0].log_softmax(-1)
        true_U = -logp_TV[:-1].gather(-1, ids_1T[0, 1:, None])[:, 0].numpy()
        np.testing.assert_allclose(nats_U, true_U, atol=1e-4)
        assert likelihood.split()[1] == str(len(true_U))
    small = outputs_of_checkpoint_units(model, tokenizer, TEXTS, [NATS], 16, JUDGED_TOKENS, together=1)
    for text, nats_U, likelihood in zip(TEXTS, small[NATS], small[LIKELIHOOD], strict=True):
        slid_U = nats_of_sliding_windows(plain, tokenizer, text, 16)
        np.testing.assert_allclose(nats_U, slid_U, atol=1e-4)
        assert float(likelihood.split()[0]) == pytest.approx(slid_U.sum(), rel=1e-5)
        assert likelihood.split()[1] == str(len(slid_U))
    tokenizer.truncation_side = "left"
    left = outputs_of_checkpoint_units(model, tokenizer, TEXTS, [NATS], 16, JUDGED_TOKENS, together=1)
    assert left[LIKELIHOOD].tolist() == small[LIKELIHOOD].tolist()
    learned = all_outputs(model, WORD_NATS, read(folder, 128), tokenizer.pad_token_id, precision="fp32")
    assert learned[LIKELIHOOD].tolist() == found[LIKELIHOOD].tolist()


def test_texts_are_cut_at_their_end_whatever_the_tokenizer_of_a_model_states(llama: Path, tmp_path: Path) -> None:
    """Graphs, which read `tokenizer.json`, know no other side."""
    folder = shutil.copytree(llama, tmp_path / "left")
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**stated, "truncation_side": "left"}))
    tokenizer = load_tokenizer(folder)
    cut, whole = (tokenizer(TEXTS[0], truncation=True, max_length=length)["input_ids"] for length in (8, 512))
    assert len(whole) > 8 and cut == whole[:8]
    tokenizer.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/tokenizer_config.json").read_text())["truncation_side"] == "right"


def ordered(llama: Path, folder: Path, rows: Path, **kept: Any) -> Any:
    values = AnswerSlice(
        task_type="next-words", max_length=16, precision="fp32", kept=KeptSlice(temperature=2.0, **kept)
    )
    inputs = {"teacher": str(llama), "rows": str(rows)}
    order: Any = {"job": "answer", "knobs": values.model_dump(mode="json"), "inputs": inputs}
    folder.mkdir(parents=True)
    return order | {"output": str(folder), "checkpoints": str(folder.parent / "kept")}


def answered(llama: Path, folder: Path, rows: Path, **kept: Any) -> Job:
    return Job(ordered(llama, folder, rows, **kept), silent=True)


def test_answers_that_were_stopped_go_on_and_are_the_same_bytes(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies in the third block, before it has its name, leaves two; the next one does not make them
    again."""
    monkeypatch.setattr(tasks.training.data.answer_blocks, "BATCHES_OF_BLOCK", 1)
    table = write_documents(tmp_path / "table", 90)
    prepare_rows(table, knobs(table), tmp_path / "rows")
    whole = answered(llama, tmp_path / "whole", tmp_path / "rows", words=8)
    answer(whole)
    blocks = sorted(whole.checkpoints.glob("answers-*"))
    assert len(blocks) > 3
    for block in blocks[2:]:
        block.unlink()
    (whole.checkpoints / "unfinished").write_bytes(b"half a block")
    before = [block.stat().st_mtime_ns for block in blocks[:2]]
    again = answered(llama, tmp_path / "again", tmp_path / "rows", words=8)
    facts = answer(again)
    digests = [sha256((one.output / "answers.safetensors").read_bytes()).hexdigest() for one in (whole, again)]
    assert digests[0] == digests[1] and facts["tokens"]
    assert [block.stat().st_mtime_ns for block in blocks[:2]] == before


KILLED_IN_A_BLOCK = """
import os, signal, sys
from pathlib import Path
import tasks.training.data.answer_blocks as blocks
from tests.task_types.next_words.test_document import answer, answered
blocks.BATCHES_OF_BLOCK, save, llama, folder, rows = 1, blocks.save_file, *map(Path, sys.argv[1:])
def save_two(arrays, path):
    save(arrays, path)
    if len(list(path.parent.glob("answers-*"))) == 2:
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
blocks.save_file = save_two
answer(answered(llama, folder, rows, words=8))
"""


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_answers(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 in the middle of the third block; the finished ones are not computed again."""
    monkeypatch.setattr(tasks.training.data.answer_blocks, "BATCHES_OF_BLOCK", 1)
    table, rows, place = write_documents(tmp_path / "table", 90), tmp_path / "rows", tmp_path / "killed"
    prepare_rows(table, knobs(table), rows)
    place.mkdir()
    whole = answered(llama, tmp_path / "whole", rows, words=8)
    answer(whole)
    command = [sys.executable, "-c", KILLED_IN_A_BLOCK, str(llama), str(place / "first"), str(rows)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    done = {path: path.stat().st_mtime_ns for path in (place / "kept").glob("answers-*")}
    assert len(done) == 2 < len(list(whole.checkpoints.glob("answers-*"))) and not [*(place / "first").iterdir()]
    again = answered(llama, place / "again", rows, words=8)
    assert again.checkpoints == place / "kept"
    answer(again)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    digests = [sha256((one.output / "answers.safetensors").read_bytes()).hexdigest() for one in (whole, again)]
    assert digests[0] == digests[1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "limbeck-test", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk can be mounted by root alone: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_in_between_loses_nothing(
    llama: Path, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another program takes the room after two blocks. The sentence says what is written, what is needed in all and
    what is free; when there is room again, the blocks are not computed anew, and the answers are those of one run."""
    monkeypatch.setattr(tasks.training.data.answer_blocks, "BATCHES_OF_BLOCK", 1)
    table, rows, save = write_documents(tmp_path / "table", 90), tmp_path / "rows", save_file
    prepare_rows(table, knobs(table), rows)
    whole = answered(llama, tmp_path / "whole", rows, words=8)
    answer(whole)
    size = sum(block.stat().st_size for block in whole.checkpoints.glob("answers-*"))

    def fill_and_save(arrays: dict[str, np.ndarray], path: Path) -> None:
        if len([*path.parent.glob("answers-*")]) == 2 and not (small_disk / "other").exists():
            room = shutil.disk_usage(small_disk).free
            (small_disk / "other").write_bytes(bytes(room - 4096))
        save(arrays, path)

    monkeypatch.setattr(tasks.training.data.answer_blocks, "save_file", fill_and_save)
    assert serve_order(JOBS, ordered(llama, small_disk / "first", rows, words=8)) == 2
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    done = {path: path.stat().st_mtime_ns for path in (small_disk / "kept").iterdir()}
    assert sorted(path.name for path in done) == [f"answers-{number:06d}.safetensors" for number in (0, 1)]
    found = re.search(
        r"the disk is full; nothing was published; free some space and run again, which goes on behind what is there: "
        r"(\S+) of some (\S+) GB are written and stay, (\S+) GB are needed in all while they are published, and (\S+) "
        r"GB are free",
        said["message"],
    )
    assert said["kind"] == "StoreError" and found, said
    written, some, needed, free = map(float, found.groups())
    assert written == pytest.approx(sum(path.stat().st_size for path in done) / 1e9, rel=0.01)
    assert some == pytest.approx(size / 1e9, rel=0.1) and needed == pytest.approx(2 * some, rel=0.01) and free < 1e-4
    monkeypatch.setattr(tasks.training.data.answer_blocks, "save_file", save)
    (small_disk / "other").unlink()
    again = answered(llama, small_disk / "again", rows, words=8)
    answer(again)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    digests = [sha256((one.output / "answers.safetensors").read_bytes()).hexdigest() for one in (whole, again)]
    assert digests[0] == digests[1]


def test_a_write_that_fails_in_between_loses_nothing(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a disk that fills up, by a limit of files that needs no root: the third block cannot be written."""
    monkeypatch.setattr(tasks.training.data.answer_blocks, "BATCHES_OF_BLOCK", 1)
    table, rows, limits = write_documents(tmp_path / "table", 90), tmp_path / "rows", getrlimit(RLIMIT_FSIZE)
    prepare_rows(table, knobs(table), rows)
    answer(answered(llama, tmp_path / "one/whole", rows, words=8))

    def save_two(arrays: dict[str, np.ndarray], path: Path) -> None:
        setrlimit(RLIMIT_FSIZE, (4096 if len([*path.parent.glob("answers-*")]) == 2 else limits[0], limits[1]))
        try:
            save_file(arrays, path)
        finally:
            setrlimit(RLIMIT_FSIZE, limits)

    monkeypatch.setattr(tasks.training.data.answer_blocks, "save_file", save_two)
    assert serve_order(JOBS, ordered(llama, tmp_path / "two/first", rows, words=8)) == 2
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert said["kind"] == "StoreError" and "GB are written and stay" in said["message"], said
    assert not [*(tmp_path / "two/first").glob("answers*")]
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "two/kept").glob("answers-*")}
    monkeypatch.setattr(tasks.training.data.answer_blocks, "save_file", save_file)
    answer(answered(llama, tmp_path / "two/again", rows, words=8))
    assert len(done) == 2 and {path: path.stat().st_mtime_ns for path in done} == done
    files = [tmp_path / name / "answers.safetensors" for name in ("one/whole", "two/again")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_full_disk_is_foreseen(tmp_path: Path) -> None:
    part = {"at": np.arange(4), "kept_logs": np.zeros((4, 1000), np.float32)}
    with pytest.raises(StoreError, match=r"the teacher's answers take 4.01e\+\d+ GB.*kept_words"):
        AnswerBlocks(tmp_path).write(0, [part], 10**15)
    assert not [*tmp_path.glob("answers-*")]


def test_a_full_disk_is_foreseen_by_a_run_that_goes_on(tmp_path: Path) -> None:
    """It says what is written already; a disk that has room for the rest is enough."""
    part = {"at": np.arange(4), "kept_logs": np.zeros((4, 1000), np.float32)}
    AnswerBlocks(tmp_path).write(0, [part], 8)
    again = AnswerBlocks(tmp_path)
    assert again.has(0)
    with pytest.raises(StoreError, match=r"of which 1.6e-05 GB are written, and the disk has"):
        again.write(1, [part], 10**15)
    again.write(1, [part], 8)
    assert again.numbers == [0, 1]


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "qwen3"])
def test_layers_that_stay_are_renumbered_in_the_cache(model_type: str, tmp_path: Path) -> None:
    """Without that, a cache has keys of layers that are not there: cached and uncached logits are one."""
    model = model_in(write_decoder(tmp_path, model_type))
    drop_layers(model, [0, 3])
    ids_1T = torch.arange(5, 17)[None]
    with torch.inference_mode():
        whole = model(input_ids=ids_1T, attention_mask=torch.ones_like(ids_1T)).logits
        begun = model(input_ids=ids_1T[:, :8], use_cache=True)
        rest = model(input_ids=ids_1T[:, 8:], past_key_values=begun.past_key_values, use_cache=True).logits
    torch.testing.assert_close(rest, whole[:, 8:], atol=1e-5, rtol=1e-5)
    assert model.config.num_hidden_layers == 2 and len(begun.past_key_values.layers) == 2


def test_models_that_see_the_next_word_are_refused(tiny_bert: Path) -> None:
    from transformers import AutoConfig

    for config in (AutoConfig.from_pretrained(tiny_bert), AutoConfig.for_model("xlnet"), AutoConfig.for_model("t5")):
        with pytest.raises(ModelError, match="is no decoder that reads a text from left to right"):
            AutoModelForCausalLM.class_for(config)


def test_a_tokenizer_without_an_end_is_refused(tiny_bert: Path) -> None:
    with pytest.raises(ModelError, match="no token for the end of a text"):
        read(tiny_bert, 16)
