"""A stand-in of the Hugging Face Hub on 127.0.0.1: as much of its HTTP interface as an upload uses, for one token."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.web_server import answered_by

TOKEN = "hf_" + "t" * 34


@dataclass
class Repository:
    """One model repository."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)


@dataclass
class Hub:
    """The server's address and what was written to it."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    """Uploaded large files by digest."""
    tokens: set[str] = field(default_factory=set)
    broken: bool = False
    """Whether it fails while large files are uploaded."""


class Requests(BaseHTTPRequestHandler):
    """Answers one request."""

    hub: Hub

    def log_message(self, *words: object) -> None:
        """Print nothing."""

    def answer(self, status: int, body: Any = None) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def authorised(self) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.hub.tokens.add(token)
        return token == TOKEN

    def do_GET(self) -> None:
        repo = urlsplit(self.path).path.removeprefix("/api/models/").removesuffix("/revision/main")
        found = self.hub.repositories.get(repo)
        if not self.authorised() or found is None:
            return self.answer(404, {"error": "Repository not found"})
        self.answer(200, {"id": repo, "private": found.private, "siblings": [], "sha": "0" * 40})

    def do_PUT(self) -> None:
        if self.hub.broken:
            self.body()
            return self.answer(400, {"error": "the disk is full"})
        content = self.body()
        self.hub.large[sha256(content).hexdigest()] = content
        self.answer(200)

    def do_POST(self) -> None:
        path, content = urlsplit(self.path).path, self.body()
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if not self.authorised():
            return self.answer(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            return self.create(json.loads(content))
        if path.endswith("/info/lfs/objects/batch"):
            return self.large_files(json.loads(content))
        repo = path.removeprefix("/api/models/").rsplit("/", 2)[0]
        if path.endswith("/preupload/main"):
            files = [
                {"path": one["path"], "uploadMode": mode_of(one["path"]), "shouldIgnore": False}
                for one in json.loads(content)["files"]
            ]
            return self.answer(200, {"files": files})
        self.commit(repo, content)

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] != "ann":
            return self.answer(403, {"error": "You don't have the rights to create a model under this namespace"})
        if name in self.hub.repositories:
            told = {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"}
            return self.answer(409, told)
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repositories[name] = Repository(bool(private))
        self.answer(200, {"url": f"{self.hub.url}/{name}"})

    def large_files(self, asked: dict[str, Any]) -> None:
        place = f"{self.hub.url}/large/"
        objects = [
            {**one, "authenticated": True, "actions": {"upload": {"href": place + one["oid"]}}}
            for one in asked["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def commit(self, repo: str, content: bytes) -> None:
        found = self.hub.repositories[repo]
        for entry in map(json.loads, content.splitlines()):
            value = entry["value"]
            if entry["key"] == "header":
                found.commits.append(value["summary"])
            elif entry["key"] == "file":
                found.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                found.files[value["path"]] = self.hub.large[value["oid"]]
        number = sha256(content).hexdigest()[:40]
        url = f"{self.hub.url}/{repo}/commit/{number}"
        self.answer(200, {"success": True, "commitOid": number, "commitUrl": url, "hookOutput": ""})


def mode_of(path: str) -> str:
    """Return the Hub's way to store a file: large ones apart from the commit."""
    return "lfs" if path.endswith((".safetensors", ".onnx")) else "regular"


@contextlib.contextmanager
def hub_server() -> Iterator[Hub]:
    """Run the stand-in."""
    hub = Hub()
    with answered_by(type("HubRequests", (Requests,), {"hub": hub})) as port:
        hub.url = f"http://127.0.0.1:{port}"
        yield hub
