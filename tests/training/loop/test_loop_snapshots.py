"""Named snapshots: the weights after some steps lie beside the result, also if the training was broken off and went on
elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tasks.contracts import Artifact
from tasks.errors import ModelError
from tasks.ports.store.open import open_store
from tasks.training import checkpoints
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.snapshots import put, read_snapshot
from tests.training.loop.short_training import CPU, EPOCH, KNOBS, OFTEN, job, model, resumed, same_bytes, spec, trained

REWIND = EPOCH + 1  # its step reads text that the first epoch had not


def start() -> Any:
    return model(dropout=0.1)


def rewindable(learned: Any, **more: Any) -> TrainingSpec:
    """Return a training with snapshots of its beginning, of a step in the second epoch, and of its end."""
    steps = {"start": 0, "rewind": REWIND, "end": KNOBS.steps}
    return spec(learned, few=True, snapshots=steps, **more)


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a training's output, by path."""
    output = folder / "output"
    found = {path.relative_to(output).as_posix(): path for path in output.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items()}


@pytest.mark.parametrize("few", [False, True])
def test_a_snapshot_is_the_model_after_its_steps(tmp_path: Path, few: bool) -> None:
    seen = dict[int, dict[str, Tensor]]()
    learned = start()

    def remember(step: int) -> None:
        seen[step] = {name: value.clone() for name, value in learned.state_dict().items()}

    steps = {"start": 0, "rewind": REWIND, "end": KNOBS.steps}
    trained(tmp_path, learned, lambda one: spec(one, few=few, after_step=[remember], snapshots=steps))
    again = start()
    for name, step in steps.items():
        found = read_snapshot(tmp_path / "output", name)
        again.load_state_dict(found)  # all names and shapes of a plain model
        expected = seen[step] if step else start().state_dict()
        same = {key: torch.equal(value, expected[key]) for key, value in found.items() if key in expected}
        table = "bert.embeddings.word_embeddings.weight"
        assert all(same.values()) and set(found) - set(same) == ({table} if few and step else set())


def test_the_rows_that_no_step_used_are_decayed_in_a_snapshot_too(tmp_path: Path) -> None:
    for few in (False, True):
        trained(tmp_path / str(few), model(), lambda one, few=few: spec(one, few=few, snapshots={"rewind": REWIND}))
    whole, few = (read_snapshot(tmp_path / str(few) / "output", "rewind") for few in (False, True))
    table = "bert.embeddings.word_embeddings.weight"
    torch.testing.assert_close(whole[table], few[table], rtol=0, atol=2e-6)
    assert not torch.equal(few[table][59], model().state_dict()[table][59])


def test_snapshots_leave_the_training_as_it_is(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", start(), lambda one: spec(one, few=True))
    rewound = trained(tmp_path / "rewound", start(), rewindable)
    assert same_bytes(plain, rewound)
    assert not files(tmp_path / "plain") and len(files(tmp_path / "rewound")) == 3, "off by default"


@pytest.mark.parametrize("stop", [1, REWIND, REWIND + 2, KNOBS.steps - 1])
def test_snapshots_outlive_a_break(tmp_path: Path, stop: int) -> None:
    whole = trained(tmp_path / "whole", start(), rewindable)
    again = resumed(tmp_path, start, rewindable, stop)
    names = {f"snapshots/{name}.safetensors" for name in ("start", "rewind", "end")}
    assert same_bytes(whole, again) and files(tmp_path / "whole").keys() == names
    assert files(tmp_path / "whole") == files(tmp_path / "resumed")


def test_a_damaged_checkpoint_gives_no_damaged_snapshot(tmp_path: Path) -> None:
    """The newest checkpoint has the snapshot, torn; the one before it was saved before the snapshot was taken."""
    whole = trained(tmp_path / "whole", start(), rewindable)

    def torn() -> Any:
        newest = tmp_path / f"resumed/checkpoints/step-{REWIND:09d}"
        if newest.is_dir():
            assert (newest / "snapshot-rewind").is_file()
            (newest / "snapshot-rewind").write_bytes(b"torn")
        return start()

    again = resumed(tmp_path, torn, rewindable, REWIND)
    assert same_bytes(whole, again) and files(tmp_path / "whole") == files(tmp_path / "resumed")


def test_a_file_that_was_not_written_to_its_end_is_no_snapshot(tmp_path: Path) -> None:
    def full(file: Path) -> None:
        save_file({"weight": torch.ones(3)}, file)
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        put(tmp_path, "rewind", full)
    with pytest.raises(ModelError, match=r"has no snapshot 'rewind'; it has none"):
        read_snapshot(tmp_path, "rewind")
    put(tmp_path, "rewind", lambda file: save_file({"weight": torch.ones(3)}, file))
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["rewind.safetensors"]
    with pytest.raises(ModelError, match=r"has no snapshot 'unwind'; it has rewind"):
        read_snapshot(tmp_path, "unwind")


def test_a_later_stage_reads_a_snapshot_of_a_published_result(tmp_path: Path) -> None:
    trained(tmp_path, start(), rewindable)
    store = open_store(str(tmp_path / "store"), tmp_path / "cache")

    async def publish() -> Artifact:
        given = {"kind": "checkpoint", "facts": {}, "stage": "make", "explanation": {}}
        async with store.lease("f" * 64) as lease:
            return store.publish("f" * 64, folder=tmp_path / "output", lease=lease, **given)

    folder = store.folder(asyncio.run(publish()))
    assert folder != tmp_path / "output"
    start().load_state_dict(read_snapshot(folder, "rewind"))


@pytest.mark.parametrize("step", [-1, KNOBS.steps + 1])
def test_a_step_that_the_training_does_not_have_is_refused_before_it(tmp_path: Path, step: int) -> None:
    calls = list[int]()
    with pytest.raises(ModelError, match=f"the snapshot 'rewind' is of step {step}, and the training has 12 steps"):
        trained(
            tmp_path, model(), lambda one: spec(one, few=True, snapshots={"rewind": step}, after_step=[calls.append])
        )
    assert not calls


def test_a_full_disk_at_the_last_checkpoint_costs_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, state: checkpoints.State) -> None:
        if state.numbers["step"] == KNOBS.steps - 1:
            raise OSError("No space left on device")

    whole, given, told = trained(tmp_path / "whole", start(), rewindable), job(tmp_path / "full"), list[str]()
    monkeypatch.setattr(checkpoints, "write_state", full)
    monkeypatch.setattr(given, "log", told.append)
    learned = start()
    train(given, OFTEN, rewindable(learned), CPU)
    assert same_bytes(whole, learned) and "No space left" in "".join(told)
