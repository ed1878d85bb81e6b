"""Items that make more than is kept in memory, and what has been sent of them.

Such an item is taken into the state log: with the state before it, and with how much of what it
makes has been sent. Whoever takes it over has it processed again, from that state, and sends what
follows. A checksum says whether what was sent before is what is made now.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from onyx.codec import columns as columns_codec
from onyx.codec.values import decode_values, encode_each, encode_values
from onyx.flow.columns.record_batch import Columns


class Sent(NamedTuple):
    """What was made, in order."""

    segments: int = 0
    checksum: int = 0

    def and_then(self, made: Sequence[Any]) -> Sent:
        """With this behind it: segments, or columns."""
        rows = [row for each in made for row in _rows(each)]
        checksum = zlib.crc32(b"".join(encode_each([[row] for row in rows])), self.checksum)
        return Sent(self.segments + len(rows), checksum)


class Unfinished(NamedTuple):
    """An item that is being processed."""

    shard: int
    ordinal: int
    item: Any
    """A segment, or a record batch of one row."""
    sent: Sent = Sent()

    def record(self) -> list[Any]:
        """The form in which the state log has it."""
        if isinstance(self.item, pa.RecordBatch):
            columns = Columns(self.item)
            schema = columns_codec.encode_schema(self.item.schema)
            return [self.ordinal, *self.sent, columns_codec.encode(columns), schema]
        return [self.ordinal, *self.sent, encode_values([self.item]), b""]


def of_record(shard: int, record: Sequence[Any]) -> Unfinished:
    """What `Unfinished.record` gave."""
    ordinal, segments, checksum, data, schema = record
    if schema:
        item = columns_codec.decode(data, columns_codec.decode_schema(schema)).record_batch
    else:
        (item,) = decode_values(data)
    return Unfinished(shard, ordinal, item, Sent(segments, checksum))


def without(made: list[Any], segments: int) -> list[Any]:
    """What was made, without the first so many segments."""
    if not made or not isinstance(made[0], Columns):
        return made[segments:]
    left: list[Any] = []
    for each in made:
        part = each.slice(min(segments, len(each)), len(each))
        segments -= len(each) - len(part)
        left += [part] if len(part) else []
    return left


def first_of(made: list[Any], segments: int) -> list[Any]:
    """The first so many segments of what was made."""
    if not made or not isinstance(made[0], Columns):
        return made[:segments]
    found: list[Any] = []
    for each in made:
        part = each.slice(0, min(segments, len(each)))
        segments -= len(part)
        found += [part] if len(part) else []
    return found


def count_of(made: Sequence[Any]) -> int:
    """How many segments were made."""
    return sum(len(each) if isinstance(each, Columns) else 1 for each in made)


def _rows(made: Any) -> list[Any]:
    return made.record_batch.to_pylist() if isinstance(made, Columns) else [made]
