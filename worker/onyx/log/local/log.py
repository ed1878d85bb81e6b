"""The log of one machine, as a client, or one incarnation of a group, has it.

Everything is a question to the server (`requests`) over one connection (`connection`). Any thread
may call; callbacks come on the loop of the connection. The file belongs to the server, so this side
keeps nothing but who reads, and the entries of a group that are on their way.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from onyx.base.path_names import path_of_names
from onyx.base.structs import stored
from onyx.codec.entries import decode_entry
from onyx.codec.packed import pack, unpack
from onyx.errors import Fenced, OnyxError, StateError, Unavailable, UserError
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.append_queue import Append, Reply
from onyx.log.appends import GroupAppends, entry_of_client
from onyx.log.interface import ChunkGone, Document, Origin, Reader, Session
from onyx.log.local import requests as to
from onyx.log.local.connection import LogConnection
from onyx.log.tenancy import Usage, check_owner
from onyx.replica.command import Command, Entry
from onyx.reports.measures import ZooKeeperMeasures
from onyx.settings import Settings

DOCUMENT = "the path of a document"
RETRY_S = 0.5
"""After so long what the server refused for want of space is tried again."""


class LocalLog:
    """Reading, documents and chunks.

    Args:
        settings: Uses `log`, `tenancy_id`, and the time-outs of `zookeeper`.
        fence: Group whose pulse writes must check; None for a client.
        identity: The log that this process knew before, from `identity` of a former object.

    Raises:
        Unavailable: nobody serves the log.
        TenancyTaken: the tenancy belongs to another owner than `tenancy_owner`.
        LogReplaced: the log was made anew; SettingsError: the folder is wrong.
    """

    def __init__(
        self, settings: Settings, fence: GroupId | None = None, identity: int | None = None
    ) -> None:
        self._settings = settings.log
        self._fence = fence
        self._connection = LogConnection(settings, fence, identity)
        try:
            check_owner(self, settings.tenancy_id, settings.tenancy_owner)
        except BaseException:
            self._connection.close()
            raise

    @property
    def identity(self) -> int:
        """Distinguishes this log from one made anew under the same name."""
        return self._connection.identity

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        """Entries after a position that are there now."""
        entries: list[Entry] = []
        while len(entries) < entries_max:
            found = self._ask(to.ReadEntries(after, entries_max - len(entries)))
            if not found:
                break
            entries += (decode_entry(Position(at), data) for at, data in found)
            after = entries[-1].position
        return entries

    def subscribe(
        self,
        after: Position,
        deliver: Callable[[Entry | Origin], None],
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> Callable[[], None]:
        """Follow the log; see the protocol."""
        self._connection.check()
        return LogFollower(self._connection, after, Reader(deliver, failed)).stop

    def origin(self, above: Position = NO_POSITION) -> Origin:
        """The origin, if its position is greater than `above`; else an empty one at -1."""
        found = self._ask(to.ReadOriginAbove(above))
        return Origin(NO_POSITION, b"") if found is None else _origin(*found)

    def collect(self, origin: Origin) -> bool:
        """Start the log from a later replica and delete the entries that it contains."""
        moved: bool = self._ask(to.CollectThrough(origin.position, pack(origin.replica)))
        return moved

    def put_chunk(self, data: bytes, if_room: bool = False) -> str:
        """Store a document under its content address (SHA-256, hex)."""
        digest = hashlib.sha256(data).hexdigest()
        if not self._ask(to.TouchChunk(digest)):
            packed = pack(data)
            if if_room:
                self.usage().check_bytes(len(packed))
            self._ask(to.PutChunk(digest, packed))
        return digest

    def usage(self) -> Usage:
        """What the tenancy holds, and what it may hold."""
        settings = self._settings
        return Usage(
            self._ask(to.HeldBytes()), settings.tenancy_bytes_max, settings.tenancy_jobs_max
        )

    def get_chunk(self, digest: str) -> bytes:
        """Raises Unavailable when it is missing, StateError when it is not what it says."""
        packed = self._ask(to.GetChunk(digest))
        if packed is None:
            raise Unavailable(f"chunk {digest} is not in the log")
        data = _unpacked(packed, f"chunk {digest}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise _damaged(f"chunk {digest}", "it holds something else than its name says")
        return data

    def sweep_chunks(self, named: Callable[[], Collection[str]], age_s: float) -> int:
        """Delete the chunks that nothing names and nobody has put or named for a time; how many."""
        old = self._ask(to.UntouchedChunks(age_s))
        kept = frozenset(named()) if old else frozenset()
        unnamed = [each for each in old if each[0] not in kept]
        return self._ask(to.DeleteChunks(unnamed)) if unnamed else 0

    def get_document(self, path: str) -> Document | None:
        """The document at `folder/name`; None if there is none."""
        found = self._ask(to.GetDocument(*_split(path)))
        return None if found is None else Document(*found)

    def put_document(
        self, path: str, data: bytes, version: int | None, names: Sequence[str] = ()
    ) -> int | None:
        """Create (`version` None) or replace a document if its version is still `version`."""
        if len(data) > self._settings.chunk_bytes_max:
            raise UserError(
                f"document {path} has {len(data)} bytes, at most {self._settings.chunk_bytes_max} "
                "are kept; put large values into a chunk (`put_chunk`)"
            )
        try:
            written: int | None = self._ask(
                to.PutDocument(*_split(path), bytes(data), version, tuple(names), self._fence)
            )
        except ChunkGone as error:
            raise ChunkGone(f"what document {path} names: {error}") from None
        return written

    def list_documents(self, folder: str) -> Sequence[str]:
        """Sorted names of the documents directly in a folder; empty when there is none."""
        found: list[str] = self._ask(to.ListDocuments(_folder(folder)))
        return found

    def list_folders(self, folder: str) -> Sequence[str]:
        """Sorted names of the folders directly in a folder; empty when there is none."""
        found: list[str] = self._ask(to.ListFolders(_folder(folder)))
        return found

    def delete_documents(self, path: str) -> None:
        """Delete the document and those directly in the folder of this name."""
        self._ask(to.DeleteDocuments(*_split(path), self._fence))

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """Write the cluster's parameters if nobody has; return those that hold."""
        data = msgspec.json.encode(dict(parameters)).decode()
        found = self._ask(to.SetFactOnce("parameters", data)).encode()
        remedy = "restore its folder from a copy, or delete it as a whole (this forgets all jobs)"
        held: dict[str, str] = stored(found, dict[str, str], "parameters of the log", remedy)
        return held

    def pulse_exists(self, group: GroupId) -> bool:
        """Whether the group's pulse is there now."""
        return bool(self._ask(to.PulseExists(group)))

    def claim(self, owner: str) -> str:
        """Write who has the tenancy if nobody has; return who it is."""
        return str(self._ask(to.SetFactOnce("owner", owner)))

    def close(self) -> None:
        """End the session and the threads."""
        self._connection.close()

    def _ask(self, request: to.AnyRequest) -> Any:
        return self._connection.perform(request)


