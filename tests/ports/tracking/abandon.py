"""``python -m tests.ports.tracking.abandon HOME WAY``: a process that opens a run and a stage, and ends without closing
them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.ports.tracking.test_tracker import new_tracker, record

if __name__ == "__main__":
    home, way = Path(sys.argv[1]), sys.argv[2]
    tracker = new_tracker(home)
    tracker.open()
    tracker.stage_started(record())
    if way == "term":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
        os.kill(os.getpid(), signal.SIGTERM)
    raise RuntimeError("nobody closed the run")
