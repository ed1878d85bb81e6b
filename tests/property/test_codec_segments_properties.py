"""Segments survive the journey unchanged; damaged bytes never raise anything but SegmentError."""

import contextlib
import datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec import segments as codec
from onyx.errors import SegmentError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(datetime.UTC))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
SEGMENTS = st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), max_size=6)


@given(SEGMENTS)
def test_what_is_encoded_is_decoded_the_same(segments):
    payload = codec.encode(segments)
    assert codec.decode(payload) == segments
    assert codec.count(payload) == len(segments)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_columns_survive(values):
    column = np.array(values, np.uint64)
    data = codec.encode_column(column)
    assert len(data) <= codec.COLUMN_VALUE_BYTES * len(values)
    decoded = codec.decode_column(data, len(values))
    assert (decoded is None and not values) or decoded.tolist() == values


@given(st.integers(0, 2**63), st.integers(2, 5_000))
def test_a_run_of_consecutive_values_is_sent_as_its_first(first, length):
    column = first + np.arange(length, dtype=np.uint64)
    data = codec.encode_column(column)
    assert len(data) == codec.COLUMN_VALUE_BYTES
    assert (codec.decode_column(data, length) == column).all()


@given(st.binary(max_size=200))
def test_any_bytes_are_segments_or_a_segment_error(data):
    try:
        segments = codec.decode(data)
    except SegmentError:
        return
    assert all(type(segment) is dict for segment in segments)


@given(SEGMENTS, st.data())
def test_one_changed_byte_never_raises_anything_else(segments, data):
    payload = bytearray(codec.encode(segments))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(SegmentError):
        codec.decode(bytes(payload))
