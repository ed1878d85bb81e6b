"""Segments of a request: decoded, refused where they could not travel, and dealt to partitions.

Whoever sends is a stranger. So bytes are checked before anything is made of them, and each segment
as one of a function of the job would be. What is wrong with a segment is said by its number, so
that a client can send the others.

A body of some megabytes takes seconds to look through, and the event loop serves all clients. So
large ones wait for one of few threads: their clients wait for each other, and nobody else does.
Small ones stay on the loop, because a thread costs more than they do.

A byte of MessagePack may become a dict of 80 bytes, so values are counted before any of them is
made. Rejected: a count of bytes that may begin a value, as JSON has it: in MessagePack any byte of
a text may be one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from onyx.base.structs import UNREADABLE, json_values
from onyx.codec import columns as columns_codec
from onyx.codec import segments as segments_codec
from onyx.codec.refusals import refused, refused_rows
from onyx.errors import SegmentError
from onyx.flow.batch import Indices, Segments, format_of, take
from onyx.flow.columns.record_batch import Columns, join
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import text_hash
from onyx.flow.segment import Refusal, Segment
from onyx.ledger.outcomes import Outcomes
from onyx.model.job import CatalogEntry
from onyx.requests.request import SEGMENTS_MAX, Form, Payload

DIGEST_BYTES = 16
VALUES_MAX = 500_000
"""Values of a request, counted before they are made: in JSON by brackets and commas, in MessagePack
with their keys."""
LARGE_BYTES = 262_144
"""The size from which segments in JSON or MessagePack are made on a thread, not on the event loop.
"""
REFUSED_SHOWN_MAX = 100
DECODING_THREADS = 2
_array = msgspec.json.Decoder(list[dict[str, Any]])
_line = msgspec.json.Decoder(dict[str, Any])


class Refused(SegmentError):
    """Some segments of a request cannot be taken; `rows` has the reasons by number."""

    def __init__(self, message: str, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows = dict(rows or {})


class Decoding:
    """Makes segments of the bodies of requests, awaited on the loop of the router."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DECODING_THREADS, "onyx-decoding")

    async def decoded(self, payload: Payload) -> tuple[Segments, bytes]:
        """The segments of a payload and its digest. Raises Refused as `segments_of` does."""
        if not is_large(payload):
            return _decoded(payload)
        return await asyncio.get_running_loop().run_in_executor(self._threads, _decoded, payload)

    def stop(self) -> None:
        """Begin nothing more. Does not wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _decoded(payload: Payload) -> tuple[Segments, bytes]:
    return segments_of(payload), digest_of(payload)


def digest_of(payload: Payload) -> bytes:
    """What tells other content under the same id."""
    digest = hashlib.blake2b(payload.data, digest_size=DIGEST_BYTES, person=payload.form.encode())
    return digest.digest()


def segments_of(payload: Payload) -> Segments:
    """The segments that a payload holds.

    Raises:
        Refused: there are none or too many, the bytes are no segments, or some cannot travel.
    """
    try:
        segments = _READ[payload.form](payload.data)
    except Refused:
        raise
    except (SegmentError, *UNREADABLE) as error:
        raise Refused(f"the request holds no segments as {payload.form}: {error}") from error
    if not len(segments):
        raise Refused("the request holds no segments")
    if len(segments) > SEGMENTS_MAX:
        raise Refused(
            f"the request holds {len(segments):,} segments; send at most {SEGMENTS_MAX:,} at once"
        )
    _check(segments)
    return segments


def is_large(payload: Payload) -> bool:
    """Whether it takes long to make segments of a payload; columns are quick."""
    return len(payload.data) >= LARGE_BYTES and payload.form is not Form.ARROW


def payload_of(segments: Segments) -> Payload:
    """The payload that holds segments, for another worker. Raises SegmentError: they cannot
    travel."""
    return format_of(segments).choose(_of_dicts, _of_columns)(segments)


def _of_dicts(segments: list[Segment]) -> Payload:
    return Payload(Form.MSGPACK, segments_codec.encode(segments))


def _of_columns(columns: Columns) -> Payload:
    batch = columns.record_batch
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Payload(Form.ARROW, sink.getvalue().to_pybytes())


def partition_of(request_id: str, partitions: int) -> int:
    """Where a request goes: the same under the same id, or it would not be recognized."""
    return text_hash(request_id.encode()) % partitions


class Portion(NamedTuple):
    """The segments of a request that go to one partition, in order."""

    segments: Segments
    numbers: Indices | None = None
    """Numbers of the segments in the request; None: all are there."""

    def numbered(self, outcomes: Outcomes) -> Outcomes:
        """What became of them, by their numbers in the request."""
        if self.numbers is None or not outcomes.failures:
            return outcomes
        failures = tuple(
            each if each.segment is None else each._replace(segment=int(self.numbers[each.segment]))
            for each in outcomes.failures
        )
        return replace(outcomes, failures=failures)


def parts_of(segments: Segments, key: str | None, home: int, partitions: int) -> dict[int, Portion]:
    """The segments of each partition.

    Args:
        key: segments with the same value of it go to the same partition; None: all go home.
        home: the partition of the request's id.

    Raises:
        Refused: a segment has no such key, or one that nothing can be grouped by.
    """
    if key is None or partitions == 1:
        return {home: Portion(segments)}
    entry = CatalogEntry(name="requests", type="function", group_by_key=key)
    getter = key_getter(entry, _no_function)
    assert getter is not None, "the entry has a key"
    try:
        hashes = Grouping(getter, entry).hashes_of(segments)
    except Refusal as error:
        raise Refused(f"partitionKey {key!r}: {error}") from error
    numbers = (hashes % np.uint64(partitions)).astype(np.intp)
    found = {int(number): np.flatnonzero(numbers == number) for number in np.unique(numbers)}
    return {number: Portion(take(segments, rows), rows) for number, rows in found.items()}


def _check(segments: Segments) -> None:
    found = format_of(segments).choose(refused, refused_rows)(segments)
    rows = {index: str(error) for index, error in list(found)[:REFUSED_SHOWN_MAX]}
    if rows:
        index, reason = next(iter(rows.items()))
        raise Refused(f"segment {index} of the request cannot be taken: {reason}", rows)


def _json_lines(data: bytes) -> list[Segment]:
    values = json_values(data)
    if values > VALUES_MAX:
        raise Refused(
            f"the request holds {values:,} values or so; send at most {VALUES_MAX:,} at once"
        )
    if data.lstrip()[:1] == b"[":
        return _array.decode(data)
    return _line.decode_lines(data)


def _msgpack(data: bytes) -> list[Segment]:
    if segments_codec.count(data) > SEGMENTS_MAX or has_more_values(data, 2 * VALUES_MAX):
        raise Refused(
            f"the request holds more than {SEGMENTS_MAX:,} segments, or {2 * VALUES_MAX:,} keys "
            "and values: send several requests"
        )
    return segments_codec.decode(data)


def _arrow(data: bytes) -> Segments:
    """Each message is looked at before Arrow reads it, as between workers."""
    try:
        reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
        messages = [each.serialize().to_pybytes() for each in _messages(reader)]
    except (pa.ArrowException, OSError) as error:
        raise SegmentError(str(error)) from error
    if len(messages) < 2:
        return []
    schema = columns_codec.decode_schema(messages[0])
    return join([columns_codec.decode(each, schema) for each in messages[1:]])


def _messages(reader: pa.ipc.MessageReader) -> Iterator[pa.ipc.Message]:
    with contextlib.suppress(StopIteration):
        while True:
            yield reader.read_next_message()


_READ: Mapping[Form, Callable[[bytes], Segments]] = {
    Form.JSON_LINES: _json_lines,
    Form.ARROW: _arrow,
    Form.MSGPACK: _msgpack,
}


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(f"a key is no function: {name}")


def _sizes() -> Iterator[int]:
    """For each first byte: how many bytes the value takes, without what is in it; negative: how
    many of them say its length."""
    fixed = {0xCA: 5, 0xCB: 9, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
    fixed |= {0xCC + power: 1 + 2**power for power in range(4)}
    fixed |= {0xD0 + power: 1 + 2**power for power in range(4)}
    fixed |= {0xD4 + power: 2 + 2**power for power in range(5)}
    counted = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    for first in range(256):
        if 0xA0 <= first <= 0xBF:
            yield 1 + (first & 0x1F)
        elif first in counted:
            yield -counted[first]
        else:
            yield fixed.get(first, 1)


_SIZES = tuple(_sizes())
_EXTENDED = (0xC7, 0xC8, 0xC9)
"""A byte for their type stands behind the length."""


def has_more_values(data: bytes, most: int) -> bool:
    """Whether bytes hold more keys and values than `most`. Of what is no MessagePack nothing is
    said."""
    if len(data) <= most:
        return False  # each takes a byte at least
    at = values = 0
    end = len(data)
    while at < end and values <= most:
        first = data[at]
        size = _SIZES[first]
        if size < 0:
            length = int.from_bytes(data[at + 1 : at + 1 - size], "big")
            size = 1 - size + length + (first in _EXTENDED)
        at += size
        values += 1
    return values > most
