"""Whoever is not let in: strangers without a password, pages of other origins, other names for this machine, and
strangers on our own ports."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from flows.home import Home
from flows.run.environment import own_servers_environment, prepare_environment
from flows.servers.access import LOGIN, PROOF, Access, read_servers, running_servers, write_servers
from flows.servers.local import Server, listening, only_servers_of, serve
from flows.servers.serve import FIRST_VISIT
from tasks.errors import EngineError
from tests.web_server import answered_by

BOTH = pytest.mark.parametrize("name", ["prefect", "mlflow"])
ASKED = {"prefect": "/api/flows/filter", "mlflow": "/api/2.0/mlflow/experiments/search"}
ELSEWHERE = ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", "http://localhost.evil.example"]


@pytest.fixture
def access(name: str, mlflow: Server, prefect_url: str) -> Access:
    password = os.environ["PREFECT_API_AUTH_STRING"].partition(":")[2]
    return mlflow.access if name == "mlflow" else Access(prefect_url.removesuffix("/api"), password)


def ask(access: Access, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
    """Send a request as it is, whatever a library would think of it; return status, headers and text."""
    wire = http.client.HTTPConnection(urlsplit(access.url).netloc, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if body is None or isinstance(body, str) else json.dumps(body)
    try:
        wire.request(method, path, data, {"Content-Type": "application/json", **named})
        answer = wire.getresponse()
        return (
            answer.status,
            {key.lower(): value for key, value in answer.getheaders()},
            answer.read().decode(errors="replace"),
        )
    finally:
        wire.close()


@BOTH
@pytest.mark.parametrize("origin", ELSEWHERE)
def test_a_page_of_another_origin_neither_reads_nor_writes(name: str, access: Access, origin: str) -> None:
    """Even with the password: what a browser adds by itself is never enough."""
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    for method, more in (("GET", {}), ("POST", {"Content_Type": "text/plain"}), ("POST", {}), ("OPTIONS", preflight)):
        for known in ({}, {"Authorization": access.basic}):
            status, headers, _ = ask(
                access, method, ASKED[name], {} if method == "POST" else None, Origin=origin, **more, **known
            )
            assert status == 403 and "access-control-allow-origin" not in headers


@BOTH
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "[::1]:{port}",
        "",
    ],
)
def test_another_name_that_was_made_to_point_here_is_refused(name: str, access: Access, host: str) -> None:
    """DNS rebinding: for a browser the page and the server are one origin then, and Host alone tells them apart."""
    port = urlsplit(access.url).port
    for path in (ASKED[name], LOGIN, PROOF, "/"):
        assert ask(access, "GET", path, Host=host.format(port=port), Authorization=access.basic)[0] == 403


@BOTH
def test_who_has_no_password_gets_nothing(name: str, access: Access) -> None:
    wrong = Access(access.url, "wrong").basic
    for given in (
        {},
        {"Authorization": wrong},
        {"Authorization": "Basic"},
        {"Authorization": "Bearer " + access.password},
        {"Cookie": f"{access.cookie_name}="},
    ):
        assert ask(access, "POST", ASKED[name], {"max_results": 5}, **given)[0] == 401
    assert ask(access, "POST", ASKED[name], {"max_results": 5}, Authorization=access.basic)[0] == 200
    assert ask(access, "POST", ASKED[name], {"max_results": 5}, Authorization=access.basic, Origin=access.url)[0] == 200


@BOTH
def test_what_a_page_embeds_from_another_port_is_refused_and_a_link_is_followed(name: str, access: Access) -> None:
    for site in ("cross-site", "same-site"):
        for mode, target in (("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe"), ("cors", "empty")):
            assert (
                ask(
                    access,
                    "GET",
                    "/",
                    Sec_Fetch_Site=site,
                    Sec_Fetch_Mode=mode,
                    Sec_Fetch_Dest=target,
                    Authorization=access.basic,
                )[0]
                == 403
            )
    status, headers, _ = ask(
        access, "GET", LOGIN, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document"
    )
    assert (
        status == 200
        and headers["x-frame-options"] == "SAMEORIGIN"
        and headers["cross-origin-resource-policy"] == "same-origin"
    )


@BOTH
def test_a_link_logs_one_browser_in_once(name: str, access: Access) -> None:
    code = access.link().partition("#")[2]
    assert ask(access, "POST", LOGIN, code, Origin="http://evil.example")[0] == 403
    status, headers, said = ask(access, "POST", LOGIN, code, Origin=access.url, Sec_Fetch_Site="same-origin")
    assert status == 200
    if name == "mlflow":
        assert (
            json.loads(said) == {"stored": {}, "once": FIRST_VISIT}
            and "HttpOnly" in headers["set-cookie"]
            and "samesite=strict" in headers["set-cookie"].lower()
        )
        assert access.password not in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert (
            ask(access, "GET", "/", Cookie=cookie)[0] == 200
            and ask(access, "GET", "/", Cookie=cookie, Origin="http://evil.example")[0] == 403
        )
    else:
        assert "set-cookie" not in headers and list(json.loads(said)["stored"]) == ["prefect-password"]
        assert json.loads(said)["once"] == {}
    for refused in (
        code,
        "",
        "1.2.3",
        Access(access.url, "another").code(),
        Access("http://127.0.0.1:1", access.password).code(),
        "x" * 5000,
    ):
        assert ask(access, "POST", LOGIN, refused, Origin=access.url)[0] == 403


def test_a_link_is_good_for_a_day_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access.new("http://127.0.0.1:4200")
    code = access.code()
    assert access.accepts(code)
    until, once, _ = code.split(".")
    assert not access.accepts(f"{int(until) + 1}.{once}.{code.split('.')[2]}")
    monkeypatch.setattr("time.time", lambda: float(until) + 1)
    assert not access.accepts(code)


@pytest.mark.parametrize(
    "path",
    [
        "/api/events/in",
        "/api/events/out",
        "/api/logs/out",
        "/api/task_runs/subscriptions/scheduled",
        "/api/work_pools/cpu/channel",
    ],
)
@pytest.mark.parametrize("name", ["prefect"])
def test_no_websocket_opens_for_another_page_or_without_the_password(name: str, access: Access, path: str) -> None:
    from websockets.exceptions import ConnectionClosed, InvalidStatus, NegotiationError
    from websockets.sync.client import connect

    url = access.url.replace("http", "ws") + path
    for origin, host in (
        ("http://evil.example", "127.0.0.1"),
        (None, "evil.example"),
        (access.url, "evil.example"),
        ("null", "127.0.0.1"),
    ):
        wire = socket.create_connection(("127.0.0.1", urlsplit(access.url).port))
        with wire, pytest.raises(InvalidStatus, match="403"):
            named = url.replace("127.0.0.1", host)
            connect(named, sock=wire, origin=origin, subprotocols=["prefect"])  # type: ignore[arg-type]
    for subprotocols in (["prefect"], None):
        with (
            pytest.raises((InvalidStatus, ConnectionClosed, NegotiationError)),
            connect(url, origin=access.url, subprotocols=subprotocols) as opened,
        ):  # type: ignore[arg-type]
            opened.send(json.dumps({"type": "auth", "token": "wrong"}))
            while True:
                assert "auth_success" not in str(opened.recv(timeout=20))


@BOTH
def test_no_password_stands_where_other_users_look(name: str, access: Access, mlflow: Server) -> None:
    seen = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    assert f"--url {access.url}" in seen and access.password not in seen
    for path in (mlflow.log.parent.parent, *mlflow.log.parent.parent.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


# --- strangers on our ports
# -------------------------------------------------------------------------------------------------------------


@contextmanager
def stranger(answer: Any = None) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Run a server that says yes to everything, and notes what it is told."""
    heard: list[Mapping[str, str]] = []

    class Yes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append({"path": self.path, **dict(self.headers)})
            said = answer(self.path) if answer else b"true"
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *given: Any) -> None:
            """Say nothing."""

    with answered_by(Yes) as port:
        yield f"http://127.0.0.1:{port}", heard