class LocalClientLog(LocalLog):
    """The log of a client."""

    def append(self, command: Command, by: str = "") -> Position:
        """Write a command and wait; it is written once, however often it is asked for.

        Raises:
            UserError: it is too large or cannot be encoded.
            ChunkGone: a chunk that it names has been collected; nothing was written.
            Unavailable: no answer in time; it may have been written or not.
        """
        data = entry_of_client(command, by, self._settings)
        request = to.AppendOnce(data, tuple(command.chunks), secrets.token_bytes(16))
        try:
            return Position(self._ask(request))
        except ChunkGone as error:
            raise ChunkGone(f"what {command.NAME} names: {error}") from None

    def begin_with(self, origin: Origin) -> bool:
        """Begin an empty log with a replica; False if anything has ever been in it."""
        begun: bool = self._ask(to.BeginLogWith(origin.position, pack(origin.replica)))
        return begun

    def pass_on(self, former: str, owner: str) -> bool:
        """Give the tenancy to another owner; False if it is not the former one's any more."""
        passed: bool = self._ask(to.ReplaceFact("owner", former, owner))
        return passed

    def other_tenancies(self) -> list[str]:
        """The tenancies that are kept in the same folder, in order."""
        found: list[str] = self._ask(to.ListTenancies())
        return found

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the log's thread."""
        self._connection.listener = listener


