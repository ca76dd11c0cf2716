"""Access to a server on this machine: its password, a proof of its identity, and links that log a browser in.

Each server that Limbeck starts gets a new password. A client that knows the password can ask a server to prove that it
knows it, too, without sending it: another program may listen on the port by now. Such a client can also create a link
that logs one browser in, once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

USER = "limbeck"
PROOF = "/limbeck/proof"
LOGIN = "/limbeck/login"
LINK_HOURS = 12
ANSWER_SECONDS = 2.0  # seconds for an answer from this machine


@dataclass(frozen=True)
class Access:
    """The public address of one server and the password of its current start."""

    url: str
    password: str

    @classmethod
    def new(cls, url: str) -> Access:
        """Return the access to a server that is about to start, with a new password."""
        return cls(url, secrets.token_urlsafe(24))

    @property
    def login(self) -> str:
        """User and password in the form of Prefect's auth string."""
        return f"{USER}:{self.password}"

    @property
    def basic(self) -> str:
        """The value of an ``Authorization`` header."""
        return "Basic " + base64.b64encode(self.login.encode()).decode()

    @property
    def cookie(self) -> str:
        """The value of the cookie that a logged-in browser sends instead of the password."""
        return self.signed("cookie")

    @property
    def cookie_name(self) -> str:
        """The name of this server's cookie; it contains the port, because browsers share cookies between ports."""
        return f"limbeck-{urlsplit(self.url).port}"

    def signed(self, *words: str) -> str:
        """Return the HMAC-SHA256 of some words and this address, with the password as key (hexadecimal)."""
        return hmac.new(self.password.encode(), "\n".join((self.url, *words)).encode(), hashlib.sha256).hexdigest()

    def link(self, page: str = "") -> str:
        """Return a link that logs one browser in, once, and leads to a page of the server. The code follows a #, so
        that browsers send it neither to a server nor to another page."""
        return f"{self.url}{LOGIN}{f'?to={page}' if page else ''}#{self.code()}"

    def code(self) -> str:
        """Return a signed code for one login, valid for ``LINK_HOURS`` hours."""
        until, once = str(int(time.time() + LINK_HOURS * 3600)), secrets.token_hex(8)
        return f"{until}.{once}.{self.signed('login', until, once)}"

    def accepts(self, code: str) -> bool:
        """Return whether a code has a valid signature and has not expired; the guard ensures that it is used once."""
        until, _, rest = code.partition(".")
        once, _, sign = rest.partition(".")
        genuine = hmac.compare_digest(sign.encode(), self.signed("login", until, once).encode())
        return genuine and int(until) > time.time()

    def is_proved(self, patience: float = ANSWER_SECONDS) -> bool:
        """Return whether the listening program proves that it knows the password, which is not sent to it."""
        challenge = secrets.token_hex(16)
        # Ignore proxy settings: both processes are on this machine.
        straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with straight.open(f"{self.url}{PROOF}?{challenge}", timeout=patience) as answer:
                said = answer.read(200)
        except (OSError, ValueError):
            return False
        except Exception:  # noqa: BLE001 - http.client has errors of its own for whoever speaks no HTTP
            return False
        return hmac.compare_digest(said, self.signed("proof", challenge).encode())


def client_of(name: str, access: Access) -> dict[str, str]:
    """Return the environment variables of a client of a server: its address and credentials."""
    if name == "prefect":
        return {"PREFECT_API_URL": f"{access.url}/api", "PREFECT_API_AUTH_STRING": access.login}
    return {
        "MLFLOW_TRACKING_URI": access.url,
        "MLFLOW_TRACKING_USERNAME": USER,
        "MLFLOW_TRACKING_PASSWORD": access.password,
    }


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, so that other users can read it at no moment and nobody reads a part of it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_servers(path: Path, servers: dict[str, Access], process: int) -> None:
    """Write addresses and passwords of a home's running servers, for other commands of that home."""
    write_private(
        path,
        json.dumps(
            {"process": process, **{name: {"url": one.url, "password": one.password} for name, one in servers.items()}}
        )
        + "\n",
    )


def read_servers(path: Path) -> dict[str, Access]:
    """Return the servers listed in a file; empty if it is missing, invalid, or if another user could have written or
    read it."""
    found: Any = {}
    with contextlib.suppress(OSError, ValueError), path.open() as stream:
        about = os.fstat(stream.fileno())
        if about.st_uid == os.geteuid() and not about.st_mode & 0o077:
            found = json.load(stream)
    try:
        return {name: Access(str(found[name]["url"]), str(found[name]["password"])) for name in ("prefect", "mlflow")}
    except (KeyError, TypeError):
        return {}


def running_servers(path: Path) -> dict[str, Access]:
    """Return the servers of a running ``limbeck ui``; empty if the listening programs cannot prove their identity."""
    found = read_servers(path)
    return found if found and all(access.is_proved() for access in found.values()) else {}
