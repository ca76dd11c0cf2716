"""As much of a Kubernetes API as a worker needs to start a job: it takes a job only if the schema of its version does,
and runs its container.

There is no scheduler, no node and no device plugin: what a job asks for is checked by the tests, and nothing here gives
it a GPU.
"""

from __future__ import annotations

import json
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.infra.containers import Machine
from tests.web_server import free_port

VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")


class Cluster(ThreadingHTTPServer):
    """A cluster of one machine."""

    def __init__(self, machine: Machine, secrets: dict[str, dict[str, str]], version: str = VERSIONS[-1]) -> None:
        super().__init__(("127.0.0.1", free_port()), Handler)
        self.machine, self.secrets, self.version = machine, secrets, version
        self.jobs: list[dict[str, Any]] = []
        self.refused: list[str] = []

    def kubeconfig(self, folder: Path) -> Path:
        """Write the file by which clients find this cluster."""
        address, port = self.server_address[:2]
        cluster = {"name": "fake", "cluster": {"server": f"http://{address!s}:{port}"}}
        context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "fake", "user": {}}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(config | {"current-context": "fake"}))
        return folder / "kubeconfig"

    def take(self, job: dict[str, Any]) -> dict[str, Any]:
        """Use a job and run its container; raise ValueError where a real server would refuse it."""
        kubernetes_validate.validate(job, self.version, strict=True)
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        environment = {
            name: value
            for source in container.get("envFrom", [])
            for name, value in self.secrets[source["secretRef"]["name"]].items()
        }
        environment |= {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
        job["metadata"] |= {
            "name": f"{job['metadata'].get('generateName', 'job-')}{uuid.uuid4().hex[:5]}",
            "uid": str(uuid.uuid4()),
            "resourceVersion": "1",
        }
        self.jobs.append(job)
        self.machine.run(container["args"], environment, lambda status: None)
        return job


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Cluster
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.partition("?")[0].endswith("/jobs"):
            return self.refuse(404, f"{self.path} is not here")
        try:
            self.answer(201, self.server.take(body))
        except Exception as error:  # every way in which a job can be wrong is one answer
            self.server.refused.append(str(error))
            self.refuse(422, str(error)[:500])

    def do_GET(self) -> None:
        if self.path == "/version":
            return self.answer(
                200,
                {
                    "major": "1",
                    "minor": self.server.version.partition(".")[2],
                    "gitVersion": f"v{self.server.version}.0",
                },
            )
        self.refuse(404, f"{self.path} is not here")

    def refuse(self, code: int, message: str) -> None:
        """Answer as a server does that will not."""
        self.answer(
            code,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "Invalid",
                "code": code,
                "message": message,
            },
        )

    def answer(self, code: int, content: dict[str, Any]) -> None:
        """Answer with JSON."""
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing on the way."""
