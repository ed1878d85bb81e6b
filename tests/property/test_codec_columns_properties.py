"""Columns survive the journey unchanged; damaged bytes never raise anything but SegmentError."""

import contextlib
import datetime
import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec import columns as codec
from onyx.errors import SegmentError
from onyx.flow.columns.record_batch import Columns, to_dicts

DURATION_MAX = datetime.timedelta(microseconds=2**63 - 1)
"""What Arrow holds; a timedelta holds ten times as much."""
VALUES = {
    pa.bool_(): st.booleans(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.duration("us"): st.timedeltas(-DURATION_MAX, DURATION_MAX),
    pa.decimal128(20, 3): st.decimals(-(10**9), 10**9, places=3),
    pa.null(): st.none(),
}
TYPES = st.recursive(
    st.sampled_from(list(VALUES)),
    lambda inner: (
        inner.map(pa.list_)
        | st.lists(inner, max_size=3).map(
            lambda kinds: pa.struct([(f"f{n}", kind) for n, kind in enumerate(kinds)])
        )
    ),
    max_leaves=4,
)


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    if pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        fields = {each.name: values_of(each.type) for each in kind.fields}
        return st.none() | st.fixed_dictionaries(fields)
    return st.none() | VALUES[kind]


@st.composite
def batches(draw) -> Columns:
    kinds, rows = draw(st.lists(TYPES, min_size=1, max_size=4)), draw(st.integers(0, 12))
    arrays = [
        pa.array(draw(st.lists(values_of(kind), min_size=rows, max_size=rows)), kind)
        for kind in kinds
    ]
    return Columns(pa.record_batch(arrays, names=[f"column {n}" for n in range(len(kinds))]))


@given(batches(), st.data())
def test_what_is_encoded_is_decoded_the_same(columns, data):
    """Slices too: what is before and behind them stays here."""
    first = data.draw(st.integers(0, len(columns)))
    part = columns.slice(first, data.draw(st.integers(first, len(columns))))
    schema = codec.decode_schema(codec.encode_schema(part.record_batch.schema))
    payload = codec.encode(part)
    assert codec.count(payload) == len(part)
    assert codec.encoded_bytes(part) == len(payload)
    assert to_dicts(codec.decode(payload, schema)) == to_dicts(columns)[first : first + len(part)]


NUMBERS = st.sampled_from([0, 1, 2, 4, 8, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(0, 400)


@given(batches(), st.lists(st.tuples(st.integers(0, 2_000), NUMBERS), min_size=1, max_size=4))
def test_changed_bytes_are_columns_or_a_segment_error(columns, changes):
    """Numbers and offsets are changed, which is what a reader goes by."""
    payload = bytearray(codec.encode(columns))
    for place, number in changes:
        struct.pack_into("<I", payload, place % (len(payload) - 3), number)
    with contextlib.suppress(SegmentError):
        decoded = codec.decode(bytes(payload), columns.record_batch.schema)
        assert decoded.slice(0, 1).record_batch.serialize().size > 0


@given(batches(), st.data())
def test_a_changed_schema_is_a_schema_or_a_segment_error(columns, data):
    payload = bytearray(codec.encode_schema(columns.record_batch.schema))
    for place in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=4)):
        payload[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(SegmentError):
        schema = codec.decode_schema(bytes(payload))
        codec.decode(codec.encode(columns), schema)


@given(st.binary(max_size=300))
def test_any_bytes_are_columns_or_a_segment_error(data):
    for payload in (data, b"\xff\xff\xff\xff" + data):
        with contextlib.suppress(SegmentError):
            codec.decode(payload, pa.schema([("n", pa.int64())]))
        with contextlib.suppress(SegmentError):
            codec.decode_schema(payload)
