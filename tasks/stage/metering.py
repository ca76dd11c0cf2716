"""Measurement of a running stage's resources, and enforcement of its run's budget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tasks.errors import BudgetError, TooLong
from tasks.scoring.costs.ledger import cost_of, headline_figures
from tasks.stage.meter import Meter
from tasks.stage.session import Session, StageRecord

METER_POLL_SECONDS = 5.0  # seconds between two measurements of a running stage


@contextlib.asynccontextmanager
async def metered(session: Session, record: StageRecord) -> AsyncIterator[None]:
    """Measure the block, and cancel it in order once the run has spent its budget; record its resources however it
    ends."""
    with contextlib.ExitStack() as at_the_end:
        meter = session.machine.begin(record.threads, record.processes, record.cores)
        record.meter = meter
        at_the_end.callback(note_used, session, record, meter)
        async with within_budget(session):
            yield


@contextlib.asynccontextmanager
async def limited(session: Session, record: StageRecord) -> AsyncIterator[None]:
    """End the block where it takes too long, or where its engine hangs."""
    async with within_hours(record, session.stage_hours), within_silence(record, session.silent_minutes):
        yield


@contextlib.asynccontextmanager
async def within_hours(record: StageRecord, hours: float) -> AsyncIterator[None]:
    """Cancel the block after some hours on the clock, and raise TooLong: an engine that hangs does not end by
    itself. A cancelled engine may save its checkpoint, and is killed if it does not end."""
    limit = asyncio.timeout(hours * 3600)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TooLong(
            f"{record.display_name} did not end within {hours:g} hours, and was stopped; run again to continue from "
            f"its last checkpoint, or allow more by resources.stage_hours (LIMBECK_STAGE_HOURS on a worker)"
        ) from error


@contextlib.asynccontextmanager
async def within_silence(record: StageRecord, minutes: float) -> AsyncIterator[None]:
    """Cancel the block once its engine has reported nothing for some minutes (0: no limit), and raise TooLong.

    A training of many hours reports its steps all the time; an engine that hangs need not occupy a GPU for all of them.
    """
    if minutes <= 0:
        yield
        return
    record.silence = asyncio.timeout(minutes * 60)
    try:
        async with record.silence:
            yield
    except TimeoutError as error:
        if not record.silence.expired():
            raise
        raise TooLong(
            f"{record.display_name} reported nothing for {minutes:g} minutes, as one that hangs, and was stopped; run "
            f"again to continue from its last checkpoint, or allow more by LIMBECK_SILENT_MINUTES on the worker"
        ) from error


def note_used(session: Session, record: StageRecord, meter: Meter) -> None:
    """Record a stage's resources when it ends."""
    session.machine.end(meter)
    used = meter.used(session.machine, session.machine.looked)
    record.used, record.meter = {**used, "model_bytes": record.model_bytes}, None
    if session.budget is not None:
        record.figures = headline_figures(cost_of(record.used, session.budget.rates), session.budget.rates.market)


@contextlib.asynccontextmanager
async def within_budget(session: Session) -> AsyncIterator[None]:
    """Check the budget periodically while the block runs; if it is spent, cancel the block and raise BudgetError."""
    doer = asyncio.current_task()
    over: list[BudgetError] = []
    assert doer is not None

    async def poll() -> None:
        while not over:
            await asyncio.sleep(METER_POLL_SECONDS)
            try:
                require_rest(session, None)
            except BudgetError as error:
                over.append(error)
                doer.cancel()

    looking = asyncio.ensure_future(poll())
    try:
        yield
        if over:  # the block ended at this very moment: receive our own pending cancellation here
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        # As in asyncio.timeout: only our own cancellation becomes a BudgetError.
        if over and doer.uncancel() == 0:
            raise over[0] from None
        raise
    finally:
        looking.cancel()


def require_rest(session: Session, record: StageRecord | None) -> None:
    """Raise BudgetError if the run's budget is spent, or if the given stage would exceed it; without a budget, only
    update the meters."""
    if session.budget is not None:
        session.budget.require_rest(
            session.taken(), record.display_name if record else "", record.likely if record else None
        )
    else:
        session.machine.close_slice()
