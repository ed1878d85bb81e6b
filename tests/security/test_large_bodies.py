"""Bodies of megabytes that would keep the one event loop from everybody else."""

from __future__ import annotations

import asyncio
import threading

import pytest

from onyx.peer.requests import decoding as module
from onyx.peer.requests.decoding import Decoding
from onyx.requests.append import Form, Payload
from onyx.requests.content import LARGE_BYTES, VALUES_MAX, Refused, segments_of

BODIES = {
    "empty segments": b"{}" * (VALUES_MAX + 1),
    "a long list": b'{"v":[' + b"1," * VALUES_MAX + b"1]}",
    "lists of nothing": b'{"v":[' + b"[]," * VALUES_MAX + b"[]]}",
    "an array": b"[" + b"{}," * VALUES_MAX + b"{}]",
}


@pytest.mark.parametrize("body", BODIES)
def test_values_are_counted_before_they_are_made(body: str) -> None:
    with pytest.raises(Refused, match="send at most 500,000"):
        segments_of(Payload(Form.JSON_LINES, BODIES[body]))


@pytest.mark.parametrize(
    ("data", "on_loop"), [(b"{}", True), (b'{"v":"' + b"x" * LARGE_BYTES + b'"}', False)]
)
def test_a_large_body_is_decoded_off_the_loop(
    data: bytes, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []
    real = module.segments_of

    def watched(payload: Payload) -> object:
        where.append(threading.current_thread())
        return real(payload)

    monkeypatch.setattr(module, "segments_of", watched)
    decoding = Decoding()

    segments, _ = asyncio.run(decoding.decoded(Payload(Form.JSON_LINES, data)))

    decoding.stop()
    assert len(segments) == 1
    assert (where == [threading.current_thread()]) is on_loop
