"""Processes that have none of our code: forked from one that has imported torch, transformers and MLflow alone, since
each would take five to eight seconds of processor time for them.

``flows/test_round_trip.py`` starts a process of its own, with no more than what it imports itself.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

OURS = ("deployments", "flows", "tasks", "tests")


def ask_stranger(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a folder, as ``python -I -c`` does; words are its arguments."""
    with tempfile.TemporaryDirectory(prefix="limbeck-stranger-") as place:
        out, err = Path(place, "out"), Path(place, "err")
        order = {"code": code, "words": words, "folder": str(folder), "out": str(out), "err": str(err)}
        process = begun(os.getpid())
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        return subprocess.CompletedProcess(
            ["python", "-I", "-c", code, *words], status, out.read_text(), err.read_text()
        )


@cache
def begun(owner: int) -> subprocess.Popen[str]:
    """Start the process that forks, at the first use; it ends when nobody can order anything more."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=known, text=True
    )
    atexit.register(process.communicate)
    return process


def serve() -> None:
    """Fork for each order, a line on stdin; answer its exit status."""
    import mlflow.pyfunc
    import mlflow.store.tracking.sqlalchemy_store
    import mlflow.transformers
    import transformers.models.albert.modeling_albert
    import transformers.models.bert.modeling_bert

    needed = ("AutoModel", "AutoModelForSequenceClassification", "AutoModelForTokenClassification", "AutoTokenizer")
    assert all(getattr(transformers, name) for name in (*needed, "pipeline")) and mlflow.pyfunc
    for line in sys.stdin:
        assert not [name for name in sys.modules if name.split(".")[0] in OURS]
        child = os.fork()
        if not child:
            run(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(order: dict[str, Any]) -> NoReturn:
    """Do one order and end."""
    status = 1
    try:
        write = os.O_WRONLY | os.O_CREAT
        for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, order["out"], write), (2, order["err"], write)):
            os.dup2(os.open(path, mode, 0o600), number)
        os.chdir(order["folder"])
        sys.argv = ["-c", *order["words"]]
        exec(compile(order["code"], "<stranger>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
