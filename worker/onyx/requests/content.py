"""Segments of a request: decoded, and refused where they could not travel.

Whoever sends is a stranger. So bytes are checked before anything is made of them, and each segment
as one of a function of the job would be. What is wrong with a segment is said by its number, so
that a client can send the others.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from onyx.base.structs import UNREADABLE, json_values
from onyx.codec import columns as columns_codec
from onyx.codec import segments as segments_codec
from onyx.codec.msgpack_values import has_more_values
from onyx.codec.refusals import refused
from onyx.codec.refused_rows import refused_rows
from onyx.errors import SegmentError
from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.record_batch import Columns, join
from onyx.flow.segment import Segment
from onyx.requests.append import Form, Payload
from onyx.requests.request import SEGMENTS_MAX

DIGEST_BYTES = 16
VALUES_MAX = 500_000
"""Values of a request, counted before they are made: in JSON by brackets and commas, in MessagePack
with their keys."""
LARGE_BYTES = 262_144
"""The size from which segments in JSON or MessagePack are made on a thread, not on the event loop.
"""
REFUSED_SHOWN_MAX = 100
_array = msgspec.json.Decoder(list[dict[str, Any]])
_line = msgspec.json.Decoder(dict[str, Any])
_WRONG = UNREADABLE


class Refused(SegmentError):
    """Some segments of a request cannot be taken; `rows` has the reasons by number."""

    def __init__(self, message: str, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows = dict(rows or {})


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
    except (SegmentError, *_WRONG) as error:
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
