"""``python -m flows.cli`` is ``limbeck``."""

from __future__ import annotations

from flows.cli.app import main

if __name__ == "__main__":
    main()
