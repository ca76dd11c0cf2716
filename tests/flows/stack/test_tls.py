"""TLS of the stack: no password crosses a network in the clear, and a client refuses what it should not trust. With a
real nginx where there is one."""

from __future__ import annotations

import http.server
import os
import ssl
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from flows.home import Home
from flows.stack import configs, credentials, probes, programs
from flows.stack.checks.certificate import certificate
from flows.stack.checks.finding import BAD, OK, WARNING
from flows.stack.services import client_environment, environment_of, services
from flows.stack.settings import Settings, Stack
from flows.stack.setup import certificates
from flows.stack.setup.authority import new_authority, new_certificate, pem, private_pem
from flows.stack.setup.certificates import TlsOptions, install
from flows.stack.setup.choice import choose
from flows.stack.setup.folders import lay_out
from flows.stack.setup.ports import HeldPorts
from tasks.errors import StackError
from tests.web_server import free_port

HOST = "127.0.0.1"
NGINX = programs.find("nginx")


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A stack with TLS that was never started, whose servers all run as whoever runs the tests."""
    monkeypatch.setattr("flows.stack.setup.folders.owner", lambda key: None)
    ports = {name: free_port() for name in Settings().ports}
    made = Stack(tmp_path / "stack", Settings(s3="radosgw", tls="authority", ports=ports))
    lay_out(made)
    return made


def files(folder: Path, host: str = HOST, days: float = 100, root: bool = True) -> TlsOptions:
    """Write a certificate of a company's authority, its chain and its key; return the options that name them."""
    authority = new_authority(host)
    made, key = new_certificate(authority, host, days)
    (folder / "mine.crt").write_bytes(pem(made) + (pem(authority[0]) if root else b""))
    (folder / "mine.key").write_text(private_pem(key))
    return TlsOptions(folder / "mine.crt", folder / "mine.key")


