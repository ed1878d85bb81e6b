"""Output `kafka`: messages of a topic, at least once or in transactions.

The first call decides: only a job under exactly-once calls `begin`, or `finish` before it. Other
jobs use no transactions, which cost readers latency and need more rights: a segment is durable when
the brokers have acknowledged it. The producer is idempotent, so its retries write nothing twice,
and it gives no message up: while no broker answers, messages wait in bounded memory, and when that
is full no more are taken.

A transaction of Kafka holds messages and the position of their writer, which is the committed
offset of a consumer group without members: `send_offsets_to_transaction` puts it there. The group
and the writer's transactional id have the same name.

Invariant: `init_transactions` ends what any producer has begun under that id. It was committed, and
then the position says so, or it never will be. So a position that is read after `init_transactions`
holds until another producer calls it, and from then on this producer commits nothing. An unknown
outcome is resolved this way, and so are transactions that a dead writer left. Two peers that finish
the same transaction at once fence each other, so it is not written twice.

A position is removed with the same care. If one is found after `init_transactions`, a writer that
is believed dead may have read it before. So the group is deleted and all is looked up again, until
no position is found.

Rejected: a compacted topic of positions. It has to be read to its end, and every open
transaction holds back that end.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from onyx.errors import OutputFailed, Unavailable, UserError
from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.kafka.client import (
    REQUEST_TIMEOUT_S,
    KafkaClient,
    as_exception,
    refused_settings,
)
from onyx.plugins.kafka.messages import OutMessage, TopicMessages
from onyx.plugins.kafka.options import KafkaOutputOptions
from onyx.plugins.protocol import Commit, PluginContext, Token
from onyx.plugins.rolling import roll_limits
from onyx.plugins.transactions import ColumnsTransactionWriter

BUFFER_KIB = 65_536
"""The size of messages that wait for a broker."""
LINGER_MS = 5
PATIENCE_S_MIN, PATIENCE_S_MAX = 10.0, 80.0
"""With a transaction; doubled by each that is given up, so that a slow one comes through."""
TRANSACTION_TIMEOUT_MS = 60_000
"""Until the brokers abort what a process that died has begun, unless others come before."""
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
)
_NO_GROUP = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID)
Report = Callable[[KafkaError | None, object], None]


class KafkaOutput:
    """Delegates to the writer of the job's guarantee, made at its first use."""

    cooperative = False
    """Every report and transaction waits for brokers."""

    def __init__(self, context: PluginContext, options: KafkaOutputOptions) -> None:
        self._client = KafkaClient(context, options)
        self._options = options
        self._reported: ReportedWriter | None = None
        self._exact: ColumnsTransactionWriter | None = None

    def begin(self, commit: Commit) -> None:
        """Use transactions from now on."""
        self._transactions().begin(commit)

    def finish(self, token: Token) -> None:
        """Apply a committed transaction."""
        self._transactions().finish(token)

    def write(self, segments: list[Segment]) -> None:
        """Hand the segments to the writer."""
        self._writer().write(segments)

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Hand the rows to the writer."""
        if self._exact is not None:
            self._exact.write_columns(columns)
        elif columns.num_rows:
            self._reporting().write_columns(Columns(columns))

    def durable(self) -> int:
        """What the writer says."""
        return self._writer().durable()

    def flush(self) -> None:
        """Flush the writer."""
        self._writer().flush()

    def tick(self) -> None:
        """Let the writer go on."""
        self._writer().tick()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence through the writer; also checks the topic before the first segment."""
        self._writer().fence(live)

    def seal(self) -> None:
        """Seal through the writer."""
        self._writer().seal()

    def close(self) -> None:
        """Close the writers that were made."""
        for writer in (self._exact, self._reported):
            if writer is not None:
                writer.close()

    def _writer(self) -> ReportedWriter | ColumnsTransactionWriter:
        return self._reporting() if self._exact is None else self._exact

    def _reporting(self) -> ReportedWriter:
        if self._reported is None:
            self._reported = ReportedWriter(self._client, self._messages())
        return self._reported

    def _transactions(self) -> ColumnsTransactionWriter:
        if self._exact is None:
            store = KafkaStore(self._client, self._messages())
            limits = roll_limits(self._options)
            self._exact = ColumnsTransactionWriter(store, self._client.context, limits)
        return self._exact

    def _messages(self) -> TopicMessages:
        return TopicMessages(self._client.context, self._options)


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

    def __init__(self, client: KafkaClient, messages: TopicMessages) -> None:
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


