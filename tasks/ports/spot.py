"""The interruption notice of an AWS spot instance, which AWS publishes two minutes before it reclaims the instance.

The notice comes from the instance metadata service, version 2: first request a token, then the notice, which is missing
(404) until there is one. No other data of the service is read, in particular no credentials.
``AWS_EC2_METADATA_SERVICE_ENDPOINT`` sets another address, as it does for AWS's own libraries.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

ENDPOINT = "http://169.254.169.254"
METADATA_SECONDS = 2.0  # time limit in seconds; the service responds in milliseconds
LIFE = 21600  # lifetime of a token in seconds, the maximum of the service
LONGEST = 4096  # bytes; a notice has about 60


@dataclass(frozen=True)
class Notice:
    """The action (``terminate``, ``stop`` or ``hibernate``) and its time."""

    action: str
    time: str


class Metadata:
    """A client of the instance metadata service; it caches one token and requests another if that is refused."""

    def __init__(self) -> None:
        self.endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", ENDPOINT).rstrip("/")
        # No proxy: the service belongs to this machine, and a proxy would return its own machine's notice.
        self.opener: OpenerDirector = build_opener(ProxyHandler({}))
        self.token = ""

    def notice(self) -> Notice | None:
        """Return the notice, or None if there is none; raise OSError if the service does not respond."""
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
        """Send one request to the service and return the body."""
        with self.opener.open(
            Request(self.endpoint + path, method=method, headers=headers), timeout=METADATA_SECONDS
        ) as answer:
            body: bytes = answer.read(LONGEST)
        return body


def notice_from(body: bytes) -> Notice:
    """Parse a notice; an unreadable one still counts as a notice to terminate soon."""
    try:
        given = json.loads(body)
        action, time = str(given["action"]), str(given["time"])
    except (ValueError, KeyError, TypeError):
        return Notice("terminate", "soon")
    return Notice(
        action if re.fullmatch(r"[a-z]{1,20}", action) else "terminate",
        time if re.fullmatch(r"[\dTZ:.+-]{1,40}", time) else "soon",
    )
