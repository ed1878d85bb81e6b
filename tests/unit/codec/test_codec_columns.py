"""Columns as bytes: what is refused, and why, before Arrow looks at the values."""

import pyarrow as pa
import pytest

from onyx.codec import columns as codec
from onyx.errors import SegmentError
from onyx.flow.columns.record_batch import Columns

ROWS = pa.record_batch({"n": [1, 2, 3], "name": ["a", None, "c"], "tags": [["x"], [], None]})
PAYLOAD = codec.encode(Columns(ROWS))


def test_columns_refer_to_the_bytes_they_came_in():
    before = pa.total_allocated_bytes()
    decoded = codec.decode(PAYLOAD, ROWS.schema)
    assert pa.total_allocated_bytes() == before
    assert decoded.record_batch.equals(ROWS)


def test_equal_bytes_give_one_schema():
    first, second = (codec.decode_schema(codec.encode_schema(ROWS.schema)) for _ in range(2))
    assert first is second
    assert first.equals(ROWS.schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("n", pa.dictionary(pa.int32(), pa.string()))]), "types that columns do not"),
        (pa.schema([("n", pa.int64()), ("n", pa.string())]), "two columns are named 'n'"),
        (pa.schema([("n", pa.month_day_nano_interval())]), "column 'n': a column of type"),
        (pa.schema([("n", pa.int64())], {"pandas": "{}"}), "types that columns do not"),
    ],
)
def test_a_schema_that_columns_cannot_have_is_refused(schema, message):
    with pytest.raises(SegmentError, match=message):
        codec.decode_schema(schema.serialize().to_pybytes())


def test_a_schema_beyond_the_limit_is_refused_at_both_ends():
    schema = pa.schema([(f"column_{number:05}", pa.int64()) for number in range(6_000)])
    with pytest.raises(SegmentError, match=r"6000 columns, whose names and types take \d+ bytes"):
        codec.encode_schema(schema)
    with pytest.raises(SegmentError, match=f"{codec.SCHEMA_BYTES_MAX} are allowed"):
        codec.decode_schema(schema.serialize().to_pybytes())


def message(batch, **options) -> bytes:
    """As any writer of Arrow may write it."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(stream.getvalue())
    messages.read_next_message()
    return messages.read_next_message().serialize().to_pybytes()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_body_is_refused_before_it_is_expanded(compression):
    large = pa.record_batch({"n": [7] * 100_000})
    with pytest.raises(SegmentError, match="they are compressed"):
        codec.decode(message(large, compression=compression), large.schema)


def test_values_that_occupy_no_bytes_are_bounded_at_every_depth():
    nulls = pa.nulls(2 * codec.ROWS_MAX)
    offsets = pa.array([0, len(nulls)], pa.int32())
    for column in (nulls, pa.ListArray.from_arrays(offsets, nulls)):
        batch = pa.record_batch({"nothing": column})
        with pytest.raises(SegmentError, match="2000000 values in one column"):
            codec.decode(message(batch), batch.schema)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "metadata is damaged"),
        (PAYLOAD[:4], "metadata is damaged"),
        (PAYLOAD[4:], "metadata is damaged"),
        (PAYLOAD[:100], "metadata is damaged"),
        (PAYLOAD[:-8], "bytes"),
        (ROWS.schema.serialize().to_pybytes(), "metadata is damaged"),
    ],
)
def test_bytes_that_are_no_batch_are_refused(payload, reason):
    with pytest.raises(SegmentError, match=reason):
        codec.decode(payload, ROWS.schema)


def test_values_of_another_schema_are_refused():
    with pytest.raises(SegmentError, match="not a batch of columns"):
        codec.decode(PAYLOAD, pa.schema([("n", pa.string())]))


def test_text_that_is_no_utf8_is_refused():
    batch = pa.record_batch({"name": pa.array([b"\xff\xfe"])})
    with pytest.raises(SegmentError, match="UTF8"):
        codec.decode(codec.encode(Columns(batch)), pa.schema([("name", pa.string())]))
