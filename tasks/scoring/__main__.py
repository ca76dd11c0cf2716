"""Put a model on the scales: ``python -m tasks.scoring JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Set the threads that the job may use, then load torch and run it."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.scoring JOB.json", file=sys.stderr)
        return 2
    threads = json.loads(Path(sys.argv[1]).read_text()).get("threads")

    import torch
    import transformers

    from tasks.job import serve
    from tasks.scoring.jobs import JOBS

    if threads:
        torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return serve(JOBS, sys.argv[1])


if __name__ == "__main__":
    raise SystemExit(main())
