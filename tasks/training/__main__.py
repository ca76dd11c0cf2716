"""Run one job: ``python -m tasks.training JOB.json``. Requires only torch, transformers, numpy, pyarrow and
pydantic."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tasks.engine.libraries import prepare_torch


def main() -> int:
    """Load torch, limit it to the threads of the job, and run the job."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.training JOB.json", file=sys.stderr)
        return 2
    prepare_torch(json.loads(Path(sys.argv[1]).read_text()).get("threads"))

    from tasks.engine.job import die_with_parent, serve, serve_beside
    from tasks.training.jobs import JOBS

    if "RANK" in os.environ:
        die_with_parent(signal.SIGKILL)  # a torchrun that was killed cannot end its workers
    if int(os.environ.get("RANK", 0)):
        return serve_beside(JOBS, sys.argv[1])  # a distributed training: only rank 0 reports and writes
    return serve(JOBS, sys.argv[1])


if __name__ == "__main__":
    raise SystemExit(main())
