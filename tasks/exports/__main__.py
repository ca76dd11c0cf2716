"""Export a model: ``python -m tasks.exports JOB.json``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

WITH_TORCH = {"export"}


def main() -> int:
    """Run the job in the named JSON file; torch is imported only for jobs that trace a checkpoint."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.exports JOB.json", file=sys.stderr)
        return 2
    order = json.loads(Path(sys.argv[1]).read_text())
    if order["job"] in WITH_TORCH:
        prepare_torch(order.get("threads"))

    from tasks.engine.job import serve
    from tasks.exports.jobs import JOBS

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
