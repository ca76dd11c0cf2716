"""Run a scoring job in a process of its own: ``python -m tasks.scoring JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasks.engine.libraries import prepare_torch

WITHOUT_MODELS = {"contrast", "inspect"}


def main() -> int:
    """Run the job described by the given file. Torch takes seconds to import, so it is loaded only for jobs that run a
    model."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.scoring JOB.json", file=sys.stderr)
        return 2
    order = json.loads(Path(sys.argv[1]).read_text())
    if order["job"] not in WITHOUT_MODELS:
        prepare_torch(order.get("threads"))

    from tasks.engine.job import serve
    from tasks.scoring.jobs import JOBS

    return serve(JOBS, sys.argv[1])


if __name__ == "__main__":
    raise SystemExit(main())
