"""Failures of an S3 server: temporary or permanent, their messages, and the error code of a response."""

from __future__ import annotations

import base64
import hashlib
from typing import Any


class Damaged(Exception):
    """A body was changed or cut in transfer."""


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
    """Return whether a retry can help; it cannot after a definite refusal."""
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
    # A body that is cut off raises urllib3's own exception, which is not a BotoCoreError.
    return isinstance(error, (BotoCoreError, Damaged, ConnectionError, TimeoutError)) or type(
        error
    ).__module__.startswith("urllib3")


def code_of(error: BaseException | None) -> str:
    """Return the error code of a response."""
    answer = getattr(error, "response", None)  # botocore's connection errors have this attribute, too, with value None
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def reason_of(error: BaseException) -> str:
    """Return a short description of a failure, with advice where possible."""
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
    """Return the ETag of an uploaded part; raise Damaged if the response was cut off and has none."""
    if "ETag" not in answer:
        raise Damaged("the answer was truncated")
    return str(answer["ETag"])


def md5(body: bytes) -> str:
    """Return the base64 md5 by which S3 checks a received body."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
