"""Input `nats`: a stream of NATS JetStream, by durable consumers of the job's own.

Each partition is one durable consumer with a filter of its own, because the server gives a message
again to whoever asks the consumer: two partitions with one consumer could both have it in their
journals. The number of a message in its stream is its id.

A connection that is lost is not mended but made anew, at the next call.

The server counts how often it has given a message. What has failed and may succeed later is given
back (`-NAK`) with how long it is to rest, because the server's own `BackOff` is for messages of
which it hears nothing. What has failed for good is terminated (`+TERM`), with the reason in the
server's advisory.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import nats
import nats.errors
import nats.js.errors
import pyarrow as pa
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from onyx.base.event_loop import EventLoop
from onyx.errors import Unavailable
from onyx.plugins.options import task_error, variable_of
from onyx.plugins.protocol import PluginContext
from onyx.plugins.queues.decoding import AddedKey, MessageDecoder, password_of
from onyx.plugins.queues.options import NatsOptions
from onyx.plugins.sources.live import LiveInput, live_input
from onyx.plugins.sources.protocol import Portion
from onyx.tls.contexts import client_context

CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 1.0
RECEIVE_S_MIN = 0.02
"""A request of JetStream that expires at once gets nothing."""
UNACKED_MAX = 100_000
"""Messages that the server gives before it hears of the first of them."""
_REASONS_SINCE = (2, 10, 4)
"""The server that takes a reason why a message is terminated."""
REASON_CHARACTERS_MAX = 1_000
_REFUSED = ("authorization", "authentication", "permissions", "credentials", "nkeys")


class StreamMessage(NamedTuple):
    """A message of a stream."""

    id: str
    value: bytes
    subject: str
    at_ms: int
    deliveries: int


def nats_input(context: PluginContext, options: NatsOptions) -> LiveInput:
    """The input `nats`."""
    decoder = MessageDecoder[StreamMessage](
        context,
        options,
        options.format,
        f"stream {options.stream!r}",
        [
            AddedKey("idField", options.id_field, pa.string(), lambda entry: entry.id),
            AddedKey(
                "timestampField", options.timestamp_field, pa.int64(), lambda entry: entry.at_ms
            ),
            AddedKey("subjectField", options.subject_field, pa.string(), lambda each: each.subject),
        ],
    )
    opener = partial(JetStreamSource, options, decoder)
    return live_input(context, options, max(1, len(options.subjects)), opener)


class JetStreamSource:
    """One durable consumer. Implements `LiveSource`; a handle is the subject for acks."""

    def __init__(
        self,
        options: NatsOptions,
        decoder: MessageDecoder[StreamMessage],
        context: PluginContext,
        partition: int,
        cursor: Any,
    ) -> None:
        self._options = options
        self._decoder = decoder
        self._context = context
        self._subject = options.subjects[partition] if options.subjects else None
        prefix = options.durable or f"onyx-{context.job_name}-{context.task}"
        self._durable = f"{prefix}-{partition}"
        self._lease_s = options.ack_wait_seconds
        self._cursor: int | None = cursor
        """The last number of the stream that was given."""
        self._client: Client | None = None
        self._up = False
        """Whether the client has been connected."""
        self._pulled: JetStreamContext.PullSubscription | None = None
        self._reason: Exception | None = None
        """The last error that the client told of by itself."""
        self.pending: int | None = None
        """Messages that the stream has for the consumer, by the last one that came."""
        self._loop = EventLoop(f"onyx-nats-{context.task}")

    def receive(self, wait_s: float) -> Portion | None:
        """What has come since the last time, and what was not acked for too long."""
        most, wait_s = self._options.prefetch, max(wait_s, RECEIVE_S_MIN)
        with self._explained("reading"):
            pulled = self._connected()
            try:
                messages = self._call(pulled.fetch(most, wait_s), wait_s)
            except nats.errors.TimeoutError:
                self.pending = 0
                self._look()
                return None
        return self._portion(messages) if messages else None

    @property
    def lease_s(self) -> float:
        """How long the consumer waits, which may have been made by somebody else."""
        return self._lease_s

    def ack(self, handles: Sequence[Any]) -> None:
        """The consumer forgets these messages."""
        self._tell("acknowledging", handles, [b"+ACK"] * len(handles))

    def fail(self, handles: Sequence[Any], after_s: float) -> None:
        """They are given again, after a rest."""
        rests = b" " + json.dumps({"delay": int(after_s * 1e9)}).encode() if after_s else b""
        self._tell("giving back", handles, [b"-NAK" + rests] * len(handles))

    def term(self, handles: Sequence[Any], reasons: Sequence[str]) -> None:
        """They are never given again."""
        doing, said = "terminating", [b"+TERM"] * len(handles)
        with self._explained(doing):
            self._connected()
            assert self._client is not None
            if _version(self._client) >= _REASONS_SINCE:
                said = [f"+TERM {each[:REASON_CHARACTERS_MAX]}".encode() for each in reasons]
        self._tell(doing, handles, said)

    def working(self, handles: Sequence[Any]) -> None:
        """The consumer waits anew."""
        self._tell("working on", handles, [b"+WPI"] * len(handles))

    def exhausted(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Leave the server; the consumer stays."""
        self._disconnect()
        self._loop.close()

    # --- messages -------------------------------------------------------------------------------

    def _portion(self, messages: Sequence[Msg]) -> Portion:
        entries = list(map(_entry, messages))
        found = self._decoder.decode(entries)
        ids = [each.id for each in entries]
        self._cursor = max(self._cursor or 0, *map(int, ids))
        self.pending = messages[-1].metadata.num_pending
        return Portion(
            found.runs,
            [each.reply for each in messages],
            ids,
            found.counts,
            self._cursor,
            [each.deliveries for each in entries],
            found.refused,
        )

    def _tell(self, doing: str, handles: Sequence[Any], answers: Sequence[bytes]) -> None:
        async def tell(client: Client) -> None:
            for handle, answer in zip(handles, answers, strict=True):
                await client.publish(handle, answer)
            await client.flush(int(REQUEST_TIMEOUT_S))

        with self._explained(doing):
            self._connected()
            assert self._client is not None
            self._call(tell(self._client))

    # --- the server -----------------------------------------------------------------------------

    def _connected(self) -> JetStreamContext.PullSubscription:
        if self._pulled is not None:
            self._look()
            return self._pulled
        self._client = client = Client()
        self._call(client.connect(**self._settings()))
        self._up = True
        self._pulled = self._call(self._consumer(client.jetstream(timeout=REQUEST_TIMEOUT_S)))
        return self._pulled

    def _look(self) -> None:
        """Whether the connection still is one."""
        if not self._alive():
            raise nats.errors.ConnectionClosedError

    async def _consumer(self, stream: JetStreamContext) -> JetStreamContext.PullSubscription:
        """The consumer, made if it is not there."""
        name, most = self._options.stream, self._options.max_deliveries
        await stream.stream_info(name)
        try:
            found = await stream.consumer_info(name, self._durable)
            if most is not None and found.config.max_deliver != most:
                found.config.max_deliver = most
                await stream.add_consumer(name, found.config)
        except nats.js.errors.NotFoundError:
            found = await stream.add_consumer(name, self._configuration())
        waits_s = found.config.backoff or [found.config.ack_wait or self._options.ack_wait_seconds]
        self._lease_s = min(waits_s)
        return await stream.pull_subscribe_bind(consumer=self._durable, stream=name)

    def _configuration(self) -> ConsumerConfig:
        start = self._options.start_from
        policy, first = DeliverPolicy.ALL, None
        if self._cursor is not None or start.isdecimal():
            first = self._cursor + 1 if self._cursor is not None else int(start)
            policy = DeliverPolicy.BY_START_SEQUENCE
        elif start == "latest":
            policy = DeliverPolicy.NEW
        return ConsumerConfig(
            durable_name=self._durable,
            deliver_policy=policy,
            opt_start_seq=first,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._options.ack_wait_seconds,
            max_ack_pending=UNACKED_MAX,
            max_deliver=self._options.max_deliveries or -1,
            filter_subject=self._subject,
        )

    def _settings(self) -> dict[str, Any]:
        options, context = self._options, self._context
        scheme = "tls" if options.tls else "nats"
        token = options.token_env
        credentials = options.credentials_file
        return {
            "servers": [f"{scheme}://{each}" for each in options.addresses],
            "name": "onyx",
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,  # of each server, before connecting is given up
            "reconnect_time_wait": 0,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "error_cb": self._notice,
            "user": options.username,
            "password": password_of(context, options),
            "token": None if token is None else variable_of(context, "tokenEnv", token),
            "user_credentials": None if credentials is None else context.located(credentials),
            "tls": self._secure() if options.tls else None,
        }

    def _secure(self) -> ssl.SSLContext:
        options, located = self._options, self._context.located
        files = (options.ca_file, options.certificate_file, options.key_file)
        return client_context(*(each and located(each) for each in files))

    async def _notice(self, error: Exception) -> None:
        """An error outside of calls, or the reason why no server can be reached."""
        self._reason = error

    def _disconnect(self) -> None:
        client, self._client, self._pulled, self._up = self._client, None, None, False
        if client is not None:
            with contextlib.suppress(Exception):
                self._loop.call(client.close(), CLOSE_TIMEOUT_S)

    def _call(self, work: Any, more_s: float = 0.0) -> Any:
        return self._loop.call(work, REQUEST_TIMEOUT_S + more_s, self._alive)

    def _alive(self) -> bool:
        """Whether the connection is one, or is about to be one."""
        return not self._up or (self._client is not None and self._client.is_connected)

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Raises errors of NATS as errors of Onyx: Unavailable if the same may succeed later. The
        connection is made anew."""
        options = self._options
        where = f"{doing} stream {options.stream!r} at {', '.join(options.addresses)}"
        try:
            yield
        except (nats.js.errors.NotFoundError, nats.js.errors.BadRequestError) as error:
            self._disconnect()
            what = f"{where} failed: {error.description or error}; is the stream there?"
            raise task_error(self._context, what) from error
        except (TimeoutError, nats.errors.Error, Unavailable, OSError) as error:
            self._disconnect()
            unreached = isinstance(error, nats.errors.NoServersError)
            reason = (self._reason if unreached else None) or error
            said = str(reason) or type(reason).__name__
            if any(each in said.lower() for each in _REFUSED):
                what = f"{where} is refused: {said}; look at username, token and credentials"
                raise task_error(self._context, what) from error
            raise Unavailable(f"{where} failed: {said}") from error


def _entry(message: Msg) -> StreamMessage:
    metadata = message.metadata
    at_ms = int(metadata.timestamp.timestamp() * 1000)
    id, deliveries = str(metadata.sequence.stream), metadata.num_delivered
    return StreamMessage(id, message.data, message.subject, at_ms, deliveries)


def _version(client: Client) -> tuple[int, int, int]:
    version = client.connected_server_version
    return version.major, version.minor, version.patch
