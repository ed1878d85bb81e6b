"""One kept connection to an endpoint, which sends one request at a time, and what an answer means.

Every wait has an end: each call to the socket by its timeout, and the whole of a request by
`break_off`, which another thread calls (`sender`). A server that sends one byte every second would
satisfy the timeout of the socket for ever.

The connection is one of urllib3 without its pool: each thread has one, and a pool hides the socket
that has to be broken off. Its retries and redirects are not used, because whether a request may be
sent again, and when, is decided here (`verdict_of`, `Tries`).

Files of certificates are read again when they have changed, and new connections use what they hold
then. While they do not belong together, as in the middle of a change, connections go on with those
before.
"""

from __future__ import annotations

import contextlib
import email.utils
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import IO, Any, Literal

import msgspec
from msgspec.structs import replace
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from onyx.plugins.http.options import EndpointAddress, HttpOptions
from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext
from onyx.tls.contexts import client_context

ANSWER_BYTES_MAX = 67_108_864
"""An answer that goes on is taken for one that breaks off: it may have no end."""
REDIRECTS_MAX = 5
_REDIRECTS = (307, 308)
"""Redirects that keep method and body."""
Stamps = tuple[tuple[str, int, int], ...]
FIRST_PAUSE_S = 0.2
"""Before a request is sent again for the first time; doubled each time."""
RETRY_AFTER_S_MAX = 600.0
"""A server that asks for a longer pause is asked again after this one."""
SHOWN_CHARACTERS_MAX = 300
"""The length of the beginning of an answer, in errors."""
KEPT_BYTES = 8 * SHOWN_CHARACTERS_MAX
_AGAIN = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_OF_THE_JOB = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)
CONFLICTS_MAX = 10
"""Answers with 409 to a request in doubt, after which one more is a refusal."""
BROKEN_OFF_MAX = 5
"""Answers with 2xx that break off, to one request: the last of them counts. A server that fails
after its headers cannot say so otherwise; one whose answers never come to an end would be sent the
same for ever."""
Verdict = Literal["delivered", "again", "refused", "exhausted", "wrong"]
"""`again`: it may be taken later. `refused`: this request never is. `exhausted`: it was tried as
often as the job says. `wrong`: none is ever taken, because the job is wrong."""


class FinalResponse(HTTPResponse):
    """The answer itself: what a server says before it (102, 103) is passed over, as the standard
    library does with 100 only. And one that breaks off within its headers is none, which the
    standard library takes for their end."""

    def begin(self) -> None:
        """Read status and headers."""
        file = self.fp
        lines: Any = _Lines(file)
        self.fp = lines
        super().begin()
        while HTTPStatus.SWITCHING_PROTOCOLS < self.status < HTTPStatus.OK:
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        if not lines.last:
            raise HTTPException("the answer breaks off within its headers")
        if self.fp is lines:
            self.fp = file


