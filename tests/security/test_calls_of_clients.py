"""Silent calls, and calls with more requests than memory: they shut out no other client."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest
from tests.integration.transport.test_transport_contract import Side, grpc_world

from onyx.requests.request import Answer, Append, Form, Level, Payload, Status, answered
from onyx.transport.appends.messages import decode_answer, encode_append
from onyx.transport.appends.service import (
    CALL_BYTES_MAX,
    CLIENT_CALLS_MAX,
    MANY,
    SERVICE,
    CallPlace,
    CallPlaces,
)


class Calls:
    """Places for calls, and which calls were ended."""

    def __init__(self, calls_max: int = CLIENT_CALLS_MAX, **limits: Any) -> None:
        self.places = CallPlaces(calls_max, **limits)
        self.ended: list[str] = []

    def open(self, name: str) -> CallPlace | None:
        return self.places.enter(lambda: self.ended.append(name))

    def opened(self, name: str) -> CallPlace:
        place = self.open(name)
        assert place is not None
        return place


def test_of_too_many_calls_the_one_that_was_silent_longest_ends() -> None:
    calls = Calls(3)
    first, second, third = (calls.opened(name) for name in ("first", "second", "third"))
    assert first.begin(1, 0.0)
    assert second.begin(1, 0.0)
    second.end(1)

    assert calls.open("fourth") is not None
    assert calls.open("fifth") is not None

    assert calls.ended == ["third", "second"]
    third.leave()  # what was ended leaves later, and takes no place with it
    assert calls.open("sixth") is not None
    assert calls.ended == ["third", "second", "fourth"]


def test_a_call_with_a_request_that_waits_is_not_ended() -> None:
    calls = Calls(2)
    for name in ("a", "b"):
        assert calls.opened(name).begin(1, 0.0)

    assert calls.open("c") is None
    assert calls.ended == []


def test_the_bytes_of_a_call_and_of_all_calls_have_a_bound_and_each_may_have_one_request() -> None:
    calls = Calls(bytes_max=CALL_BYTES_MAX)
    greedy, modest = calls.opened("greedy"), calls.opened("modest")
    size = CALL_BYTES_MAX // 4
    assert [greedy.begin(size, 0.0) for _ in range(5)] == [True] * 4 + [False]

    assert modest.begin(size, 0.0)
    assert not modest.begin(size, 0.0)
    for _ in range(3):
        greedy.end(size)

    assert modest.begin(size, 0.0)


def test_what_a_call_leaves_behind_counts_no_more() -> None:
    calls = Calls(bytes_max=10)
    gone, other = calls.opened("gone"), calls.opened("other")
    assert gone.begin(10, 0.0)
    assert other.begin(0, 0.0)
    assert not other.begin(1, 0.0)

    gone.leave()
    gone.end(10)  # an answer that comes after its call

    assert other.begin(10, 0.0)
    assert not other.begin(1, 0.0)


@pytest.mark.server
def test_silent_calls_shut_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = answered(Answer(Status.JOURNALLED))
    monkeypatch.setattr(Side, "on_append", lambda self, append: taken)
    silent = threading.Event()
    with grpc_world() as world:
        far = world.far.transport
        with grpc.insecure_channel(far.address) as strangers:
            for _ in range(CLIENT_CALLS_MAX + 20):
                strangers.stream_stream(f"/{SERVICE}/{MANY}")(iter(silent.wait, True))
            append = Append("job", "in", Payload(Form.JSON_LINES, b"{}"), level=Level.JOURNAL)
            # A client elsewhere: channels of one process to an address share their connection.
            own = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(far.address, options=own) as channel:
                call = channel.stream_stream(f"/{SERVICE}/{MANY}")
                (data,) = call(iter([encode_append(append)]), timeout=20)
        silent.set()
    assert decode_answer(data)[1].status is Status.JOURNALLED
