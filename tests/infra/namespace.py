"""A network of its own for the processes of one worker: its metadata service has the real address, and the only other
host is the one with the servers.

Made of Linux's network namespaces, which need root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
METADATA = "169.254.169.254"


def why_not() -> str:
    """Return why this machine can make none, or nothing."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return (
            "NO NETWORK NAMESPACES HERE: they need root and iproute2; the notice was only tested at an address "
            "of its own"
        )
    probe = f"limbeck-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"NO NETWORK NAMESPACES HERE: {made.stderr.strip()}; the notice was only tested at an address of its own"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return ""


@dataclass
class Namespace:
    """One worker's network."""

    name: str
    host: str
    """The address of the host, as seen from inside."""
    wire: str = ""
    """The host's end of the one wire."""

    def command(self, *words: str) -> list[str]:
        """Return a command that runs inside."""
        return ["ip", "netns", "exec", self.name, *words]

    def reach(self, port: int) -> str:
        """Let what runs inside reach a port of the host's loopback; return its address there."""
        relay = Relay(self.host, port)
        return f"{self.host}:{relay.port}"


class Relay(threading.Thread):
    """Hands connections on from an address of the host to a port on its loopback; as a proxy does, by the name that the
    server there goes by."""

    def __init__(self, address: str, target: int) -> None:
        super().__init__(daemon=True)
        self.listening, self.target = socket.create_server((address, 0)), target
        self.port = int(self.listening.getsockname()[1])
        self.start()

    def run(self) -> None:
        while True:
            near, _ = self.listening.accept()
            far = socket.create_connection(("127.0.0.1", self.target))
            name, known = f"{self.listening.getsockname()[0]}:{self.port}".encode(), f"127.0.0.1:{self.target}".encode()
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=carry, args=(one, other, name, known), daemon=True).start()


def carry(one: socket.socket, other: socket.socket, name: bytes, known: bytes) -> None:
    """Carry bytes one way until there are no more."""
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data.replace(b"ost: " + name, b"ost: " + known))
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """Make a namespace with one wire to the host, and take it away."""
    made = uuid.uuid4()
    name, third, fourth = f"limbeck-{made.hex[:8]}", made.bytes[0], made.bytes[1] & 0xFC
    host, inside = f"10.213.{third}.{fourth + 1}", f"10.213.{third}.{fourth + 2}"
    near, far = f"lb{made.hex[:8]}h", f"lb{made.hex[:8]}n"
    steps = [
        f"netns add {name}",
        f"link add {near} type veth peer name {far} netns {name}",
        f"addr add {host}/30 dev {near}",
        f"link set {near} up",
        f"-n {name} link set lo up",
        f"-n {name} addr add {METADATA}/32 dev lo",
        f"-n {name} addr add {inside}/30 dev {far}",
        f"-n {name} link set {far} up",
    ]
    try:
        for step in steps:
            subprocess.run(["ip", *step.split()], check=True, capture_output=True)
        yield Namespace(name, host, near)
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)  # the wire goes with it


@contextlib.contextmanager
def metadata_service(
    notice: Path, inside: Namespace | None = None, port: int = 80
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the fake service, inside of a namespace at the real address or at a port on the loopback."""
    address = METADATA if inside else "127.0.0.1"
    words = [sys.executable, "-m", "tests.infra.fake_metadata", address, str(port), str(notice)]
    service = subprocess.Popen(inside.command(*words) if inside else words, cwd=ROOT)
    try:
        wait_until_it_listens(address, port, inside, service)
        yield service
    finally:
        service.kill()
        service.wait()


def wait_until_it_listens(address: str, port: int, inside: Namespace | None, service: subprocess.Popen[bytes]) -> None:
    """Wait for the first answer, which is a refusal."""
    ask = f"import socket; socket.create_connection(({address!r}, {port}), 1)"
    words = [sys.executable, "-c", ask]
    limit = time.monotonic() + 60
    while subprocess.run(inside.command(*words) if inside else words, capture_output=True).returncode:
        assert service.poll() is None and time.monotonic() < limit, "the metadata service did not start"
        time.sleep(0.1)
