"""A real browser for tests: headless Chromium, driven by chromedriver in the words of the W3C's WebDriver."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.web_server import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WHY_NOT = "NO BROWSER HERE: apt-get install chromium chromium-driver, and pages are attacked in a real one"
QUIET = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
]
"""A browser without a window, whose own look-ups (updates, safe browsing) are switched off."""
WINDOW = "--window-size=1400,900"


class Browser:
    """One window."""

    def __init__(self, driver: str, arguments: list[str]) -> None:
        self.driver = driver
        options = {"binary": str(CHROMIUM), "args": [*QUIET, WINDOW, *arguments]}
        self.session = driver
        answer = self.ask(
            "POST",
            "/session",
            {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}},
        )
        self.session = f"{driver}/session/{answer['sessionId']}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.session + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with straight.open(request, timeout=450) as answer:
            return json.loads(answer.read())["value"]

    def open(self, url: str) -> None:
        self.ask("POST", "/url", {"url": url})

    def opens(self, url: str) -> bool:
        """Open an address; tell whether its server showed a page: in place of an empty answer, or of one that is no
        HTTP, the browser shows a page of its own, which has no origin."""
        try:
            self.open(url)
        except urllib.error.HTTPError:
            return False
        return bool(url.startswith(f"{self.run('return location.origin')}/"))

    def run(self, script: str, *given: Any) -> Any:
        """Run the body of an asynchronous function in the page and return what it returns."""
        given_and_done = "const [given, done] = [[...arguments].slice(0, -1), arguments[arguments.length - 1]];"
        whole = f"{given_and_done} (async () => {{ {script} }})().then(done, e => done('' + e));"
        return self.ask("POST", "/execute/async", {"script": whole, "args": list(given)})

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def wait_for(self, *words: str, patience: float = 60.0) -> str:
        """Wait until a page shows these words; return its text."""
        until = time.monotonic() + patience
        while not all(word in (text := self.text()) for word in words):
            assert time.monotonic() < until, f"{words} not in: {text}"
            time.sleep(0.2)
        return text

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))


@contextlib.contextmanager
def browser(folder: Path, *arguments: str) -> Iterator[Browser]:
    """Run a browser with a profile of its own."""
    port = free_port()
    words = [str(DRIVER), f"--port={port}"]
    with (folder / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                window = Browser(f"http://127.0.0.1:{port}", [f"--user-data-dir={folder / 'profile'}", *arguments])
                break
            assert time.monotonic() < until, (folder / "chromedriver.log").read_text()
            time.sleep(0.1)
        try:
            window.ask("POST", "/timeouts", {"script": 400_000, "pageLoad": 30_000})
            yield window
        finally:
            window.ask("DELETE", "")
    finally:
        process.terminate()
        process.wait()
