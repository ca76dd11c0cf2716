"""Run a scoring job in a process of its own: ``python -m tasks.scoring JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

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


def prepare_torch(threads: int | None) -> None:
    """Import torch and limit it to the number of threads that the job may use."""
    import torch
    import transformers

    if threads:
        torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


if __name__ == "__main__":
    raise SystemExit(main())
