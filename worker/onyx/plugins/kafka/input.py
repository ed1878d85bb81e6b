"""Input `kafka`: the partitions of a topic, read from offsets in the job's frontiers.

There is no consumer group. The log of Onyx says which peer reads which partition and how far it
is done, as for any input. So nothing is committed to Kafka, nothing rebalances, and two jobs
never share a position. Each open partition has its own consumer, because a replay reads the same
partition from a second offset; consumers of replays are reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.kafka.client import (
    REQUEST_TIMEOUT_S,
    KafkaClient,
    as_exception,
    refused_settings,
)
from onyx.plugins.kafka.message_columns import (
    ArrowMessages,
    ColumnMessages,
    Decoded,
    DictMessages,
)
from onyx.plugins.kafka.options import InputOptions
from onyx.plugins.kafka.reader import KafkaReader, Known, Marker
from onyx.plugins.kafka.records import MessageRecords
from onyx.plugins.options import option_error, task_error
from onyx.plugins.protocol import START, Cursor, Input, PluginContext, Reader
from onyx.plugins.records import BadRecords
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


class KafkaInput(Input):
    """Opens partitions, each with a consumer of its own."""

    cooperative = False
    """Reading waits for a broker."""
    examined = True

    def __init__(self, context: PluginContext, options: InputOptions) -> None:
        self._client = KafkaClient(context, options)
        self._options = options
        self._start = read_start(options.start_from)
        self._columns = JsonColumns(context.schema) if context.batch_format == "arrow" else None
        self._check_fields()
        self._known: dict[str, Known] = {}
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
            self._options.on_bad_record == "segment",
            "the message at offset {}",
            "topic's writer",
        )
        known = self._known.setdefault(partition, Known())
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

    def _records(self, bad: BadRecords) -> Decoded:
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
                group_id="onyx",
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
