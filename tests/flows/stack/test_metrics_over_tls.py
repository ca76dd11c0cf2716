"""The exporter as ``limbeck up`` runs it for other machines: it reads a real Prefect over TLS with the token of a
worker, and Prometheus reads it over TLS."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from flows.monitoring.exporter import guarded_page
from flows.servers.worker_tokens import NO_ADMINISTRATION
from flows.stack import configs, credentials, probes
from flows.stack.checks.finding import BAD
from flows.stack.doctor import gpu_stages_elsewhere
from flows.stack.services import environment_of, public_url, services
from flows.stack.settings import Settings, Stack
from flows.stack.setup.certificates import TlsOptions, install
from flows.stack.setup.folders import lay_out
from tests.flows.stack.running import eventually
from tests.flows.stack.test_tls import NGINX
from tests.prefect_server import WORKER
from tests.web_server import free_port

WORKS = ("prefect", "mlflow", "workers", "queues", "slots", "ended")
"""Parts of the exporter that ask Prefect."""


@pytest.fixture
def stack(tmp_path: Path, prefect_url: str, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A stack with TLS whose API servers are the real server of the tests."""
    monkeypatch.setattr("flows.stack.setup.folders.owner", lambda key: None)
    monkeypatch.setattr("flows.stack.services.need", lambda program: f"/usr/bin/{program}")
    ports = {name: free_port() for name in Settings().ports}
    server = urlsplit(prefect_url).port or 0
    made = Stack(tmp_path / "stack", Settings(tls="authority", ports={**ports, "api-1": server, "api-2": server}))
    lay_out(made)
    install(made, TlsOptions(local_authority=True))
    return made


@contextmanager
def proxied(stack: Stack, server: str) -> Iterator[None]:
    """Run nginx with the stack's configuration; the server of the tests knows no name but its own."""
    asked = "      proxy_http_version 1.1;\n      proxy_set_header Host "
    text = configs.nginx_conf(stack)
    assert asked + "$http_host;" in text
    folder = stack.data / "nginx"
    conf = folder / "nginx.conf"
    conf.write_text(text.replace(asked + "$http_host;", f"{asked}{server};", 1))
    nginx = subprocess.Popen([str(NGINX), "-p", str(folder), "-c", str(conf), "-e", "stderr"])
    try:
        eventually(lambda: probes.prefect_ready(stack.prefect_url, stack.authorities), "nginx does not answer", 60)
        yield
    finally:
        nginx.terminate()
        nginx.wait(20)


@contextmanager
def exporting(stack: Stack, told: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the exporter with the environment of its process."""
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "MLFLOW_", "LIMBECK_"))]:
        monkeypatch.delenv(name)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    port, urls = stack.settings.ports["metrics"], (stack.prefect_url, public_url(stack))
    page = guarded_page(port, told["LIMBECK_METRICS_PASSWORD"], urls)
    server = uvicorn.Server(uvicorn.Config(page, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, "the exporter did not start", 60)
        yield
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.mark.skipif(NGINX is None, reason="NO NGINX HERE: the exporter was not tried over TLS")
def test_it_reads_and_is_read_over_tls_with_the_token_of_a_worker(
    stack: Stack, prefect_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_AUTH_STRING

    password = str(PREFECT_API_AUTH_STRING.value()).partition(":")[2]
    own = {"LIMBECK_PREFECT_PASSWORD": password, "LIMBECK_PREFECT_WORKER_TOKEN": WORKER.partition(":")[2]}
    secret = credentials.generate(stack.secrets_file) | own
    told = environment_of(stack, services(stack, secret)["metrics"])
    user, _, token = told["PREFECT_API_AUTH_STRING"].partition(":")
    assert user == "limbeck-worker" and password not in "".join(told.values()), "it has no password of a person"
    with proxied(stack, urlsplit(prefect_url).netloc), exporting(stack, told, monkeypatch):
        administers = probes.request_for(f"{stack.prefect_url}/api/work_pools/", user, token, {"name": "mine"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            probes.send(administers, stack.authorities)
        assert NO_ADMINISTRATION in refused.value.read().decode()
        pools = probes.ask(f"{stack.prefect_url}/api/work_pools/filter", user, token, {}, stack.authorities)
        (stages,) = gpu_stages_elsewhere(stack)
        assert stages.state != BAD, f"limbeck doctor knows the authority of PREFECT_API_SSL_CERT_FILE: {stages.details}"
        url, word = stack.metrics_url, secret["LIMBECK_METRICS_PASSWORD"]
        assert url.startswith("https://") and probes.status_of(url, "limbeck", "wrong", stack.authorities) == 401
        assert probes.status_of(url, user, token, stack.authorities) == 401, "it opens to Prometheus alone"
        assert probes.status_of(url, "limbeck", word) == 0, "a client that does not know the authority refuses"
        context = ssl.create_default_context(cafile=stack.trust)
        request = probes.request_for(url, "limbeck", word)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            text = answer.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    works = {one.labels["part"]: one.value for one in families["limbeck_exporter_part_up"].samples}
    assert {name: works[name] for name in WORKS} == dict.fromkeys(WORKS, 1.0), text
    up = {one.labels["server"]: one.value for one in families["limbeck_server_up"].samples}
    assert up["prefect"] == 1.0 and up["mlflow"] == 0.0, "there is no MLflow behind this nginx"
    assert {one.labels["pool"] for one in families["limbeck_workers"].samples} == {pool["name"] for pool in pools}
