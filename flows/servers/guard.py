"""The guard before a server on this machine: it admits only requests to the server's own name, from its own pages, and
with its password.

A page of any website may send requests to 127.0.0.1 from its reader's browser. Three headers reveal such a request:
``Origin`` and ``Sec-Fetch-Site``, which a page cannot forge, and ``Host``, which is the website's own name if that name
points to this machine (DNS rebinding). Prefect checks none of them. Besides, no browser adds credentials to such a
request by itself: Prefect's password is in the storage of its own origin, and MLflow's cookie is not sent with requests
of other sites.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from flows.servers.access import LOGIN, PROOF, Access
from flows.servers.worker_tokens import NO_ADMINISTRATION, WorkerTokens

HEALTH = ("/health", "/api/health", "/api/ready")
"""Paths that report only whether a server is alive: load balancers request them by address, without a password."""
LONGEST_CODE = 300
NO_SETTINGS: Mapping[str, str] = {}
PROTECTION = {
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
SCRIPT = """
const to = new URLSearchParams(location.search).get("to") || "";
const code = location.hash.slice(1), say = text => document.getElementById("said").textContent = text;
history.replaceState(null, "", location.pathname);
fetch(location.pathname, {method: "POST", body: code, headers: {"Content-Type": "text/plain"}}).then(async answer => {
  if (!answer.ok) return say(await answer.text());
  const {stored, once} = await answer.json();
  for (const name in stored) localStorage.setItem(name, stored[name]);
  for (const name in once) if (localStorage.getItem(name) === null) localStorage.setItem(name, once[name]);
  location.replace(/^[/]\\w[\\w/-]*$/.test(to) ? to : "/");  // a page of this server, and of no other
});
"""
PAGE = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Limbeck</title><body>
<p id="said">Logging in …</p><script>{SCRIPT}</script></body></html>"""
SCRIPT_DIGEST = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = f"default-src 'none'; connect-src 'self'; script-src 'sha256-{SCRIPT_DIGEST}'"
AGAIN = "run limbeck ui again in another terminal; it prints a new one"
USED_UP = f"This link was already used, has expired, or belongs to another start: {AGAIN}."
LOG_IN = f'Log in by the link that limbeck ui printed, or {AGAIN}. Programs: eval "$(limbeck env)".'


class Guard:
    """An ASGI application that filters the requests to another one."""

    def __init__(
        self,
        app: Any,
        access: Access,
        *,
        also: Iterable[str] = (),
        keeps: str = "",
        closed: bool = False,
        once: Mapping[str, str] = NO_SETTINGS,
        workers: WorkerTokens | None = None,
    ) -> None:
        """Guard ``app``, whose public address is ``access.url``; ``also`` lists its other addresses.

        ``keeps`` selects how its pages stay logged in: ``storage`` (Prefect's page adds the password by itself) or
        ``cookie``; if empty, there are no login links. With ``closed`` the guard checks the password, because the
        server itself does not. ``once`` are settings of the server's pages for a browser that has none of its own.
        ``workers`` are the tokens of workers, which may not administer the server.
        """
        self.workers = workers
        self.app, self.access, self.keeps, self.closed, self.once = app, access, keeps, closed, dict(once)
        addresses = (access.url, local_name(access.url), *also)
        self.origins = {address for address in addresses if address}
        self.hosts = {urlsplit(address).netloc.lower() for address in self.origins}
        self.used: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse a request, answer it if it is for the guard itself, or pass it to the server."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = self.refusal(scope, headers) or await self.own_answer(scope, receive, headers)
        if answer is None and self.workers is not None:
            admitted = await self.workers.admitted(scope, receive, headers)
            scope, receive = admitted or (scope, receive)
            answer = None if admitted else JSONResponse({"detail": NO_ADMINISTRATION}, 403)
        if answer is None:
            await self.app(scope, receive, protecting(send))
        elif scope["type"] == "websocket":
            await receive()
            # closed before it is accepted: the browser sees status 403
            await send({"type": "websocket.close", "code": 1008})
        else:
            await answer(scope, receive, protecting(send))

    def refusal(self, scope: Any, headers: Headers) -> Response | None:
        """Return the refusal of a request that names another host or comes from another page; None if admitted."""
        if (
            scope["type"] == "http"
            and scope["path"] in HEALTH
            and scope["method"] in ("GET", "HEAD")
            and "origin" not in headers
        ):
            return None
        if not {host.lower() for host in headers.getlist("host") or [""]} <= self.hosts:
            return PlainTextResponse(f"This server accepts requests under its own name only: {self.access.url}", 403)
        if not set(headers.getlist("origin")) <= self.origins or (
            is_from_elsewhere(headers) and not is_navigation(scope, headers)
        ):
            return PlainTextResponse("Pages of other servers are refused.", 403)
        return None

    async def own_answer(self, scope: Any, receive: Any, headers: Headers) -> Response | None:
        """Return the guard's own response; None if the request is for the server."""
        path, method = scope["path"], scope.get("method", "")
        if path == PROOF:
            return PlainTextResponse(self.access.signed("proof", scope["query_string"].decode("latin-1")))
        if self.keeps and headers.get("host") != urlsplit(self.access.url).netloc and is_navigation(scope, headers):
            # localhost is another origin, where the browser is not logged in
            return RedirectResponse(self.access.url + path)
        if self.keeps and path == LOGIN:
            if method == "POST":
                return await self.log_in(Request(scope, receive))
            return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})
        if self.closed and path not in HEALTH and not self.is_known(headers):
            return PlainTextResponse(LOG_IN, 401)
        return None

    def is_known(self, headers: Headers) -> bool:
        """Return whether a request carries the password or the cookie of a logged-in browser."""
        given = headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), self.access.basic.encode()):
            return True
        cookies = [part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";")]
        own = [value for name, _, value in cookies if name == self.access.cookie_name]
        return self.keeps == "cookie" and any(
            hmac.compare_digest(value.encode(), self.access.cookie.encode()) for value in own
        )

    async def log_in(self, request: Request) -> Response:
        """Exchange a login code for the credentials of a browser; each code is valid once."""
        code = b""
        async for part in request.stream():
            code += part
            if len(code) > LONGEST_CODE:
                return PlainTextResponse(USED_UP, 403)
        text = code.decode(errors="replace")
        if text in self.used or not self.access.accepts(text):
            return PlainTextResponse(USED_UP, 403)
        self.used.add(text)
        stored = {"prefect-password": b64encode(self.access.login.encode()).decode()} if self.keeps == "storage" else {}
        answer = JSONResponse({"stored": stored, "once": self.once}, headers={"Cache-Control": "no-store"})
        if self.keeps == "cookie":
            answer.set_cookie(self.access.cookie_name, self.access.cookie, httponly=True, samesite="strict")
        return answer


def local_name(url: str) -> str:
    """Return the localhost form of a 127.0.0.1 address; empty for other addresses."""
    return url.replace("//127.0.0.1:", "//localhost:") if url.startswith("http://127.0.0.1:") else ""


def is_from_elsewhere(headers: Headers) -> bool:
    """Return whether the browser reports that a request comes from another site or another port of this machine."""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def is_navigation(scope: Any, headers: Headers) -> bool:
    """Return whether a request is a person's click on a link: that person sees the page, the linking site does not."""
    is_visit = (
        scope.get("method") == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    return is_visit and "origin" not in headers


def protecting(send: Any) -> Any:
    """Return a send function that adds headers that keep other pages from framing or embedding the response."""

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", [])}
            more = [
                (name.lower().encode(), value.encode())
                for name, value in PROTECTION.items()
                if name.lower().encode() not in known
            ]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return sent
