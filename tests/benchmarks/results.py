"""Results that were kept: one file for each kind of machine, and what a later run of the same benchmark finds slower.

A file is named after the processor and the number of cores, never after a host. Figures of quick runs are compared with
figures of quick runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
SLOWER = 0.1
"""Share of a median by which a figure may become worse before it is named."""
Result = Mapping[str, Any]


def file_of(machine: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Return the file of a kind of machine."""
    words = f"{machine['hardware']} {machine['cores']} of its cores".lower()
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', words).strip('-')}.json"


def kept_results(file: Path) -> list[dict[str, Any]]:
    """Return the kept results of a kind of machine; none if it was not seen before."""
    return list(json.loads(file.read_text())) if file.exists() else []


def keep_results(results: Iterable[Result], folder: Path = FOLDER, *, replace: bool) -> None:
    """Add results to the files of their kinds of machines; earlier ones of the same benchmark stay unless they are to
    be replaced, so that many small losses do not go unnoticed."""
    for result in results:
        file = file_of(result["machine"], folder)
        known = {name_of(one): one for one in kept_results(file)}
        if replace or name_of(result) not in known:
            known[name_of(result)] = dict(result)
            folder.mkdir(parents=True, exist_ok=True)
            fresh = file.with_name(f".{file.name}.new")
            fresh.write_text(json.dumps([known[name] for name in sorted(known)], indent=1) + "\n")
            fresh.replace(file)


def name_of(result: Result) -> tuple[str, int, bool]:
    """Return what must agree in two results that are compared: benchmark, threads, and whether it was quick."""
    return result["benchmark"], result["threads"], bool(result["quick"])


def slower_lines(results: Iterable[Result], folder: Path = FOLDER) -> list[str]:
    """Return a sentence for each figure that became worse than the kept one by more than ``SLOWER``."""
    return [
        line for result in results for line in worse_than_kept(result, kept_results(file_of(result["machine"], folder)))
    ]


def worse_than_kept(result: Result, kept: Sequence[Result]) -> list[str]:
    """Return a sentence for each figure of one result that is worse than the same figure of a kept one."""
    same = next((one for one in kept if name_of(one) == name_of(result)), None)
    before = {title(figure): figure for figure in same["figures"]} if same else {}
    pairs = [(figure, before[title(figure)]) for figure in result["figures"] if title(figure) in before]
    return [
        f"{title(now)}: {now['median']:.3g}{now['unit']}, and {then['median']:.3g}{then['unit']} on {same['date']}"
        for now, then in pairs
        if same and loss(now, then) > SLOWER
    ]


def title(figure: Mapping[str, Any]) -> str:
    """Return the name of a figure with its two sides."""
    return f"{figure['name']} ({figure['of']} against {figure['against'] or 'nothing'}, {figure['clock']})"


def loss(now: Mapping[str, Any], then: Mapping[str, Any]) -> float:
    """Return the share of its median by which a figure became worse: of a speed-up, by which it fell; of seconds, a
    share or a size, by which it rose."""
    if then["median"] == 0 or now["median"] == 0:
        return 0.0
    ratio = now["median"] / then["median"]
    return ratio - 1 if now["at_most"] or now["unit"] != "×" else 1 / ratio - 1


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()
