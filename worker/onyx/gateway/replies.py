"""Answers as HTTP: a status, headers and a JSON body; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.ledger.outcomes import NOTHING, plain
from onyx.requests.request import Answer, Status
from onyx.serving.replies import Rejected, Reply, after

STATUSES: Mapping[Status, int] = {
    Status.PROCESSED: 200,
    Status.FAILED: 422,
    Status.JOURNALLED: 202,
    Status.ACCEPTED: 202,
    Status.CONFLICT: 409,
    Status.INVALID: 400,
    Status.UNKNOWN: 404,
    Status.UNAUTHENTICATED: 401,
    Status.DENIED: 403,
    Status.BUSY: 429,
    Status.UNAVAILABLE: 503,
    Status.TIMED_OUT: 504,
}
ROWS_REFUSED = 422
"""In place of 400, when it is known which segments are wrong."""
RETRY_AFTER_S = 1.0
"""Where an answer does not say when to come again."""
_OWN = {
    400: "bad-request",
    401: "unauthorized",
    404: Status.UNKNOWN,
    405: "method-not-allowed",
    406: "unsupported-type",
    408: "too-slow",
    413: "too-large",
    415: "unsupported-type",
    429: Status.BUSY,
    431: "too-large",
    503: Status.UNAVAILABLE,
    504: Status.TIMED_OUT,
}
"""The words for what is answered before a request is taken."""
_encoder = msgspec.json.Encoder(enc_hook=str)


def reply_to(answer: Answer) -> Reply:
    """The reply with an answer."""
    code = STATUSES[answer.status]
    if answer.status is Status.INVALID and answer.refused:
        code = ROWS_REFUSED
    headers = {}
    if answer.status.again:
        headers = after(RETRY_AFTER_S if answer.retry_after_s is None else answer.retry_after_s)
    body = {
        "status": answer.status,
        "reason": answer.reason,
        "segments": answer.segments,
        **plain(answer.outcomes),
        "values": answer.values,
        "errors": answer.errors,
        "refused": answer.refused,
    }
    return Reply(code, _encoder.encode(body), headers)


def rejection(rejected: Rejected) -> Reply:
    """The reply without an answer."""
    body: dict[str, Any] = {
        "status": _OWN[rejected.code],
        "reason": rejected.reason,
        "segments": 0,
        **plain(NOTHING),
        "values": {},
        "errors": {},
        "refused": {},
    }
    return Reply(rejected.code, _encoder.encode(body), rejected.headers)
