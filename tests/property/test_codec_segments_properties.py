"""Segments survive the journey unchanged; damaged bytes never raise anything but SegmentError."""

import contextlib
import datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec import segments as codec
from onyx.codec.refusals import refused
from onyx.errors import SegmentError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(datetime.UTC) | st.timezones())
    | st.dates()
    | st.times().map(lambda each: each.replace(fold=0))
    | st.timedeltas()
    | st.decimals()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
SEGMENTS = st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), max_size=6)


def shown(value):
    """Types and values, NaN too; of datetimes the instant and what the clock shows."""
    if isinstance(value, list | tuple):
        return type(value), [shown(each) for each in value]
    if isinstance(value, dict):
        return [(key, shown(each)) for key, each in value.items()]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC), _clock(value)
    return type(value), repr(value)


def _clock(value):
    """Not where it shows what the clock never did: the hour that is left out in spring."""
    real = value.astimezone(datetime.UTC).astimezone(value.tzinfo)
    return real.isoformat()


@given(SEGMENTS)
def test_what_is_encoded_is_decoded_the_same(segments):
    assert refused(segments) == []
    payload = codec.encode(segments)
    assert shown(codec.decode(payload)) == shown(segments)
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


STEPS = st.one_of(st.integers(0, 300), st.just(1), st.integers(0, 2**64 - 1))


@given(st.integers(0, 2**64 - 1), st.lists(STEPS, max_size=300))
def test_columns_of_any_steps_survive(first, steps):
    values = [first := (first + step) % 2**64 for step in [0, *steps]]
    data = codec.encode_column(np.array(values, np.uint64))
    assert len(data) <= codec.COLUMN_VALUE_BYTES * len(values)
    assert codec.decode_column(data, len(values)).tolist() == values


@given(st.integers(0, 2**50), st.lists(st.integers(1, codec.STEP_MAX), min_size=50, max_size=300))
def test_small_steps_are_a_byte_each_though_one_leads_to_another_partition(first, steps):
    steps[7] = 2**48
    values = first + np.cumsum([0, *steps], dtype=np.uint64)
    data = codec.encode_column(values)
    assert len(data) == codec.COLUMN_VALUE_BYTES * 2 + len(steps)
    assert (codec.decode_column(data, len(values)) == values).all()


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_are_a_column_or_a_segment_error(data, length):
    with contextlib.suppress(SegmentError):
        column = codec.decode_column(data, length)
        assert column is None or len(column) == length


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
