"""The golden numbers: computed from the cases, as text, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.methods.golden.case import Case
from tests.methods.golden.cases import all_cases
from tests.methods.golden.gradient import gradient

FOLDER = Path(__file__).with_name("files")


def computed() -> dict[str, dict[str, Any]]:
    """Return for each file of ``tasks/methods`` its cases, inputs and outputs."""
    made: dict[str, dict[str, Any]] = {}
    for case in all_cases():
        method, function = case.of.split(".")
        name = f"{function}: {case.name}"
        assert name not in made.setdefault(method, {}), f"two cases are called {name}"
        made[method][name] = {"function": function} | (table_of(case) if case.table else call_of(case))
    return made


def call_of(case: Case) -> dict[str, Any]:
    """Return one call: what is given, what comes out, and the gradient of that."""
    given, upstream = case.inputs | case.knobs, case.upstream

    def scalar(**moved: Any) -> Any:
        return case.formula(**moved) if upstream is None else np.sum(case.formula(**moved) * upstream)

    return {
        "inputs": {name: value.tolist() for name, value in case.inputs.items()},
        "knobs": case.knobs,
        "value": plain(case.formula(**given)),
        **({} if upstream is None else {"upstream": upstream.tolist()}),
        "gradients": {name: plain(gradient(scalar, given, name)) for name in case.learned},
    }


def table_of(case: Case) -> dict[str, Any]:
    """Return calls that take no tensor."""
    return {"table": [{"knobs": knobs, "value": plain(case.formula(**knobs))} for knobs in case.table]}


def plain(value: Any) -> Any:
    """Return numbers as JSON knows them, without a zero that is negative."""
    if isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)
        return (value + 0.0 if value.dtype.kind == "f" else value).tolist()
    return value


def as_text(cases: dict[str, Any]) -> str:
    """Return cases as JSON with one line for each tensor and each row of a table: a change shows where it is."""
    lines = []
    for name, case in sorted(cases.items()):
        fields = []
        for part, value in case.items():
            if isinstance(value, dict) and value:
                inner = ",\n".join(
                    f"   {json.dumps(key)}: {json.dumps(one, ensure_ascii=False)}" for key, one in value.items()
                )
                fields.append(f"  {json.dumps(part)}: {{\n{inner}\n  }}")
            elif part == "table":
                inner = ",\n".join(f"   {json.dumps(one, ensure_ascii=False)}" for one in value)
                fields.append(f'  "table": [\n{inner}\n  ]')
            else:
                fields.append(f"  {json.dumps(part)}: {json.dumps(value, ensure_ascii=False)}")
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def stored() -> dict[str, dict[str, Any]]:
    """Return the committed numbers."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
