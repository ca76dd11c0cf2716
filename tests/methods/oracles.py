"""Where the golden numbers of the reference implementations lie, and a loud skip where they do not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
EXACT = {"rtol": 1e-9, "atol": 1e-10}


def shared_file(relative: str) -> Path:
    """Return a file of the shared folder ($LIMBECK_SHARED, else ``shared`` beside the repository), or skip."""
    path = Path(os.environ.get("LIMBECK_SHARED") or ROOT.parent / "shared") / relative
    if not path.exists():
        pytest.skip(f"real data not found: {path}")
    return path


def golden_json(method: str) -> dict[str, Any]:
    """Return the cases of one method."""
    data: dict[str, Any] = json.loads(shared_file(f"oracles/{method}.json").read_text(encoding="utf-8"))
    return data


def golden_case(method: str, case: str) -> dict[str, Any]:
    """Return one named case of one method."""
    found: dict[str, Any] = next(c for c in golden_json(method)["cases"] if c["name"] == case)
    return found


def golden_tensors(method: str) -> dict[str, Tensor]:
    """Return the tensors of one method, inputs widened to float64."""
    from safetensors.torch import load_file

    tensors = load_file(shared_file(f"oracles/{method}.safetensors"))
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}
