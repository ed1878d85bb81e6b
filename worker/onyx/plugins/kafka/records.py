"""Decodes messages of Kafka as segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from onyx.base.structs import UNREADABLE
from onyx.codec.refusals import refused
from onyx.flow.segment import Segment
from onyx.plugins.kafka.options import InputOptions
from onyx.plugins.records import BadRecords, reason_of

_decoder = msgspec.json.Decoder(dict[str, Any])
_WRONG = (*UNREADABLE, OverflowError)


class MessageRecords:
    """The segments of one partition."""

    def __init__(self, options: InputOptions, bad: BadRecords) -> None:
        self._format = options.format
        self._bad = bad
        self._key = options.key_field
        self._key_bytes = options.key_format == "bytes"
        self._partition = options.partition_field
        self._offset = options.offset_field
        self._timestamp = options.timestamp_field
        self._headers = options.headers_field
        self._bare = not any(
            (self._key, self._partition, self._offset, self._timestamp, self._headers)
        )

    def segments(self, messages: Sequence[Message]) -> list[Segment]:
        """One for each.

        Raises:
            UserError: a message is no record of the format, and bad ones are not kept.
        """
        if self._bare and self._format == "json":
            try:
                segments = [_decoder.decode(message.value()) for message in messages]  # type: ignore[arg-type]
                if not refused(segments):
                    return segments
            except (TypeError, *_WRONG):
                """One by one, to find which."""
        return list(map(self.one, messages))

    def one(self, message: Message, fields: bool = True) -> Segment:
        """The segment of one message, or the one in its place if it is bad.

        Args:
            fields: add what the options ask for beside the value.
        """
        try:
            segment = self._value(message.value())
            wrong = self._add_fields(segment, message) if fields and not self._bare else ""
            reason = wrong or reason_of(segment)
        except _WRONG as error:
            segment, reason = {}, f"no {self._format} ({error})"
        if reason:
            return self._bad.segment(message.offset() or 0, reason, message.value() or b"")
        return segment

    def _value(self, value: bytes | None) -> Segment:
        """A message without a value says in a compacted topic that its key is gone."""
        if self._format == "json":
            return {} if value is None else _decoder.decode(value)
        if self._format == "text" and value is not None:
            return {"value": value.decode()}
        return {"value": value}

    def _add_fields(self, segment: Segment, message: Message) -> str:
        """Returns why the message is bad, in spite of its value; empty if it is not."""
        if self._key is not None:
            key = message.key()
            try:
                segment[self._key] = key if key is None or self._key_bytes else key.decode()
            except UnicodeDecodeError as error:
                return wrong_key(error)
        if self._partition is not None:
            segment[self._partition] = message.partition()
        if self._offset is not None:
            segment[self._offset] = message.offset()
        if self._timestamp is not None:
            kind, at_ms = message.timestamp()
            segment[self._timestamp] = None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms
        if self._headers is not None:
            headers: Any = message.headers() or []
            segment[self._headers] = _by_name(headers)
        return ""


def wrong_key(error: UnicodeDecodeError) -> str:
    """Why a message is bad whose key is no text."""
    return f"its key, for keyField, is no UTF-8 ({error}); set keyFormat: bytes to get it as it is"


def _by_name(headers: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The value of each header; a list of values, if a name comes several times."""
    found: dict[str, list[Any]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(_text_or_bytes(value))
    return {name: its[0] if len(its) == 1 else its for name, its in found.items()}


def _text_or_bytes(value: str | bytes | None) -> str | bytes | None:
    """The value of a header: producers put numbers and ids of traces there, beside texts."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value
