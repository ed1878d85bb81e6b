"""One kept connection to an endpoint, which sends one request at a time.

Every wait has an end: each call to the socket by its timeout, and the whole of a request by
`break_off`, which another thread calls (`sender`). A server that sends one byte every second would
satisfy the timeout of the socket for ever.

The connection is one of urllib3 without its pool: each thread has one, and a pool hides the socket
that has to be broken off. Its retries and redirects are not used, because whether a request may be
sent again is decided in `answers`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import IO, Any

from msgspec.structs import replace
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from onyx.plugins.http.address import Address
from onyx.plugins.http.answers import SHOWN_CHARACTERS_MAX, Answer
from onyx.plugins.http.certificates import Certificates

ANSWER_BYTES_MAX = 67_108_864
"""An answer that goes on is taken for one that breaks off: it may have no end."""
KEPT_BYTES = 8 * SHOWN_CHARACTERS_MAX
REDIRECTS_MAX = 5
_REDIRECTS = (307, 308)
"""Redirects that keep method and body."""


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


class Connection:
    """To one endpoint. Used by one thread but for `break_off` and `deadline_s`."""

    def __init__(
        self,
        address: Address,
        method: str,
        certificates: Certificates | None,
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

    def send(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request and read what is answered; never raises."""
        self._headed_s, self.deadline_s = None, time.monotonic() + self._timeout_s
        try:
            answer = self._followed(body, headers)
        except Exception as error:  # what a server can make these libraries raise has no end
            self.close()
            answer = Answer(None, _reason(error), hopeless=_is_about_trust(error))
        # What was broken off may look whole: an answer without a length ends with its connection.
        is_late = time.monotonic() >= self.deadline_s
        is_without_headers = self._headed_s is None or self._headed_s >= self.deadline_s
        self.deadline_s = None
        if is_late:
            self.close()
            if is_without_headers or answer.status is None:
                return Answer(None, f"no whole answer within {self._timeout_s:g} s")
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

    def _followed(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Secrets go to no other server than the job names, so neither do redirects."""
        address: Address | None = self._address
        answer, location = Answer(None, ""), ""
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
        return Answer(answer.status, what)

    def _exchanged(
        self, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[Answer, str]:
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
        answer = Answer(response.status, text, again, broken_off=broken_off)
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
