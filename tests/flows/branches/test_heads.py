"""A chain with fewer attention heads, on a tiny real model: what the run says of it, and what is refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.exports import programs
from tasks.results.run import RunResult
from tests.families import write_tiny
from tests.flows.branches.test_makers import chain
from tests.flows.test_compress import FAST, executed

FEWER = {"name": "fewer", "from": "teacher", "by": "head-pruning", "rows": 40}
INNER = {**FAST, "matching": {"layer_map": "uniform", "projection": "none"}}
FURTHER = {"name": "further", "from": "fewer", "by": "distillation", "intermediate": INNER, "prediction": FAST}


def test_fewer_heads_stay_fewer_after_a_distillation_of_attention_too_and_graphs_are_smaller(
    prefect_server: None, engines_here: None, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "is_installed", lambda: False)
    home = Home(tmp_path / "home").create()
    exports = {"of": ["further"], "formats": ["onnx", "executorch"]}
    recipe = chain(
        write_tiny("bert", tmp_path / "bert", num_hidden_layers=2), tiny_rows, FEWER, FURTHER, exports=exports
    )
    result: dict[str, Any] = run_recipe(recipe, home=home)
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    fewer, further, graph = rows["fewer"], rows["further"], rows["further-onnx"]
    assert fewer.role == "fewer-heads" and fewer.making == "made from teacher by head-pruning"
    assert (fewer.note or "").startswith("4 of 8 heads (") and "left out of graphs" in (fewer.note or "")
    assert fewer.parameters == further.parameters == rows["teacher"].parameters
    gone = 4 * (4 * 4 * 16 + 3 * 4)
    assert graph.parameters == (further.parameters or 0) - gone and graph.metrics == further.metrics
    assert graph.export is not None and graph.export.equal_answers == 1.0
    assert graph.export.largest_difference is not None and graph.export.largest_difference < 1e-5
    phone = rows["further-executorch"].export
    assert phone is not None and not phone.published and "pip install 'limbeck[phone]'" in phone.because
    assert {entry["candidate"] for entry in result["registered"]} == {"fewer", "further"}
    assert executed(run_recipe(recipe, home=home)) == set()


@pytest.mark.parametrize("method", ["relations", "self-attention"])
def test_a_method_that_would_give_silent_heads_values_is_refused(method: str, tiny_bert: Path, tiny_rows: Path) -> None:
    said = f"candidate further is made from fewer, whose pruned heads have no values, and method: {method} would train"
    with pytest.raises(ValidationError, match=said):
        chain(tiny_bert, tiny_rows, FEWER, {**FURTHER, "intermediate": {**FAST, "method": method}})
