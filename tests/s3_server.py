"""A real S3 server for the tests: Ceph's radosgw as plain processes on 127.0.0.1, or moto where Ceph is not installed.

Ceph needs root and Debian's packages ceph-mon, ceph-osd, radosgw and ceph-common. One monitor, one disk in a sparse file and one gateway,
tuned to start in seconds, and to answer at once: without ``tcp_nodelay`` every small answer waits 40 ms for the kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.servers import free_port

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph-authtool", "ceph")
ACCESS, SECRET, BUCKET = "limbeck", "limbeck-secret", "limbeck-tests"
CLUSTER, DISK = "5d8b6c0e-7a55-4c3f-9e0b-2f1f6d1f0001", "5d8b6c0e-7a55-4c3f-9e0b-2f1f6d1f0002"


@dataclass(frozen=True)
class S3Server:
    """A server and how to reach it."""

    kind: str
    endpoint: str

    def environment(self) -> dict[str, str]:
        """Return the usual AWS settings."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run an S3 server with one bucket."""
    with radosgw(folder) if kind_here() == "radosgw" else moto() as server:
        make_bucket(server)
        yield server


def kind_here() -> str:
    """Return which server this machine can run; one that was asked for and is not there is a failure, not a skip."""
    real = os.geteuid() == 0 and all(shutil.which(program) for program in PROGRAMS)
    if not real and os.environ.get("LIMBECK_S3") == "radosgw":
        raise RuntimeError("LIMBECK_S3 asks for radosgw, but Ceph is not installed or the tests do not run as root")
    return "radosgw" if real else "moto"


def make_bucket(server: S3Server) -> None:
    import boto3

    client = boto3.session.Session().client(
        "s3", endpoint_url=server.endpoint, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET, region_name="us-east-1"
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
    """Ceph in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.monitor = f"v2:127.0.0.1:{free_port()}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.conf, self.keyring = folder / "ceph.conf", folder / "keyring"

    def start(self) -> None:
        """Lay everything out and start monitor, disk and gateway."""
        for name in ("mon", "osd", "rgw", "run", "log"):
            (self.folder / name).mkdir(parents=True)
        self.conf.write_text(self.settings())
        self.call("monmaptool", "--create", "--fsid", CLUSTER, "--addv", "a", f"[{self.monitor}]", str(self.folder / "monmap"))
        self.call("ceph-authtool", "--create-keyring", str(self.keyring), "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.key("client.admin", "mon", "osd", "mgr")
        self.key("client.rgw", "mon", "osd")
        self.call("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(self.folder / "monmap"), "--keyring", str(self.keyring))
        self.run("ceph-mon", "-f", "-i", "a")
        self.add_disk()
        self.run("radosgw", "-f", "-n", "client.rgw")
        self.wait()
        user = ["--uid=tests", "--display-name=tests", f"--access-key={ACCESS}", f"--secret-key={SECRET}"]
        self.call("radosgw-admin", "-n", "client.rgw", "user", "create", *user)

    def server(self) -> S3Server:
        """Return how to reach the gateway."""
        return S3Server("radosgw", f"http://127.0.0.1:{self.port}")

    def restart_gateway(self, pause: float) -> None:
        """Kill the gateway without a word; start it again after a pause."""
        gateway = self.processes.pop()
        gateway.kill()
        gateway.wait()
        time.sleep(pause)
        self.run("radosgw", "-f", "-n", "client.rgw")
        self.wait()

    def settings(self) -> str:
        """Return the configuration: one copy of everything, and no waiting for others to agree."""
        return f"""
[global]
fsid = {CLUSTER}
mon host = {self.monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = {self.keyring}
run dir = {self.folder}/run
admin socket = {self.folder}/run/$name.asok
pid file = {self.folder}/run/$name.pid
log file = {self.folder}/log/$name.log
mon data = {self.folder}/mon
osd data = {self.folder}/osd
paxos propose interval = 0.05
paxos min wait = 0.01
mon tick interval = 1
mon data avail warn = 1
mon data avail crit = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = bluestore
osd memory target = 939524096
bluestore block size = 10737418240
bluestore block create = true
bluestore fsck quick fix on mount = false
[client.rgw]
rgw data = {self.folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{self.port} tcp_nodelay=1
rgw enable apis = s3, admin
rgw enable usage log = false
rgw num rados handles = 1
rgw dns name = localhost
"""

    def add_disk(self) -> None:
        """Make the one disk and start its daemon."""
        secret = self.call("ceph-authtool", "--gen-print-key").strip()
        self.call("ceph", "--connect-timeout", "30", "osd", "new", DISK, "-i", "-", given=json.dumps({"cephx_secret": secret}))
        self.call("ceph-authtool", str(self.keyring), "-n", "osd.0", "--add-key", secret)
        self.call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", DISK)
        self.run("ceph-osd", "-f", "-i", "0")

    def key(self, name: str, *daemons: str) -> None:
        """Add a key that may do everything with some daemons."""
        caps = [word for daemon in daemons for word in ("--cap", daemon, "allow *")]
        self.call("ceph-authtool", str(self.keyring), "--gen-key", "-n", name, *caps)

    def call(self, program: str, *words: str, given: str | None = None) -> str:
        """Run a tool to its end."""
        settings = [] if program in ("monmaptool", "ceph-authtool") else ["-c", str(self.conf)]
        done = subprocess.run([program, *settings, *words], input=given, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip()[-500:]}")
        return done.stdout

    def run(self, program: str, *words: str) -> None:
        """Start a daemon in the foreground of a session of its own."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen([program, "-c", str(self.conf), *words], start_new_session=True, **quiet))  # type: ignore[call-overload]

    def wait(self, patience: float = 60.0) -> None:
        """Wait until the gateway answers."""
        limit = time.monotonic() + patience
        while time.monotonic() < limit:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5).close()
                return
            time.sleep(0.1)
        raise RuntimeError(f"radosgw did not start; see {self.folder}/log")

    def stop(self) -> None:
        """Stop the daemons, the gateway first; a disk that is still busy is killed."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