class _Session(msgspec.Struct):
    """A producer under the id of a writer, which no other producer has used since."""

    producer: Producer
    group: Any
    """What a transaction says of the group of the writer."""
    number: int
    """To which the writer has come."""


class KafkaStore:
    """The store of one task of one job (`transactions.TransactionStore`)."""

    def __init__(self, client: KafkaClient, messages: TopicMessages) -> None:
        self._client = client
        self._messages = messages
        context = client.context
        self._prefix = f"onyx.{context.job}.{context.task}."
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.RLock()
        self._checked = False
        self._patience_s = PATIENCE_S_MIN
        with refused_settings(client):
            self._admin = AdminClient(client.settings())

    def check(self, segments: Sequence[Segment]) -> None:
        """Convert the segments to messages. Raises UserError, with the key that does not fit."""
        self._check_topic()
        self._messages.of(segments)

    def check_columns(self, columns: Columns) -> None:
        """Checks what `check` does, for segments in columns."""
        self._check_topic()
        self._messages.of_columns(columns)

    def open(self, writer: str) -> None:
        """Commit offset 0 for the group of the writer, unless it has one."""
        with self._lock, self._client.explained(self._doing, self._admin.poll):
            group = self._group_client(writer)
            if self._position(group) is None:
                group.commit(offsets=[self._committed_offset(0)], asynchronous=False)

    def apply(self, writer: str, number: int, segments: list[Segment]) -> bool:
        """A transaction of dicts."""
        return self.apply_runs(writer, number, [segments])

    def apply_runs(self, writer: str, number: int, runs: Sequence[Segments]) -> bool:
        """One transaction with the messages and the offset. Without a session that ended well,
        begin one: that aborts what others have begun under this id, and the position read after
        it holds."""
        messages = [message for run in runs for message in self._messages_of(run)]
        with self._lock, self._client.explained(self._doing, self._admin.poll):
            session = self._sessions.pop(writer, None) or self._begin_session(writer)
            if session is None:
                return False
            if session.number < number:
                # The session is kept only on success. After an error the outcome is unknown, and
                # the next session looks it up.
                self._patiently(partial(self._commit, session, writer, number, messages))
                session.number = number
            if writer.startswith(f"{self._client.context.incarnation}."):
                self._sessions[writer] = session
            return True

    def fence(self, live: Sequence[GroupId]) -> None:
        """Remove the positions of dead writers. Also checks the topic before the first segment."""
        self._check_topic()
        with self._lock, self._client.explained(self._doing, self._admin.poll):
            for writer in self._writers():
                if writer.rpartition(".")[0] not in live:
                    self._take_away(writer)

    def forget(self, writer: str | None) -> None:
        """Delete the group of a writer, or all groups of the task."""
        with self._lock, self._client.explained(self._doing, self._admin.poll):
            self._remove(self._writers() if writer is None else [writer])

    def close(self) -> None:
        """Drop the producers; brokers abort what they had begun."""
        with self._lock:
            self._sessions.clear()

    def _messages_of(self, run: Segments) -> list[OutMessage]:
        return format_of(run).choose(self._messages.of, self._messages.of_columns)(run)

    # --- transactions --------------------------------------------------------------------------

    def _begin_session(self, writer: str) -> _Session | None:
        """End whatever was begun under the id of a writer, then see how far it has come. None if
        it has no position."""
        producer = self._initialised(writer)
        group = self._group_client(writer)
        number = self._position(group)
        if number is None:
            return None
        return _Session(producer, group.consumer_group_metadata(), number)

    def _initialised(self, writer: str) -> Producer:
        settings = self._client.settings(
            transactional_id=self._group(writer), transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        with refused_settings(self._client):
            producer = Producer({"linger.ms": 0, **settings})
        with self._fenced_is_unavailable(writer):
            producer.init_transactions(REQUEST_TIMEOUT_S)
        return producer

    def _commit(
        self, session: _Session, writer: str, number: int, messages: Sequence[OutMessage]
    ) -> None:
        producer = session.producer
        refused: list[KafkaError] = []

        def reported(error: KafkaError | None, _: object) -> None:
            if error is not None:
                refused.append(error)

        with self._fenced_is_unavailable(writer):
            try:
                producer.begin_transaction()
                for message in messages:
                    self._produce(producer, message, reported)
                producer.send_offsets_to_transaction(
                    [self._committed_offset(number)], session.group, REQUEST_TIMEOUT_S
                )
                producer.commit_transaction(REQUEST_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    with contextlib.suppress(KafkaException):
                        producer.abort_transaction(REQUEST_TIMEOUT_S)
                if refused and error.args[0].code() not in _FENCED:
                    # The reason; what the commit says is only that there was one.
                    raise as_exception(refused[0]) from error
                raise

    def _patiently(self, do: Callable[[], None]) -> None:
        """Run a call that may never return: librdkafka hangs when a broker restarts, whatever its
        timeout is. The next session ends what the hanging call still does."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                do()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=run, name="onyx-kafka-commit", daemon=True).start()
        try:
            done.result(self._patience_s)
        except TimeoutError as error:
            what = f"no answer within {self._patience_s:.0f} s; its outcome is looked up"
            self._patience_s = min(2 * self._patience_s, PATIENCE_S_MAX)
            task = self._client.context.task
            raise Unavailable(f"task {task!r}: {self._doing}: {what}") from error
        self._patience_s = PATIENCE_S_MIN

    def _produce(self, producer: Producer, message: OutMessage, reported: Report) -> None:
        while True:
            try:
                producer.produce(
                    self._client.topic, message.value, message.key,
                    timestamp=message.timestamp_ms, headers=message.headers, on_delivery=reported,
                )  # fmt: skip
            except BufferError:
                if not self._client.context.wanted():
                    raise Unavailable(f"{self._doing}: given up") from None
                producer.poll(0.1)
            else:
                return

    @contextlib.contextmanager
    def _fenced_is_unavailable(self, writer: str) -> Iterator[None]:
        """Another peer finishes the same transaction: repeat the call, to read the new position."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() not in _FENCED:
                raise
            raise Unavailable(
                f"task {self._client.context.task!r}: another peer finishes what {writer} began"
            ) from error

    # --- positions -----------------------------------------------------------------------------

    def _group_client(self, writer: str) -> Consumer:
        """For the position of a writer; it never takes part in its group."""
        settings = self._client.settings(
            group_id=self._group(writer), isolation_level="read_committed", enable_auto_commit=False
        )
        with refused_settings(self._client):
            return Consumer(settings)

    def _position(self, group: Consumer) -> int | None:
        """Not before a transaction that changes it has come to its end."""
        (found,) = group.committed([self._committed_offset()], REQUEST_TIMEOUT_S)
        if found.error is not None:
            raise as_exception(found.error)
        return None if found.offset < 0 else int(found.offset)

    def _committed_offset(self, number: int = OFFSET_INVALID) -> TopicPartition:
        """Where a group keeps the position; its topic has to be there, the partition is any."""
        return TopicPartition(self._client.topic, 0, number)

    def _writers(self) -> list[str]:
        """Who has a position in this task."""
        listed = self._admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        if not listed.valid and listed.errors:
            raise as_exception(listed.errors[0])
        ids = [group.group_id for group in listed.valid]
        return [each.removeprefix(self._prefix) for each in ids if each.startswith(self._prefix)]

    def _take_away(self, writer: str) -> None:
        self._sessions.pop(writer, None)
        while self._begin_session(writer) is not None:
            self._remove([writer])

    def _remove(self, writers: Sequence[str]) -> None:
        if not writers:
            return
        groups = [self._group(each) for each in writers]
        removed = self._admin.delete_consumer_groups(groups, request_timeout=REQUEST_TIMEOUT_S)
        for answer in removed.values():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() not in _NO_GROUP:
                    raise

    def _group(self, writer: str) -> str:
        return self._prefix + writer

    # --- the topic -----------------------------------------------------------------------------

    def _check_topic(self) -> None:
        """It is there; how large its messages may be, if we may know."""
        if self._checked:
            return
        client = self._client
        with client.explained(self._doing, self._admin.poll):
            found = self._admin.list_topics(client.topic, REQUEST_TIMEOUT_S).topics[client.topic]
            if found.error is not None:
                raise as_exception(found.error)
        taken = client.topic_setting(self._admin, "max.message.bytes")
        if taken is not None:
            self._messages.bytes_max = min(self._messages.bytes_max, int(taken))
        self._checked = True

    @property
    def _doing(self) -> str:
        return f"writing to topic {self._client.topic!r}"
