"""Encodes segments as messages of Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.columns.moments import is_within
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.columns.values import python_values
from onyx.flow.instants import milliseconds
from onyx.flow.segment import Segment
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.kafka.options import KafkaOutputOptions
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext

MESSAGE_BYTES_MAX = 1_000_000
"""What librdkafka takes unless message.max.bytes says otherwise."""
FRAME_BYTES = 512
"""More than what comes to key and value in a message alone in its batch."""
_LATEST_MS = 2**63 - 1
"""The times of messages are between 1970 and this: librdkafka takes 0 for now, and brokers refuse
what is below."""


class OutMessage(NamedTuple):
    """What is produced."""

    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    """0 is now."""
    headers: list[tuple[str, str | bytes | None]]


class TopicMessages:
    """The messages of one task."""

    def __init__(self, context: PluginContext, options: KafkaOutputOptions) -> None:
        self._context = context
        self._options = options
        self._json = JsonLines(context, options.nan)
        self.bytes_max = int(options.config.get("message.max.bytes", MESSAGE_BYTES_MAX))
        """The size of a message; a topic may take less."""

    def of(self, segments: Sequence[Segment]) -> list[OutMessage]:
        """One for each; with format `arrow` one for many.

        Raises:
            UserError: a value has no form in this format, or is too large; its key is named.
        """
        options = self._options
        if options.format == "arrow":
            return self._arrow_messages(self._columns(segments))
        if options.format == "json":
            values: Sequence[bytes | None] = self._json.encode_each(segments)
        else:
            assert options.value_field is not None, "checked with the options"
            values = [self._bytes(segment, options.value_field) for segment in segments]
        messages = list(map(self._message, segments, values))
        for message in messages:
            self._check_size(message)
        return messages

    def of_columns(self, columns: Columns) -> list[OutMessage]:
        """Messages for segments in columns.

        Raises:
            UserError: as `of`.
        """
        options = self._options
        if options.format == "arrow":
            return self._arrow_messages(columns)
        if options.headers_field is not None:
            return self.of(to_dicts(columns))
        if options.format == "json":
            values: list[bytes | None] = [*self._json.encode_each_of(columns)]
        else:
            assert options.value_field is not None, "checked with the options"
            values = self._bytes_of(columns, options.value_field)
        keys = self._bytes_of(columns, options.key_field)
        times = self._times_of(columns, options.timestamp_field)
        messages = list(map(OutMessage, values, keys, times, repeat([])))
        if _longest(values) + _longest(keys) + FRAME_BYTES > self.bytes_max:
            for message in messages:
                self._check_size(message)
        return messages

    def _columns(self, segments: Sequence[Segment]) -> Columns:
        columns, _, failures = from_dicts(segments)
        if failures:
            what = f"segment {failures[0][0]} of a batch does not fit the others"
            raise task_error(self._context, f"{what}: {failures[0][1]}")
        return columns

    def _arrow_messages(self, columns: Columns) -> list[OutMessage]:
        """One message, or more if it would be too large."""
        if not len(columns):
            return []
        message = OutMessage(_stream(columns), None, 0, [])
        half = len(columns) // 2
        if half and len(message.value or b"") + FRAME_BYTES > self.bytes_max:
            first, second = columns.slice(0, half), columns.slice(half, len(columns))
            return [*self._arrow_messages(first), *self._arrow_messages(second)]
        self._check_size(message)
        return [message]

    def _bytes_of(self, columns: Columns, field: str | None) -> list[bytes | None]:
        if field is None or not columns.has(field):
            return [None] * len(columns)
        array = columns.column(field)
        if kinds.is_integer(array.type):
            array = array.cast(pa.string())
        if kinds.is_string(array.type):
            array = array.cast(pa.binary())
        if kinds.is_binary(array.type) or kinds.is_null(array.type):
            return python_values(array)
        return [self._bytes({field: value}, field) for value in python_values(array)]

    def _times_of(self, columns: Columns, field: str | None) -> list[int]:
        if field is None or not columns.has(field):
            return [0] * len(columns)
        array = columns.column(field)
        times = array
        if kinds.is_timestamp(array.type):
            times = pc.divide(array.cast(pa.int64()), 1_000)
        if not kinds.is_integer(times.type) or not is_within(times, 1, _LATEST_MS):
            return [self._timestamp({field: value}, field) for value in python_values(array)]
        return python_values(pc.fill_null(times, 0))

    def _message(self, segment: Segment, value: bytes | None) -> OutMessage:
        options = self._options
        key = self._bytes(segment, options.key_field) if options.key_field else None
        at_ms = self._timestamp(segment, options.timestamp_field) if options.timestamp_field else 0
        headers = self._headers(segment, options.headers_field) if options.headers_field else []
        return OutMessage(value, key, at_ms, headers)

    def _bytes(self, segment: Segment, field: str) -> bytes | None:
        value = segment.get(field)
        if value is None or type(value) is bytes:
            return value
        if type(value) is str:
            return value.encode()
        if type(value) is int:
            return str(value).encode()
        raise self._error(field, value, "a str, bytes or an int")

    def _timestamp(self, segment: Segment, field: str) -> int:
        value = segment.get(field)
        if value is None:
            return 0
        at_ms = milliseconds(value) if type(value) is datetime else value
        if type(at_ms) is int and 0 < at_ms <= _LATEST_MS:
            return at_ms
        wanted = "milliseconds since 1970, above 0 and of 63 bits, or a time after 1970 began"
        raise self._error(field, value, wanted)

    def _headers(self, segment: Segment, field: str) -> list[tuple[str, str | bytes | None]]:
        value = segment.get(field)
        if value is None:
            return []
        if not isinstance(value, Mapping):
            raise self._error(field, value, "a map")
        return [
            (str(name), self._header(field, one))
            for name, each in value.items()
            for one in (each if isinstance(each, list | tuple) else [each])
        ]

    def _header(self, field: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if type(value) is str:
            return value.encode()
        raise self._error(field, value, "a map to str, bytes or lists of these")

    def _check_size(self, message: OutMessage) -> None:
        size = len(message.value or b"") + len(message.key or b"")
        if message.headers:
            size += sum(len(name) + len(value or b"") for name, value in message.headers)
        if size + FRAME_BYTES > self.bytes_max:
            raise task_error(
                self._context,
                f"a message of {size:,} bytes is too large: topic {self._options.topic!r} or the "
                f"client takes {self.bytes_max:,}; raise max.message.bytes of the topic and "
                "message.max.bytes in 'config', or make segments smaller; it begins with "
                f"{(message.value or b'')[:80]!r}",
            )

    def _error(self, field: str, value: object, wanted: str) -> UserError:
        return task_error(
            self._context, f"key {field!r} holds a {type(value).__name__}; {wanted} is wanted"
        )


def _stream(columns: Columns) -> bytes:
    """The rows with their schema: a stream of the Arrow IPC format."""
    batch = columns.record_batch
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch)
    encoded: bytes = out.getvalue().to_pybytes()
    return encoded


def _longest(values: Sequence[bytes | None]) -> int:
    return max((len(each) for each in values if each is not None), default=0)