class LocalGroupLog(LocalLog):
    """The log of one incarnation of a peer group; dead for good once its session is lost."""

    def __init__(self, settings: Settings, group: GroupId, identity: int | None = None) -> None:
        super().__init__(settings, group, identity)
        self.group = group
        self.session_timeout_s = self._connection.session_timeout_s
        self._watches: dict[GroupId, int] = {}
        """The questions for the end of pulses; touched on the loop only."""
        self._appends = GroupAppends(group, settings.log, self._connection.loop, self._start)
        self._connection.listener = self._appends.on_session

    def register_pulse(self) -> None:
        """Create this incarnation's pulse; to be called before the first append.

        Raises:
            Fenced: another session has a pulse of this name, so this incarnation is not new.
        """
        self._ask(to.RegisterPulse(self.group, self.session_timeout_s))
        self._connection.has_pulse = True

    def append(self, commands: Sequence[Command], parent: Position | None = None) -> None:
        """Enqueue for writing, in order, each exactly once in effect."""
        self._connection.check()
        self._appends.append(commands, parent)

    def watch_pulse(self, group: GroupId, gone: Callable[[GroupId], None]) -> None:
        """Call `gone` once when the pulse is deleted, or at once if it is not there."""

        def heard(answer: Any) -> None:
            if answer is True and self._watches.pop(group, None) is not None:
                gone(group)
            elif isinstance(answer, Unavailable):
                loop.later(RETRY_S, again)

        def again() -> None:
            if group in self._watches:
                begin()

        def begin() -> None:
            self._forget(group)
            self._watches[group] = self._connection.ask(
                to.AwaitPulseGone(group), lambda answer: loop.call(lambda: heard(answer))
            )

        loop = self._connection.loop
        loop.call(begin)

    def unwatch_pulse(self, group: GroupId) -> None:
        """Do not call `gone` any more."""
        self._connection.loop.call(lambda: self._forget(group))

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the log's thread."""
        self._appends.listen(listener)

    def call(self, function: Callable[[], None]) -> None:
        """Run this on the log's thread: proves that the thread moves."""
        self._connection.loop.call(function)

    def traffic(self) -> ZooKeeperMeasures:
        """What has passed between this process and the server, in this session."""
        return self._connection.traffic()

    def confirmed_s(self) -> float:
        """Monotonic time at which the server last confirmed the session (for the lease)."""
        return self._connection.confirmed_s()

    def close(self) -> None:
        """Write what was enqueued (if that does not take too long), then leave."""
        self._appends.flush()
        super().close()

    def _start(self, request: Append, answered: Callable[[Reply], None]) -> None:
        entries = to.AppendEntries(request.fence, request.payloads, request.chunks)

        def done(answer: Any) -> None:
            self._connection.loop.call(lambda: answered(_reply(answer)))
            if isinstance(answer, Unavailable):  # its disk is full
                self._connection.loop.later(RETRY_S, self._appends.send_again)

        self._connection.ask(entries, done)

    def _forget(self, group: GroupId) -> None:
        number = self._watches.pop(group, None)
        if number is not None:
            self._connection.forget(number)


class LogFollower:
    """One reader that follows the log from when it is made until `stop`. It asks for more when it
    has given what there was, so a slow reader holds nobody up and nothing piles up for it."""

    def __init__(self, connection: LogConnection, after: Position, reader: Reader) -> None:
        self._connection = connection
        self._position = after
        self._reader = reader
        self._number = 0
        self._ask()

    def stop(self) -> None:
        """Deliver nothing more; a delivery that has begun is not waited for."""
        self._reader.stop()
        self._connection.forget(self._number)

    def _ask(self) -> None:
        if not self._reader.stopped:
            loop = self._connection.loop
            self._number = self._connection.ask(
                to.FollowLog(self._position), lambda answer: loop.call(lambda: self._heard(answer))
            )

    def _heard(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            if isinstance(answer, Unavailable):  # for now, or the log was closed
                self._connection.loop.later(RETRY_S, self._ask)
            return
        at, replica, entries = answer
        if replica is not None:
            self._give(_origin(at, replica))
        for position, data in entries:
            self._give(decode_entry(Position(position), data))
        self._ask()

    def _give(self, item: Entry | Origin) -> None:
        self._position = item.position
        self._reader.give(item)


def _reply(answer: Any) -> Reply:
    if isinstance(answer, Fenced | ChunkGone):
        return Reply.PULSE_GONE
    return Reply.UNKNOWN if isinstance(answer, OnyxError) else Reply.WRITTEN


def _origin(position: int, replica: bytes) -> Origin:
    return Origin(Position(position), _unpacked(replica, "the replica that the log begins with"))


def _unpacked(packed: bytes, what: str) -> bytes:
    try:
        return unpack(packed)
    except ValueError as error:
        raise _damaged(what, str(error)) from None


def _damaged(what: str, why: str) -> StateError:
    return StateError(
        f"{what} in the log is damaged: {why}. Restore the folder of the log from a copy, or "
        "delete it as a whole (this forgets all jobs)"
    )


def _split(path: str) -> tuple[str, str]:
    *folders, name = path_of_names(path, DOCUMENT)
    return "/".join(folders), name


def _folder(folder: str) -> str:
    return "/".join(path_of_names(folder, DOCUMENT)) if folder else ""
