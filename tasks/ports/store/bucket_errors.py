"""Failures of an S3 server: which of them pass, what they are called, and what an answer says."""

from __future__ import annotations

import base64
import hashlib
from typing import Any


class Damaged(Exception):
    """A body did not arrive as it was sent."""


NOT_THERE = {"NoSuchKey", "404", "NotFound"}


TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


FOR_EVER = {
    "AccessDenied",
    "403",
    "Forbidden",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "NoSuchBucket",
    "InvalidBucketName",
    "NoSuchUpload",
    "RequestTimeTooSkewed",
}


def may_pass(error: BaseException) -> bool:
    """Tell whether trying again can help: not when the answer was a clear no."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, (NoCredentialsError, PartialCredentialsError, ParamValidationError)):
        return False
    if isinstance(error, ClientError):
        return code_of(error) not in NOT_THERE | TAKEN | FOR_EVER
    # A cut body surfaces as urllib3's own exception, which is no BotoCoreError.
    return isinstance(error, (BotoCoreError, Damaged, ConnectionError, TimeoutError)) or type(
        error
    ).__module__.startswith("urllib3")


def code_of(error: BaseException | None) -> str:
    """Return the error code of an answer."""
    answer = getattr(error, "response", None)  # botocore's connection errors have one too, and it is None
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def reason_of(error: BaseException) -> str:
    """Say a failure in a few words."""
    code = code_of(error)
    hints = {
        "NoSuchBucket": "there is no such bucket; create it",
        "AccessDenied": "access denied; check the credentials and the bucket's policy",
        "403": "access denied; check the credentials and the bucket's policy",
        "InvalidAccessKeyId": "the access key is not known; check AWS_ACCESS_KEY_ID",
        "RequestTimeTooSkewed": "this machine's clock is wrong by more than S3 allows; set it (NTP) and run again",
        "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    }
    text = hints.get(code) or str(error).strip().splitlines()[0]
    return f"{text}; check AWS_ENDPOINT_URL and the network" if "connect to the endpoint" in text.lower() else text


def tag_of(answer: Any) -> str:
    """Return the tag that a server gave a part; an answer that was cut has none."""
    if "ETag" not in answer:
        raise Damaged("the answer was cut")
    return str(answer["ETag"])


def md5(body: bytes) -> str:
    """Return what S3 checks a body by on arrival."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
