"""The check of the certificate: whether clients accept it, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from flows.stack.checks.finding import BAD, OK, WARNING, Finding
from flows.stack.settings import Stack


def certificate(stack: Stack) -> Iterator[Finding]:
    """Report the days until the certificate expires; without TLS there is nothing to report."""
    if not stack.settings.tls:
        return
    from flows.stack.setup.authority import RENEWAL_DAYS
    from flows.stack.setup.certificates import AUTHORITY, days_left

    days = days_left(stack)
    said = f"for {stack.settings.host}, expired" if days <= 0 else f"for {stack.settings.host}, {days:.0f} more days"
    renew = "limbeck up" if stack.settings.tls == AUTHORITY else "limbeck up --certificate FILE --key FILE"
    state = BAD if days <= 0 else WARNING if days < RENEWAL_DAYS else OK
    yield Finding("certificate", state, said, renew if state != OK else "")
