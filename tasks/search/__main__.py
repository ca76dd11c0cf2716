"""Measure a latency table: ``python -m tasks.search JOB.json``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path


def main() -> int:
    """Run the job in the named JSON file, with torch limited to its threads before anything else is loaded."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.search JOB.json", file=sys.stderr)
        return 2
    prepare_torch(json.loads(Path(sys.argv[1]).read_text()).get("threads"))

    from tasks.engine.job import serve
    from tasks.search.jobs import JOBS

    return serve(JOBS, sys.argv[1])


def prepare_torch(threads: int | None) -> None:
    """Import torch, set its number of threads, and silence its logs."""
    import torch
    import transformers

    if threads:
        torch.set_num_threads(threads)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


if __name__ == "__main__":
    raise SystemExit(main())