def test_a_stranger_on_a_port_of_a_ui_that_was_killed_is_not_taken_for_it_and_hears_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").create()
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    with stranger() as (url, heard):
        known = {"prefect": Access.new(url), "mlflow": Access.new(url)}
        write_servers(home.servers_file, known, 1)
        assert running_servers(home.servers_file) == {} and own_servers_environment(home) == {}
        assert heard and all(one.password not in str(heard) for one in known.values())


def test_a_stranger_that_asks_our_server_for_its_proof_has_no_use_of_it(mlflow: Server) -> None:
    def passed_on(path: str) -> bytes:
        return ask(mlflow.access, "GET", path)[2].encode()

    with stranger(passed_on) as (url, heard):
        assert mlflow.access.is_proved() and not Access(url, mlflow.access.password).is_proved()
        assert heard[0]["path"].startswith(PROOF)


def test_a_server_that_the_user_named_is_his_and_never_hears_our_password(
    mlflow: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").create()
    write_servers(home.servers_file, {"prefect": mlflow.access, "mlflow": mlflow.access}, 1)
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example.com/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow.access.url)
    told = own_servers_environment(home)
    assert told == {
        "MLFLOW_TRACKING_URI": mlflow.access.url,
        "MLFLOW_TRACKING_USERNAME": "limbeck",
        "MLFLOW_TRACKING_PASSWORD": mlflow.access.password,
    }


