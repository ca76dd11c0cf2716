"""Run a job on stored predictions in a process of its own: ``python -m tasks.scoring.further JOB.json``.

The process needs no torch, and ``evaluate``, which takes seconds to import, only for a metric of the owner's own.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the job described by the given file."""
    if len(sys.argv) != 2:
        print("usage: python -m tasks.scoring.further JOB.json", file=sys.stderr)
        return 2
    from tasks.engine.job import serve
    from tasks.scoring.further.jobs import JOBS

    return serve(JOBS, sys.argv[1])


if __name__ == "__main__":
    raise SystemExit(main())
