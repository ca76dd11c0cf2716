"""The golden numbers of the reference implementations, a loud skip where they are not, and which of them are read.

A test says by ``reads`` which cases it compares the product with. That it opens them is checked when it runs; that
every case is read, or named in ``not_built.py``, is checked by ``test_oracles.py``.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
EXACT = {"rtol": 1e-9, "atol": 1e-10}
READ: set[tuple[str, str]] = set()
"""Cases, as (method, name), that some test compares the product with."""
ABOUT = {
    "method",
    "about",
    "seed",
    "generator",
    "tensors",
    "source",
    "note",
    "precision",
    "how",
    "model",
    "about_heads",
    "rule",
    "oddities",
    "stop_words_in_the_list",
}
"""What a file of oracles says of itself; everything else in it is cases."""


def shared_file(relative: str) -> Path:
    """Return a file of the shared folder ($LIMBECK_SHARED, else ``shared`` beside the repository), or skip."""
    path = Path(os.environ.get("LIMBECK_SHARED") or ROOT.parent / "shared") / relative
    if not path.exists():
        pytest.skip(f"real data not found: {path}")
    return path


class Oracle:
    """One case of the reference's numbers, read when it is asked for."""

    def __init__(self, method: str, name: str) -> None:
        self.method, self.name, self.opened = method, name, False

    @cached_property
    def _file(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(shared_file(f"oracles/{self.method}.json").read_text(encoding="utf-8"))
        return data

    @property
    def content(self) -> Any:
        """What stands under the case's name: a case of the list, or a section of its own."""
        content = cases_in(self._file)[self.name]
        self.opened = True
        return content

    @property
    def loss(self) -> float:
        """The expected loss."""
        return float(self.scalars["loss"])

    @property
    def scalars(self) -> dict[str, float]:
        """All expected scalars."""
        scalars: dict[str, float] = self.content["expected_scalars"]
        return scalars

    @property
    def knobs(self) -> SimpleNamespace:
        """The hyperparameters."""
        return SimpleNamespace(**self.content["hyperparameters"])

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the method, fresh for each caller, inputs widened to float64."""
        from safetensors.torch import load_file

        found = load_file(shared_file(f"oracles/{self.method}.safetensors"))
        return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in found.items()}


def cases_in(data: dict[str, Any]) -> dict[str, Any]:
    """Return the cases of a file by name: those of its list, and its other sections."""
    cases = {case["name"]: case for case in data.get("cases", [])}
    return cases | {name: section for name, section in data.items() if name not in ABOUT | {"cases"}}


def reads(method: str, *cases: str) -> Callable[[Callable[..., None]], Any]:
    """Run a test, which takes an ``oracle``, once for each of these cases; each of them then counts as read."""
    READ.update((method, case) for case in cases)

    def mark(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def run(*, oracle: Oracle, **given: Any) -> None:
            fresh = Oracle(oracle.method, oracle.name)
            test(oracle=fresh, **given)
            assert fresh.opened, f"{fresh.method}: {fresh.name} is said to be read, and was not opened"

        return pytest.mark.parametrize("oracle", [Oracle(method, case) for case in cases], ids=cases)(run)

    return mark
