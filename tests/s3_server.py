"""A real S3 server for the tests: Ceph's radosgw as plain processes on 127.0.0.1, or moto where Ceph is not installed.

Ceph needs root and Debian's packages ceph-mon, ceph-osd, radosgw and ceph-common. It is laid out by the same code as
that of ``limbeck up``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.stack.ceph import Ceph, answers
from flows.stack.programs import SOFTWARE, need
from tests.web_server import free_port

ACCESS, SECRET, BUCKET = "limbeck", "limbeck-secret", "limbeck-tests"


@dataclass(frozen=True)
class S3Server:
    """A server and how to reach it."""

    kind: str
    endpoint: str

    def environment(self) -> dict[str, str]:
        """Return the usual AWS settings."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run an S3 server with one bucket."""
    with radosgw(folder) if kind_here() == "radosgw" else moto() as server:
        make_bucket(server)
        yield server


def kind_here() -> str:
    """Return which server this machine can run; one that was asked for and is not there is a failure, not a skip."""
    real = os.geteuid() == 0 and not SOFTWARE["ceph"].missing
    if not real and os.environ.get("LIMBECK_S3") == "radosgw":
        raise RuntimeError("LIMBECK_S3 asks for radosgw, but Ceph is not installed or the tests do not run as root")
    return "radosgw" if real else "moto"


def make_bucket(server: S3Server) -> None:
    import boto3

    client = boto3.session.Session().client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)


@contextlib.contextmanager
def moto() -> Iterator[S3Server]:
    """Run moto in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    server.start()
    try:
        yield S3Server("moto", "http://{}:{}".format(*server.get_host_and_port()))
    finally:
        server.stop()


@contextlib.contextmanager
def radosgw(folder: Path) -> Iterator[S3Server]:
    """Run a cluster of one disk and its gateway."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster.server()
    finally:
        cluster.stop()


class Cluster:
    """The S3 server of ``limbeck up`` in one folder, its daemons as children of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.ceph = folder, free_port(), Ceph(folder, find=need)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Lay everything out and start monitor, disk and gateway."""
        (self.folder / "log").mkdir(parents=True)
        self.ceph.lay_out("127.0.0.1", self.port, free_port())
        self.run("ceph-mon")
        self.ceph.add_disk()
        self.run("ceph-osd")
        self.run("radosgw")
        self.wait()
        self.ceph.user("tests", ACCESS, SECRET)

    def server(self) -> S3Server:
        """Return how to reach the gateway."""
        return S3Server("radosgw", f"http://127.0.0.1:{self.port}")

    def restart_gateway(self, pause: float) -> None:
        """Kill the gateway without a word; start it again after a pause."""
        gateway = self.processes.pop()
        gateway.kill()
        gateway.wait()
        time.sleep(pause)
        self.run("radosgw")
        self.wait()

    def run(self, daemon: str) -> None:
        """Start a daemon in a session of its own."""
        with (self.folder / "log" / f"{daemon}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(self.ceph.command(daemon), stdout=log, stderr=log, start_new_session=True)
            )

    def wait(self, patience: float = 60.0) -> None:
        """Wait until the gateway answers."""
        limit = time.monotonic() + patience
        while not answers("127.0.0.1", self.port):
            if time.monotonic() > limit:
                raise RuntimeError(f"radosgw did not start; see {self.folder}/log")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the daemons, the gateway first; a disk that is still busy is killed."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
