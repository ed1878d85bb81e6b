"""Makes the bodies of requests: of each segment one, or of many.

A body of many is gathered in pieces, each some segments with their bytes. It ends before a piece
that would make it larger than the job allows, so only a segment that is alone can be larger. The
segments of one `write` may be in several bodies, and a body may have those of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import msgspec
import pyarrow as pa

from onyx.flow.batch import Segments, as_columns, format_of
from onyx.flow.columns.record_batch import Columns, join, of_table, to_dicts
from onyx.flow.columns.values import python_values
from onyx.flow.segment import Segment
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext

KEY_CHARACTERS_MAX = 1_024
_PLAIN = "!#$&'()*+,/:;=?@[]^`{|}~\"<>\\"
"""Characters of a key that stand for themselves, besides letters, digits and `_.-`."""


class RequestBody(NamedTuple):
    """A body of a request."""

    data: bytes
    segments: int
    key: str | None
    """The value that identifies its segment, if the job names one."""


class RequestBodies(Protocol):
    """Makes bodies of a format."""

    @property
    def waiting(self) -> int:
        """Segments that were added and are in no body yet."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Their size, about."""
        ...

    def add(self, segments: Segments) -> list[RequestBody]:
        """Add segments; the bodies that are full now. Raises UserError: a value has no form in this
        format, and nothing was added."""
        ...

    def finish(self) -> list[RequestBody]:
        """What is left, as a body."""
        ...

    def clear(self) -> None:
        """Forget what is left."""
        ...


def bodies_of(context: PluginContext, options: HttpOptions) -> RequestBodies:
    """The bodies of the job's format."""
    if options.format == "json":
        return Single(context, options)
    limits = BodyLimits(options.request_segments, options.request_bytes)
    if options.format == "arrow":
        return ArrowStreams(context, limits)
    return Texts(JsonLines(context, options.nan), limits, options.format == "json-array")


class BodyLimits(NamedTuple):
    """When a body ends."""

    segments: int
    size_bytes: int


class Single:
    """A JSON object a body."""

    waiting = 0
    waiting_bytes = 0

    def __init__(self, context: PluginContext, options: HttpOptions) -> None:
        self._context = context
        self._json = JsonLines(context, options.nan)
        self._key = options.idempotency_key

    def add(self, segments: Segments) -> list[RequestBody]:
        """A body for each."""
        keys = self._keys(segments)
        return [
            RequestBody(each, 1, key)
            for each, key in zip(_texts(self._json, segments), keys, strict=True)
        ]

    def finish(self) -> list[RequestBody]:
        """Nothing is ever left."""
        return []

    def clear(self) -> None:
        """Nothing is left."""

    def _keys(self, segments: Segments) -> Sequence[str | None]:
        name = self._key
        if name is None:
            return [None] * len(segments)
        return [self._text(name, each) for each in _values(segments, name)]

    def _text(self, name: str, value: Any) -> str:
        if type(value) is int:
            return str(value)
        if type(value) is str and value:
            text = quote(value, safe=_PLAIN)
            if len(text) <= KEY_CHARACTERS_MAX:
                return text
            what = f"text of more than {KEY_CHARACTERS_MAX:,} characters"
        else:
            what = "nothing" if value is None or value == "" else f"a {type(value).__name__}"
        raise task_error(
            self._context,
            f"key {name!r} holds {what}, and idempotencyKey needs a text or an int to tell "
            "requests apart; give each segment one in the function before",
        )


class _Open(msgspec.Struct):
    """A body that is not full."""

    pieces: list[Any]
    segments: int = 0
    size_bytes: int = 0


