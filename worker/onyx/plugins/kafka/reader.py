"""Reads one partition of a topic: a position is the number of a message, counted from a start.
Where a message holds several rows, it is the number of a row.

Kafka's offsets have gaps: markers of transactions, and messages of aborted ones. Positions have
none.

Invariant: position p is the p-th message that a `read_committed` consumer gets from the start on.
That is the same each time, because committed messages never change and compacted topics are
refused. A cursor is a pair of position and offset. The start is stored too, before the first
segment is sent, because `latest` would be another offset after a crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segments, as_dicts, as_given
from onyx.flow.segment import Segment
from onyx.plugins.kafka.client import REQUEST_TIMEOUT_S, KafkaClient
from onyx.plugins.kafka.message_columns import Decoded
from onyx.plugins.options import task_error
from onyx.plugins.protocol import ColumnsReader, Cursor
from onyx.plugins.segment_runs import DecodedRuns

POLL_S = 0.002
"""Wait for a new message: a peer looks at its partitions in turn."""
AGAIN_POLL_S = 0.1
"""Wait for a message that has been there before."""


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


class Known(msgspec.Struct):
    """What the input remembers of a partition over its readers."""

    read: int = 0
    """Positions below this have been read once, so they can be read again."""


class KafkaReader(ColumnsReader):
    """An open partition (`protocol.Reader`)."""

    def __init__(
        self,
        client: KafkaClient,
        consumer: Consumer,
        partition: int,
        marker: Marker,
        records: Decoded,
        known: Known,
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
