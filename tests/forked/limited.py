"""An engine of the training that may take little memory or disk: ``LIMIT`` names the limit, ``EXTRA`` the bytes.

The limit is set after torch is imported, which itself takes much address space.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from tasks.engine.job import serve
from tasks.training.jobs import JOBS


def limit(name: str, extra: int) -> None:
    """Let this process take some bytes more than it has, of memory, or of each file that it writes."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 if name == "RLIMIT_AS" else 0
    resource.setrlimit(getattr(resource, name), (used + extra, used + extra))


if __name__ == "__main__":
    limit(os.environ["LIMIT"], int(os.environ["EXTRA"]))
    sys.exit(serve(JOBS, sys.argv[1]))
