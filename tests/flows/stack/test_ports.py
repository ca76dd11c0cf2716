"""Which ports a stack gets: those that people know or none; inner ones that neither a program nor another
``limbeck up`` has taken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from flows.stack.settings import INNER, PUBLIC_PORTS, Settings
from flows.stack.setup.ports import HeldPorts
from tasks.errors import StackError
from tests.flows.stack.running import MOVABLE, taken_by_a_program
from tests.web_server import free_port


@contextmanager
def taken_by_another_up(port: int) -> Iterator[None]:
    """Another process holds a port, as a `limbeck up` does that was begun a moment ago."""
    says = (
        "import sys; from flows.stack.setup.ports import HeldPorts; held = HeldPorts()\n"
        f"print(held.take('127.0.0.1', {port}), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", says], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        yield
        other.kill()


def shown() -> dict[str, int | None]:
    return {"prefect": free_port(), "mlflow": free_port()}


def test_inner_ports_move_and_those_that_people_know_do_not() -> None:
    with taken_by_a_program() as port, pytest.raises(StackError, match=f"port {port} .*--mlflow-port"):
        HeldPorts().choose("127.0.0.1", {"prefect": free_port(), "mlflow": port})
    with HeldPorts() as held:
        chosen = held.choose("127.0.0.1", shown())
    assert len(set(chosen.values())) == len(PUBLIC_PORTS | INNER) and all(port < 32768 for port in chosen.values())


def test_two_that_choose_at_once_share_no_port() -> None:
    """Neither listens yet when the other one chooses."""
    with HeldPorts() as one, HeldPorts() as other:
        first = one.choose("127.0.0.1", shown())
        second = other.choose("127.0.0.1", shown())
        assert not set(first.values()) & set(second.values())
        with pytest.raises(StackError, match=f"port {first['prefect']} .* in use"):
            other.choose("127.0.0.1", {"prefect": first["prefect"], "mlflow": free_port()})
    with HeldPorts() as third:
        assert third.take("127.0.0.1", first["prefect"]), "it was held for ever"


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held against other processes on Linux")
def test_a_port_that_another_process_holds_is_passed_over_until_that_process_ends() -> None:
    port = free_port()
    with taken_by_another_up(port), HeldPorts() as held:
        assert not held.take("127.0.0.1", port)
        assert held.first_free(port) > port
    with HeldPorts() as held:
        assert held.take("127.0.0.1", port)


def test_a_stack_that_was_down_moves_from_what_others_took_unless_clients_know_it() -> None:
    with HeldPorts() as held:
        settings = Settings(s3="radosgw", ports=held.choose("127.0.0.1", shown()))
    with ExitStack() as others, HeldPorts() as held:
        for name in MOVABLE:
            others.enter_context(taken_by_a_program(settings.ports[name]))
        again = held.choose_again(settings)
    assert sorted(name for name in again if again[name] != settings.ports[name]) == MOVABLE
    assert len(set(again.values())) == len(again)
    for name in ("prefect", "mlflow", "s3", "ceph"):
        port = settings.ports[name]
        with taken_by_a_program(port), HeldPorts() as held, pytest.raises(StackError, match=f"port {port} .*{name}"):
            held.choose_again(settings)
    with HeldPorts() as held:
        assert held.choose_again(settings) == settings.ports, "nobody took any"


def test_a_host_of_another_machine_is_named() -> None:
    with pytest.raises(StackError, match="192.0.2.1 is no address of this machine"):
        HeldPorts().choose("192.0.2.1", shown())
    with pytest.raises(StackError, match="knows no address of 'nowhere.invalid'"):
        HeldPorts().choose("nowhere.invalid", shown())
