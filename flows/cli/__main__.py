"""The entry point of ``limbeck`` and of ``python -m flows.cli``."""

from __future__ import annotations

import sys

UNSUPPORTED = {
    "win32": "Windows is not supported, because stages need file locks and processes of Unix; use it inside of WSL 2",
    "cygwin": "Cygwin is not supported; use Linux, macOS, or WSL 2",
}
"""Messages of the systems on which nothing would run, by ``sys.platform``."""


def start_command_line() -> None:
    """Run the command line; on an unsupported system, refuse before anything is imported."""
    if sys.platform in UNSUPPORTED:
        print(f"limbeck: {UNSUPPORTED[sys.platform]}", file=sys.stderr)
        raise SystemExit(1)
    from flows.cli.app import main

    main()


if __name__ == "__main__":
    start_command_line()
