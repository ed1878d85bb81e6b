"""Input `redis`: a stream of Redis, read by a consumer group of the job's own.

Each partition is one consumer of the group, with the same name whoever owns it. So what a worker
that died was given and has not acknowledged is given to the next owner of its partition, whose
journal knows what it holds already. Entries move between partitions never.

What a consumer was given and the owner does not know is asked for again at the beginning, after
each lost connection (an answer may have been lost), and every `AGAIN_S` (a process that was
declared dead may have asked last).

Redis counts how often an entry was given, and for how long nobody has heard of it; programs beside
the job find by these what nobody can process, and take it away. So an entry that is worked on is
claimed now and then without being counted, and one that has failed stays pending: it is claimed and
counted again when it has rested, or, if it has failed for good or often enough, left alone by this
owner. Reading all again that is pending (`XREADGROUP` from 0) would count what is in flight.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from onyx.errors import Unavailable
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.queues.decoding import AddedKey, MessageDecoder, password_of
from onyx.plugins.queues.options import RedisOptions
from onyx.plugins.sources.live import LiveInput, live_input
from onyx.plugins.sources.protocol import Portion
from onyx.tls.contexts import STRICT

AGAIN_S = 10.0
ACKED_AT_ONCE = 1_000
LOOKED_AT_ONCE = 1_000
COUNT_INTERVAL_S = 5.0
"""Between two questions how many entries are left."""
RESTING_MAX = 100_000
"""Entries that wait for another try; beyond it nothing new is read."""
LEASE_S = 10.0
"""Entries that are worked on are idle for less, so that nobody takes them for left."""
_DENIED = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.AuthenticationWrongNumberOfArgsError,
)
_PASSING = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.MasterDownError,
)
Fields = Mapping[bytes, bytes]
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0


class StreamEntry(NamedTuple):
    """An entry of a stream."""

    id: str
    value: bytes | Fields

    @property
    def at_ms(self) -> int:
        """When the server took it, if it made the id."""
        return int(self.id.partition("-")[0])


class _Rest(NamedTuple):
    """How long an entry that failed is let alone."""

    until_s: float
    rest_s: float


def redis_input(context: PluginContext, options: RedisOptions) -> LiveInput:
    """The input `redis`."""
    decoder = MessageDecoder[StreamEntry](
        context,
        options,
        options.format,
        f"stream {options.stream!r}",
        [
            AddedKey("idField", options.id_field, pa.string(), lambda entry: entry.id),
            AddedKey(
                "timestampField", options.timestamp_field, pa.int64(), lambda entry: entry.at_ms
            ),
        ],
    )
    opener = partial(RedisSource, options, decoder)
    return live_input(context, options, options.partitions, opener)


class RedisSource:
    """One consumer of the group. Implements `LiveSource`."""

    def __init__(
        self,
        options: RedisOptions,
        decoder: MessageDecoder[StreamEntry],
        context: PluginContext,
        partition: int,
        cursor: Any,
    ) -> None:
        self._options = options
        self._decoder = decoder
        self._context = context
        self._stream = options.stream
        self._group = options.group or f"onyx.{context.job_name}.{context.task}"
        self._own = [f"onyx-{number}" for number in range(options.partitions)]
        self._consumer = self._own[partition]
        self._claims = options.claim_seconds if partition == 0 else None
        self._cursor: str | None = cursor
        self._given: dict[str, int] = {}
        """Entries that were given and not judged, and how often."""
        self._resting: dict[str, _Rest] = {}
        """Entries that have failed and are given again."""
        self._due_s = math.inf
        """When the first of them has rested."""
        self._left: dict[str, int] = {}
        """Entries that this owner does not give again, and in which look they were pending."""
        self._behind: str | None = None
        """How far a look at what is pending has come; None: there is none now."""
        self._look = 0
        self._again_s = -math.inf
        self._claim_s = time.monotonic()
        self._count_s = -math.inf
        self.pending: int | None = None
        """Entries that the group has not been given, as the server has said last."""
        self._client = client_of(context, options)
        with self._explained("joining the group"):
            self._join()

    @property
    def lease_s(self) -> float:
        """Long before others of the group take over what nobody works on."""
        return LEASE_S

    def receive(self, wait_s: float) -> Portion | None:
        """Entries that were given before, and then new ones."""
        now_s = time.monotonic()
        if self._claims is not None and now_s - self._claim_s >= self._claims / 2:
            self._claim_s = now_s
            with self._explained("claiming entries"):
                self._claim(self._claims)
        if now_s >= self._count_s:
            self._count_s = now_s + COUNT_INTERVAL_S
            with self._explained("counting what is left"):
                self.pending = self._lag()
        with self._explained("reading"):
            again = self._rested(now_s) or self._unknown(now_s)
            if again or len(self._resting) >= RESTING_MAX:
                return self._portion(again) if again else None
            entries = self._read(wait_s)
            if not entries:
                return None
            self._cursor = entries[-1][0].decode()
            self._given.update((id.decode(), 1) for id, _ in entries)
            return self._portion(entries)

    def ack(self, handles: Sequence[Any]) -> None:
        """The group forgets these entries."""
        with self._explained("acknowledging"):
            for first in range(0, len(handles), ACKED_AT_ONCE):
                ids = handles[first : first + ACKED_AT_ONCE]
                pipeline = self._client.pipeline(transaction=False)
                pipeline.xack(self._stream, self._group, *ids)
                if self._options.delete:
                    pipeline.xdel(self._stream, *ids)
                pipeline.execute()
                for id in ids:
                    self._given.pop(id, None)

    def fail(self, handles: Sequence[Any], after_s: float) -> None:
        """The consumer keeps them. After a rest they are given again, or whoever owns the partition
        next asks for them."""
        until_s = time.monotonic() + after_s
        for id in handles if after_s else ():
            if self._may_be_given((id, self._given.get(id, 1))):
                self._resting[id] = _Rest(until_s, after_s)
                self._due_s = min(self._due_s, until_s)
            else:
                self._leave(id)

    def term(self, handles: Sequence[Any], reasons: Sequence[str]) -> None:
        """The consumer keeps them, and nobody is given them before the partition has another owner:
        whoever looks what is pending finds them."""
        for id in handles:
            self._leave(id)

    def _leave(self, id: str) -> None:
        self._given.pop(id, None)
        self._left[id] = self._look

    def working(self, handles: Sequence[Any]) -> None:
        """Nobody has left them; whoever has taken one over a moment ago keeps it."""
        with self._explained("holding"):
            for first in range(0, len(handles), LOOKED_AT_ONCE):
                ids = list(handles[first : first + LOOKED_AT_ONCE])
                self._take_over(ids, int(LEASE_S * 1000 / 4), justid=True)

    def exhausted(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Leave the server; the consumer stays, with what it was given."""
        self._client.close()

    # --- the server -----------------------------------------------------------------------------

    def _read(self, wait_s: float) -> list[tuple[bytes, Fields]]:
        """New entries."""
        found: Any = self._client.xreadgroup(
            self._group,
            self._consumer,
            {self._stream: ">"},
            count=self._options.prefetch,
            block=max(1, int(wait_s * 1000)) if wait_s else None,
        )
        return found[0][1] if found else []

    def _rested(self, now_s: float) -> list[tuple[bytes, Fields]]:
        """Entries that have failed and have rested, if nobody else has taken them over."""
        if now_s < self._due_s:
            return []
        rested = (id for id, each in self._resting.items() if each.until_s <= now_s)
        due = list(islice(rested, self._options.prefetch))
        pipeline = self._client.pipeline(transaction=False)
        for id in due:
            pipeline.xpending_range(self._stream, self._group, id, id, 1, self._consumer)
        mine = dict(each for pending in pipeline.execute() for each in _counts(pending))
        idle_s = min(self._resting[id].rest_s for id in due) / 2
        found = self._claimed(mine, int(idle_s * 1000)) if mine else []
        claimed = {id.decode() for id, _ in found}
        for id in due:
            rest = self._resting.pop(id)
            if id not in mine:
                self._given.pop(id, None)
            elif id not in claimed:
                self._resting[id] = _Rest(now_s + rest.rest_s, rest.rest_s)
        self._due_s = min((each.until_s for each in self._resting.values()), default=math.inf)
        return found

    def _unknown(self, now_s: float) -> list[tuple[bytes, Fields]]:
        """Entries that this consumer was given, and that this owner does not know: of one page, as
        many may be pending that were left."""
        if self._behind is None:
            if now_s - self._again_s < AGAIN_S:
                return []
            self._behind, self._again_s = "-", now_s
            self._look += 1
        pending: Any = self._client.xpending_range(
            self._stream, self._group, self._behind, "+", LOOKED_AT_ONCE, self._consumer
        )
        page = _counts(pending)
        self._left.update((id, self._look) for id, _ in page if id in self._left)
        unknown = (
            each for each in page if each[0] not in self._given and each[0] not in self._left
        )
        wanted = dict(islice(filter(self._may_be_given, unknown), self._options.prefetch))
        if len(wanted) == self._options.prefetch:
            self._behind = f"({next(reversed(wanted))}"
        elif len(page) == LOOKED_AT_ONCE:
            self._behind = f"({page[-1][0]}"
        else:
            self._behind = None
            self._left = {id: look for id, look in self._left.items() if look == self._look}
        return self._claimed(wanted) if wanted else []

    def _look_again(self) -> None:
        self._behind, self._again_s = None, -math.inf

    def _claimed(self, times: Mapping[str, int], idle_ms: int = 0) -> list[tuple[bytes, Fields]]:
        """Entries of this consumer, each given once more; `times` is how often they were."""
        ids = list(times)
        found = self._take_over(ids, idle_ms)
        entries = [(id, fields) for id, fields in found if id is not None]
        if len(entries) < len(found):  # before Redis 7 they have to be acknowledged
            self._forget_deleted(set(ids) - {id.decode() for id, _ in entries})
        self._given.update((id.decode(), times[id.decode()] + 1) for id, _ in entries)
        return entries

    def _take_over(self, ids: list[Any], idle_ms: int, justid: bool = False) -> Any:
        """Make entries this consumer's that have been idle for so long; `justid` is not counted."""
        return self._client.xclaim(
            self._stream, self._group, self._consumer, idle_ms, ids, justid=justid
        )

    def _forget_deleted(self, ids: Iterable[str]) -> None:
        gone = [id for id in ids if not self._client.xrange(self._stream, id, id)]
        if gone:
            self._client.xack(self._stream, self._group, *gone)

    def _may_be_given(self, entry: tuple[str, int]) -> bool:
        most = self._options.max_deliveries
        return most is None or entry[1] < most

    def _portion(self, entries: Sequence[tuple[bytes, Fields]]) -> Portion:
        ids = [id.decode() for id, _ in entries]
        found = self._decoder.decode(
            [
                StreamEntry(id, self._value(fields))
                for id, (_, fields) in zip(ids, entries, strict=True)
            ]
        )
        deliveries = [self._given[id] for id in ids]
        return Portion(found.runs, ids, ids, found.counts, self._cursor, deliveries, found.refused)

    def _value(self, fields: Mapping[bytes, bytes]) -> bytes | Mapping[bytes, bytes]:
        if self._options.format == "fields":
            return fields
        return fields.get((self._options.value_field or "value").encode(), b"")

    def _join(self) -> None:
        """Make the group if it is not there."""
        start = {"earliest": "0", "latest": "$"}.get(
            self._options.start_from, self._options.start_from
        )
        alone = len(self._own) == 1
        if self._cursor is not None and not alone and not self._has_group():
            what = (
                f"group {self._group!r} of stream {self._stream!r} is gone, and nobody knows what "
                "its consumers had not acknowledged; make it behind the last entry that counts: "
                f"XGROUP CREATE {self._stream} {self._group} ID"
            )
            raise task_error(self._context, what)
        behind = self._cursor if self._cursor is not None else start
        try:
            self._client.xgroup_create(self._stream, self._group, behind, mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _lag(self) -> int | None:
        """What the server says; it does not know where entries were deleted."""
        groups: Any = self._client.xinfo_groups(self._stream)
        found = (each for each in groups if each["name"] == self._group.encode())
        return next((each.get("lag") for each in found), None)

    def _has_group(self) -> bool:
        try:
            groups: Any = self._client.xinfo_groups(self._stream)
        except redis.ResponseError as error:
            if "no such key" in str(error):
                return False
            raise
        return any(each["name"] == self._group.encode() for each in groups)

    def _claim(self, idle_s: float) -> None:
        """Take entries of consumers that are not the job's; they are then among what this one was
        given."""
        idle_ms, behind = int(idle_s * 1000), "-"
        while True:
            pending: Any = self._client.xpending_range(
                self._stream, self._group, behind, "+", LOOKED_AT_ONCE, idle=idle_ms
            )
            others = [
                id
                for each, (id, times) in zip(pending, _counts(pending), strict=True)
                if each["consumer"].decode() not in self._own and self._may_be_given((id, times))
            ]
            if others:
                self._take_over(others, idle_ms, justid=True)
                self._look_again()
            if len(pending) < LOOKED_AT_ONCE:
                return
            behind = f"({pending[-1]['message_id'].decode()}"

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Raises errors of Redis as errors of Onyx: Unavailable if the same may succeed later."""
        options = self._options
        where = f"{doing} stream {self._stream!r} at {options.server}"
        try:
            yield
        except _DENIED as error:
            self._look_again()
            what = f"{where} is refused: {error}; look at username and password, and at the ACL"
            raise task_error(self._context, what) from error
        except _PASSING as error:
            self._look_again()
            raise Unavailable(f"{where} failed: {error}") from error
        except OSError as error:  # a file of TLS
            raise task_error(self._context, f"{where} failed: {error}") from error
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise task_error(self._context, f"{where} failed: {error}") from error
            with self._explained("joining the group of"):
                self._join()
            self._look_again()
            what = f"{where} failed: {error}; the group has been made again"
            raise Unavailable(what) from error


def _counts(pending: Any) -> list[tuple[str, int]]:
    """Ids of pending entries, and how often each was given."""
    return [(each["message_id"].decode(), each["times_delivered"]) for each in pending]


def client_of(context: PluginContext, options: RedisOptions) -> redis.Redis:
    """A client that repeats nothing by itself. It connects when it is used.

    Raises:
        UserError: the variable of the password is not set.
        Unavailable: the file of the password cannot be read.
    """
    located = context.located
    host, _, port = options.server.rpartition(":")
    files = {
        name: located(file)
        for name, file in (
            ("ssl_ca_certs", options.ca_file),
            ("ssl_certfile", options.certificate_file),
            ("ssl_keyfile", options.key_file),
        )
        if file is not None
    }
    secure: dict[str, Any] = {"ssl": True, "ssl_exclude_verify_flags": [STRICT], **files}
    return redis.Redis(
        host=host.strip("[]"),
        port=int(port),
        db=options.database,
        username=options.username,
        password=password_of(context, options),
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=REQUEST_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        client_name="onyx",
        **(secure if options.tls else {}),
    )
