"""Writes to a topic at least once: a segment is durable when the brokers have acknowledged it.

The producer is idempotent, so its retries write nothing twice, and it gives no message up: while no
broker answers, messages wait in bounded memory, and when that is full no more are taken.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Producer

from onyx.errors import OutputFailed, Unavailable, UserError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.kafka.client import (
    REQUEST_TIMEOUT_S,
    KafkaClient,
    as_exception,
    refused_settings,
)
from onyx.plugins.kafka.messages import Messages, OutMessage

BUFFER_KIB = 65_536
"""The size of messages that wait for a broker."""
LINGER_MS = 5


class _Batch:
    """The messages of one `write`."""

    def __init__(self, segments: int, messages: int, refused: Callable[[KafkaError], None]) -> None:
        self.segments = segments
        self.left = messages
        self._refused = refused

    def reported(self, error: KafkaError | None, _: object) -> None:
        """What became of one of them."""
        if error is None:
            self.left -= 1
        else:
            self._refused(error)


class ReportedWriter:
    """An output (`protocol.Output`)."""

    cooperative = False

    def __init__(self, client: KafkaClient, messages: Messages) -> None:
        self._client = client
        self._messages = messages
        self._waiting: deque[tuple[_Batch, OutMessage]] = deque()
        """Taken, but the producer has no room."""
        self._batches: deque[_Batch] = deque()
        """Not durable yet."""
        self._durable = 0
        self._broken: OutputFailed | None = None
        settings = {
            "linger.ms": LINGER_MS,
            "queue.buffering.max.kbytes": BUFFER_KIB,
            **client.settings(enable_idempotence=True, message_timeout_ms=0),
        }
        with refused_settings(client):
            self._producer = Producer(settings)

    def write(self, segments: list[Segment]) -> None:
        """Raises UserError when a segment cannot be a message, Unavailable when there is no room
        now: nothing was taken. OutputFailed: a broker has refused what was taken before."""
        self._take(len(segments), lambda: self._messages.of(segments))

    def write_columns(self, columns: Columns) -> None:
        """Writes what `write` does, for segments in columns."""
        self._take(len(columns), lambda: self._messages.of_columns(columns))

    def _take(self, segments: int, make: Callable[[], Sequence[OutMessage]]) -> None:
        self._pump()
        if self._waiting:
            raise Unavailable(f"task {self._client.context.task!r}: {self._doing}: no room now")
        messages = make()
        if messages:
            batch = _Batch(segments, len(messages), self._refused)
            self._batches.append(batch)
            self._waiting.extend((batch, message) for message in messages)
            # These segments are taken, so it is the next call that raises.
            with contextlib.suppress(Unavailable):
                self._pump()

    def durable(self) -> int:
        """Segments of the batches that the brokers have acknowledged, up to the first that is
        not."""
        while self._batches and not self._batches[0].left:
            self._durable += self._batches.popleft().segments
        return self._durable

    def flush(self) -> None:
        """Wait for the brokers, no longer than one request may take."""
        self._pump()
        if not self._waiting:
            self._producer.flush(REQUEST_TIMEOUT_S)
            self._pump()

    def tick(self) -> None:
        """Produce what waits, and process reports."""
        self._pump()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Check that the topic exists, before the first segment. There is nothing to fence:
        messages that a dead incarnation has in flight are also replayed, and at least once
        allows both."""
        with self._client.explained(self._doing, self._producer.poll):
            found = self._producer.list_topics(self._client.topic, REQUEST_TIMEOUT_S)
            error = found.topics[self._client.topic].error
            if error is not None:
                raise as_exception(error)

    def seal(self) -> None:
        """Flush; a topic needs nothing else at the end of a job."""
        self.flush()

    def close(self) -> None:
        """Drop what is not acknowledged. Messages that are on their way may still be written."""
        self._waiting.clear()
        self._producer.purge()
        self._producer.flush(1.0)

    def _pump(self) -> None:
        """Produce what waits, and process reports."""
        self._producer.poll(0)
        if self._broken is not None:
            raise self._broken
        if not self._client.context.permitted():
            return
        try:
            self._produce()
        except UserError as error:
            self._broken = OutputFailed(str(error))
            raise self._broken from error

    def _produce(self) -> None:
        with self._client.explained(self._doing), contextlib.suppress(BufferError):
            while self._waiting:
                batch, message = self._waiting[0]
                self._producer.produce(
                    self._client.topic,
                    message.value,
                    message.key,
                    timestamp=message.timestamp_ms,
                    headers=message.headers,
                    on_delivery=batch.reported,
                )
                self._waiting.popleft()

    def _refused(self, error: KafkaError) -> None:
        if self._broken is None:
            self._broken = OutputFailed(str(self._client.error(self._doing, error)))

    @property
    def _doing(self) -> str:
        return f"writing to topic {self._client.topic!r}"
