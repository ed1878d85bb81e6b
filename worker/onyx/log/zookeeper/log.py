"""The log in ZooKeeper: what a peer group and a client use.

The parts are small and each has one concern: `session` (connection), `subscription` with `tail`
(reading), `writer` (appending), `pulses`, `documents`, `chunks`, `origins`. This module puts them
together behind the protocols of `interface`. Any thread may call; callbacks come on one thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError

from onyx.codec.entries import decode_entry, encode_entry
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.append_queue import Append, AppendQueue, Reply, check_size
from onyx.log.interface import ChunkGone, Document, Origin, Session
from onyx.log.paths import Paths, entry_position, entry_positions
from onyx.log.zookeeper.chunks import Chunks
from onyx.log.zookeeper.documents import Documents
from onyx.log.zookeeper.multi_read import NODES_MAX, read_nodes
from onyx.log.zookeeper.origins import Origins
from onyx.log.zookeeper.pulses import Pulses
from onyx.log.zookeeper.session import ZooKeeperSession
from onyx.log.zookeeper.subscription import Subscription
from onyx.replica.command import Command
from onyx.replica.entry import Entry
from onyx.settings import Settings
from onyx.tls.files import CertificateFiles

CLOSE_FLUSH_S = 2.0
"""Longest wait at `close` for entries that were enqueued."""
_FLUSH_POLL_S = 0.005


class ZooKeeperLog:
    """Reading, documents and chunks: what groups and clients have in common.

    Args:
        settings: Uses `zookeeper`, `log` and `tenancy_id`.
        fence: Group whose pulse writes must check; None for a client.
        identity: The log that this process knew before, from `identity` of a former object.
        certificates: For TLS; None means those that the settings name.

    Raises:
        Unavailable: no ZooKeeper answered.
        LogReplaced: the log was recreated; SettingsError: the address or tenancy is wrong.
    """

    def __init__(
        self,
        settings: Settings,
        fence: GroupId | None = None,
        identity: int | None = None,
        certificates: CertificateFiles | None = None,
    ) -> None:
        self._settings = settings.log
        self._paths = Paths(settings.tenancy_id)
        self._session = ZooKeeperSession(
            settings.zookeeper, "onyx-log", fence is None, certificates
        )
        try:
            piece_bytes = self._settings.chunk_bytes_max
            self._chunks = Chunks(self._session, self._paths, piece_bytes)
            self._documents = Documents(
                self._session, self._paths, self._chunks, piece_bytes, fence
            )
            self._origins = Origins(self._session, self._paths, self._chunks, identity)
        except BaseException:
            self._session.close()
            raise

    @property
    def identity(self) -> int:
        """Distinguishes this log from one made anew under the same name."""
        return self._origins.log_czxid

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        """Entries after a position that are there now; see the protocol."""
        children = self._session.perform(lambda client: client.get_children_async(self._paths.log))
        wanted = sorted(p for p in entry_positions(children) if p > after)[:entries_max]
        entries: list[Entry] = []
        for start in range(0, len(wanted), NODES_MAX):
            entries.extend(self._fetch(wanted[start : start + NODES_MAX]))
        return entries

    def subscribe(
        self, after: Position, deliver: Callable[[Entry | Origin], None]
    ) -> Callable[[], None]:
        """Follow the log; see the protocol."""
        self._session.check()
        subscription = Subscription(
            self._session,
            self._paths,
            self._origins,
            after,
            deliver,
            self._settings.poll_interval_s,
        )
        return subscription.stop

    def origin(self, above: Position = NO_POSITION) -> Origin:
        """The origin, if its position is greater than `above`; else an empty one at -1."""
        return self._origins.read(above) or Origin(NO_POSITION, b"")

    def collect(self, origin: Origin) -> bool:
        """Start the log from a later replica and delete the entries that it contains."""
        return self._origins.collect(origin)

    def put_chunk(self, data: bytes) -> str:
        """Store a document under its content address (SHA-256, hex)."""
        return self._chunks.put(data)

    def get_chunk(self, digest: str) -> bytes:
        """Raises Unavailable when it is missing, InvariantViolated when it is not what it says."""
        return self._chunks.get(digest)

    def sweep_chunks(self, named: Callable[[], Collection[str]], age_s: float) -> int:
        """Delete the chunks that nothing names and nobody has put or named for a time; how many."""
        return self._chunks.sweep(
            lambda: {*named(), self._origins.named()}, int((time.time() - age_s) * 1000)
        )

    def get_document(self, path: str) -> Document | None:
        """The document at `folder/name`; None if there is none."""
        return self._documents.get(path)

    def put_document(
        self, path: str, data: bytes, version: int | None, names: Sequence[str] = ()
    ) -> int | None:
        """Create (`version` None) or replace a document if its version is still `version`."""
        return self._documents.put(path, data, version, names)

    def list_documents(self, folder: str) -> Sequence[str]:
        """Sorted names of the documents directly in a folder; empty when there is none."""
        return self._documents.names(folder)

    def list_folders(self, folder: str) -> Sequence[str]:
        """Sorted names of the folders directly in a folder; empty when there is none."""
        return self._documents.folders(folder)

    def delete_documents(self, path: str) -> None:
        """Delete the document and those directly in the folder of this name."""
        self._documents.delete(path)

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """Write the cluster's parameters if nobody has; return those that hold."""
        path = self._paths.parameters
        data = msgspec.json.encode(dict(parameters))
        try:
            self._session.perform(lambda client: client.create_async(path, data))
        except NodeExistsError:
            data, _ = self._session.perform(lambda client: client.get_async(path))
        return msgspec.json.decode(data, type=dict[str, str])

    def close(self) -> None:
        """End the session and the threads."""
        self._session.close()

    def _fetch(self, positions: Sequence[Position]) -> list[Entry]:
        """Read several entries at once; those collected meanwhile are left out."""
        paths = [self._paths.entry(position) for position in positions]
        nodes = self._session.perform(lambda client: read_nodes(client, paths))
        return [
            decode_entry(position, data)
            for position, data in zip(positions, nodes, strict=True)
            if data is not None
        ]


