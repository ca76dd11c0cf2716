"""A real S3 server of one machine: Ceph's monitor, one disk in a sparse file, and its gateway radosgw.

It honours conditional writes and refuses wrong secrets, as few small S3 servers do. There is one copy of everything:
data that the machine's disk loses is lost, so back up. This file needs only the standard library, so that the container
of the S3 server holds no other file of Limbeck.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.stack.programs import ProcessOwner

DAEMONS = {"ceph-mon": ("-i", "a"), "ceph-osd": ("-i", "0"), "radosgw": ("-n", "client.rgw")}
"""Arguments of each daemon, in start order."""
SHARE = 0.8  # of the disk space free at the first start, the part that objects may use
LEAST_BYTES = 10 * 2**30
COMMAND_SECONDS = 60.0

SETTINGS = """\
[global]
fsid = {cluster}
mon host = v2:127.0.0.1:{monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = {folder}/keyring
run dir = {folder}/run
admin socket =
pid file =
log file =
log to stderr = true
err to stderr = true
mon cluster log file =
debug mon = 0/1
debug paxos = 0/1
debug auth = 0/1
debug rocksdb = 0/1
debug bluestore = 0/1
debug bluefs = 0/1
debug bdev = 0/1
debug osd = 0/1
debug rgw = 0/1
mon data = {folder}/mon
osd data = {folder}/osd
# There is no quorum on one machine: without these settings a start takes three times as long.
paxos propose interval = 0.05
paxos min wait = 0.01
mon tick interval = 1
mon data avail warn = 5
mon data avail crit = 1
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
bluestore block size = {size}
bluestore block create = true
bluestore fsck quick fix on mount = false
[client.rgw]
rgw data = {folder}/rgw
# Without tcp_nodelay the kernel delays every small response by 40 ms.
rgw frontends = beast endpoint={host}:{port} tcp_nodelay=1
rgw enable apis = s3, admin
rgw enable usage log = false
rgw num rados handles = 1
rgw dns name = localhost
"""


def as_this_user() -> ProcessOwner:
    """Return no arguments: programs run as the user of this process."""
    return {}


class Ceph:
    """One cluster in one folder; ``find`` returns the path of a program, ``started`` returns extra arguments for
    ``subprocess.run`` (another user, for example)."""

    def __init__(
        self, folder: Path, *, find: Callable[[str], str] = str, started: Callable[[], ProcessOwner] = as_this_user
    ) -> None:
        self.folder, self.find, self.started = folder, find, started
        self.conf, self.keyring = folder / "ceph.conf", folder / "keyring"

    def command(self, daemon: str) -> list[str]:
        """Return the command of a daemon that stays in the foreground."""
        return [self.find(daemon), "-c", str(self.conf), "-f", *DAEMONS[daemon]]

    def lay_out(self, host: str, port: int, monitor: int, own: Callable[[Path], None] = lambda path: None) -> None:
        """Create all files that the first daemon needs; existing data stays, and the addresses are rewritten.

        Raises RuntimeError if the monitor's port differs from that of an existing cluster.
        """
        cluster = self.known("cluster") or str(uuid.uuid4())
        size = self.known("bluestore block size") or str(
            max(LEAST_BYTES, int(SHARE * shutil.disk_usage(self.folder).free) // 2**20 * 2**20)
        )
        for name in ("mon", "osd", "rgw", "run"):
            (self.folder / name).mkdir(exist_ok=True)
            own(self.folder / name)
        before = self.known("mon host")
        self.conf.write_text(
            SETTINGS.format(cluster=cluster, folder=self.folder, host=host, port=port, monitor=monitor, size=size)
        )
        own(self.conf)
        if not (self.folder / "mon" / "kv_backend").exists():
            self.first_monitor(cluster, monitor)
        elif before and not before.endswith(f":{monitor}"):
            raise RuntimeError(f"a monitor's port cannot be changed: it was {before}")

    def known(self, name: str) -> str:
        """Return a value of the existing configuration; empty if there is none."""
        lines = self.conf.read_text().splitlines() if self.conf.exists() else []
        name = {"cluster": "fsid"}.get(name, name)
        return next((line.partition(" = ")[2] for line in lines if line.partition(" = ")[0] == name), "")

    def first_monitor(self, cluster: str, monitor: int) -> None:
        """Create the keys and the monitor's database."""
        self.call(
            "monmaptool",
            "--create",
            "--clobber",
            "--fsid",
            cluster,
            "--addv",
            "a",
            f"[v2:127.0.0.1:{monitor}]",
            str(self.folder / "monmap"),
        )
        self.call(
            "ceph-authtool", "--create-keyring", str(self.keyring), "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"
        )
        for name, daemons in {"client.admin": ("mon", "osd", "mgr"), "client.rgw": ("mon", "osd")}.items():
            caps = [word for daemon in daemons for word in ("--cap", daemon, "allow *")]
            self.call("ceph-authtool", str(self.keyring), "--gen-key", "-n", name, *caps)
        self.call(
            "ceph-mon", "--mkfs", "-i", "a", "--monmap", str(self.folder / "monmap"), "--keyring", str(self.keyring)
        )

    def add_disk(self) -> None:
        """Create the one disk if there is none; the monitor must be running."""
        if (self.folder / "osd" / "whoami").exists():
            return
        disk, secret = str(uuid.uuid4()), self.call("ceph-authtool", "--gen-print-key").strip()
        self.call(
            "ceph",
            "--connect-timeout",
            str(int(COMMAND_SECONDS)),
            "osd",
            "new",
            disk,
            "-i",
            "-",
            given=json.dumps({"cephx_secret": secret}),
        )
        self.call("ceph-authtool", str(self.keyring), "-n", "osd.0", "--add-key", secret)
        self.call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)

    def user(self, name: str, access: str, secret: str) -> None:
        """Create a user of the S3 server, or set these keys on an existing user."""
        keys = [f"--uid={name}", "--key-type=s3"]
        known = name in json.loads(self.call("radosgw-admin", "-n", "client.rgw", "user", "list"))
        what = ["user", "modify"] if known else ["user", "create", f"--display-name={name}"]
        # This tool cannot read keys from standard input; they are on its command line while it runs.
        self.call("radosgw-admin", "-n", "client.rgw", *what, *keys, f"--access-key={access}", f"--secret-key={secret}")

    def call(self, program: str, *words: str, given: str | None = None) -> str:
        """Run a tool to its end and return its output; raise RuntimeError if it fails."""
        settings = [] if program in ("monmaptool", "ceph-authtool") else ["-c", str(self.conf)]
        done = subprocess.run(
            [self.find(program), *settings, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=2 * COMMAND_SECONDS,
            cwd=self.folder,
            **self.started(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout


def answers(host: str, port: int) -> bool:
    """Return whether the gateway answers."""
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(f"http://{host}:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def serve(ceph: Ceph, host: str, port: int, users: Sequence[tuple[str, str, str]]) -> int:
    """Run all three daemons until one ends or this process is stopped; this is the container's command."""
    running: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        for daemon in DAEMONS:
            running.append(subprocess.Popen(ceph.command(daemon)))
            if daemon == "ceph-mon":
                ceph.add_disk()
        until = time.monotonic() + COMMAND_SECONDS
        while not answers("127.0.0.1" if host == "0.0.0.0" else host, port):
            if time.monotonic() > until:
                raise RuntimeError("radosgw does not respond; its output is above")
            time.sleep(0.2)
        for user in users:
            ceph.user(*user)
        print("radosgw is ready", flush=True)
        while all(process.poll() is None for process in running):
            time.sleep(0.5)
        return 1
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(60)  # after an abrupt end the disk's next start begins with a long check


def main() -> int:
    """Serve S3 from one folder; the keys of the users come from the environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7480)
    given = parser.parse_args()
    ceph = Ceph(given.folder)
    ceph.lay_out(given.host, given.port, 6789)
    users = [
        (name, os.environ[f"LIMBECK_S3_{name.upper()}_ACCESS_KEY"], os.environ[f"LIMBECK_S3_{name.upper()}_SECRET_KEY"])
        for name in ("store", "mlflow")
    ]
    return serve(ceph, given.host, given.port, users)


if __name__ == "__main__":
    sys.exit(main())
