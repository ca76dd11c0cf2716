"""Requests to the servers whose state is measured, with the account that the environment gives their clients."""

from __future__ import annotations

import base64
import json
import os
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

OBJECTS_OF_A_REQUEST = 200
"""Objects that Prefect returns at most for one request."""
MOST_PAGES = 50
ANSWER_TIMEOUT = 10.0  # seconds for one answer: Prometheus itself waits for ten
BUSY_PAUSE = 0.5  # seconds before a busy server is asked again


@dataclass(frozen=True)
class Api:
    """The API of one server."""

    url: str
    login: str = ""
    """User and password, joined by a colon."""
    seconds: float = ANSWER_TIMEOUT
    """Seconds to wait for an answer."""
    authorities: str = ""
    """The file of the authorities that are trusted; empty: those of the system."""

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a request, a POST if it has a body, and return the JSON of the response.

        A server whose database is locked for a moment says so (503) and has done nothing: it is asked again until
        the time for one answer is over, as Prefect's own client does.

        Raises:
            OSError: If there is no response in time, or one that is an error.
        """
        from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_fixed

        again = Retrying(
            stop=stop_before_delay(self.seconds),
            wait=wait_fixed(BUSY_PAUSE),
            retry=retry_if_exception(is_busy),
            reraise=True,
        )
        return again(self.ask_once, path, body)

    def ask_once(self, path: str, body: Mapping[str, object] | None) -> Any:
        """Send one request, and return the JSON of the response."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, {"Content-Type": "application/json"})
        if self.login:
            request.add_header("Authorization", "Basic " + base64.b64encode(self.login.encode()).decode())
        with urllib.request.urlopen(request, timeout=self.seconds, context=self.trust()) as answer:
            return json.loads(answer.read() or b"null")

    def trust(self) -> ssl.SSLContext | None:
        """Return the TLS settings of a client; None for those of the system."""
        return ssl.create_default_context(cafile=self.authorities) if self.authorities else None

    def answers(self, *paths: str) -> bool:
        """Return whether the server answers requests for some paths."""
        try:
            for path in paths:
                with urllib.request.urlopen(f"{self.url}/{path}", timeout=self.seconds, context=self.trust()):
                    pass
        except OSError:
            return False
        return True

    def listed(self, path: str, body: Mapping[str, object]) -> Iterator[Any]:
        """Yield all objects of a list of Prefect's, page by page."""
        for page in range(MOST_PAGES):
            found = self.ask(path, {**body, "limit": OBJECTS_OF_A_REQUEST, "offset": page * OBJECTS_OF_A_REQUEST})
            yield from found
            if len(found) < OBJECTS_OF_A_REQUEST:
                return


def is_busy(error: BaseException) -> bool:
    """Tell whether a server answered that it cannot do it now."""
    return isinstance(error, HTTPError) and error.code == HTTPStatus.SERVICE_UNAVAILABLE


def prefect_of_environment(seconds: float = ANSWER_TIMEOUT) -> Api | None:
    """Return the API of Prefect for ``PREFECT_API_URL``; None if that is not set."""
    url = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    login, trusted = (os.environ.get(name, "") for name in ("PREFECT_API_AUTH_STRING", "PREFECT_API_SSL_CERT_FILE"))
    return Api(url, login, seconds, trusted) if url else None


def mlflow_of_environment(seconds: float = ANSWER_TIMEOUT) -> Api | None:
    """Return the API of MLflow for ``MLFLOW_TRACKING_URI``; None if that is no server."""
    url = os.environ.get("MLFLOW_TRACKING_URI", "").rstrip("/")
    told = (os.environ.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD", "SERVER_CERT_PATH"))
    user, password, trusted = told
    return Api(url, f"{user}:{password}" if user else "", seconds, trusted) if url.startswith("http") else None
