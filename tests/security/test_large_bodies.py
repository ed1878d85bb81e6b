"""Bodies of megabytes that would keep the one event loop from everybody else."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.codec import segments as segments_codec
from onyx.requests import content as module
from onyx.requests.content import (
    LARGE_BYTES,
    VALUES_MAX,
    Decoding,
    Refused,
    has_more_values,
    segments_of,
)
from onyx.requests.request import Form, Payload

BODIES = {
    "empty segments": b"{}" * (VALUES_MAX + 1),
    "a long list": b'{"v":[' + b"1," * VALUES_MAX + b"1]}",
    "lists of nothing": b'{"v":[' + b"[]," * VALUES_MAX + b"[]]}",
    "an array": b"[" + b"{}," * VALUES_MAX + b"{}]",
}


PACKED = {
    "empty mappings": 2_000_000 * b"\x80",
    "numbers": 2_000_000 * b"\x01",
    "texts of no length": 1_100_000 * b"\xd9\x00",
    "lists in lists": 1_100_000 * b"\x91\x90",
    "extensions": 1_100_000 * b"\xc7\x00\x05",
}


def packed(values: bytes) -> bytes:
    """One segment with these values in a list."""
    return b"\x91\x81\xa1v\xdd" + len(values).to_bytes(4, "big") + values


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


@pytest.mark.parametrize("values", PACKED)
def test_values_of_messagepack_are_counted_before_they_are_made(
    values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments_codec, "decode", lambda data: pytest.fail("they are made"))

    with pytest.raises(Refused, match="1,000,000 keys and values"):
        segments_of(Payload(Form.MSGPACK, packed(PACKED[values])))
    with pytest.raises(Refused, match="100,000 segments"):
        segments_of(Payload(Form.MSGPACK, b"\xdd\xff\xff\xff\xff"))


@settings(max_examples=examples(20), deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
       | st.text(max_size=300) | st.binary(max_size=300), lambda each: st.lists(each, max_size=20)
       | st.dictionaries(st.text(max_size=40), each, max_size=20)))  # fmt: skip
def test_all_values_of_messagepack_are_counted_once(value: object) -> None:
    data = msgspec.msgpack.encode(value)
    many = data * (1 + 200 // len(data))

    assert has_more_values(many, count_of(value) * (len(many) // len(data)) - 1)
    assert not has_more_values(many, count_of(value) * (len(many) // len(data)))


def count_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + count_of(each) for each in value.values())
    return 1 + sum(map(count_of, value)) if isinstance(value, list) else 1