def test_a_file_of_servers_that_others_can_read_or_write_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    write_servers(file, {"prefect": Access.new("http://127.0.0.1:1"), "mlflow": Access.new("http://127.0.0.1:2")}, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and set(read_servers(file)) == {"prefect", "mlflow"}
    for mode in (0o640, 0o606, 0o622):
        file.chmod(mode)
        assert read_servers(file) == {}
    file.chmod(0o600)
    for text in (
        "",
        "[]",
        '{"prefect": "http://127.0.0.1:4200", "mlflow": "http://127.0.0.1:5000"}',
        '{"prefect": {"url": 1}}',
    ):
        file.write_text(text)
        assert read_servers(file) == {}


def test_a_port_that_is_taken_is_named_before_anything_is_started(tmp_path: Path) -> None:
    from rich.console import Console

    home = Home(tmp_path / "home").create()
    (home.root / "logs" / "prefect.log").write_text("of another time")
    with stranger() as (url, heard):
        port = int(url.rpartition(":")[2])
        with pytest.raises(
            EngineError, match=rf"port {port} for Prefect is used by another program; .* --prefect-port"
        ):
            serve(home, port, port + 1 if port < 65535 else port - 1, Console())
        with (
            pytest.raises(EngineError, match=rf"port {port} for MLflow is used by another program; .* --mlflow-port"),
            listening("mlflow", port),
        ):
            pass
        assert not heard
    assert (home.root / "logs" / "prefect.log").read_text() == "of another time" and not home.servers_file.exists()


def test_a_second_ui_says_how_to_use_the_first_and_leaves_its_files(tmp_path: Path) -> None:
    from rich.console import Console

    home, other = Home(tmp_path / "home").create(), Home(tmp_path / "other").create()
    with only_servers_of(home), only_servers_of(other):
        with pytest.raises(EngineError, match="is starting in another terminal"):
            serve(home, 4200, 5000, Console())
        write_servers(
            home.servers_file,
            {"prefect": Access.new("http://127.0.0.1:1"), "mlflow": Access.new("http://127.0.0.1:2")},
            1,
        )
        before = home.servers_file.read_bytes()
        with pytest.raises(
            EngineError,
            match=r"is already running: .* Prefect by http://127.0.0.1:1/\S+ and to MLflow by http://127.0.0.1:2/\S+; "
            r"to stop",
        ):
            serve(home, 4200, 5000, Console())
        assert home.servers_file.read_bytes() == before
    with only_servers_of(home):
        assert not home.servers_file.exists(), "of one that was killed"


# --- the folder -------------------------------------------------------------------------------------------------------
# ------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_of_wide_modes_is_closed_to_others(tmp_path: Path) -> None:
    root = tmp_path / "home"
    for name in ("logs", "prefect", "mlartifacts", "store", "cache"):
        (root / name).mkdir(parents=True, mode=0o755)
    for name in ("mlflow.db", "prefect.db", "prefect.db-wal"):
        (root / name).write_text("")
        (root / name).chmod(0o644)
    root.chmod(0o755)
    Home(root).create()
    assert mode(root) == 0o700
    assert {path.name: mode(path) & 0o077 for path in root.iterdir()} == {path.name: 0 for path in root.iterdir()}


def test_a_new_home_is_its_owner_s_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path / "home").create()
    finally:
        os.umask(before)
    assert (
        mode(home.root) == 0o700
        and mode(home.root / "mlflow.db") == mode(home.root / "prefect.db") == 0o600
        and mode(home.root / "logs") == 0o700
    )


