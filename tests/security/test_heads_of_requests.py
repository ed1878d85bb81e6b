"""Heads of requests that a gateway may read otherwise, or that are larger than they may be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.servers.fake_requests import FakeRequests
from tests.support.servers.gateways import answer, answers, connected, gateways

from onyx.gateway.gateway import Gateway
from onyx.serving.connection import HEAD_BYTES_MAX

LINE = b"POST /jobs/orders/in HTTP/1.%d\r\n"
REST = b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
def requests() -> FakeRequests:
    return FakeRequests()


@pytest.fixture
def gateway(requests: FakeRequests) -> Iterator[Gateway]:
    with gateways(requests) as make:
        yield make()


HEADS = {
    "no host": LINE % 1 + REST,
    "two hosts": LINE % 1 + b"host: a\r\nhost: b\r\n" + REST,
    "two hosts of 1.0": LINE % 0 + b"host: a\r\nhost: b\r\n" + REST,
    "17 KB in one piece": LINE % 1 + b"host: a\r\nx: " + b"y" * 17_000 + b"\r\n" + REST,
    "many small headers": LINE % 1 + b"host: a\r\n" + b"x:\r\n" * 4_000 + REST,
    "a long path": b"POST /" + b"y" * 17_000 + b" HTTP/1.1\r\nhost: a\r\n" + REST,
}


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_is_not_as_it_should_be_is_refused(
    head: str, gateway: Gateway, requests: FakeRequests
) -> None:
    with connected(gateway) as connection:
        connection.sendall(HEADS[head])
        assert answers(connection).startswith(b"HTTP/1.1 400")
    assert not requests.appended


@pytest.mark.parametrize(
    "head",
    [
        LINE % 0 + REST,
        LINE % 1 + b"Host: a\r\nx: " + b"y" * (HEAD_BYTES_MAX - 500) + b"\r\n" + REST,
    ],
)
def test_a_head_as_it_may_be_is_taken(head: bytes, gateway: Gateway) -> None:
    with connected(gateway) as connection:
        connection.sendall(head)
        assert answer(connection).startswith(b"HTTP/1.1 200")


def test_what_comes_behind_a_body_is_no_header(gateway: Gateway, requests: FakeRequests) -> None:
    with connected(gateway) as connection:
        connection.sendall(
            LINE % 1
            + b"host: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"2\r\n{}\r\n0\r\nidempotency-key: theirs\r\n\r\n"
        )
        assert answer(connection).startswith(b"HTTP/1.1 200")
    assert [each.id for each in requests.appended] == [""]
