"""Put a model on the scales: ``python -m tasks.scoring JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WITHOUT_MODELS = {"contrast", "inspect"}


def main() -> int:
    """Run the job in the file that is named; torch is loaded for those that ask a model, and would cost the others
    seconds."""
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
    """Load torch with the threads that the job may use."""
    import torch
    import transformers

    if threads:
        torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


if __name__ == "__main__":
    raise SystemExit(main())
