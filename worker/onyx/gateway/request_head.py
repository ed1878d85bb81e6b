"""What the head of an HTTP request asks for, and how a client without the right token is refused;
pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from onyx.requests.request import (
    ID_CHARACTERS_MAX,
    TIMEOUT_S,
    TIMEOUT_S_MAX,
    Answer,
    Caller,
    Form,
    Level,
    Status,
)
from onyx.requests.tokens import bearer
from onyx.serving.replies import Rejected, after

FORMS: Mapping[bytes, Form] = {
    b"application/json": Form.JSON_LINES,
    b"application/x-ndjson": Form.JSON_LINES,
    b"application/jsonl": Form.JSON_LINES,
    b"application/vnd.apache.arrow.stream": Form.ARROW,
}
PARAMETERS_MAX = 16
HEADERS_MAX = 128
NAME_CHARACTERS_MAX = 512
PATHS = "POST to /jobs/JOB/INPUT"
_ONCE = (b"authorization", b"content-length", b"content-type", b"idempotency-key")
_UTF8 = (b"", b"utf-8", b'"utf-8"', b"utf8", b"us-ascii")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}")
"""What is a number of seconds; Python takes `1_0`, spaces and digits of all scripts besides."""


class RequestHead(msgspec.Struct, frozen=True):
    """What a request says before its body."""

    job: str
    """Id or name."""
    task: str
    """The input; empty if the job has only one."""
    form: Form
    id: str
    level: Level
    timeout_s: float
    length: int | None
    """Bytes of the body, if the client says."""
    caller: Caller


def head_of(scope: Mapping[str, Any]) -> RequestHead:
    """What an ASGI scope asks for. Raises Rejected."""
    job, task = _path(scope)
    if scope["method"] != "POST":
        raise Rejected(405, f"{PATHS}", {"Allow": "POST"})
    headers = headers_of(scope["headers"])
    level, timeout_s = _parameters(scope["query_string"])
    return RequestHead(
        job,
        task,
        _form(headers),
        _id(headers.get(b"idempotency-key")),
        level,
        timeout_s,
        _length(headers.get(b"content-length")),
        caller_of(headers),
    )


def headers_of(given: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name. Raises Rejected."""
    headers: dict[bytes, bytes] = {}
    for number, (name, value) in enumerate(given):
        if number >= HEADERS_MAX:
            raise Rejected(431, f"a request has at most {HEADERS_MAX} headers")
        if name in headers and name in _ONCE:
            raise Rejected(400, f"header {name.decode('latin-1')} is there twice")
        headers[name] = value
    return headers


def caller_of(headers: Mapping[bytes, bytes]) -> Caller:
    """Who has sent a request."""
    return Caller(bearer(headers.get(b"authorization")), http=True)


def parameters_of(query: bytes) -> list[tuple[str, str]]:
    """Names and values of the query of a URL, each name once, in order. Raises Rejected."""
    try:
        found = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            max_num_fields=PARAMETERS_MAX,
        )
    except ValueError as error:
        raise Rejected(400, "the query of the URL cannot be read") from error
    if len(dict(found)) < len(found):
        raise Rejected(400, "a parameter is there twice")
    return found


def timeout_of(value: str) -> float:
    """Seconds that a client waits. Raises Rejected."""
    timeout_s = float(value) if _SECONDS.fullmatch(value) else math.nan
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise Rejected(400, f"timeout is a number of seconds up to {TIMEOUT_S_MAX:g}")
    return timeout_s


def raise_refusal(refusal: Answer | None, token: bytes) -> None:
    """Raises Rejected if the client was refused because of the token that it has shown."""
    if refusal is None:
        return
    if refusal.status is Status.UNAUTHENTICATED:
        challenge = 'Bearer realm="onyx"' + (', error="invalid_token"' if token else "")
        raise Rejected(401, refusal.reason, {"WWW-Authenticate": challenge})
    raise Rejected(503, refusal.reason, after(refusal.retry_after_s or 0))


def _path(scope: Mapping[str, Any]) -> tuple[str, str]:
    # Of the raw path: a name may have a slash, written as %2F.
    parts = scope["raw_path"].decode("ascii", "replace").split("/")
    if len(parts) not in (3, 4) or parts[:2] != ["", "jobs"]:
        raise Rejected(404, f"there is nothing here: {PATHS}")
    job, task = (unquote(each) for each in (*parts[2:], "")[:2])
    if not job or max(len(job), len(task)) > NAME_CHARACTERS_MAX:
        raise Rejected(404, f"there is no such job: {PATHS}")
    return job, task


def _form(headers: Mapping[bytes, bytes]) -> Form:
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding != b"identity":
        raise Rejected(415, "send the body without Content-Encoding")
    kind, *parameters = headers.get(b"content-type", b"").lower().split(b";")
    form = FORMS.get(kind.strip())
    charset = dict(_pair(each) for each in parameters).get(b"charset", b"")
    if form is None or charset not in _UTF8:
        known = ", ".join(each.decode() for each in FORMS)
        raise Rejected(415, f"Content-Type is one of {known}, in UTF-8")
    return form


def _pair(parameter: bytes) -> tuple[bytes, bytes]:
    name, _, value = parameter.partition(b"=")
    return name.strip(), value.strip()


def _parameters(query: bytes) -> tuple[Level, float]:
    level, timeout_s = Level.ACK, TIMEOUT_S
    for name, value in parameters_of(query):
        if name == "ack":
            level = _level(value)
        elif name == "timeout":
            timeout_s = timeout_of(value)
        else:
            raise Rejected(400, f"there is no parameter {name!r}, only ack and timeout")
    return level, timeout_s


def _level(value: str) -> Level:
    try:
        return Level(value)
    except ValueError as error:
        raise Rejected(400, f"ack is one of {', '.join(Level)}") from error


def _id(value: bytes | None) -> str:
    if value is None:
        return ""
    text = value.decode("latin-1").strip()
    if len(text) > 1 and text[0] == text[-1] == '"':  # a string, as structured headers write it
        text = text[1:-1]
    if not text or len(text) > ID_CHARACTERS_MAX or not (text.isascii() and text.isprintable()):
        what = f"1 to {ID_CHARACTERS_MAX} printable ASCII characters"
        raise Rejected(400, f"Idempotency-Key has {what}")
    return text


def _length(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit():
        raise Rejected(400, "Content-Length is no number")
    return int(value[:20])
