"""Commands of the command line in processes of their own, and their errors as exceptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tasks.errors import LimbeckError

STATUS_OF_CTRL_C = 130
"""Exit status of a command that was stopped by Ctrl-C."""
SAID = "limbeck: "
"""Before each message of the command line."""


def recipe_words(
    recipe: str | Path | Mapping[str, object], changes: Mapping[str, object] | None, folder: Path
) -> list[str]:
    """Return a recipe and changes to its knobs as words of a command; a recipe given as a dict is written to
    ``folder``. JSON is YAML, too."""
    if isinstance(recipe, Mapping):
        path = folder / "recipe.yaml"
        path.write_text(json.dumps(recipe, default=str))
        recipe = path
    sets = [f"--set={knob}={json.dumps(value, default=str)}" for knob, value in (changes or {}).items()]
    return [str(recipe), *sets]


def run_command(*words: str, quiet: bool = False) -> str:
    """Run a command to its end and return its output, which is also printed line by line unless ``quiet``.

    Raises LimbeckError with the command's own sentence, and KeyboardInterrupt once an interrupted command has stopped.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "flows.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": packages_path()},
        start_new_session=True,  # an interrupt of the caller is passed on once, not twice
    )
    assert process.stdout is not None and process.stderr is not None
    problems: list[str] = []
    reading = threading.Thread(target=problems.extend, args=(process.stderr,), daemon=True)
    reading.start()
    try:
        output = passed_on(process.stdout, quiet)
        process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        passed_on(process.stdout, quiet)
        process.wait()
        raise
    except BaseException:
        process.kill()
        process.wait()
        raise
    reading.join()
    check_end(process.returncode, problems, quiet)
    return output


def packages_path() -> str:
    """Return the path by which a new process finds the same packages as this one."""
    own = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))


def passed_on(stream: IO[str], quiet: bool) -> str:
    """Return the lines of a command's output, printed as they come unless ``quiet``; a notebook shows what is printed,
    not what a child process writes."""
    lines = []
    for line in stream:
        lines.append(line)
        if not quiet:
            print(line, end="", flush=True)
    return "".join(lines)


def check_end(status: int, problems: list[str], quiet: bool) -> None:
    """Raise the error of a command that failed; print the warnings of one that did not."""
    said = "".join(problems).strip()
    if status == STATUS_OF_CTRL_C:
        raise KeyboardInterrupt
    if status:
        _, found, sentence = said.rpartition(SAID)
        raise LimbeckError(sentence.strip() if found else f"the command ended with status {status}: {said[-2000:]}")
    if said and not quiet:
        print(said, file=sys.stderr)
