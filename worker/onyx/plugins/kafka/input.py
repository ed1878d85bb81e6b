"""Input `kafka`: the partitions of a topic, read from offsets in the job's frontiers.

No consumer group decides anything. The log of Onyx says which peer reads which partition and how
far it is done, as for any input. So nothing rebalances, and two jobs never share a position. With
`consumerGroup` a group hears how far the job is, whenever that is asked how far it is behind: every
few seconds, of what is stored, on a thread that holds nothing up. Each open partition has its own
consumer, because a replay reads the same partition from a second offset; consumers of replays are
reused.

A position is the number of a message, counted from a start; where a message holds several rows, it
is the number of a row. Kafka's offsets have gaps: markers of transactions, and messages of aborted
ones. Positions have none.

Invariant: position p is the p-th message that a `read_committed` consumer gets from the start on.
That is the same each time, because committed messages never change and compacted topics are
refused. A cursor is a pair of position and offset. The start is stored too, before the first
segment is sent, because `latest` would be another offset after a crash.

Messages are decoded as segments or as columns, at the same positions: messages that the columns do
not hold are decoded as dicts. A message of format `arrow` is an Arrow IPC stream of any number of
rows, and each of its rows is a segment: positions count rows, and a cursor is at the start of a
message. One row a message was rejected, because a message costs more than all else that is done for
a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from onyx.base.structs import UNREADABLE
from onyx.codec.refusals import refused
from onyx.codec.streams import read_stream
from onyx.errors import OnyxError, Unavailable, UserError
from onyx.flow.batch import (
    Piece,
    Segments,
    as_dicts,
    as_given,
    format_of,
    mixed,
    pieces_of,
    runs_of,
)
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.kafka.client import (
    REQUEST_TIMEOUT_S,
    GroupCommits,
    KafkaClient,
    as_exception,
    refused_settings,
)
from onyx.plugins.kafka.options import OWN_GROUP, KafkaInputOptions
from onyx.plugins.options import option_error, task_error
from onyx.plugins.protocol import START, Behind, ColumnsReader, Cursor, Input, PluginContext, Reader
from onyx.plugins.records import BadRecords, reason_of
from onyx.plugins.segment_runs import DecodedRuns, good_runs, with_columns
from onyx.plugins.starting import OPTION, check_partitions, read_start

SPARE_CONSUMERS_MAX = 2
MESSAGES_MAX = 65_536
ARROW_MESSAGES_MAX = 16
"""Decoded at a time: such a message has as many rows as its writer liked."""
PREFETCH_KIB = 16_384
"""Read ahead for each partition, unless `config` says otherwise."""
FETCH_WAIT_MS = 100
"""Longest wait of a broker for new messages. A consumer that gets another partition waits for
it."""
POLL_S = 0.002
"""Wait for a new message: a peer looks at its partitions in turn."""
AGAIN_POLL_S = 0.1
"""Wait for a message that has been there before."""
_WRONG = (pa.ArrowException, OSError, EOFError, ValueError, UserError)
_decoder = msgspec.json.Decoder(dict[str, Any])
_UNDECODABLE = (*UNREADABLE, OverflowError)


class KafkaInput(Input):
    """Opens partitions, each with a consumer of its own."""

    cooperative = False
    """Reading waits for a broker."""
    examined = True

    def __init__(self, context: PluginContext, options: KafkaInputOptions) -> None:
        self._client = KafkaClient(context, options)
        self._options = options
        self._start = read_start(options.start_from)
        self._columns = JsonColumns(context.schema) if context.batch_format == "arrow" else None
        self._check_fields()
        self._known: dict[str, PartitionMemory] = {}
        self._admin: AdminClient | None = None
        """Asks for ends of partitions, once somebody wants to know."""
        group = options.consumer_group
        self._commits = None if group is None else GroupCommits(self._client, group)
        self._spare: list[Consumer] = []
        self._spare.append(self._consumer())

    def partitions(self) -> Sequence[str]:
        """`topic/number` for each partition. Raises UserError for a compacted topic."""
        client = self._client
        consumer = self._take_consumer()
        try:
            with client.explained(
                f"listing the partitions of topic {client.topic!r}", consumer.poll
            ):
                topic = consumer.list_topics(client.topic, REQUEST_TIMEOUT_S).topics[client.topic]
                if topic.error is not None:
                    raise as_exception(topic.error)
        finally:
            self._give_back(consumer)
        if not self._options.compacted:
            self._refuse_compacted()
        check_partitions(client.context, self._start, map(str, topic.partitions))
        return [f"{client.topic}/{number}" for number in sorted(topic.partitions)]

    def start(self, partition: str) -> Cursor:
        """The offset that `startFrom` means now; where the topic begins, that is found later."""
        if self._start.form == "beginning":
            return START
        number = _number(partition)
        where = f"partition {number} of topic {self._client.topic!r}"
        consumer = self._take_consumer()
        try:
            with self._client.explained(f"looking for the offsets of {where}", consumer.poll):
                return self._marker(consumer, number, START).cursor()
        finally:
            self._give_back(consumer)

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader with a consumer of its own, at the offset that the cursor holds."""
        number = _number(partition)
        where = f"partition {number} of topic {self._client.topic!r}"
        context = self._client.context
        bad = BadRecords(
            f"{context.where}: {where}",
            self._options.on_bad_record != "fail",
            "the message at offset {}",
            "topic's writer",
        )
        known = self._known.setdefault(partition, PartitionMemory())
        consumer = self._take_consumer()
        try:
            with self._client.explained(f"looking for the offsets of {where}", consumer.poll):
                marker = self._marker(consumer, number, cursor)
            most = ARROW_MESSAGES_MAX if self._options.format == "arrow" else MESSAGES_MAX
            return KafkaReader(
                self._client, consumer, number, marker, self._records(bad), known,
                self._give_back, most,
            )  # fmt: skip
        except BaseException:
            self._give_back(consumer)
            raise

    def _records(self, bad: BadRecords) -> MessageDecoder:
        options, columns = self._options, self._columns
        if options.format == "arrow":
            return ArrowMessages(options, bad, columns is not None)
        records = MessageRecords(options, bad)
        if columns is None:
            return DictMessages(records)
        return ColumnMessages(options, records, bad, columns)

    def _check_fields(self) -> None:
        """A schema names all columns that there are."""
        schema, options = self._client.context.schema, self._options
        for name in ("key", "partition", "offset", "timestamp", "headers"):
            key = getattr(options, f"{name}_field")
            if schema is not None and key is not None and key not in schema.names:
                what = f"names {key!r}, which the schema of the task lacks; add it there"
                raise option_error(self._client.context, f"{name}Field", what)

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """The end of each partition less the offset of the cursor, in one request to each broker.
        Offsets that no message has count too, and an Arrow message as many rows as those before it
        had on average. The group hears where the cursors are."""
        begun = {_number(name): name for name, its in cursors.items() if its.state is not None}
        if self._commits is not None:
            self._commits.commit({number: cursors[name].state[0] for number, name in begun.items()})
        found: dict[str, Behind] = {}
        for number, last in (self._ends(begun) if begun else {}).items():
            name = begun[number]
            offset, end = cursors[name].state
            messages = max(0, (last if end is None else min(end, last)) - offset)
            memory = self._known.get(name, PartitionMemory())
            found[name] = Behind(round(messages * memory.rows_of_message))
        return found

    def _ends(self, numbers: Iterable[int]) -> dict[int, int]:
        """The offset behind the last committed message of each partition."""
        client, latest = self._client, OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            with client.explained(f"looking for the ends of topic {client.topic!r}"):
                if self._admin is None:
                    self._admin = AdminClient(client.settings())
                asked = self._admin.list_offsets(
                    {TopicPartition(client.topic, number): latest for number in numbers},
                    isolation_level=IsolationLevel.READ_COMMITTED,
                    request_timeout=REQUEST_TIMEOUT_S,
                )
                return {
                    each.partition: answer.result(REQUEST_TIMEOUT_S).offset
                    for each, answer in asked.items()
                }
        except OnyxError:
            self._admin = None  # else it may go on with leaders of before a broker's restart
            raise

    def column_types(self) -> Mapping[str, pa.DataType]:
        """The column types of JSON, as they were learned."""
        return {} if self._columns is None else self._columns.types

    def close(self) -> None:
        """Close the consumers that no reader uses."""
        while self._spare:
            self._spare.pop().close()

    def _marker(self, consumer: Consumer, number: int, cursor: Cursor) -> Marker:
        """The marker of a cursor; of one without state, where `startFrom` says."""
        offset, end = cursor.state if cursor.state is not None else (None, None)
        if offset is None and cursor.position:
            what = f"partition {number}: a cursor without an offset; submit the job again"
            raise task_error(self._client.context, what)
        options, wanted = self._options, TopicPartition(self._client.topic, number)
        if offset is None or (options.bounded and end is None):
            low, high = consumer.get_watermark_offsets(wanted, REQUEST_TIMEOUT_S)
            end = high if options.bounded else None
            if offset is None:
                offset = self._first_offset(consumer, number, low, high)
        return Marker(cursor.position, offset, end if options.bounded else None)

    def _first_offset(self, consumer: Consumer, number: int, low: int, high: int) -> int:
        start, context = self._start, self._client.context
        if start.form in ("beginning", "end"):
            return low if start.form == "beginning" else high
        if start.form == "recordsAgo":
            return max(low, high - start.records)
        since_ms = start.since_ms(context.clock.wall_ms())
        if since_ms is not None:
            return self._offset_at(consumer, number, since_ms, high)
        if start.form == "positions" and str(number) not in start.positions:
            return low
        offset = start.position(str(number))
        if not low <= offset <= high:
            what = f"is offset {offset} of partition {number}, which has those from {low} to {high}"
            raise option_error(context, OPTION, what)
        return offset

    def _offset_at(self, consumer: Consumer, number: int, since_ms: int, high: int) -> int:
        asked = TopicPartition(self._client.topic, number, max(0, since_ms))
        (found,) = consumer.offsets_for_times([asked], REQUEST_TIMEOUT_S)
        if found.error is not None:
            raise as_exception(found.error)
        return high if found.offset in (OFFSET_END, -1) else found.offset

    def _refuse_compacted(self) -> None:
        """Without the right to read the topic's settings, the topic is not refused."""
        client = self._client
        policy = client.topic_setting(AdminClient(client.settings()), "cleanup.policy")
        if policy is not None and "compact" in policy:
            what = (
                f"is {client.topic!r}, which is compacted: a message may vanish between two "
                "readings, and others then take its marker; read a topic that is not, or say "
                "compacted: true if what is in flight may be lost after a failure"
            )
            raise option_error(client.context, "topic", what)

    def _take_consumer(self) -> Consumer:
        return self._spare.pop() if self._spare else self._consumer()

    def _consumer(self) -> Consumer:
        settings = {
            "queued.max.messages.kbytes": PREFETCH_KIB,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **self._client.settings(
                group_id=OWN_GROUP,
                isolation_level="read_committed",
                auto_offset_reset="error",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                enable_partition_eof=True,
            ),
        }
        with refused_settings(self._client):
            return Consumer(settings)

    def _give_back(self, consumer: Consumer) -> None:
        if len(self._spare) < SPARE_CONSUMERS_MAX:
            consumer.unassign()
            self._spare.append(consumer)
        else:
            consumer.close()


