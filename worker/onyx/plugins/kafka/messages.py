"""Encodes segments as messages of Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from onyx.errors import UserError
from onyx.flow.segment import Segment
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.kafka.options import OutputOptions
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext

MESSAGE_BYTES_MAX = 1_000_000
"""What librdkafka takes unless message.max.bytes says otherwise."""
FRAME_BYTES = 512
"""More than what comes to key and value in a message alone in its batch."""


class OutMessage(NamedTuple):
    """What is produced."""

    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    """0 is now."""
    headers: list[tuple[str, str | bytes | None]]


class Messages:
    """The messages of one task."""

    def __init__(self, context: PluginContext, options: OutputOptions) -> None:
        self._context = context
        self._options = options
        self._json = JsonLines(context, options.nan)
        self.bytes_max = int(options.config.get("message.max.bytes", MESSAGE_BYTES_MAX))
        """Of a message; a topic may take less."""

    def of(self, segments: Sequence[Segment]) -> list[OutMessage]:
        """One for each.

        Raises:
            UserError: a value has no form in this format, or is too large; its key is named.
        """
        options = self._options
        if options.format == "json":
            values: Sequence[bytes | None] = self._json.encode_each(segments)
        else:
            assert options.value_field is not None, "checked with the options"
            values = [self._bytes(segment, options.value_field) for segment in segments]
        messages = list(map(self._message, segments, values))
        for message in messages:
            self._check_size(message)
        return messages

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
        if type(value) is int and value >= 0:
            return value
        if type(value) is datetime:
            return int(value.timestamp() * 1000)
        raise self._error(field, value, "milliseconds since 1970 or a time")

    def _headers(self, segment: Segment, field: str) -> list[tuple[str, str | bytes | None]]:
        value = segment.get(field)
        if value is None:
            return []
        if not isinstance(value, Mapping):
            raise self._error(field, value, "a map")
        return [(str(name), self._header(field, each)) for name, each in value.items()]

    def _header(self, field: str, value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if type(value) is str:
            return value.encode()
        raise self._error(field, value, "a map to str or bytes")

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