def test_a_folder_with_other_things_keeps_its_mode_and_ours_in_it_is_closed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    (tmp_path / "store").mkdir(mode=0o755)
    (tmp_path / "logs").symlink_to(tmp_path / "store")
    tmp_path.chmod(0o755)
    Home(tmp_path).create()
    assert (
        mode(tmp_path) == 0o755
        and mode(tmp_path / "thesis.tex") & 0o044
        and mode(tmp_path / "store") == 0o700
        and mode(tmp_path / "mlflow.db") == 0o600
    )


def test_a_home_that_a_group_shares_on_purpose_stays_shared_with_it_alone(tmp_path: Path) -> None:
    root = tmp_path / "home"
    (root / "store").mkdir(parents=True)
    (root / "store").chmod(0o2775)
    root.chmod(0o2775)
    Home(root).create()
    assert mode(root) == 0o2770 and mode(root / "store") == 0o2770 and mode(root / "mlflow.db") == 0o660


def test_what_killed_workers_left_is_swept_and_what_a_process_names_stays(tmp_path: Path) -> None:
    from flows.servers.workspaces import sweep_workspaces

    left, used, young = (tmp_path / f"prefect-workspace-attempt-{word}" for word in ("left", "used", "young"))
    for folder in (left, used, young):
        folder.mkdir()
        (folder / "supervisor.json").write_text('{"env": {"PREFECT_API_AUTH_STRING": "limbeck:secret"}}')
    for folder in (left, used):
        os.utime(folder, (0, 0))
    command = ["sh", "-c", "echo up; sleep 60; : $0", str(used / "supervisor.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert (
                process.stdout.readline() == b"up\n"
            )  # before that its command line may still be empty: it is just being started
            assert sweep_workspaces([tmp_path, tmp_path / "nowhere"]) == [left]
            assert not left.exists() and used.exists() and young.exists()
        finally:
            process.kill()


def test_the_address_of_a_server_and_its_password_come_together(
    mlflow: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that stands in the environment without its address belongs to some other server."""
    home = Home(tmp_path / "home").create()
    write_servers(home.servers_file, {"prefect": mlflow.access, "mlflow": mlflow.access}, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", {"PREFECT_API_AUTH_STRING": "of:another", "LIMBECK_STORE": "s3://mine"})
        prepare_environment(home)
        assert os.environ["PREFECT_API_AUTH_STRING"] == mlflow.access.login
        assert os.environ["MLFLOW_TRACKING_PASSWORD"] == mlflow.access.password
        assert (
            os.environ["LIMBECK_STORE"] == "s3://mine" and os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] == "false"
        )
