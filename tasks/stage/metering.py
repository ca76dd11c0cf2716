"""The resources that a stage takes, measured while it runs, and the budget of its run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tasks.errors import BudgetError
from tasks.scoring.costs.ledger import cost_of, headline_figures
from tasks.stage.meter import Meter
from tasks.stage.session import Session, StageRecord

METER_POLL_SECONDS = 5.0  # seconds between two looks at what a stage under way takes


@contextlib.asynccontextmanager
async def metered(session: Session, record: StageRecord) -> AsyncIterator[None]:
    """Measure what is done inside, and end it in order once the run has spent its budget; what it took is noted however
    it ends."""
    with contextlib.ExitStack() as at_the_end:
        meter = session.machine.begin(record.threads, record.processes, record.cores)
        record.meter = meter
        at_the_end.callback(note_used, session, record, meter)
        async with within_budget(session):
            yield


def note_used(session: Session, record: StageRecord, meter: Meter) -> None:
    """Note what a stage took when it ends."""
    session.machine.end(meter)
    record.used, record.meter = meter.used(session.machine, session.machine.looked), None
    if session.purse is not None:
        record.figures = headline_figures(cost_of(record.used, session.purse.rates), session.purse.rates.market)


@contextlib.asynccontextmanager
async def within_budget(session: Session) -> AsyncIterator[None]:
    """Look now and then while something is done inside; cancel it when the budget is spent, and say so."""
    doer = asyncio.current_task()
    over: list[BudgetError] = []
    assert doer is not None

    async def look() -> None:
        while not over:
            await asyncio.sleep(METER_POLL_SECONDS)
            try:
                require_rest(session, None)
            except BudgetError as error:
                over.append(error)
                doer.cancel()

    looking = asyncio.ensure_future(look())
    try:
        yield
        if over:  # it was done at the very moment: the cancelling that is under way is ours, and ends here
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        # As asyncio.timeout does: only our own cancelling becomes an error of ours.
        if over and doer.uncancel() == 0:
            raise over[0] from None
        raise
    finally:
        looking.cancel()


def require_rest(session: Session, record: StageRecord | None) -> None:
    """Refuse to go on, or to start a stage, where the run's budget is spent or would be."""
    if session.purse is not None:
        session.purse.require_rest(session.taken(), record.shown if record else "", record.likely if record else None)
    else:
        session.machine.look()
