"""What the instance under this process knows of its own end: AWS announces two minutes before that it takes a spot
instance back.

Asked by the instance metadata service, version 2: a token first, then the notice, which is not there (404) until it is.
Nothing else of the service is read, and no credentials. ``AWS_EC2_METADATA_SERVICE_ENDPOINT`` names another address, as
it does for AWS's own libraries.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

ENDPOINT = "http://169.254.169.254"
METADATA_SECONDS = 2.0  # seconds; the service answers in milliseconds
LIFE = 21600  # seconds that a token lives, the most that there is
LONGEST = 4096  # bytes; a notice has sixty


@dataclass(frozen=True)
class Notice:
    """What will happen, and when: ``terminate``, ``stop`` or ``hibernate``."""

    action: str
    time: str


class Metadata:
    """The instance metadata service. It keeps one token, and asks for another where that one is refused."""

    def __init__(self) -> None:
        self.endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", ENDPOINT).rstrip("/")
        # The service is on this very machine: a proxy would be asked for its own notice.
        self.opener: OpenerDirector = build_opener(ProxyHandler({}))
        self.token = ""

    def notice(self) -> Notice | None:
        """Return the notice if there is one; raise OSError where the service does not answer."""
        for _ in range(2):
            if not self.token:
                self.token = self.ask(
                    "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(LIFE)}
                ).decode()
            try:
                return notice_from(
                    self.ask("GET", "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": self.token})
                )
            except HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401:
                    raise
                self.token = ""
        return None

    def ask(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        """Ask the service once."""
        with self.opener.open(
            Request(self.endpoint + path, method=method, headers=headers), timeout=METADATA_SECONDS
        ) as answer:
            body: bytes = answer.read(LONGEST)
        return body


def notice_from(body: bytes) -> Notice:
    """Read a notice; one that cannot be read is one all the same."""
    try:
        given = json.loads(body)
        action, time = str(given["action"]), str(given["time"])
    except (ValueError, KeyError, TypeError):
        return Notice("terminate", "soon")
    return Notice(
        action if re.fullmatch(r"[a-z]{1,20}", action) else "terminate",
        time if re.fullmatch(r"[\dTZ:.+-]{1,40}", time) else "soon",
    )