def _number(partition: str) -> int:
    return int(partition.rpartition("/")[2])


class Marker(msgspec.Struct, frozen=True):
    """A position and the offset that it has."""

    position: int
    offset: int
    """The offset of the next message, or of a gap before it."""
    end: int | None
    """Offset where a bounded input ends; None means never."""

    def cursor(self) -> Cursor:
        """The cursor as the protocol has it: position, and `[offset, end]`."""
        return Cursor(self.position, [self.offset, self.end])


class PartitionMemory(msgspec.Struct):
    """What the input remembers of a partition over its readers."""

    read: int = 0
    """Positions below this have been read once, so they can be read again."""
    rows: int = 0
    messages: int = 0
    """Messages that were decoded, with the rows that they had."""

    @property
    def rows_of_message(self) -> float:
        """How many segments a message is, on average."""
        return self.rows / self.messages if self.messages else 1.0


class KafkaReader(ColumnsReader):
    """An open partition (`protocol.Reader`)."""

    def __init__(
        self,
        client: KafkaClient,
        consumer: Consumer,
        partition: int,
        marker: Marker,
        records: MessageDecoder,
        known: PartitionMemory,
        done: Callable[[Consumer], None],
        messages_max: int,
    ) -> None:
        """`consumer` has nothing assigned; `done` takes it back. At most `messages_max` are decoded
        at a time."""
        self._client = client
        self._consumer: Consumer | None = consumer
        self._partition = partition
        self._position = marker.position
        self._offset = marker.offset
        self._end = marker.end
        self._markers = deque([marker])
        self._records = records
        self._messages_max = messages_max
        self._chunks = DecodedRuns()
        """Decoded and not taken; `_position` is behind them."""
        self._known = known
        self._done = done
        with client.explained(self._doing):
            consumer.assign([TopicPartition(client.topic, partition, marker.offset)])

    def read(self, segments_max: int) -> list[Segment]:
        """Raises UserError when messages are gone or cannot be read, Unavailable when one that was
        there cannot be reached now."""
        return as_dicts(self._next(segments_max))

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """The next of one kind, in the same way."""
        return as_given(self._next(segments_max))

    def ready(self) -> int:
        """How many segments are decoded."""
        return len(self._chunks)

    def exhausted(self) -> bool:
        """Whether a bounded partition is read to its end."""
        return not len(self._chunks) and self._consumed()

    def cursor(self, position: int) -> Cursor:
        """The last remembered marker at or before `position`; a marker is remembered for every
        batch."""
        while len(self._markers) > 1 and self._markers[1].position <= position:
            self._markers.popleft()
        return self._markers[0].cursor()

    def close(self) -> None:
        """Give the consumer back to the input."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._done(consumer)

    def _next(self, segments_max: int) -> Segments:
        if segments_max <= 0:
            return []
        while not len(self._chunks) and not self._consumed():
            if self._offset > self._markers[-1].offset:
                self._markers.append(Marker(self._position, self._offset, self._end))
            messages = self._messages(min(segments_max, self._messages_max))
            if not messages:
                break
            for piece in self._records.segments(messages):
                self._chunks.append(piece)
            self._position += len(self._chunks)
            self._known.rows += len(self._chunks)
            self._known.messages += len(messages)
            self._known.read = max(self._known.read, self._position)
        return self._chunks.take(segments_max)

    def _consumed(self) -> bool:
        return self._end is not None and self._offset >= self._end

    def _messages(self, count_max: int) -> list[Message]:
        """Messages that there are now. Waits for messages that were read before, because a replay
        must get them: an empty answer would say that the partition has ended there."""
        if self._position >= self._known.read:
            return self._consume(count_max, 0) or self._consume(1, POLL_S)
        clock = self._client.context.clock
        ends_s = clock.monotonic_s() + REQUEST_TIMEOUT_S
        while not self._consumed():
            messages = self._consume(count_max, 0) or self._consume(1, AGAIN_POLL_S)
            if messages:
                return messages
            if clock.monotonic_s() >= ends_s or not self._client.context.wanted():
                raise Unavailable(f"{self._doing}: offset {self._offset} cannot be reached now")
        return []

    def _consume(self, count_max: int, wait_s: float) -> list[Message]:
        """The next messages before the end; passes over gaps."""
        assert self._consumer is not None, "closed"
        with self._client.explained(self._doing):
            found = self._consumer.consume(count_max, wait_s)
        messages: list[Message] = []
        for message in found:
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                if self._end is not None and offset >= self._end:
                    self._offset = self._end
                    break
                messages.append(message)
                self._offset = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._offset = max(self._offset, message.offset() or 0)
            else:
                self._take_note(error)
        return messages

    def _take_note(self, error: KafkaError) -> None:
        """The library goes on by itself after errors that pass."""
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise self._gone()
        meaning = self._client.error(self._doing, error)
        if isinstance(meaning, UserError):
            raise meaning

    def _gone(self) -> UserError:
        return task_error(
            self._client.context,
            f"{self._doing}: the messages from offset {self._offset} on are gone: the topic keeps "
            "them for a shorter time (retention.ms, retention.bytes) than the job took to read "
            "them, or it was made anew; submit the job again to begin at what is there",
        )

    @property
    def _doing(self) -> str:
        return f"reading partition {self._partition} of topic {self._client.topic!r}"


class MessageDecoder(Protocol):
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
        self,
        options: KafkaInputOptions,
        records: MessageRecords,
        bad: BadRecords,
        json: JsonColumns,
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

    def __init__(self, options: KafkaInputOptions, bad: BadRecords, columns: bool) -> None:
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
    columns: Columns, options: KafkaInputOptions, messages: Sequence[Message], rows: Sequence[int]
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


class MessageRecords:
    """The segments of one partition."""

    def __init__(self, options: KafkaInputOptions, bad: BadRecords) -> None:
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
            except (TypeError, *_UNDECODABLE):
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
        except _UNDECODABLE as error:
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
