"""The log in memory: the twin of ZooKeeper's, for tests and for jobs inside one process.

A `MemoryLog` opens sessions for groups and clients. Appends go through the same `AppendQueue` and
entries through the same codec as with ZooKeeper, so what is refused there is refused here. Sessions
are expired (the pulse goes, the group hears LOST), suspended and resumed (the group neither writes
nor hears in between) by the test and never by time.

Rejected: mocking ZooKeeper's client. This twin passes the same contract tests as the real log; a
mock does only what its author remembered.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from tests.support.log.memory_log_store import MemoryStore

from onyx.codec.entries import decode_entry, encode_entry
from onyx.codec.packed import pack
from onyx.errors import Fenced, StateError, Unavailable, UserError
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.append_queue import Append, AppendQueue, Reply, check_size
from onyx.log.interface import ChunkGone, Document, Origin, Reader, Session
from onyx.log.loop import Loop
from onyx.log.paths import Paths
from onyx.log.tenancy import Usage
from onyx.replica.command import Command, Entry
from onyx.reports.measures import ZooKeeperMeasures
from onyx.settings import LogSettings

Deliver = Callable[[Entry | Origin], None]
_SESSION_TIMEOUT_S = 6.0


class MemoryLog:
    """A log in memory: opens sessions, and does to them what a server or network would."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self._store = MemoryStore(settings or LogSettings())
        self._groups: dict[GroupId, MemoryGroupLog] = {}

    def group(self, group: GroupId) -> MemoryGroupLog:
        """Open a session for an incarnation of a group."""
        with self._store.lock:
            self._groups[group] = MemoryGroupLog(self._store, group)
            return self._groups[group]

    def client(self) -> MemoryClientLog:
        """Open a session for a client."""
        return MemoryClientLog(self._store)

    def expire(self, group: GroupId) -> None:
        """End the session of a group as the server does: its pulse goes and it hears LOST."""
        with self._store.lock:
            self._store.drop_pulse(group)
            self._groups[group].lose()

    def suspend(self, group: GroupId) -> None:
        """Break the connection of a group; its session and pulse stay."""
        with self._store.lock:
            self._groups[group].set_connected(False)

    def resume(self, group: GroupId) -> None:
        """Connect a suspended group again, with the same session."""
        with self._store.lock:
            self._groups[group].set_connected(True)

    def append_raw(self, data: bytes) -> Position:
        """Put any bytes into the log, as somebody with ZooKeeper's own tools could."""
        written = self._store.write([data], fence=None)
        assert written is not None
        return written[0]


class _Subscription:
    """One subscription: its place and whom to tell."""

    def __init__(self, position: Position, reader: Reader) -> None:
        self.position = position
        self.reader = reader


