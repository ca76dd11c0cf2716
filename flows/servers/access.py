"""Who may use a server on this machine: its password, a proof that it is ours, and links that log a browser in.

A server that we start gets a password made for that start. Whoever knows it can ask a server to prove that it knows it
too, without sending it: what listens on a port may be a stranger by now. And he can make a link that logs one browser
in, once.
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
ANSWER_SECONDS = 2.0  # seconds for an answer of this machine


@dataclass(frozen=True)
class Access:
    """The address of one server as people write it, and the password of this start."""

    url: str
    password: str

    @classmethod
    def new(cls, url: str) -> Access:
        """Return the access to a server that is about to start."""
        return cls(url, secrets.token_urlsafe(24))

    @property
    def login(self) -> str:
        """User and password, as Prefect calls its auth string."""
        return f"{USER}:{self.password}"

    @property
    def basic(self) -> str:
        """The value of an ``Authorization`` header."""
        return "Basic " + base64.b64encode(self.login.encode()).decode()

    @property
    def cookie(self) -> str:
        """What a browser that has logged in sends instead of the password."""
        return self.signed("cookie")

    @property
    def cookie_name(self) -> str:
        """Cookies do not know ports: each server's has a name of its own."""
        return f"limbeck-{urlsplit(self.url).port}"

    def signed(self, *words: str) -> str:
        """Return what only one who knows the password can say of some words, here."""
        return hmac.new(self.password.encode(), "\n".join((self.url, *words)).encode(), hashlib.sha256).hexdigest()

    def link(self, page: str = "") -> str:
        """Return a link that logs one browser in, once, and leads to a page of the server; what is behind # is sent to
        no server and named to no other page."""
        return f"{self.url}{LOGIN}{f'?to={page}' if page else ''}#{self.code()}"

    def code(self) -> str:
        """Return a code for one login."""
        until, once = str(int(time.time() + LINK_HOURS * 3600)), secrets.token_hex(8)
        return f"{until}.{once}.{self.signed('login', until, once)}"

    def accepts(self, code: str) -> bool:
        """Tell whether a code is ours and not too old; that it is used once alone, the server sees to."""
        until, _, rest = code.partition(".")
        once, _, sign = rest.partition(".")
        genuine = hmac.compare_digest(sign.encode(), self.signed("login", until, once).encode())
        return genuine and int(until) > time.time()

    def is_proved(self, patience: float = ANSWER_SECONDS) -> bool:
        """Ask who listens there to prove that it knows the password, which is not sent: a stranger learns nothing."""
        challenge = secrets.token_hex(16)
        # No proxy stands between two processes of one machine.
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
    """Return what a client's environment says of a server: where it is, and how it knows us."""
    if name == "prefect":
        return {"PREFECT_API_URL": f"{access.url}/api", "PREFECT_API_AUTH_STRING": access.login}
    return {
        "MLFLOW_TRACKING_URI": access.url,
        "MLFLOW_TRACKING_USERNAME": USER,
        "MLFLOW_TRACKING_PASSWORD": access.password,
    }


def write_private(path: Path, text: str) -> None:
    """Write a file so that at no moment somebody else can read it, nor anybody half of it."""
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
    """Write down for other commands of a home which servers it runs, and their passwords."""
    write_private(
        path,
        json.dumps(
            {"process": process, **{name: {"url": one.url, "password": one.password} for name, one in servers.items()}}
        )
        + "\n",
    )


def read_servers(path: Path) -> dict[str, Access]:
    """Return what a file of servers says; nothing where there is none, or one that somebody else can have written or
    read."""
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
    """Return how to reach the servers of a running ``limbeck ui``; nothing where what listens there cannot prove that
    it is one."""
    found = read_servers(path)
    return found if found and all(access.is_proved() for access in found.values()) else {}
