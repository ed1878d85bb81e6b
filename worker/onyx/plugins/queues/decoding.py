"""Messages of queues as segments, dicts or columns; and the secrets of queues, from the environment
or files of the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa

from onyx.base.structs import UNREADABLE
from onyx.codec.streams import read_stream
from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segments, as_dicts, runs_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.options import option_error, variable_of
from onyx.plugins.protocol import PluginContext
from onyx.plugins.queues.options import QueueOptions
from onyx.plugins.records import BadRecords, reason_of
from onyx.plugins.segment_runs import good_runs, with_columns

_decoder = msgspec.json.Decoder(dict[str, Any])
_WRONG = (*UNREADABLE, OverflowError)
_WRONG_ARROW = (pa.ArrowException, OSError, EOFError, ValueError, UserError)


class Message(Protocol):
    """A message of a queue."""

    @property
    def id(self) -> str:
        """Names it in errors."""
        ...

    @property
    def value(self) -> bytes | Mapping[bytes, bytes]:
        """What it holds; a map has its fields."""
        ...


M = TypeVar("M", bound=Message)


class AddedKey(msgspec.Struct, Generic[M], frozen=True):
    """A key that the options add to each segment."""

    option: str
    key: str | None
    """None: it is not asked for."""
    kind: pa.DataType
    value: Callable[[M], Any]


class QueueSegments(NamedTuple):
    """The segments of messages in order."""

    runs: list[Segments]
    counts: list[int] | None = None
    """How many each has; None: one each."""
    refused: Mapping[int, str] = {}
    """Messages that are no records of the format, by their indices, and why."""


class MessageDecoder(Generic[M]):
    """Decodes for one input task."""

    def __init__(
        self,
        context: PluginContext,
        options: QueueOptions,
        form: str,
        what: str,
        added: Sequence[AddedKey[M]],
    ) -> None:
        """
        Args:
            form: `fields`, `json`, `text`, `bytes` or `arrow`.
            what: the queue, for errors.
        """
        self._form = form
        self._added = [each for each in added if each.key is not None]
        kept = options.on_bad_record != "fail"
        self._refuses = options.on_failure == "source" and not kept
        """Whether a bad message is one that has failed."""
        self._bad = BadRecords(
            f"{context.where}: {what}",
            kept or self._refuses,
            "message {}",
            "message's writer",
        )
        columns = context.batch_format == "arrow"
        self._columns = JsonColumns(context.schema) if columns else None
        for each in self._added:
            if context.schema is not None and each.key not in context.schema.names:
                text = f"names {each.key!r}, which the schema of the task lacks; add it there"
                raise option_error(context, each.option, text)

    def decode(self, messages: Sequence[M]) -> QueueSegments:
        """The segments of messages.

        Raises:
            UserError: a message is no record of the format, and a bad one is to end the job.
        """
        if self._form == "arrow":
            return self._of_many(messages, self._rows)
        if self._columns is None:
            return self._of_dicts(messages)
        columns = self._in_columns(messages, self._columns)
        if columns is not None:
            return QueueSegments([columns])
        kept = self._bad.kept
        found = self._of_dicts(messages)
        if self._bad.kept > kept and not self._refuses:
            return found
        runs = [
            run for each in found.runs for run in runs_of(self._columns.of_dicts(as_dicts(each)))
        ]
        return found._replace(runs=runs)

    def _of_dicts(self, messages: Sequence[M]) -> QueueSegments:
        kept = self._bad.kept
        segments = list(map(self._one, messages))
        if not self._refuses or self._bad.kept == kept:
            return QueueSegments([segments])
        return self._of_many(messages, lambda message: [[self._one(message)]])

    def _of_many(
        self, messages: Sequence[M], rows_of: Callable[[M], list[Segments]]
    ) -> QueueSegments:
        """Messages, each of which is any number of segments, or none because it is bad."""
        runs, counts, refused = list[Segments](), list[int](), dict[int, str]()
        for index, message in enumerate(messages):
            kept = self._bad.kept
            rows = rows_of(message)
            if self._refuses and self._bad.kept > kept:
                refused[index] = self._bad.reason
                rows = []
            runs += rows
            counts.append(sum(map(len, rows)))
        return QueueSegments(runs, counts, refused)

    def _one(self, message: M) -> Segment:
        try:
            segment = self._value(message.value)
            for each in self._added:
                segment[str(each.key)] = each.value(message)
            reason = reason_of(segment)
        except _WRONG as error:
            segment, reason = {}, f"no {self._form} ({error})"
        return self._refused(message, reason) if reason else segment

    def _value(self, value: bytes | Mapping[bytes, bytes]) -> Segment:
        if isinstance(value, Mapping):
            return {key.decode(): text.decode() for key, text in value.items()}
        if self._form == "json":
            return _decoder.decode(value)
        return {"value": value.decode() if self._form == "text" else value}

    def _refused(self, message: M, reason: str) -> Segment:
        value = message.value
        raw = repr(dict(value)) if isinstance(value, Mapping) else value
        return self._bad.segment(message.id, reason, raw)

    def _in_columns(self, messages: Sequence[M], json: JsonColumns) -> Columns | None:
        """Columns of messages that are alike and good; None of others."""
        values = [each.value for each in messages]
        columns: Columns | None = None
        try:
            if self._form == "json":
                columns = json.of_values(values)  # type: ignore[arg-type]
            elif self._form in ("text", "bytes"):
                kind = pa.string() if self._form == "text" else pa.binary()
                given = [each.decode() for each in values] if self._form == "text" else values  # type: ignore[union-attr]
                columns = Columns(pa.RecordBatch.from_arrays([pa.array(given, kind)], ["value"]))
        except _WRONG:
            return None
        return None if columns is None else self._with_added(columns, messages)

    def _with_added(self, columns: Columns, messages: Sequence[M]) -> Columns:
        return with_columns(
            columns,
            {
                str(each.key): pa.array(list(map(each.value, messages)), each.kind)
                for each in self._added
            },
        )

    def _rows(self, message: M) -> list[Segments]:
        try:
            columns = read_stream(message.value)  # type: ignore[arg-type]
            rows = self._with_added(columns, [message] * len(columns))
        except _WRONG_ARROW as error:
            return [[self._refused(message, f"no arrow ({error})")]]

        def bad(index: int, reason: str, row: str) -> Segment:
            return self._bad.segment(message.id, reason, row)

        return good_runs(rows, bad, dicts=self._columns is None)


def password_of(context: PluginContext, options: QueueOptions) -> str | None:
    """The password; None without one. Read whenever a connection is made, so it may change.

    Raises:
        UserError: the variable is not set, or jobs may not name it or the file.
        Unavailable: the file cannot be read.
    """
    if options.password_env is not None:
        return variable_of(context, "passwordEnv", options.password_env)
    if options.password_file is None:
        return None
    path = context.located(options.password_file)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise Unavailable(
            f"{context.where}: passwordFile {path} cannot be read: {error}"
        ) from error
