"""Look up every version of the lock in a database of known vulnerabilities: ``make audit``, and a report at the end of ``.ci/run``.

The database is PyPI's, else OSV's. Where neither can be reached nothing is known, and that is reported: pip-audit by itself then skips each package
and calls that no known vulnerability. Exit status: 1 if something is known, 0 otherwise; a missing network is no failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOCKS = "stack.txt", "test.txt", "cuda.txt", "dispatcher.txt"
SERVICES = "pypi", "osv"
WITHIN = 50.0
"""Seconds for everything: CI waits no longer for a network that does not answer."""


def packages(service: str, lock: str, seconds: float) -> list[dict[str, Any]]:
    """Return what a database says of each package of a lock; of none if it does not answer in time."""
    words = ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off", "--timeout", "5"]
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        *words,
        "--vulnerability-service",
        service,
        "--requirement",
        str(HERE / lock),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 0.1))
        return list(json.loads(done.stdout)["dependencies"])
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return []


def summary(found: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Return the lines of the report, and the exit status."""
    audited = {package["name"]: package for package in found if "skip_reason" not in package}
    if not audited:
        return [
            "AUDIT SKIPPED: no database of vulnerabilities can be reached from here; nothing is known of any package of the lock."
        ], 0
    skipped = sorted({package["name"] for package in found} - set(audited))
    lines = [
        f"{name} {package['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for name, package in sorted(audited.items())
        for flaw in package["vulns"]
    ]
    lines += [f"NOT AUDITED: {', '.join(skipped)}"] if skipped else []
    known = sum(bool(package["vulns"]) for package in audited.values())
    return [*lines, f"{len(audited)} packages audited, {known} with known vulnerabilities"], int(known > 0)


def main() -> int:
    """Ask one database after the other."""
    end, found = time.monotonic() + WITHIN, []
    for service in SERVICES:
        found = packages(service, LOCKS[0], end - time.monotonic())
        if any("skip_reason" not in package for package in found):
            found += [package for lock in LOCKS[1:] for package in packages(service, lock, end - time.monotonic())]
            break
    lines, status = summary(found)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
