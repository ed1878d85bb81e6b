"""Input `redis`: a stream of Redis, read by a consumer group of the job's own.

Each partition is one consumer of the group, with the same name whoever owns it. So what a worker
that died was given and has not acknowledged is given to the next owner of its partition, whose
journal knows what it holds already. Entries move between partitions never.

What a consumer was given is asked for again at the beginning, after each lost connection (an answer
may have been lost), and every `AGAIN_S` (a process that was declared dead may have asked last).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from onyx.errors import Unavailable
from onyx.plugins.options import task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.queues.decoding import Added, MessageDecoder
from onyx.plugins.queues.options import RedisOptions
from onyx.plugins.queues.secrets import password_of
from onyx.plugins.sources.live import LiveInput, live_input
from onyx.plugins.sources.protocol import Portion

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
AGAIN_S = 10.0
ACKED_AT_ONCE = 1_000
LOOKED_AT_ONCE = 1_000
_BEGIN = "0-0"
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


class Entry(NamedTuple):
    """An entry of a stream."""

    id: str
    value: bytes | Mapping[bytes, bytes]

    @property
    def at_ms(self) -> int:
        """When the server took it, if it made the id."""
        return int(self.id.partition("-")[0])


def redis_input(context: PluginContext, options: RedisOptions) -> LiveInput:
    """The input `redis`."""
    decoder = MessageDecoder[Entry](
        context,
        options,
        options.format,
        f"stream {options.stream!r}",
        [
            Added("idField", options.id_field, pa.string(), lambda entry: entry.id),
            Added("timestampField", options.timestamp_field, pa.int64(), lambda entry: entry.at_ms),
        ],
    )
    opener = partial(RedisSource, options, decoder)
    return live_input(context, options, options.partitions, opener)


class RedisSource:
    """One consumer of the group. Implements `LiveSource`."""

    def __init__(
        self,
        options: RedisOptions,
        decoder: MessageDecoder[Entry],
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
        self._behind: str | None = _BEGIN
        """What this consumer was given behind this id is asked for again; None: new entries are."""
        self._again_s = self._claim_s = time.monotonic()
        self._client = self._connected()
        with self._explained("joining the group"):
            self._join()

    def receive(self, wait_s: float) -> Portion | None:
        """Entries that were given before, and then new ones."""
        now_s = time.monotonic()
        if self._claims is not None and now_s - self._claim_s >= self._claims / 2:
            self._claim_s = now_s
            with self._explained("claiming entries"):
                self._claim(self._claims)
        if self._behind is None and now_s - self._again_s >= AGAIN_S:
            self._behind = _BEGIN
        with self._explained("reading"):
            if self._behind is not None:
                self._again_s = now_s
                entries = self._read(self._behind, 0)
                self._behind = entries[-1][0].decode() if entries else None
                if entries:
                    return self._portion(entries)
            entries = self._read(">", wait_s)
            if not entries:
                return None
            self._cursor = entries[-1][0].decode()
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

    def fail(self, handles: Sequence[Any]) -> None:
        """The consumer keeps them, and whoever owns the partition next asks for them."""

    def exhausted(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Leave the server; the consumer stays, with what it was given."""
        self._client.close()

    # --- the server -----------------------------------------------------------------------------

    def _read(self, behind: str, wait_s: float) -> list[tuple[bytes, Mapping[bytes, bytes] | None]]:
        found: Any = self._client.xreadgroup(
            self._group,
            self._consumer,
            {self._stream: behind},
            count=self._options.prefetch,
            block=max(1, int(wait_s * 1000)) if wait_s else None,
        )
        return found[0][1] if found else []

    def _portion(self, entries: Sequence[tuple[bytes, Any]]) -> Portion:
        """An entry that was deleted has no fields, and is no segment."""
        ids = [id.decode() for id, _ in entries]
        there = [Entry(id.decode(), self._value(each)) for id, each in entries if each]
        runs, counts = self._decoder.runs(there) if there else ([], None)
        if counts is not None or len(there) < len(entries):
            given = iter(counts or [1] * len(there))
            counts = [next(given) if each else 0 for _, each in entries]
        return Portion(runs, ids, ids, counts, self._cursor)

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
                each["message_id"] for each in pending if each["consumer"].decode() not in self._own
            ]
            if others:
                self._client.xclaim(
                    self._stream, self._group, self._consumer, idle_ms, others, justid=True
                )
                self._behind = _BEGIN
            if len(pending) < LOOKED_AT_ONCE:
                return
            behind = f"({pending[-1]['message_id'].decode()}"

    def _connected(self) -> redis.Redis:
        options, located = self._options, self._context.located
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
        secure: dict[str, Any] = {"ssl": True, **files} if options.tls else {}
        return redis.Redis(
            host=host.strip("[]"),
            port=int(port),
            db=options.database,
            username=options.username,
            password=password_of(self._context, options),
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=REQUEST_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            client_name="onyx",
            **secure,
        )

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Raises errors of Redis as errors of Onyx: Unavailable if the same may succeed later."""
        options = self._options
        where = f"{doing} stream {self._stream!r} at {options.server}"
        try:
            yield
        except _DENIED as error:
            self._behind = _BEGIN
            what = f"{where} is refused: {error}; look at username and password, and at the ACL"
            raise task_error(self._context, what) from error
        except _PASSING as error:
            self._behind = _BEGIN
            raise Unavailable(f"{where} failed: {error}") from error
        except OSError as error:  # a file of TLS
            raise task_error(self._context, f"{where} failed: {error}") from error
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise task_error(self._context, f"{where} failed: {error}") from error
            with self._explained("joining the group of"):
                self._join()
            self._behind = _BEGIN
            what = f"{where} failed: {error}; the group has been made again"
            raise Unavailable(what) from error
