"""Workers run what is deployed, and so never as root by mistake: another user runs them, or the start is refused."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from flows.home import Home
from flows.stack import credentials
from flows.stack.people.machines import start_worker
from flows.stack.services import environment_of, services
from flows.stack.settings import Settings, Stack
from flows.stack.setup import worker_user
from flows.stack.setup.folders import give_to_user
from flows.stack.setup.worker_user import choose_worker_user, require_access
from tasks.errors import StackError
from tests.flows.stack.running import APART, ROOT

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="these tests do not run as root")
S3 = Settings(s3="radosgw")
LAUNCHED = """
import sys
from dataclasses import replace
from flows.stack import launch, services
services.need = lambda program: "/usr/bin/" + program
secrets = sys.argv[1]
command = ["/bin/sh", "-c", f"id -un; pwd; echo $HOME; env; stat -c %U:%a $TMPDIR; cat {secrets}"]
made = services.services
launch.services = lambda stack, secret: {"worker-cpu": replace(made(stack, secret)["worker-cpu"], command=command)}
sys.argv = ["launch", "worker-cpu"]
launch.main()
"""


@pytest.fixture
def of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide as root does, whoever runs the tests."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def anybody_can_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_user, "require_access", lambda user: None)


def test_without_a_user_for_them_root_starts_no_workers(of_root: None) -> None:
    with pytest.raises(StackError, match="no user no-such-user; create it: useradd --system .* no-such-user, and run"):
        choose_worker_user(S3, "no-such-user")


def test_root_runs_them_only_if_a_person_says_so(of_root: None, anybody_can_run_it: None) -> None:
    assert choose_worker_user(S3, "root") == "root"
    assert choose_worker_user(Settings(s3="radosgw", worker_user="root"), None) == "root", "and once is enough"
    assert choose_worker_user(S3, APART) == APART
    assert choose_worker_user(Settings(s3="radosgw", worker_user=APART), None) == APART


def test_results_in_folders_of_root_are_not_for_another_user(of_root: None, anybody_can_run_it: None) -> None:
    with pytest.raises(StackError, match="cannot write results into folders of root; install an S3 server"):
        choose_worker_user(Settings(s3="folder"), APART)
    assert choose_worker_user(Settings(s3="folder", pools=()), None) == "", "a stack without workers needs no user"


def test_an_ordinary_user_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam(APART).pw_uid)
    assert choose_worker_user(S3, None) == choose_worker_user(S3, APART) == ""
    with pytest.raises(StackError, match="only root can start workers as another user"):
        choose_worker_user(S3, "root")


@AS_ROOT
def test_a_user_that_cannot_run_this_python_is_found_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, open_to_all = tmp_path / "closed" / "python", Path("/bin/true")
    closed.parent.mkdir(mode=0o700)
    closed.symlink_to(open_to_all)
    monkeypatch.setattr(sys, "executable", str(open_to_all))
    require_access(pwd.getpwnam(APART))
    monkeypatch.setattr(sys, "executable", str(closed))
    with pytest.raises(StackError, match=f"nobody, who is.*cannot read .*closed/python .{open_to_all.resolve()}"):
        require_access(pwd.getpwnam(APART))


@AS_ROOT
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_worker_of_root_s_stack_is_another_user_who_can_read_no_secret(closed: bool) -> None:
    """A process as the supervisor starts it, whose last step shows what a worker would see. A home that is closed to
    others has its data elsewhere."""
    import shutil
    import tempfile

    # pytest's own folders are closed to others
    home, data = (Path(tempfile.mkdtemp(prefix="limbeck-user-", dir="/tmp")) for _ in range(2))
    try:
        home.chmod(0o700 if closed else 0o711)
        data.chmod(0o711)
        stack = Stack(home / "stack", Settings(s3="radosgw", worker_user=APART))
        stack.root.mkdir(mode=0o711)
        (stack.root / "data").symlink_to(data)
        stack.workers.mkdir()
        stack.file.write_text(json.dumps(asdict(stack.settings)))
        give_to_user(stack.workers, APART)
        secret = credentials.generate(stack.secrets_file)
        told = {"PATH": os.environ["PATH"], "HOME": "/root", "A_SECRET": "of a person", "LIMBECK_HOME": str(home)}
        done = subprocess.run(
            [sys.executable, "-P", "-c", LAUNCHED, str(stack.secrets_file)],
            env=told | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        user, folder, its_home, *rest = done.stdout.splitlines()
        assert (user, folder, its_home) == (APART, str(stack.workers), str(stack.workers)), done.stdout + done.stderr
        assert rest[-1] == f"{APART}:700" and "Permission denied" in done.stderr, "secrets are closed to it"
        assert not any(word in done.stdout for word in ("A_SECRET", secret["LIMBECK_PREFECT_PASSWORD"]))
        assert f"LIMBECK_HOME={stack.workers / 'home'}" in rest
    finally:
        shutil.rmtree(home)
        shutil.rmtree(data)


@AS_ROOT
def test_what_a_worker_left_belongs_to_the_next_user_and_links_lead_nowhere(tmp_path: Path) -> None:
    folder, outside = tmp_path / "workers", tmp_path / "outside"
    (folder / "home").mkdir(parents=True)
    (folder / "home" / "result").write_text("")
    outside.write_text("")
    (folder / "link").symlink_to(outside)
    give_to_user(folder, APART)
    theirs = pwd.getpwnam(APART).pw_uid
    assert {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {theirs}
    assert outside.stat().st_uid == 0
    give_to_user(folder, "")
    assert folder.stat().st_uid == theirs, "without a name nothing changes"


def test_the_workers_of_an_ordinary_user_share_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.stack.services.need", lambda program: f"/usr/bin/{program}")
    stack = Stack(tmp_path / "stack", S3)
    secret = credentials.generate(tmp_path / "secrets.json")
    assert environment_of(stack, services(stack, secret)["worker-cpu"])["LIMBECK_HOME"] == str(tmp_path)
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600


def test_a_worker_on_another_machine_refuses_root(of_root: None, tmp_path: Path) -> None:
    file = tmp_path / "gpu-box.json"
    with pytest.raises(StackError, match="there is no file"):
        start_worker(Home(tmp_path), file, "gpu-local")
    file.write_text('{"trust": ""}')
    file.chmod(0o600)
    with pytest.raises(StackError, match="a worker must not run as root.*--as-root"):
        start_worker(Home(tmp_path), file, "gpu-local")
    with pytest.raises(FileNotFoundError):  # it goes on, to a home that is not there
        start_worker(Home(tmp_path / "nowhere"), file, "gpu-local", as_root=True)
