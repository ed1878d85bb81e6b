"""Options of the `http` output, and its URL, taken apart. That may hold a secret, so messages show
only a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urljoin, urlsplit

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options, wrong_location
from onyx.plugins.rolling import TRANSACTION_BYTES_MAX, TRANSACTION_LIMITS

_OURS = ("content-length", "transfer-encoding", "connection", "host", "expect", "te", "upgrade")
"""Headers that the connection sets."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[ -~\t]*")
_Positive = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_UNWANTED = re.compile(r"[^!-~]")
"""A request line takes printable ASCII without blanks."""
_PORTS = {"http": 80, "https": 443}


class HttpOptions(Options, frozen=True):
    """Where requests go, what is in them, and what becomes of those that fail."""

    url: str | None = None
    """`https://example.com/orders`, to which each request goes."""
    url_env: str | None = None
    """Variable of the workers' environment that holds the URL, for one with a secret in it."""
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers of each request (`{X-Source: onyx}`); no secrets."""
    headers_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers whose values are in variables of the workers' environment
    (`{Authorization: ORDERS_AUTHORIZATION}`)."""
    headers_file: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers whose values are in files of the workers, which are read again when they change."""
    format: Literal["json", "jsonl", "json-array", "arrow"] = "json"
    """`json`: a request for each segment. A request for many: `jsonl`, an object a line;
    `json-array`; `arrow`, a stream of the Arrow IPC format."""
    nan: Literal["error", "null", "text"] = "error"
    """All but arrow: what to write for NaN and infinities, which JSON lacks; `text` is `"NaN"`,
    `"Infinity"`."""
    request_segments: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000
    """All but json: most segments of a request."""
    request_bytes: Annotated[int, msgspec.Meta(ge=1, le=TRANSACTION_BYTES_MAX)] = 1_048_576
    """All but json: a request ends at about this size."""
    request_seconds: _Positive = 1.0
    """All but json: a request that is not full is sent after this time."""
    idempotency_header: str | None = "Idempotency-Key"
    """Header with a key that is the same whenever a request is sent again; null sends none."""
    idempotency: Literal["request", "content"] = "request"
    """The key of a request: of its own; or by its content, so that equal segments count as one
    (json only)."""
    idempotency_key: str | None = None
    """json: key of the segment whose text or number is the key of its request."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """Requests of a peer that are on their way at once; with 1 they come in order."""
    connect_seconds: _Positive = 10.0
    """Longest time to connect."""
    timeout_seconds: _Positive = 30.0
    """Longest time from the beginning of a request to the end of its answer."""
    retries_max: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How often a request is sent again before it counts as refused; without it, until it is
    answered."""
    retry_seconds_max: _Positive = 30.0
    """Longest pause between two tries, where the server does not ask for a longer one."""
    dead_letter_path: str | None = None
    """Directory or `s3://bucket/prefix` for what the server refuses, as JSON lines; without it a
    refusal kills the job, unless it is the answer to a request."""
    ca_file: str | None = None
    """Certificates of those whom to trust, in PEM; without it those of the system."""
    certificate_file: str | None = None
    """Certificate with which the task identifies itself, in PEM."""
    key_file: str | None = None
    """The key of that certificate, if it is in a file of its own."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1, le=TRANSACTION_BYTES_MAX)] = (
        TRANSACTION_LIMITS.size_bytes
    )
    """exactly-once: requests of about this size are committed together."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = TRANSACTION_LIMITS.segments
    """exactly-once: most segments that are committed together."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = TRANSACTION_LIMITS.age_s
    """exactly-once: requests are committed, and then sent, after this time."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from self._wrong_url()
        yield from self._wrong_headers()
        yield from self._wrong_keys()
        if self.format == "arrow" and self.nan != "error":
            yield Problem("nan", "is for JSON", "Arrow has NaN and infinities")
        if self.dead_letter_path is not None:
            yield from wrong_location("deadLetterPath", self.dead_letter_path)
        if self.key_file is not None and self.certificate_file is None:
            yield Problem("certificateFile", "is missing: keyFile is the key of a certificate")

    def _wrong_url(self) -> Iterator[Problem]:
        if self.url is None and self.url_env is None:
            yield Problem("url", "is missing", "or name a variable that holds it with urlEnv")
        if self.url is not None and self.url_env is not None:
            yield Problem("urlEnv", "cannot be there together with url", "take one of them")
        if self.url is not None:
            try:
                address = address_of(self.url)
            except ValueError as error:
                yield Problem("url", str(error))
                return
            if address.scheme == "http":
                yield from self.wrong_without_tls()

    def wrong_without_tls(self) -> Iterator[Problem]:
        """Options that have no effect for a URL without TLS."""
        given = {"caFile": self.ca_file, "certificateFile": self.certificate_file}
        for option, file in given.items():
            if file is not None:
                yield Problem(option, "is for https, and the URL begins with http:")

    def _wrong_headers(self) -> Iterator[Problem]:
        seen: set[str] = set()
        given: dict[str, Mapping[str, str]] = {"headers": self.headers}
        given |= {"headersEnv": self.headers_env, "headersFile": self.headers_file}
        for option, headers in given.items():
            for name, value in headers.items():
                yield from self._wrong_header(option, name)
                if name.lower() in seen:
                    yield Problem(option, f"has {name!r} a second time", "leave one of them out")
                seen.add(name.lower())
                if option == "headers" and not _VALUE.fullmatch(value):
                    what = f"has a value for {name!r} with characters that a header does not take"
                    yield Problem(option, what, "use printable ASCII")

    def _wrong_header(self, option: str, name: str) -> Iterator[Problem]:
        lower = name.lower()
        if not _NAME.fullmatch(name):
            yield Problem(option, f"has {name!r}, which is no name of a header")
        elif lower in _OURS or lower == (self.idempotency_header or "").lower():
            yield Problem(option, f"has {name!r}, which Onyx sets itself", "leave it out")

    def _wrong_keys(self) -> Iterator[Problem]:
        header = self.idempotency_header
        if header is not None and (not _NAME.fullmatch(header) or header.lower() in _OURS):
            yield Problem("idempotencyHeader", f"is {header!r}, which is no name for it")
        given = {"idempotencyKey": self.idempotency_key is not None}
        given["idempotency"] = self.idempotency == "content"
        for option in (option for option, is_given in given.items() if is_given):
            if self.format != "json":
                what = f"is of one segment, but a request of format {self.format} has many"
                yield Problem(option, what)
            if header is None:
                yield Problem(option, "has no effect without idempotencyHeader")
        if all(given.values()):
            yield Problem("idempotencyKey", "cannot be there together with idempotency: content")


