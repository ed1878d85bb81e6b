"""Decodes messages of Kafka as columns.

The segments are those of `records`, at the same positions: messages that the columns do not hold
are decoded there. A message of format `arrow` is an Arrow IPC stream of any number of rows, and
each of its rows is a segment: positions count rows, and a cursor is at the start of a message. One
row a message was rejected, because a message costs more than all else that is done for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from onyx.codec.streams import read_stream
from onyx.errors import UserError
from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.mixed import Piece, mixed, pieces_of, runs_of
from onyx.flow.segment import Segment
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.kafka.options import InputOptions
from onyx.plugins.kafka.records import MessageRecords, wrong_key
from onyx.plugins.records import BadRecords
from onyx.plugins.segment_runs import good_runs, with_columns

_WRONG = (pa.ArrowException, OSError, EOFError, ValueError, UserError)


class Decoded(Protocol):
    """What makes segments of messages, in their order."""

    def segments(self, messages: Sequence[Message]) -> list[Segments]:
        """The segments of all of them, in one or several pieces.

        Raises:
            UserError: a message is no record of the format, and bad ones are not kept.
        """
        ...


class DictMessages:
    """A dict for each."""

    def __init__(self, records: MessageRecords) -> None:
        self._records = records

    def segments(self, messages: Sequence[Message]) -> list[Segments]:
        """The segments of messages, as dicts."""
        return [self._records.segments(messages)]


class ColumnMessages:
    """A row for each: formats `json`, `text` and `bytes`."""

    def __init__(
        self, options: InputOptions, records: MessageRecords, bad: BadRecords, json: JsonColumns
    ) -> None:
        """`json`: shared by all partitions of the task."""
        self._options = options
        self._records = records
        self._bad = bad
        self._json = json

    def segments(self, messages: Sequence[Message]) -> list[Segments]:
        """Columns; dicts for those that are bad, or that no columns hold."""
        bare = self._options.headers_field is None
        columns = self._columns(messages) if bare else None
        if columns is not None:
            return [columns]
        if bare and self._options.format == "json":
            try:
                return self._some(messages)
            except UnicodeDecodeError:
                """A key is no text: its message is found below."""
        kept = self._bad.kept
        segments = self._records.segments(messages)
        if self._bad.kept > kept:
            return [segments]
        return list(runs_of(self._json.of_dicts(segments)))

    def _some(self, messages: Sequence[Message]) -> list[Segments]:
        """The columns of JSON messages that the known columns do not all hold."""

        def decode(index: int) -> tuple[Segment, bool]:
            kept = self._bad.kept
            segment = self._records.one(messages[index], fields=False)
            return segment, self._bad.kept == kept

        pieces: list[Piece] = []
        for indices, segments in pieces_of(self._json.of_some(_values(messages), decode)):
            its = [messages[index] for index in indices.tolist()]
            complete = format_of(segments).choose(self._anew, self._with_fields)
            pieces.append((indices, complete(segments, its)))
        return list(runs_of(mixed(pieces)))

    def _anew(self, _: list[Segment], messages: Sequence[Message]) -> Segments:
        return list(map(self._records.one, messages))

    def _with_fields(self, columns: Columns, messages: Sequence[Message]) -> Segments:
        return with_fields(columns, self._options, messages, [1] * len(messages))

    def _columns(self, messages: Sequence[Message]) -> Columns | None:
        values = [message.value() for message in messages]
        try:
            columns = self._values(values)
            if columns is None:
                return None
            return with_fields(columns, self._options, messages, [1] * len(messages))
        except (ValueError, TypeError):
            return None

    def _values(self, values: list[bytes | None]) -> Columns | None:
        if self._options.format == "json":
            return self._json.of_values([b"{}" if each is None else each for each in values])
        if self._options.format == "text":
            texts = [None if each is None else each.decode() for each in values]
            return Columns(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["value"]))
        return Columns(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"]))


def _values(messages: Sequence[Message]) -> list[bytes]:
    """A message without a value is an empty object."""
    return [b"{}" if (value := message.value()) is None else value for message in messages]


class ArrowMessages:
    """The rows of each, an Arrow IPC stream."""

    def __init__(self, options: InputOptions, bad: BadRecords, columns: bool) -> None:
        """`columns`: give columns, and no dicts."""
        self._options = options
        self._bad = bad
        self._columns = columns

    def segments(self, messages: Sequence[Message]) -> list[Segments]:
        """A piece for each message, or several where rows are bad."""
        return [run for message in messages for run in self._rows(message)]

    def _rows(self, message: Message) -> list[Segments]:
        value, offset = message.value(), message.offset() or 0
        if value is None:
            return []
        try:
            columns = read_stream(value)
            rows = with_fields(columns, self._options, [message], [len(columns)])
        except UnicodeDecodeError as error:
            return [[self._bad.segment(offset, wrong_key(error), value)]]
        except _WRONG as error:
            return [[self._bad.segment(offset, f"no arrow ({error})", value)]]

        def bad(index: int, reason: str, row: str) -> Segment:
            return self._bad.segment(offset, reason, row)

        return good_runs(rows, bad, dicts=not self._columns)


def with_fields(
    columns: Columns, options: InputOptions, messages: Sequence[Message], rows: Sequence[int]
) -> Columns:
    """The columns with what the options add, for so many rows of each message.

    Raises:
        UnicodeDecodeError: a key is to be text, and is none.
    """
    found: dict[str, pa.Array] = {}
    if options.key_field is not None:
        keys = [message.key() for message in messages]
        if options.key_format == "bytes":
            found[options.key_field] = pa.array(keys, pa.binary())
        else:
            texts = [None if each is None else each.decode() for each in keys]
            found[options.key_field] = pa.array(texts, pa.string())
    if options.partition_field is not None:
        numbers = [message.partition() for message in messages]
        found[options.partition_field] = pa.array(numbers, pa.int64())
    if options.offset_field is not None:
        offsets = [message.offset() for message in messages]
        found[options.offset_field] = pa.array(offsets, pa.int64())
    if options.timestamp_field is not None:
        times = [message.timestamp() for message in messages]
        at_ms = [None if kind == TIMESTAMP_NOT_AVAILABLE else each for kind, each in times]
        found[options.timestamp_field] = pa.array(at_ms, pa.int64())
    if list(rows) != [1] * len(messages):
        found = {name: pa.repeat(values[0], rows[0]) for name, values in found.items()}
    return with_columns(columns, found)
