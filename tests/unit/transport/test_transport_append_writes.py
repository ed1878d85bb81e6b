"""Requests of writes, and their commits, as messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import SegmentError
from onyx.requests.request import (
    BATCH_MAX,
    WRITE_CHARACTERS_MAX,
    Append,
    BatchOfWrite,
    Commit,
    Form,
    HeldRequest,
    Payload,
    WriterOfBatch,
)
from onyx.transport.appends.messages import decode_append, encode_append
from onyx.wire.v1 import requests_pb2 as pb

NOTHING = Payload(Form.MSGPACK, b"")
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=WRITE_CHARACTERS_MAX)
BATCHES = st.builds(BatchOfWrite, NAMES, st.integers(0, BATCH_MAX))
NUMBERS = st.integers(0, 2**31 - 1)
WRITES = st.one_of(
    st.none(),
    st.builds(HeldRequest, BATCHES, NAMES, NUMBERS),
    st.builds(
        Commit, BATCHES, st.lists(st.builds(WriterOfBatch, NAMES, NUMBERS), max_size=4).map(tuple)
    ),
)


@given(WRITES, st.binary(max_size=9))
def test_a_request_of_a_write_is_the_same_on_the_other_side(
    write: HeldRequest | Commit | None, data: bytes
) -> None:
    payload = NOTHING if isinstance(write, Commit) else Payload(Form.ARROW, data)
    append = Append("job", "in", payload, id="i", timeout_s=3.0, write=write)
    assert decode_append(encode_append(append)) == append


@pytest.mark.parametrize(
    "held",
    [
        pb.HeldRequest(write="", batch=0, writer="a"),
        pb.HeldRequest(write="w" * (WRITE_CHARACTERS_MAX + 1), writer="a"),
        pb.HeldRequest(write="w", batch=2**63, writer="a"),
    ],
)
def test_a_write_that_cannot_be_meant_is_refused(held: pb.HeldRequest) -> None:
    message = pb.AppendRequest(job="job", json=b"{}", held=held)
    with pytest.raises(SegmentError, match="the id of a write has 1 to"):
        decode_append(message.SerializeToString())
