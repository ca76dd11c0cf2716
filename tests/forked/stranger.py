"""The process that has none of our code: it imports torch, transformers and MLflow, and forks one process for each
order.

It is a program of its own, which imports nothing of the tests, and ends when the process ends that began them.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import traceback
from typing import Any, NoReturn

OURS = ("deployments", "flows", "tasks", "tests")


def serve(listener: socket.socket, owner: int) -> None:
    """Fork for each order, the one line of a connection, and answer its exit status."""
    gone = os.pidfd_open(owner)
    while gone not in select.select([listener, gone], [], [])[0]:
        assert not [name for name in sys.modules if name.split(".")[0] in OURS]
        wire, _ = listener.accept()
        with wire, wire.makefile() as letter:
            line = letter.readline()
            child = os.fork()
            if not child:
                run(json.loads(line))
            wire.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())


def run(order: dict[str, Any]) -> NoReturn:
    """Do one order and end."""
    status = 1
    try:
        write = os.O_WRONLY | os.O_CREAT
        for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, order["out"], write), (2, order["err"], write)):
            os.dup2(os.open(path, mode, 0o600), number)
        os.closerange(3, 256)
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


def main() -> None:
    """Import, say so on stdout, and serve."""
    import mlflow.pyfunc
    import mlflow.store.tracking.sqlalchemy_store
    import mlflow.transformers
    import transformers.models.albert.modeling_albert
    import transformers.models.bert.modeling_bert

    needed = ("AutoModel", "AutoModelForSequenceClassification", "AutoModelForTokenClassification", "AutoTokenizer")
    assert all(getattr(transformers, name) for name in (*needed, "pipeline")) and mlflow.pyfunc
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(16)
    print("warm", flush=True)
    serve(listener, int(sys.argv[2]))


if __name__ == "__main__":
    main()
