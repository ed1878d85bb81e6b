"""A run of segments of one form as bytes: msgpack for dicts, Arrow for columns beside a schema, and
for dicts that are made of two others the bytes of both, which are there already.

A join makes one dict of two rows whose bytes it has. What it makes is encoded for the state log as
the bytes of both, beside the prefixes of their keys, and is put together again by who reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.codec import columns as columns_codec
from onyx.codec.segments import decode, decode_apart, encode
from onyx.flow.batch import EncodedRun, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns, alike, dicts_of

Prefixes = tuple[str, str]
"""What the keys of either dict begin with."""
_FIRST, _SECOND = "\0first ", "\0second "
"""Columns with the bytes; their names go on with the prefix."""


def encode_run(segments: Segments) -> EncodedRun:
    """The bytes of a run.

    Raises:
        SegmentError: a value has no encoding, or the schema is too large.
    """
    return format_of(segments).choose(_of_dicts, _of_columns)(segments)


def decode_run(payload: bytes, schema: bytes) -> Segments:
    """The run of `encode_run`.

    Raises:
        SegmentError: these are not its bytes.
    """
    if not schema:
        return decode(payload)
    columns = columns_codec.decode(payload, columns_codec.decode_schema(schema))
    if is_merged(columns.record_batch.schema):
        return dicts_of_merged(columns.record_batch)
    return columns


def _of_dicts(segments: list[Segment]) -> EncodedRun:
    return EncodedRun(encode(segments), b"")


def _of_columns(columns: Columns) -> EncodedRun:
    schema = columns_codec.encode_schema(columns.record_batch.schema)
    return EncodedRun(columns_codec.encode(columns), schema)


def merged(
    prefixes: Prefixes,
    first: Sequence[Segment],
    i: Sequence[int],
    second: Sequence[Segment],
    j: Sequence[int],
) -> list[Segment]:
    """New dicts of pairs, of which both parts are at these indices. Of a name that both have, the
    value of the first one stands."""
    mine, others = alike(first), alike(second)
    if mine is not None and others is not None:
        names = [
            prefix + name
            for prefix, dicts in zip(prefixes, (mine, others), strict=True)
            for name in dicts.names
        ]
        if len(set(names)) == len(names):
            rows, its = mine.rows, others.rows
            return dicts_of(names, [rows[a] + its[b] for a, b in zip(i, j, strict=True)])
    first, second = named(prefixes[0], first), named(prefixes[1], second)
    return [{**first[a], **second[b], **first[a]} for a, b in zip(i, j, strict=True)]


def named(prefix: str, dicts: Sequence[Segment]) -> Sequence[Segment]:
    """The dicts with a prefix before each key; the same ones without."""
    if not prefix:
        return dicts
    return [{prefix + key: value for key, value in each.items()} for each in dicts]


def merged_batch(prefixes: Prefixes, first: pa.Array, second: pa.Array) -> pa.RecordBatch:
    """Columns that stand for what `merged` makes of pairs, of which the bytes of both parts
    (`encode_apart`) are in a column each."""
    names = [_FIRST + prefixes[0], _SECOND + prefixes[1]]
    return pa.RecordBatch.from_arrays([first, second], names=names)


def is_merged(schema: pa.Schema) -> bool:
    """Whether these are columns of `merged_batch`: no key is called so by chance."""
    return len(schema) == 2 and schema.names[0].startswith(_FIRST)


def dicts_of_merged(batch: pa.RecordBatch) -> list[Segment]:
    """The dicts that such columns stand for. Raises SegmentError: the bytes are not those of
    dicts."""
    first, second = (decode_apart(column.to_pylist()) for column in batch.columns)
    one, other = batch.schema.names
    prefixes = one.removeprefix(_FIRST), other.removeprefix(_SECOND)
    every = range(batch.num_rows)
    return merged(prefixes, first, every, second, every)