class Answers(http.server.BaseHTTPRequestHandler):
    """A server behind nginx that repeats what it was asked, and remembers the connections it was asked on."""

    protocol_version = "HTTP/1.1"
    callers: ClassVar[set[tuple[str, int]]] = set()

    def do_GET(self) -> None:
        self.callers.add(self.client_address)
        said = f"{self.headers['Host']} {self.headers['X-Forwarded-Proto']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.send_header("Set-Cookie", "session=1; Path=/")
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served(stack: Stack) -> Iterator[None]:
    """Run nginx with the configuration of the stack before servers that answer."""
    behind = [
        http.server.ThreadingHTTPServer(("127.0.0.1", stack.settings.ports[name]), Answers)
        for name in ("api-1", "api-2", "mlflow-plain", "s3-plain")
    ]
    for one in behind:
        threading.Thread(target=one.serve_forever, daemon=True).start()
    folder = stack.data / "nginx"
    (folder / "nginx.conf").write_text(configs.nginx_conf(stack))
    nginx = subprocess.Popen(
        [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"], stderr=subprocess.PIPE
    )
    try:
        for _ in range(200):
            if probes.status_of(f"{stack.prefect_url}/", authorities=stack.authorities):
                break
            assert nginx.poll() is None, nginx.stderr and nginx.stderr.read()
            time.sleep(0.05)
        yield
    finally:
        nginx.terminate()
        nginx.wait(20)
        for one in behind:
            one.shutdown()
            one.server_close()


def why_refused(url: str, context: ssl.SSLContext) -> str:
    """Return the reason for which a client refuses a server."""
    with pytest.raises(OSError) as caught:
        urllib.request.urlopen(url, timeout=20, context=context).close()
    return str(caught.value)


@pytest.mark.skipif(NGINX is None, reason="NO NGINX HERE: TLS was not tried with a server")
def test_a_client_that_trusts_the_authority_is_served_and_others_refuse(stack: Stack) -> None:
    install(stack, TlsOptions(local_authority=True))
    with served(stack):
        for url in (stack.prefect_url, stack.mlflow_url, stack.endpoint):
            assert url.startswith("https://")
            trusting = ssl.create_default_context(cafile=stack.trust)
            with urllib.request.urlopen(url, timeout=20, context=trusting) as answer:
                assert answer.read().decode() == f"{url.removeprefix('https://')} https"
                cookie = answer.headers["Set-Cookie"].lower()
                assert ("secure" in cookie and "httponly" in cookie) or url != stack.mlflow_url
            assert "unable to get local issuer" in why_refused(url, ssl.create_default_context())
            assert probes.status_of(url) == 0, "the password of a client that does not trust it is never sent"
            old = ssl.create_default_context(cafile=stack.trust)
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            assert "protocol" in why_refused(url, old).lower().replace("_", " ")
            assert probes.status_of(url.replace("https://", "http://")) == 400, "nor is it answered without TLS"


@pytest.mark.skipif(NGINX is None, reason="NO NGINX HERE: its connections were not counted")
def test_nginx_keeps_its_connections_to_the_api_servers(stack: Stack) -> None:
    install(stack, TlsOptions(local_authority=True))
    with served(stack):
        Answers.callers.clear()
        assert [probes.status_of(f"{stack.prefect_url}/", authorities=stack.authorities) for _ in range(9)] == [200] * 9
    assert 1 <= len(Answers.callers) <= len(stack.replicas)


@pytest.mark.skipif(NGINX is None, reason="NO NGINX HERE: TLS was not tried with a server")
def test_an_expired_certificate_is_refused_by_its_clients_and_named_by_the_doctor(stack: Stack) -> None:
    authority = certificates.authority_of(stack.tls, HOST)
    install(stack, TlsOptions(local_authority=True))
    expired, key = new_certificate(authority, HOST, days=-1)
    stack.certificate.write_bytes(pem(expired))
    stack.certificate_key.write_text(private_pem(key))
    with served(stack):
        assert "certificate has expired" in why_refused(
            stack.prefect_url, ssl.create_default_context(cafile=stack.trust)
        )
    [found] = certificate(stack)
    assert found.state == BAD and "expired" in found.details and found.remedy == "limbeck up"
    assert install(stack, TlsOptions()), "and up renews it"
    assert [one.state for one in certificate(stack)] == [OK]


def test_a_certificate_is_renewed_before_it_expires_and_its_authority_stays(stack: Stack) -> None:
    assert install(stack, TlsOptions(local_authority=True)) and not install(stack, TlsOptions())
    trusted = (stack.tls / "authority.crt").read_bytes()
    made, key = new_certificate(certificates.authority_of(stack.tls, HOST), HOST, days=29)
    stack.certificate.write_bytes(pem(made))
    stack.certificate_key.write_text(private_pem(key))
    assert [one.state for one in certificate(stack)] == [WARNING]
    assert install(stack, TlsOptions()) and certificates.days_left(stack) > 390
    assert (stack.tls / "authority.crt").read_bytes() == trusted, "colleagues need not trust another one"


def test_keys_are_for_their_owner_alone(stack: Stack) -> None:
    install(stack, TlsOptions(local_authority=True))
    for key in (stack.certificate_key, stack.tls / "authority.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(stack.tls.stat().st_mode) == 0o700


@pytest.mark.parametrize("host", ["10.1.2.3", "limbeck.example"])
def test_a_stolen_authority_vouches_for_no_other_host(host: str) -> None:
    authority = new_authority(host)
    bundle = pem(authority[0]).decode()
    for name in ("bank.example", "10.1.2.4"):
        made, key = new_certificate(authority, name)
        with pytest.raises(StackError, match="(permitted|excluded) subtree violation"):
            certificates.check(name, (pem(made).decode(), private_pem(key)), bundle, Path("stolen.crt"))
    made, key = new_certificate(authority, host)
    certificates.check(host, (pem(made).decode(), private_pem(key)), bundle, Path("own.crt"))


def test_a_certificate_of_ones_own_is_installed_and_can_be_replaced(stack: Stack, tmp_path: Path) -> None:
    stack = replace(stack, settings=replace(stack.settings, tls="certificate"))
    assert install(stack, files(tmp_path)) and not install(stack, TlsOptions())
    first = stack.certificate.read_bytes()
    assert install(stack, files(tmp_path)) and stack.certificate.read_bytes() != first
    assert not stack.tls.exists(), "no authority is made that nobody asked for"


def refused(folder: Path, kind: str) -> TlsOptions:
    """Return options that no client could live with."""
    wanted = files(folder, days=-1 if kind == "expired" else 100, root=kind != "no chain")
    if kind == "of another host":
        return files(folder, host="10.9.9.9")
    if kind == "of another key":
        assert wanted.key
        wanted.key.write_text(private_pem(new_authority(HOST)[1]))
    if kind == "with a password":
        done = subprocess.run(
            ["openssl", "pkey", "-in", "mine.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key"],
            cwd=folder,
        )
        assert done.returncode == 0
        return replace(wanted, key=folder / "locked.key")
    if kind == "no certificate":
        return replace(wanted, certificate=wanted.key)
    if kind == "alone":
        return replace(wanted, key=None)
    return replace(wanted, local_authority=kind == "twice")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    {
        "expired": "expired on .*get a new one",
        "no chain": "unable to get local issuer certificate.*whole chain",
        "of another host": "IP address mismatch.*has to name the host 127.0.0.1",
        "of another key": "do not belong together",
        "with a password": "the key has a password.*openssl pkey",
        "no certificate": "no certificate in PEM format",
        "alone": "--certificate and --key belong together",
        "twice": "choose one",
    }.items(),
)
def test_a_certificate_that_clients_would_refuse_is_refused_before_anything_is_made(
    kind: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(StackError, match=sentence):
        choose(
            Home(tmp_path / "home"), {"prefect_port": free_port(), "s3": "folder"}, HeldPorts(), refused(tmp_path, kind)
        )
    assert not (tmp_path / "home" / "stack").exists()


def test_a_stack_of_before_that_listens_without_tls_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At another loopback address, which is this machine's own on every Linux."""
    monkeypatch.setattr("flows.stack.setup.choice.choose_worker_user", lambda settings, wanted: "")
    port = free_port()
    stack = Stack(tmp_path / "stack", Settings(host="127.0.0.2", ports={"prefect": free_port(), "mlflow": port}))
    stack.root.mkdir()
    stack.save()
    with pytest.raises(StackError, match="unencrypted; add --certificate FILE --key FILE, or --local-authority"):
        choose(Home(tmp_path), {}, HeldPorts())
    if NGINX is not None:
        with HeldPorts() as held:
            assert choose(Home(tmp_path), {}, held, TlsOptions(local_authority=True)).settings.tls == "authority"
        with HeldPorts() as held:
            found = choose(Home(tmp_path), {}, held).url("mlflow")
        assert found == f"https://127.0.0.2:{port}", "and that stays chosen"


def test_clients_verify_and_servers_listen_behind_nginx_alone(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.stack.services.need", lambda program: f"/usr/bin/{program}")
    secret = credentials.generate(tmp_path / "secrets.json")
    stack = replace(stack, settings=replace(stack.settings, host="10.1.2.3"))
    told, running = client_environment(stack, secret), services(stack, secret)
    wanted = ("PREFECT_API_SSL_CERT_FILE", "MLFLOW_TRACKING_SERVER_CERT_PATH", "AWS_CA_BUNDLE")
    worker = environment_of(stack, running["worker-cpu"])
    for found in (told, worker):
        assert {found[name] for name in wanted} == {str(stack.trust)}
        addresses = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "AWS_ENDPOINT_URL_S3")
        assert all(found[name].startswith("https://10.1.2.3:") for name in addresses)
    assert running["mlflow"].environment["AWS_CA_BUNDLE"] == str(stack.trust), "MLflow asks the S3 server as well"
    command = running["mlflow"].command
    assert command[command.index("--host") + 1] == "127.0.0.1" == stack.listens("s3")[0]


def test_nginx_gets_the_key_and_nothing_else_of_the_authority(stack: Stack) -> None:
    install(stack, TlsOptions(local_authority=True))
    there = {path.name for path in (stack.data / "nginx").iterdir()}
    assert there == {"server.crt", "server.key"} and "PRIVATE" not in stack.trust.read_text()
    assert os.stat(stack.trust).st_mode & 0o004, "workers of another user read it"