class EndpointAddress(msgspec.Struct, frozen=True):
    """Where requests go."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def shown(self) -> str:
        """The URL for messages: a query is left out, because it may hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        path, mark, _ = self.target.partition("?")
        return f"{self.scheme}://{host}{port}{path}{mark and '?...'}"

    @property
    def query(self) -> list[tuple[str, str]]:
        """Names and values."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True)

    def followed(self, location: str) -> EndpointAddress | None:
        """Where a redirect leads; None if that is another server, or none at all."""
        base = f"{self.scheme}://{_bracketed(self.host)}:{self.port}{self.target}"
        try:
            found = address_of(urljoin(base, location))
        except ValueError:
            return None
        here, there = ((each.scheme, each.host, each.port) for each in (self, found))
        return found if here == there else None


def address_of(url: str) -> EndpointAddress:
    """The address that a URL names. Raises ValueError, which says what is wrong."""
    if _UNWANTED.search(url):
        raise ValueError("has blanks or characters that are not ASCII, which a URL encodes with %")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is no URL, as https://example.com/orders")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has credentials in it: name them in headersEnv or headersFile")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("has a port that is no number from 1 to 65535") from None
    if port == 0:
        raise ValueError("has a port that is no number from 1 to 65535")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return EndpointAddress(scheme, parts.hostname, port or _PORTS[scheme], target)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
