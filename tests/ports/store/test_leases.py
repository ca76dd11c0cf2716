"""Leases in a bucket whose clock jumps: a living holder keeps its lease, and a dead one loses it, whatever the hour is
said to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tasks.ports.store import leases
from tasks.ports.store.bucket import Entry
from tasks.ports.store.leases import BEATS, BucketLease

SECONDS, HOUR = 120.0, 3600.0
KEY = "ab" * 32


@dataclass
class World:
    """A bucket in memory with a clock of its own, and the time that really passes."""

    passed: float = 1000.0
    ahead: float = 0.0
    """How far the bucket's clock is from where it was."""
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def monotonic(self) -> float:
        return self.passed

    def entries(self, prefix: str) -> list[Entry]:
        now = self.passed + self.ahead
        return [
            Entry(name, len(body), round(now) - round(at))
            for name, (body, at) in self.objects.items()
            if name.startswith(prefix)
        ]

    def create(self, name: str, body: bytes) -> bool:
        if name in self.objects:
            return False
        self.write(name, body)
        return True

    def write(self, name: str, body: bytes) -> None:
        self.objects[name] = body, self.passed + self.ahead

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Time that passes when a test says so; holders renew their leases when it says so, not by a thread."""
    found = World()
    monkeypatch.setattr(leases, "time", found, raising=False)
    monkeypatch.setattr(BucketLease, "renew", lambda self: None)
    yield found


def lease(world: World) -> BucketLease:
    return BucketLease(world, KEY, SECONDS)  # type: ignore[arg-type]


def wait(world: World, waiter: BucketLease, seconds: float, holder: BucketLease | None = None) -> bool:
    """Let time pass for a waiter that tries every few seconds, beside a holder that renews; tell whether the waiter got
    the lease."""
    end, beat = world.passed + seconds, world.passed
    while world.passed < end:
        if holder is not None and world.passed >= beat:
            assert holder.renew_once(), "a living holder lost its lease"
            beat = world.passed + SECONDS / BEATS
        if waiter.acquire({}):
            return True
        world.passed += 4.0
    return False


@pytest.mark.parametrize(
    "jump", [HOUR, -HOUR, 600.0, -600.0], ids=["hour ahead", "hour back", "ten minutes ahead", "ten minutes back"]
)
def test_a_living_holder_keeps_its_lease_when_the_clock_jumps(world: World, jump: float) -> None:
    holder, waiter = lease(world), lease(world)
    assert holder.acquire({}) and not wait(world, waiter, 60, holder)
    world.passed += 20  # it will renew in some seconds: until then its lease seems to be an hour older than it is
    world.ahead += jump
    assert not waiter.acquire({})
    world.passed += 4
    assert not waiter.acquire({})
    assert not wait(world, waiter, 600, holder)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 0.0], ids=["hour ahead", "hour back", "no jump"])
def test_a_dead_holder_loses_its_lease_though_the_clock_jumps(world: World, jump: float) -> None:
    holder, waiter = lease(world), lease(world)
    assert holder.acquire({}) and not wait(world, waiter, 60, holder)
    world.ahead += jump
    assert wait(world, waiter, 2 * SECONDS + 10), "nobody would get this lease before the clock has gone on for an hour"


def test_a_lease_of_a_holder_that_died_long_ago_is_taken_at_once(world: World) -> None:
    assert lease(world).acquire({})
    world.passed += SECONDS + 2
    assert lease(world).acquire({})


def test_a_waiter_whose_own_machine_slept_watches_a_living_holder_anew(world: World) -> None:
    """The kernel's clock stood still meanwhile, the bucket's did not."""
    holder, waiter = lease(world), lease(world)
    assert holder.acquire({}) and not waiter.acquire({})
    world.ahead += HOUR  # for whoever slept it is as if the bucket's clock had been set ahead
    assert holder.renew_once() and not waiter.acquire({})
    assert not wait(world, waiter, 600, holder)
