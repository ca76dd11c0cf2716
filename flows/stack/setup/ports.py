"""The ports of a stack: chosen at its first start, and looked at again whenever the whole of it starts.

A port is free while nothing listens on it, and nothing does between its choice and its server's start. Until its
servers listen, a ``limbeck up`` therefore holds its ports against others of this machine, each by a socket in Linux's
abstract namespace: it needs no file and no rights, and the kernel removes it with the process.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self

from flows.stack.settings import INNER, PUBLIC_PORTS, Settings
from tasks.errors import StackError

OUTGOING = 32768
"""The first port that Linux gives to outgoing connections."""


class HeldPorts:
    """The ports that one ``limbeck up`` has chosen; others pass over them until it is closed."""

    def __init__(self) -> None:
        self.held: dict[int, socket.socket | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for holder in self.held.values():
            if holder is not None:
                holder.close()
        self.held.clear()

    def take(self, host: str, port: int) -> bool:
        """Hold a port; return False if a program listens on it or another ``limbeck up`` holds it.

        Raises StackError if the host is no address of this machine.
        """
        if port in self.held:
            return False
        try:
            holder = hold(port)
        except OSError:
            return False
        if not is_free(host, port):
            if holder is not None:
                holder.close()
            return False
        self.held[port] = holder
        return True

    def first_free(self, usual: int, others: Collection[int] = ()) -> int:
        """Hold and return the first free inner port from its usual number upwards that is none of the others."""
        return next(port for port in range(usual, OUTGOING) if port not in others and self.take("127.0.0.1", port))

    def choose(self, host: str, wanted: Mapping[str, int | None]) -> dict[str, int]:
        """Return the ports of a new stack: public ports as requested or by default, inner ports the first free ones.

        Raises StackError if a public port is taken, or if the host is no address of this machine.
        """
        chosen = {name: wanted.get(name) or usual for name, usual in PUBLIC_PORTS.items()}
        for name, port in chosen.items():
            if not self.take(host, port):
                raise StackError(
                    f"port {port} on {host} is in use; stop the program that listens on it, or choose another with "
                    f"--{name}-port"
                )
        return chosen | {name: self.first_free(usual) for name, usual in INNER.items()}

    def choose_again(self, settings: Settings) -> dict[str, int]:
        """Return the ports of a stack that was down: inner ports that a program took in the meantime move to free ones.

        Raises StackError if a program took a port that clients know or that cannot change.
        """
        fixed = fixed_ports(settings)
        for name in fixed:
            host, port = host_of(settings, name), settings.ports[name]
            if not self.take(host, port):
                other = f", or choose another with --{name}-port" if name in PUBLIC_PORTS else ""
                raise StackError(
                    f"port {port} on {host}, which this stack had for {name} before it was stopped, is in use; stop "
                    f"the program that listens on it{other}"
                )
        inner = {name: settings.ports.get(name, usual) for name, usual in INNER.items() if name not in fixed}
        for name, port in inner.items():
            if not self.take("127.0.0.1", port):
                inner[name] = self.first_free(INNER[name])
        return {**settings.ports, **inner}


def fixed_ports(settings: Settings) -> list[str]:
    """Return the names of the ports that do not move: those that clients know, and that of Ceph's monitor, which its
    cluster stores."""
    return [*PUBLIC_PORTS, *(("s3", "ceph") if settings.s3 == "radosgw" else ())]


def host_of(settings: Settings, name: str) -> str:
    """Return the address on which a fixed port is listened on."""
    return "127.0.0.1" if name == "ceph" else settings.host


def hold(port: int) -> socket.socket | None:
    """Return a socket that holds a port against every other ``limbeck up``; None where there is no abstract namespace.

    Raises OSError if another one holds it.
    """
    if sys.platform != "linux":
        return None
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0limbeck-port-{port}")
    except OSError:
        holder.close()
        raise
    return holder


def is_free(host: str, port: int) -> bool:
    """Return whether nothing listens on a port.

    Raises StackError if the host is no address of this machine.
    """
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror as error:
            raise StackError(
                f"this machine knows no address of {host!r}, so no server can listen on it; give --host a name or an "
                f"address of this machine"
            ) from error
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise StackError(
                    f"{host} is no address of this machine, so no server can listen on it; those of the command ip "
                    f"addr are (the host of a stack is chosen at its first limbeck up)"
                ) from error
            return False
    return True