class _Lines:
    """A file that remembers the last line that was read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.last = b""
        """Empty: the end."""

    def readline(self, size: int = -1) -> bytes:
        self.last = self._file.readline(size)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class EndpointConnection:
    """To one endpoint. Used by one thread but for `break_off` and `deadline_s`."""

    def __init__(
        self,
        address: EndpointAddress,
        method: str,
        certificates: ClientCertificates | None,
        connect_s: float,
        timeout_s: float,
    ) -> None:
        self._address = address
        self._method = method
        self._certificates = certificates
        self._connect_s = connect_s
        self._timeout_s = timeout_s
        self._connection: HTTPConnection | None = None
        self.deadline_s: float | None = None
        """Monotonic time until which the present request may take; None while there is none."""
        self._headed_s: float | None = None
        """When the headers of the latest answer had come."""

    def send(self, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a request and read what is answered; never raises."""
        self._headed_s, self.deadline_s = None, time.monotonic() + self._timeout_s
        try:
            answer = self._followed(body, headers)
        except Exception as error:  # what a server can make these libraries raise has no end
            self.close()
            answer = HttpAnswer(None, _reason(error), hopeless=_is_about_trust(error))
        # What was broken off may look whole: an answer without a length ends with its connection.
        is_late = time.monotonic() >= self.deadline_s
        is_without_headers = self._headed_s is None or self._headed_s >= self.deadline_s
        self.deadline_s = None
        if is_late:
            self.close()
            if is_without_headers or answer.status is None:
                return HttpAnswer(None, f"no whole answer within {self._timeout_s:g} s")
            return replace(answer, broken_off=True)
        return answer

    def break_off(self) -> None:
        """End what the other thread waits for; from any thread."""
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            # Not the method of a TLS socket, which takes its state from under the other thread.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give up the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(HTTPException, OSError, ValueError):
                connection.close()

    def _followed(self, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Secrets go to no other server than the job names, so neither do redirects."""
        address: EndpointAddress | None = self._address
        answer, location = HttpAnswer(None, ""), ""
        for _ in range(REDIRECTS_MAX):
            if address is None:
                break
            answer, location = self._exchanged(address.target, body, headers)
            if answer.status is None or not 300 <= answer.status < 400:
                return answer
            keeps = answer.status in _REDIRECTS and location
            address = address.followed(location) if keeps else None
        leads = f"leads to {location[:SHOWN_CHARACTERS_MAX]!r}" if location else "leads nowhere"
        what = f"{leads}, which is not followed; name the URL where segments are to go"
        return HttpAnswer(answer.status, what)

    def _exchanged(
        self, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[HttpAnswer, str]:
        connection = self._open()
        # A server may answer, and close, before it has read all.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                self._method, target, body, headers, preload_content=False, decode_content=False
            )
        response = connection.getresponse()
        self._headed_s = time.monotonic()
        text, is_whole, broken_off = _beginning(response)
        if not is_whole or response.status < 200 or not self._is_kept(response):
            self.close()
        again = response.headers.get("Retry-After")
        answer = HttpAnswer(response.status, text, again, broken_off=broken_off)
        return answer, response.headers.get("Location", "")

    def _open(self) -> HTTPConnection:
        if self._connection is not None and not self._connection.is_connected:
            self.close()  # the server has closed it meanwhile
        if self._connection is None:
            self._connection = self._made()
            self._connection.timeout = self._connect_s
            self._connection.connect()
            self._connection.timeout = self._timeout_s
        return self._connection

    def _made(self) -> HTTPConnection:
        address = self._address
        if self._certificates is None:
            made = HTTPConnection(address.host, address.port)
        else:
            context = self._certificates.context()
            made = HTTPSConnection(address.host, address.port, ssl_context=context)
        made.response_class = FinalResponse
        return made

    @staticmethod
    def _is_kept(response: BaseHTTPResponse) -> bool:
        return (
            response.version >= 11 and "close" not in response.headers.get("Connection", "").lower()
        )


def _beginning(response: BaseHTTPResponse) -> tuple[str, bool, bool]:
    """How the answer begins, whether it was read to its end, and whether it breaks off. It is not
    decoded on the way: the status has said what became of the request, even if the text is
    damaged."""
    kept, read, is_whole, broken_off = b"", 0, False, False
    while not is_whole and not broken_off:
        try:
            piece = response.read(65_536)
        except (HTTPError, HTTPException, OSError):
            broken_off = True
            continue
        read += len(piece)
        kept += piece[: KEPT_BYTES - len(kept)]
        is_whole, broken_off = not piece, read > ANSWER_BYTES_MAX
    return _text(kept, response.headers.get("Content-Encoding", "")), is_whole, broken_off


def _text(body: bytes, encoding: str) -> str:
    """The beginning of a body for people."""
    if encoding.strip().lower() in ("gzip", "x-gzip"):
        with contextlib.suppress(zlib.error):
            body = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, KEPT_BYTES)
    return body.decode("utf-8", "replace")


def _reason(error: BaseException) -> str:
    """Why there is no answer. The text of urllib3 begins with the address of an object."""
    text = str(error)
    if isinstance(error, HTTPError) and ": " in text:
        text = text.partition(": ")[2]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_about_trust(error: BaseException | None) -> bool:
    """Whether a certificate was refused by this side."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


class ClientCertificates:
    """What the connections of one task use. Safe from several threads."""

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        """Raises UserError: a file is not there, or is none of its kind."""
        ca, certificate, key = (
            None if path is None else context.located(path)
            for path in (options.ca_file, options.certificate_file, options.key_file)
        )
        self._ca, self._certificate, self._key = ca, certificate, key
        self._lock = threading.Lock()
        self._stamps = self._found()
        for option, path in (("caFile", ca), ("certificateFile", certificate), ("keyFile", key)):
            if path is not None and not os.path.isfile(path):
                raise option_error(context, option, f"names {path!r}, which is not there")
        try:
            self._context = self._made()
        except (OSError, ValueError) as error:  # of ssl as well
            option = "caFile" if certificate is None else "certificateFile"
            what = f"leads to files that TLS does not take: {error}"
            raise option_error(context, option, what) from error

    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        with self._lock:
            stamps = self._found()
            if stamps != self._stamps:
                try:
                    self._context = self._made()
                    self._stamps = stamps
                except (OSError, ValueError):
                    pass
            return self._context

    def _made(self) -> ssl.SSLContext:
        return client_context(self._ca, self._certificate, self._key)

    def _found(self) -> Stamps:
        stamps = []
        for path in filter(None, (self._ca, self._certificate, self._key)):
            try:
                found = os.stat(path)
                stamps.append((path, found.st_mtime_ns, found.st_ino))
            except OSError:
                stamps.append((path, 0, 0))
        return tuple(stamps)


class HttpAnswer(msgspec.Struct, frozen=True):
    """What a server has said, or why there is no answer."""

    status: int | None
    """None: nothing was understood."""
    text: str
    """The beginning of the answer, or the reason."""
    retry_after: str | None = None
    """The header of this name."""
    hopeless: bool = False
    """Another try would fail the same way."""
    broken_off: bool = False
    """Status and headers have come, and not all of the rest."""

    @property
    def words(self) -> str:
        """The answer in one line."""
        if self.status is None:
            return self.text
        try:
            phrase = f" {HTTPStatus(self.status).phrase}"
        except ValueError:
            phrase = ""
        phrase += " (the answer breaks off)" if self.broken_off else ""
        text = " ".join(self.text[:SHOWN_CHARACTERS_MAX].split())
        return f"{self.status}{phrase}{f': {text}' if text else ''}"


def verdict_of(answer: HttpAnswer) -> Verdict:
    """What becomes of a request with this answer."""
    status = answer.status
    if answer.hopeless:
        return "wrong"
    if status is None or status >= 500 or status in _AGAIN:
        return "again"
    if 200 <= status < 300:
        return "delivered"
    # 101 would go on in another protocol, for which nobody has asked.
    return "wrong" if status < 400 or status in _OF_THE_JOB else "refused"


class Tries:
    """The tries of one request."""

    def __init__(self, retries_max: int | None, in_doubt: bool = False) -> None:
        """`in_doubt`: the server may have the request already, or be at work on it."""
        self._retries_max = retries_max
        self._in_doubt = in_doubt
        self._conflicts = 0
        self._broken_off = 0
        self.count = 0

    def judged(self, answer: HttpAnswer) -> Verdict:
        """What becomes of the request after one more try, with this answer."""
        self.count += 1
        verdict = verdict_of(answer)
        if verdict == "refused" and self._is_at_work(answer):
            verdict = "again"
        is_last = self._retries_max is not None and self.count > self._retries_max
        if verdict == "delivered" and answer.broken_off and not is_last:
            self._broken_off += 1
            if self._broken_off < BROKEN_OFF_MAX:
                verdict = "again"
        if answer.status is None or answer.status >= 500 or answer.broken_off:
            self._in_doubt = True
        return "exhausted" if verdict == "again" and is_last else verdict

    def _is_at_work(self, answer: HttpAnswer) -> bool:
        """Whether the server may still be at work on an earlier try: 409 says that a request with
        the same key is processed, or something else."""
        if answer.status != HTTPStatus.CONFLICT or not self._in_doubt:
            return False
        self._conflicts += 1
        return self._conflicts <= CONFLICTS_MAX


def pause_s(tries: int, longest_s: float, drawn: float) -> float:
    """The pause after so many tries that failed.

    Args:
        drawn: from 0 to 1. Half of the pause is by chance, or all that fail together would come
            back together.
    """
    whole_s = min(longest_s, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 30))
    return whole_s * (0.5 + drawn / 2)


def asked_pause_s(retry_after: str | None, wall_ms: int) -> float:
    """The pause that a server asks for: seconds, or a time of HTTP. 0 if it asks for none."""
    text = (retry_after or "").strip()
    if not text:
        return 0.0
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), RETRY_AFTER_S_MAX)
    try:
        at = email.utils.parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        left_s = (at - datetime.fromtimestamp(wall_ms / 1_000, UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    return min(max(left_s, 0.0), RETRY_AFTER_S_MAX)
