"""Checkpoints: the newest that is whole is the one that a training goes on from, however the others were torn."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
import torch
from safetensors import SafetensorError

from tasks.training import checkpoints
from tasks.training.checkpoints import Progress

OLDER, NEWEST = 3, 7


def learner(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return a module and an optimizer that took a step."""
    torch.manual_seed(seed)
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return module, optimizer


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of one training."""
    folder = tmp_path_factory.mktemp("of") / "key"
    for step in (OLDER, NEWEST):
        checkpoints.save(
            folder,
            *learner(step),
            Progress(step=step, best=0.5, best_step=step, best_weights={"weight": torch.ones(2)}, seconds=1.5),
        )
    return folder


def tears(step: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield every way in which a checkpoint can be torn, by name."""
    for file in sorted(path.name for path in step.iterdir()):
        whole = (step / file).read_bytes()
        cuts = sorted({0, 1, 7, 8, 9, *range(10, len(whole), len(whole) // 5), len(whole) - 1})
        for cut in cuts:
            yield (
                f"{file} cut at {cut}",
                lambda place, file=file, cut=cut, whole=whole: (place / file).write_bytes(whole[:cut]) and None,
            )
        for at in (0, len(whole) // 2, len(whole) - 1):
            flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            yield (
                f"{file} flipped at {at}",
                lambda place, file=file, flipped=flipped: (place / file).write_bytes(flipped) and None,
            )
        yield f"{file} longer", lambda place, file=file, whole=whole: (place / file).write_bytes(whole + b"\0") and None
        yield f"{file} missing", lambda place, file=file: (place / file).unlink()
        yield f"{file} a folder", lambda place, file=file: ((place / file).unlink(), (place / file).mkdir()) and None
        yield (
            f"{file} a link",
            lambda place, file=file: (
                (os.rename(place / file, place.parent / file), (place / file).symlink_to(place.parent / file)) and None
            ),
        )
        for body in (b"{}", b"[]", b"null", b"[" * 100_000):
            yield f"{file} {body[:4]!r}", lambda place, file=file, body=body: (place / file).write_bytes(body) and None
    yield "a file too many", lambda place: (place / "more.json").write_text("{}") and None
    yield "all files missing", lambda place: [path.unlink() for path in place.iterdir()] and None
    yield "a file for the folder", lambda place: (shutil.rmtree(place), place.write_text("x")) and None


def test_a_torn_newest_checkpoint_loses_only_the_steps_since_the_one_before(written: Path, tmp_path: Path) -> None:
    ways = list(tears(written / f"step-{NEWEST:09d}"))
    assert len(ways) > 60
    module, optimizer = learner(99)
    expected, _ = learner(OLDER)
    for number, (name, tear) in enumerate(ways):
        folder = tmp_path / str(number) / "key"
        shutil.copytree(written, folder)
        tear(folder / f"step-{NEWEST:09d}")
        told: list[str] = []
        torch.nn.init.zeros_(module.weight)
        progress = checkpoints.load(folder, module, optimizer, told.append)
        assert (progress.step, progress.best_step, progress.seconds) == (OLDER, OLDER, 1.5), name
        assert torch.equal(module.weight, expected.weight) and len(told) == 1 and f"step-{NEWEST:09d}" in told[0], name
        assert [path.name for path in folder.glob("step-*")] == [f"step-{OLDER:09d}"], name
        shutil.rmtree(folder.parent)


def test_a_whole_newest_checkpoint_is_taken(written: Path) -> None:
    module, optimizer = learner(99)
    assert checkpoints.load(written, module, optimizer).step == NEWEST
    assert torch.equal(module.weight, learner(NEWEST)[0].weight)


def test_without_a_whole_checkpoint_nothing_of_a_torn_one_gets_into_the_model(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "key")
    for step in (tmp_path / "key").iterdir():
        (step / "state.json").write_text("{}")
    module, optimizer = learner(99)
    assert checkpoints.load(tmp_path / "key", module, optimizer) == Progress()
    assert torch.equal(module.weight, learner(99)[0].weight)


def test_a_checkpoint_of_another_training_is_not_taken(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "another key")
    assert checkpoints.load(tmp_path / "another key", *learner(99)).step == 0


def test_what_is_renamed_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: (done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name), fsync(handle)) and None,
    )
    monkeypatch.setattr(Path, "rename", lambda path, target: (done.append("rename"), rename(path, target))[1])
    checkpoints.save(tmp_path / "key", *learner(0), Progress(step=1))
    before, after = done[: done.index("rename")], done[done.index("rename") + 1 :]
    assert {"state.safetensors", "state.json", "whole.json", f".writing-{os.getpid()}"} == set(before) and after == [
        "key"
    ]


def test_a_marker_says_what_lies_beside_it(written: Path) -> None:
    marker = json.loads((written / f"step-{NEWEST:09d}" / "whole.json").read_text())
    assert marker["of"] == "key" and set(marker["inventory"]) == {"state.json", "state.safetensors"}


def test_what_is_written_beside_a_training_is_the_state_of_the_step_that_was_saved(tmp_path: Path) -> None:
    """The writer is held until the training has changed all that it saved."""
    folder, (module, optimizer), goes_on = tmp_path / "key", learner(1), Event()
    best = {"weight": torch.ones(2)}
    progress = Progress(step=1, best=0.5, best_step=1, best_weights=best, seconds=1.5, tallies={"rows": 2})
    with checkpoints.Saver() as saver, ExitStack() as last:
        last.callback(goes_on.set)
        saver.writer.submit(goes_on.wait)
        saver.save(folder, module, optimizer, progress)
        module(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        best["weight"].zero_()
        progress.tallies["rows"] = 4
        progress.step, progress.best = 2, 0.75
        torch.manual_seed(7)
        assert not folder.exists(), "or it was written before the training went on"
    restored_module, restored_optimizer = learner(99)
    found = checkpoints.load(folder, restored_module, restored_optimizer)
    drawn = torch.rand(3)
    expected_module, expected_optimizer = learner(1)
    assert torch.equal(torch.rand(3), drawn), "random state"
    assert (found.step, found.best, found.tallies) == (1, 0.5, {"rows": 2})
    assert torch.equal(found.best_weights["weight"], torch.ones(2))
    assert torch.equal(restored_module.weight, expected_module.weight)
    assert not torch.equal(restored_module.weight, module.weight), "or no step was taken meanwhile"
    restored, expected = moments(restored_optimizer), moments(expected_optimizer)
    assert restored.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in restored.items())


def moments(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], torch.Tensor]:
    """Return all tensors of an optimizer's state, by parameter number and name."""
    return {(number, name): value for number, name, value in checkpoints.optimizer_tensors(optimizer)}


def test_a_checkpoint_that_could_not_be_written_stops_the_training_at_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a file where the folder should be")
    saver = checkpoints.Saver()
    saver.save(tmp_path / "key", *learner(1), Progress(step=1))
    with pytest.raises(OSError, match="key"):
        saver.save(tmp_path / "key", *learner(1), Progress(step=2))
    saver.writer.shutdown()


@pytest.mark.parametrize(
    "why", [OSError("No space left on device"), SafetensorError("No space left on device")], ids=repr
)
def test_a_training_that_ended_does_not_need_its_last_checkpoint(
    why: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a warning then; one that was stopped needs it, and fails."""

    def full(*given: object) -> None:
        raise why

    monkeypatch.setattr(checkpoints, "write_state", full)
    told = list[str]()
    with checkpoints.Saver(told.append) as saver:
        saver.save(tmp_path, *learner(1), Progress(step=1))
    assert told == [
        "the last checkpoint was not written (No space left on device); the training is complete without it"
    ]
    with pytest.raises(type(why), match="No space"), checkpoints.Saver(told.append) as saver:
        saver.save(tmp_path, *learner(1), Progress(step=1))
        saver.wait()
    assert len(told) == 1