class _Gathering:
    """Pieces become bodies."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._open = _Open([])

    @property
    def waiting(self) -> int:
        """Segments that were added and are in no body yet."""
        return self._open.segments

    @property
    def waiting_bytes(self) -> int:
        """Their size, about."""
        return self._open.size_bytes

    def clear(self) -> None:
        """Forget what is left."""
        self._open = _Open([])

    def finish(self) -> list[RequestBody]:
        """What is left, as a body."""
        done, self._open = self._open, _Open([])
        return [RequestBody(self._body(done.pieces), done.segments, None)] if done.segments else []

    def _put(self, piece: Any, segments: int, size_bytes: int) -> None:
        self._open.pieces.append(piece)
        self._open.segments += segments
        self._open.size_bytes += size_bytes

    def _body(self, pieces: list[Any]) -> bytes:
        raise NotImplementedError


class Texts(_Gathering):
    """JSON lines, or a JSON array."""

    def __init__(self, encode: JsonLines, limits: BodyLimits, is_array: bool) -> None:
        super().__init__(limits)
        self._encode = encode
        self._is_array = is_array

    def add(self, segments: Segments) -> list[RequestBody]:
        """Pieces of one segment."""
        full: list[RequestBody] = []
        for text in _texts(self._encode, segments):
            size = len(text) + 1
            if not self._has_room(size):
                full += self.finish()
            self._put(text, 1, size)
        return full

    def _has_room(self, size_bytes: int) -> bool:
        """Whether such a piece may come to the open body."""
        limits, has = self._limits, self._open
        return not has.segments or (
            has.segments < limits.segments and has.size_bytes + size_bytes <= limits.size_bytes
        )

    def _body(self, pieces: list[bytes]) -> bytes:
        if self._is_array:
            return b"[" + b",".join(pieces) + b"]"
        return b"\n".join(pieces) + b"\n"


class ArrowStreams(_Gathering):
    """A stream of the Arrow IPC format, with one record batch."""

    def __init__(self, context: PluginContext, limits: BodyLimits) -> None:
        super().__init__(limits)
        self._context = context

    def add(self, segments: Segments) -> list[RequestBody]:
        """Pieces of rows. A body has rows of the same types."""
        columns = self._columns(segments)
        row_bytes = max(1.0, columns.size_bytes / max(1, len(columns)))
        full: list[RequestBody] = []
        first = 0
        while first < len(columns):
            room = self._room(row_bytes)
            if self._open.segments and (room < 1 or not self._is_alike(columns)):
                full += self.finish()
                room = self._room(row_bytes)
            piece = columns.slice(first, min(first + max(1, room), len(columns)))
            self._put(piece, len(piece), int(row_bytes * len(piece)))
            first += len(piece)
        return full

    def _room(self, row_bytes: float) -> int:
        """Rows that may come to the open body."""
        limits, has = self._limits, self._open
        by_size = (limits.size_bytes - has.size_bytes) / row_bytes
        return min(limits.segments - has.segments, int(by_size))

    def _is_alike(self, piece: Columns) -> bool:
        pieces: list[Columns] = self._open.pieces
        return not pieces or pieces[0].record_batch.schema.equals(piece.record_batch.schema)

    def _columns(self, segments: Segments) -> Columns:
        columns, _, failures = as_columns(segments, self._context.schema)
        if failures:
            what = f"segment {failures[0][0]} of a batch does not fit the others"
            raise task_error(self._context, f"{what}: {failures[0][1]}")
        return columns

    def _body(self, pieces: list[Columns]) -> bytes:
        batch = join(pieces).record_batch
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
        encoded: bytes = out.getvalue().to_pybytes()
        return encoded


def segments_in(data: bytes, form: str) -> list[Any]:
    """The segments of a body, as JSON has them, for dead letters."""
    if form == "arrow":
        return to_dicts(of_table(pa.ipc.open_stream(data).read_all()))
    if form == "jsonl":
        return list(msgspec.json.Decoder().decode_lines(data))
    decoded = msgspec.json.decode(data)
    return decoded if form == "json-array" else [decoded]


def _texts(encode: JsonLines, segments: Segments) -> list[bytes]:
    return format_of(segments).choose(encode.encode_each, encode.encode_each_of)(segments)


def _values(segments: Segments, name: str) -> list[Any]:
    """What segments hold under a key."""

    def of_columns(columns: Columns) -> list[Any]:
        return python_values(columns.column(name)) if columns.has(name) else [None] * len(columns)

    def of_dicts(dicts: list[Segment]) -> list[Any]:
        return [each.get(name) for each in dicts]

    return format_of(segments).choose(of_dicts, of_columns)(segments)
