"""Run Prefect's services: ``python -m flows.servers.services``. As ``prefect server services start``, on a faster event
loop, with a garbage collector that suits a server, and not without one of them."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from flows.servers.garbage import collect_rarely
from flows.servers.service_ends import end_with_the_first


def main() -> None:
    """Run the services until a signal arrives."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    from prefect.cli import app

    end_with_the_first()  # this imports all services
    collect_rarely()
    sys.argv[1:] = ["server", "services", "start"]
    app()


if __name__ == "__main__":
    main()
