"""Measure a latency table: ``python -m tasks.search JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasks.engine.libraries import prepare_tracing


def main() -> int:
    """Run the job in the named JSON file, with torch limited to its threads before anything else is loaded."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.search JOB.json", file=sys.stderr)
        return 2
    prepare_tracing(json.loads(Path(sys.argv[1]).read_text()).get("threads"))

    from tasks.engine.job import serve
    from tasks.search.jobs import JOBS

    return serve(JOBS, sys.argv[1])


if __name__ == "__main__":
    raise SystemExit(main())
