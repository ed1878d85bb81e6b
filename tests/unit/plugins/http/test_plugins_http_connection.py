"""What a server says around its answer does not hide the answer."""

from __future__ import annotations

import gzip
from contextlib import closing

import pytest
from tests.support.servers.saying import BODY, server

from onyx.plugins.http.connection import EndpointConnection, verdict_of
from onyx.plugins.http.options import address_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
SMALL = gzip.compress(b"not so", mtime=0)  # a time in it would be in the name of a test


def encoded(status: str, body: bytes, encoding: str = "gzip") -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Encoding: {encoding}", f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("said", "status", "verdict", "text"),
    [
        (OK, 200, "delivered", "ok"),
        (PROCESSING + OK, 200, "delivered", "ok"),
        (EARLY + OK, 200, "delivered", "ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PROCESSING * 3 + EARLY + OK, 200, "delivered", "ok"),
        (EARLY + OK.replace(b"200 OK", b"422 No"), 422, "refused", "ok"),
        (EARLY + OK.replace(b"200 OK", b"503 Busy"), 503, "again", "ok"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", 101, "wrong", ""),
        (encoded("200 OK", b"this is no gzip"), 200, "delivered", "this is no gzip"),
        (encoded("200 OK", SMALL[:-9]), 200, "delivered", "not"),
        (encoded("200 OK", b"\x00", "br"), 200, "delivered", "\x00"),
        (encoded("400 Bad", SMALL), 400, "refused", "not so"),
        (encoded("400 Bad", b"this is no gzip"), 400, "refused", "this is no gzip"),
    ],
)
def test_an_answer_counts_by_its_status(said: bytes, status: int, verdict: str, text: str) -> None:
    with server(said) as port:
        address = address_of(f"http://127.0.0.1:{port}/")
        with closing(EndpointConnection(address, "POST", None, 5.0, 5.0)) as connection:
            answer = connection.send(BODY, {})
            assert connection.send(BODY, {}).status == status
    assert (answer.status, verdict_of(answer)) == (status, verdict), answer
    assert answer.text.startswith(text)


SHORT = OK.replace(b"Length: 2", b"Length: 200")
CHUNKED = b"HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "closes", "status", "words"),
    [
        (SHORT, True, 200, "200 OK (the answer breaks off)"),
        (SHORT, False, 200, "200 OK (the answer breaks off)"),
        (CHUNKED % b"201 Made" + b"2\r\nok\r\n", True, 201, "201 Created (the answer breaks off)"),
        (CHUNKED % b"201 Made" + b"nonsense", True, 201, "201 Created (the answer breaks off)"),
        (CHUNKED % b"400 Bad" + b"2\r\nok", True, 400, "400 Bad Request (the answer breaks off)"),
        (CHUNKED % b"503 Busy" + b"9\r\n", False, 503, "503 Service Unavailable (the answer"),
        (b"HTTP/1.1 200 OK\r\nX: y", False, None, "no whole answer within 0.3 s"),
        (b"HTTP/1.1 200", True, None, ""),
        (b"", True, None, ""),
    ],
)
def test_an_answer_that_breaks_off_has_a_status_if_its_headers_came(
    said: bytes, closes: bool, status: int | None, words: str
) -> None:
    """With `closes` the server breaks it off, else whoever has waited long enough."""
    with server(said, closes) as port:
        address = address_of(f"http://127.0.0.1:{port}/")
        with closing(
            EndpointConnection(address, "POST", None, 5.0, 0.3 if not closes else 5.0)
        ) as one:
            answer = one.send(BODY, {})
    assert (answer.status, answer.broken_off) == (status, status is not None), answer
    assert answer.words.startswith(words)
