"""Servers that jobs send to, and whose answers never come to an end."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.support.servers.saying import BODY, server

from onyx.plugins.http import connection as module
from onyx.plugins.http.connection import BROKEN_OFF_MAX, EndpointConnection, Tries
from onyx.plugins.http.options import address_of

MOST = 200_000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + bytes(65_536) + b"\r\n"
WITHOUT_END = {
    "chunks": CHUNKED + CHUNK * 8,
    "a length": b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n" + bytes(2 * MOST),
    "no length": b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2 * MOST),
}


@pytest.mark.parametrize("said", WITHOUT_END)
def test_an_answer_without_end_is_one_that_breaks_off(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", MOST)
    tries = Tries(None)
    verdicts = []
    with server(WITHOUT_END[said]) as port:
        address = address_of(f"http://127.0.0.1:{port}/")
        with closing(EndpointConnection(address, "POST", None, 5.0, 5.0)) as connection:
            for _ in range(BROKEN_OFF_MAX):
                answer = connection.send(BODY, {})
                assert (answer.status, answer.broken_off) == (200, True)
                verdicts.append(tries.judged(answer))
    assert verdicts == ["again"] * (BROKEN_OFF_MAX - 1) + ["delivered"]


def test_a_long_answer_with_an_end_counts() -> None:
    with server(CHUNKED + CHUNK * 40 + b"0\r\n\r\n") as port:
        address = address_of(f"http://127.0.0.1:{port}/")
        with closing(EndpointConnection(address, "POST", None, 5.0, 5.0)) as connection:
            answers = [connection.send(BODY, {}) for _ in range(2)]
    assert [(each.status, each.broken_off) for each in answers] == [(200, False)] * 2
