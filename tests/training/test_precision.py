"""Arithmetic: what is stored narrow gives the very numbers that a cast would give."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from tasks.errors import ModelError
from tasks.task_types.heads import HEADS
from tasks.training import precision
from tasks.training.data.rows import Task
from tasks.training.models.students import freeze, load_classifier, load_masked_lm
from tasks.training.precision import NarrowLayerNorm, arithmetic, device, narrow_norms, store_as_multiplied

CPU = torch.device("cpu")


def test_weights_stored_as_they_are_multiplied_change_no_number(tiny_bert: Path) -> None:
    wide = freeze(
        load_classifier(
            tiny_bert, Task("tiny", "classification", ["a", "b"], "accuracy", False, HEADS["classification"]), CPU
        )
    )
    ids_BT = torch.randint(5, 60, (4, 12))
    for wanted, narrowed in (("bf16", True), ("fp32", False)):
        model = copy.deepcopy(wide)
        store_as_multiplied(model, wanted)
        assert (model.classifier.weight.dtype == torch.bfloat16) == narrowed
        with torch.no_grad(), arithmetic(wanted, CPU):
            ours, theirs = (
                model(input_ids=ids_BT, output_hidden_states=True),
                wide(input_ids=ids_BT, output_hidden_states=True),
            )
        assert torch.equal(ours.logits, theirs.logits)
        assert all(
            torch.equal(mine, other) for mine, other in zip(ours.hidden_states, theirs.hidden_states, strict=True)
        )


def test_words_are_looked_up_as_they_are_where_a_vocabulary_head_shares_their_table(tiny_bert: Path) -> None:
    wide = freeze(load_masked_lm(tiny_bert, CPU))
    model = copy.deepcopy(wide)
    store_as_multiplied(model, "bf16")
    ids_BT = torch.randint(5, 60, (4, 12))
    assert (
        model.get_input_embeddings().weight.dtype == torch.float32
        and model.cls.predictions.transform.dense.weight.dtype == torch.bfloat16
    )
    with torch.no_grad(), arithmetic("bf16", CPU):
        ours, theirs = (
            model(input_ids=ids_BT, output_hidden_states=True),
            wide(input_ids=ids_BT, output_hidden_states=True),
        )
    assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.hidden_states[0], theirs.hidden_states[0])


@pytest.mark.parametrize(
    ("vendor", "flags", "faster"),
    [
        ("GenuineIntel", "avx512f avx512_bf16 amx_tile amx_bf16", True),
        ("GenuineIntel", "avx512f avx512_bf16", False),
        ("AuthenticAMD", "avx512f avx512_bf16", True),
        ("AuthenticAMD", "avx512f avx512_vnni", False),
    ],
)
def test_bf16_is_chosen_where_its_products_are_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: str, flags: str, faster: bool
) -> None:
    """Of Intel's processors with AMX and with AMX hidden, the second multiplies float32 twice as fast."""
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n\n")
    monkeypatch.setattr(precision, "PROCESSORS", tmp_path / "cpuinfo")
    assert precision.is_bf16("auto", CPU) == faster
    assert not precision.is_bf16("fp32", CPU) and precision.is_bf16("bf16", CPU), "who names one gets it"


def test_where_no_processor_is_described_products_are_in_float32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(precision, "PROCESSORS", tmp_path / "none")
    assert not precision.is_bf16("auto", CPU)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU that is asked for is there")
def test_what_is_keyed_as_a_gpus_is_never_computed_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_DEVICE", "cuda")
    with pytest.raises(
        ModelError, match="this torch cannot use it; install a torch build that supports it, or set LIMBECK_DEVICE=cpu"
    ):
        device()
    monkeypatch.setenv("LIMBECK_DEVICE", "cpu")
    assert device() == CPU


def test_norms_are_narrow_where_products_are_and_as_they_were_elsewhere(tiny_bert: Path) -> None:
    wide = freeze(load_masked_lm(tiny_bert, CPU))
    model = narrow_norms(copy.deepcopy(wide))
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert norms and all(type(norm) is NarrowLayerNorm for norm in norms)
    ids_BT, asked = torch.randint(5, 60, (4, 12)), {"output_hidden_states": True}
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids_BT).logits, wide(input_ids=ids_BT).logits)
        exact = wide(input_ids=ids_BT, **asked).hidden_states
        with arithmetic("bf16", CPU):
            shown, before = (one(input_ids=ids_BT, **asked).hidden_states for one in (model, wide))
    for ours, theirs, true in zip(shown, before, exact, strict=True):
        assert ours.dtype == torch.bfloat16 and theirs.dtype == torch.float32
        assert (ours - true).norm() / true.norm() < 0.01, "bfloat16 has 8 bits, of which a few layers lose one"


def test_narrow_norms_learn_in_float32_and_are_the_same_when_stored_narrow() -> None:
    norm = NarrowLayerNorm(16)
    torch.nn.init.normal_(norm.weight)
    states_BD = torch.randn(8, 16).bfloat16()
    with arithmetic("bf16", CPU):
        norm(states_BD).float().square().sum().backward()
    assert norm.weight.dtype == torch.float32 and norm.weight.grad is not None
    stored = copy.deepcopy(norm).requires_grad_(False)
    model = torch.nn.Sequential(stored)
    model.device = CPU  # type: ignore[assignment]
    store_as_multiplied(model, "bf16")
    assert stored.weight.dtype == torch.bfloat16
    with torch.no_grad(), arithmetic("bf16", CPU):
        assert torch.equal(stored(states_BD), norm(states_BD))
        assert stored(states_BD.float()).dtype == torch.bfloat16