class ZooKeeperClientLog(ZooKeeperLog):
    """The log of a client or the operator. Its session may be replaced by a new one."""

    def append(self, command: Command) -> Position:
        """Write a command and wait; when in doubt it is written again, which its id makes harmless.

        Raises:
            UserError: it is too large or cannot be encoded.
            ChunkGone: a chunk that it names has been collected; nothing was written.
            Unavailable: no answer in time; it may have been written or not.
        """
        data = encode_entry(command)
        check_size(command, data, self._settings.entry_bytes_max)

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            self._chunks.touch(transaction, command.chunks)
            transaction.create(self._paths.entry_prefix, data, sequence=True)
            return transaction.commit_async()

        *touched, written = results = self._session.perform(start)
        if any(isinstance(each, NoAuthError) for each in results):
            raise self._session.denied()
        if any(isinstance(each, NoNodeError) for each in touched):
            raise ChunkGone(f"what {command.NAME} names was collected before; try again")
        if isinstance(written, Exception):
            raise written
        position = entry_position(written)
        assert position is not None
        return position


class ZooKeeperGroupLog(ZooKeeperLog):
    """The log of one incarnation of a peer group; dead for good once its session is lost."""

    def __init__(
        self,
        settings: Settings,
        group: GroupId,
        identity: int | None = None,
        certificates: CertificateFiles | None = None,
    ) -> None:
        super().__init__(settings, group, identity, certificates)
        self.group = group
        self.session_timeout_s = self._session.session_timeout_s
        self._pulses = Pulses(self._session, self._paths)
        self._queue = AppendQueue(group, settings.log)
        self._queue_lock = threading.Lock()
        self._listeners: list[Callable[[Session], None]] = []
        self._told_lost = False
        self._session.on_session(self._on_session)

    def register_pulse(self) -> None:
        """Create this incarnation's pulse; to be called before the first append."""
        self._pulses.register(self.group)

    def append(self, commands: Sequence[Command], parent: Position | None = None) -> None:
        """Enqueue for writing, in order, each exactly once in effect."""
        self._session.check()
        with self._queue_lock:
            self._transmit(self._queue.enqueue(commands, parent))

    def pulse_exists(self, group: GroupId) -> bool:
        """Whether the group's pulse is there now."""
        return self._pulses.exists(group)

    def watch_pulse(self, group: GroupId, gone: Callable[[GroupId], None]) -> None:
        """Call `gone` once when the pulse is deleted, or at once if it is not there."""
        self._pulses.watch(group, gone)

    def unwatch_pulse(self, group: GroupId) -> None:
        """Do not call `gone` any more."""
        self._pulses.unwatch(group)

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the log's thread."""
        self._session.loop.call(lambda: self._listeners.append(listener))

    def call(self, function: Callable[[], None]) -> None:
        """Run this on the log's thread: proves that the thread moves."""
        self._session.loop.call(function)

    def confirmed_s(self) -> float:
        """Monotonic time at which the server last confirmed the session (for the lease)."""
        return self._session.confirmed_s()

    def close(self) -> None:
        """Write what was enqueued (if that takes no longer than `CLOSE_FLUSH_S`), then leave."""
        deadline_s = time.monotonic() + CLOSE_FLUSH_S
        while len(self._queue) and time.monotonic() < deadline_s:
            time.sleep(_FLUSH_POLL_S)
        super().close()

    def _transmit(self, request: Append | None) -> None:
        if request is None:
            return

        def start(client: KazooClient) -> Any:
            transaction = client.transaction()
            if request.fence is not None:
                transaction.check(self._paths.pulse(request.fence), -1)
            self._chunks.touch(transaction, request.chunks)
            for payload in request.payloads:
                transaction.create(self._paths.entry_prefix, payload, sequence=True)
            return transaction.commit_async()

        self._session.send(start, lambda answer: self._on_answer(request, answer))

    def _on_answer(self, request: Append, answer: Any) -> None:
        attempt, reply = request.attempt, _reply(answer, len(request.payloads))
        if reply is Reply.UNKNOWN and isinstance(answer, list):
            denied = any(isinstance(result, NoAuthError) for result in answer)
            self._session.fail(self._session.denied() if denied else self._origins.recreated())
        with self._queue_lock:
            self._transmit(self._queue.on_reply(attempt, reply))
        if reply is Reply.PULSE_GONE:
            self._tell(Session.LOST)

    def _on_session(self, session: Session) -> None:
        with self._queue_lock:
            self._transmit(self._queue.on_session(session))
        self._tell(session)

    def _tell(self, session: Session) -> None:
        if self._told_lost:
            return
        self._told_lost = session is Session.LOST
        for listener in tuple(self._listeners):
            listener(session)


def _reply(answer: Any, entries: int) -> Reply:
    """What a transaction's answer means: a list of results, the last ones of the entries, or the
    exception of a break."""
    if not isinstance(answer, list):
        return Reply.UNKNOWN
    if any(isinstance(each, NoNodeError) for each in answer[: len(answer) - entries]):
        return Reply.PULSE_GONE
    failed = any(isinstance(result, Exception) for result in answer)
    return Reply.UNKNOWN if failed else Reply.WRITTEN
