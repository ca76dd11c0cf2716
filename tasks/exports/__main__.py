"""Export a model: ``python -m tasks.exports JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasks.engine.libraries import prepare_tracing

WITH_TORCH = {"export", "export-program"}


def main() -> int:
    """Run the job in the named JSON file; torch is imported only for jobs that trace a checkpoint."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.exports JOB.json", file=sys.stderr)
        return 2
    order = json.loads(Path(sys.argv[1]).read_text())
    if order["job"] in WITH_TORCH:
        prepare_tracing(order.get("threads"))

    from tasks.engine.job import serve
    from tasks.exports.jobs import JOBS

    return serve(JOBS, sys.argv[1])


if __name__ == "__main__":
    raise SystemExit(main())