class MemorySession:
    """Reading, documents and chunks: what groups and clients have in common."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._connected = True
        self._closed = False
        self._subscriptions: list[_Subscription] = []
        self._loop = Loop("onyx-log-memory")
        with store.lock:
            store.sessions.append(self)

    @property
    def identity(self) -> int:
        return id(self._store)

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        with self._serving() as store:
            wanted = sorted(p for p in store.entries if p > after)[:entries_max]
            return [decode_entry(p, store.entries[p]) for p in wanted]

    def subscribe(
        self,
        after: Position,
        deliver: Deliver,
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> Callable[[], None]:
        reader = Reader(deliver, failed)
        with self._serving():
            self._subscriptions.append(_Subscription(after, reader))
            self.look()
        return reader.stop

    def origin(self, above: Position = NO_POSITION) -> Origin:
        with self._serving() as store:
            return store.origin if store.origin.position > above else Origin(NO_POSITION, b"")

    def collect(self, origin: Origin) -> bool:
        with self._serving() as store:
            return store.collect(origin)

    def put_chunk(self, data: bytes, if_room: bool = False) -> str:
        digest = hashlib.sha256(data).hexdigest()
        with self._serving() as store:
            if if_room and digest not in store.chunks:
                self.usage().check_bytes(len(pack(data)))
            store.chunks[digest] = bytes(data)
            store.touch([digest])
        return digest

    def usage(self) -> Usage:
        with self._serving() as store:
            limits = store.settings
            return Usage(store.bytes(), limits.tenancy_bytes_max, limits.tenancy_jobs_max)

    def sweep_chunks(self, named: Callable[[], Collection[str]], age_s: float) -> int:
        with self._serving() as store:
            before_s = time.monotonic() - age_s
            old = {each: at for each, at in store.touched_s.items() if at <= before_s}
            kept = named()
            gone = [e for e in old if e not in kept and store.touched_s[e] == old[e]]
            for digest in gone:
                del store.chunks[digest], store.touched_s[digest]
            return len(gone)

    def get_chunk(self, digest: str) -> bytes:
        with self._serving() as store:
            if digest not in store.chunks:
                raise Unavailable(f"chunk {digest} is not in the log")
            data = store.chunks[digest]
        if hashlib.sha256(data).hexdigest() != digest:
            raise StateError(f"chunk {digest} in the log is damaged: it holds other content")
        return data

    def get_document(self, path: str) -> Document | None:
        with self._serving() as store:
            return store.documents.get(_checked(path))

    def put_document(
        self, path: str, data: bytes, version: int | None, names: Sequence[str] = ()
    ) -> int | None:
        with self._serving() as store:
            self._check_fence()
            if len(data) > store.settings.chunk_bytes_max:
                raise UserError(
                    f"document {path} has {len(data)} bytes, at most "
                    f"{store.settings.chunk_bytes_max} are kept"
                )
            present = store.documents.get(_checked(path))
            if version != (None if present is None else present.version):
                return None
            if not store.touch(names):
                raise ChunkGone(f"what document {path} names was collected before; try again")
            written = 0 if version is None else version + 1
            store.documents[path] = Document(bytes(data), written)
            return written

    def list_documents(self, folder: str) -> Sequence[str]:
        with self._serving() as store:
            split = [path.rpartition("/") for path in store.documents]
            return sorted(name for parent, _, name in split if parent == folder)

    def list_folders(self, folder: str) -> Sequence[str]:
        prefix = f"{folder}/" if folder else ""
        with self._serving() as store:
            below = [each[len(prefix) :] for each in store.documents if each.startswith(prefix)]
            return sorted({name for name, slash, _ in (b.partition("/") for b in below) if slash})

    def delete_documents(self, path: str) -> None:
        with self._serving() as store:
            self._check_fence()
            for each in list(store.documents):
                if each == _checked(path) or each.rpartition("/")[0] == path:
                    del store.documents[each]

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        with self._serving() as store:
            if store.parameters is None:
                store.parameters = dict(parameters)
            return dict(store.parameters)

    def claim(self, owner: str) -> str:
        with self._serving() as store:
            store.owner = store.owner or owner
            return store.owner

    def close(self) -> None:
        with self._store.lock:
            if not self._closed:
                self._closed = True
                self._store.forget(self)
        self._loop.stop()

    def look(self) -> None:
        """Something changed (called under the lock): give the readers what is new, on the loop."""
        if self._connected and not self._closed:
            for each in tuple(self._subscriptions):
                if each.reader.stopped:
                    self._subscriptions.remove(each)
                else:
                    self._loop.call(partial(self._deliver, each))

    def _deliver(self, subscription: _Subscription) -> None:
        reader = subscription.reader
        while not reader.stopped and (item := self._next(subscription.position)) is not None:
            subscription.position = item.position
            reader.give(item)

    def _next(self, position: Position) -> Entry | Origin | None:
        with self._store.lock:
            if not self._connected or self._closed:
                return None
            if self._store.origin.position > position:
                return self._store.origin
            following = Position(position + 1)
            data = self._store.entries.get(following)
            return None if data is None else decode_entry(following, data)

    def pulse_exists(self, group: GroupId) -> bool:
        with self._serving() as store:
            return group in store.pulses

    @contextmanager
    def _serving(self) -> Iterator[MemoryStore]:
        """The store under its lock, if this session may be served."""
        with self._store.lock:
            self._check()
            yield self._store

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("the log was closed")
        if not self._connected:
            raise Unavailable("the log cannot be reached")

    def _check_fence(self) -> None:
        """Clients are not fenced."""


class MemoryClientLog(MemorySession):
    """The log of a client."""

    def append(self, command: Command, by: str = "") -> Position:
        data = encode_entry(command, by=by, at_ms=1 if by else 0)
        check_size(command, data, self._store.settings.entry_bytes_max)
        with self._serving() as store:
            if not store.touch(command.chunks):
                raise ChunkGone(f"what {command.NAME} names was collected before; try again")
            written = store.write([data], fence=None)
        assert written is not None
        return written[0]

    def begin_with(self, origin: Origin) -> bool:
        with self._serving() as store:
            return store.begin_with(origin)

    def pass_on(self, former: str, owner: str) -> bool:
        with self._serving() as store:
            is_theirs = store.owner == former
            store.owner = owner if is_theirs else store.owner
            return is_theirs

    def other_tenancies(self) -> list[str]:
        return ["elsewhere", "test"]

    def on_session(self, listener: Callable[[Session], None]) -> None:
        pass  # it never changes


class MemoryGroupLog(MemorySession):
    """The log of one incarnation of a peer group."""

    def __init__(self, store: MemoryStore, group: GroupId) -> None:
        super().__init__(store)
        self.group = group
        self.session_timeout_s = _SESSION_TIMEOUT_S
        self._queue = AppendQueue(group, store.settings)
        self._watched: dict[GroupId, Callable[[GroupId], None]] = {}
        self._listeners: list[Callable[[Session], None]] = []
        self._lost = False
        self._confirmed_s = time.monotonic()

    def register_pulse(self) -> None:
        with self._serving() as store:
            if store.pulses.setdefault(self.group, self) is not self:
                raise Fenced(f"group {self.group} has a pulse of another session")

    def append(self, commands: Sequence[Command], parent: Position | None = None) -> None:
        with self._store.lock:
            if self._closed:
                raise Unavailable("the log was closed")
            self._transmit(self._queue.enqueue(commands, parent))

    def watch_pulse(self, group: GroupId, gone: Callable[[GroupId], None]) -> None:
        with self._store.lock:
            self._watched[group] = gone
            self.look()

    def unwatch_pulse(self, group: GroupId) -> None:
        with self._store.lock:
            self._watched.pop(group, None)

    def on_session(self, listener: Callable[[Session], None]) -> None:
        with self._store.lock:
            self._listeners.append(listener)

    def call(self, function: Callable[[], None]) -> None:
        self._loop.call(function)

    def traffic(self) -> ZooKeeperMeasures:
        return ZooKeeperMeasures()

    def confirmed_s(self) -> float:
        with self._store.lock:
            if self._connected and not self._lost:
                self._confirmed_s = time.monotonic()
            return self._confirmed_s

    def close(self) -> None:
        super().close()
        with self._store.lock:
            if self._store.pulses.get(self.group) is self:
                self._store.drop_pulse(self.group)

    def lose(self) -> None:
        """The session expired (called under the lock)."""
        if not self._lost:
            self._lost = True
            self._queue.on_session(Session.LOST)
            self._tell(Session.LOST)

    def set_connected(self, connected: bool) -> None:
        """The connection broke or came back (called under the lock)."""
        if connected == self._connected or self._lost:
            return
        self._connected = connected
        session = Session.CONNECTED if connected else Session.SUSPENDED
        self._tell(session)
        self._transmit(self._queue.on_session(session))
        self.look()

    def look(self) -> None:
        super().look()
        if self._connected and not self._closed:
            for group in sorted(set(self._watched) - set(self._store.pulses)):
                self._loop.call(partial(self._report_gone, group))

    def _report_gone(self, group: GroupId) -> None:
        with self._store.lock:
            listener = self._watched.pop(group, None)
        if listener is not None:
            listener(group)

    def _transmit(self, request: Append | None) -> None:
        while request is not None:
            there = self._store.touch(request.chunks)
            written = self._store.write(request.payloads, request.fence) if there else None
            reply = Reply.PULSE_GONE if written is None else Reply.WRITTEN
            request = self._queue.on_reply(request.attempt, reply)
            if reply is Reply.PULSE_GONE:
                self.lose()

    def _tell(self, session: Session) -> None:
        for listener in tuple(self._listeners):
            self._loop.call(partial(listener, session))

    def _check(self) -> None:
        if self._lost:
            raise Fenced(f"the session of group {self.group} has expired")
        super()._check()

    def _check_fence(self) -> None:
        if self.group not in self._store.pulses:
            raise Fenced(f"group {self.group} was declared dead and may not write documents")


def _checked(path: str) -> str:
    """The path, if it may name a document."""
    Paths("memory").document(path)
    return path
