"""What a client asks of a local log: each request with its arguments and with what it does.

A request may come a second time, because the answer to the first was lost. Most change nothing
then. An entry of a client has a token, under which it is written once; entries of groups have
numbers, of which replicas take each once; and a document is its writer's if it has the version and
the content that were to be written.

What names chunks touches them in the transaction that writes it, so that a sweep, which deletes
only what has not been touched since it looked, leaves them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from onyx.errors import Fenced
from onyx.ids import GroupId
from onyx.log.interface import ChunkGone
from onyx.log.local.store import ENDING, Pulse, TenancyFile

ENTRIES_MAX, ENTRIES_BYTES_MAX = 1_000, 2_097_152
"""Entries of one answer; one more may go beyond the bytes."""
WAITS = object()
"""What is returned for a request that is answered later."""


class LogRequest(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """One request."""

    REPEATED: ClassVar[bool] = True
    """Whether the connection asks again after a break; else whoever has asked hears of it."""

    def apply(self, store: TenancyFile, session: int, again: bool) -> Any:
        """What it gives, or `WAITS`; nothing, of what is only to be answered.

        Args:
            store: what it reads and changes.
            session: of who asks.
            again: whether it may have been performed before.

        Raises:
            OnyxError: it is refused; nothing was changed.
        """
        return None


class Greeting(LogRequest, frozen=True):
    """The first request of each connection, which the server answers itself: with the identity of
    the log, and whether the pulse that the client had is still there."""

    protocol: int
    tenancy: str
    session: int
    """A random number; the same after a break."""
    timeout_s: float
    pulse: GroupId | None
    """The pulse that this session has registered."""


class Ping(LogRequest, frozen=True):
    """Who asks lives, and wants to know whether the server does."""

    REPEATED: ClassVar[bool] = False


class EndSession(LogRequest, frozen=True):
    """The session ends, and its pulse with it. It is the server that knows whose that is."""


class ForgetQuestion(LogRequest, frozen=True):
    """A question that waits needs no answer any more; the server knows it, as long as the
    connection is there."""

    REPEATED: ClassVar[bool] = False
    number: int


class RegisterPulse(LogRequest, frozen=True):
    """Say that an incarnation lives."""

    group: GroupId
    timeout_s: float

    def apply(self, store: TenancyFile, session: int, again: bool) -> None:
        """Create the pulse. Raises Fenced: another session has it."""
        found = store.pulses.get(self.group)
        if found is None:
            store.change("INSERT INTO pulse VALUES (?, ?, ?)", self.group, session, self.timeout_s)
            store.pulses[self.group] = Pulse(session, self.timeout_s)
        elif found.session != session:
            raise Fenced(f"group {self.group} has a pulse of another session")


class PulseExists(LogRequest, frozen=True):
    """Whether a group lives."""

    group: GroupId

    def apply(self, store: TenancyFile, session: int, again: bool) -> bool:
        """Whether its pulse is there."""
        return self.group in store.pulses


class AwaitPulseGone(LogRequest, frozen=True):
    """Answered when a pulse is not there (any more)."""

    group: GroupId

    def apply(self, store: TenancyFile, session: int, again: bool) -> Any:
        """Wait for it."""
        return WAITS if self.group in store.pulses else True


class AppendEntries(LogRequest, frozen=True):
    """Entries of a group, which its pulse fences. The queue of the group writes them again."""

    REPEATED: ClassVar[bool] = False
    fence: GroupId | None
    payloads: Sequence[bytes]
    chunks: Sequence[str]

    def apply(self, store: TenancyFile, session: int, again: bool) -> int:
        """Write them; the first position. Raises Fenced, ChunkGone."""
        if self.fence is not None:
            _check_pulse(store, self.fence, session)
        _touch(store, self.chunks)
        return store.append(self.payloads, None)


class AppendOnce(LogRequest, frozen=True):
    """The entry of a client."""

    payload: bytes
    chunks: Sequence[str]
    token: bytes

    def apply(self, store: TenancyFile, session: int, again: bool) -> int:
        """Write it if it is not there; its position. Raises ChunkGone."""
        # Also of what comes the first time: what was sent before a break may be read after what was
        # asked again.
        written = store.rows("SELECT position FROM entry WHERE token = ?", self.token)
        if written:
            return int(written[0][0])
        _touch(store, self.chunks)
        return store.append([self.payload], self.token)


class ReadEntries(LogRequest, frozen=True):
    """Entries after a position."""

    after: int
    entries_max: int

    def apply(self, store: TenancyFile, session: int, again: bool) -> list[tuple[int, bytes]]:
        """The first ones, to fit into an answer; none: there are no more."""
        return _entries(store, self.after, self.entries_max)


class FollowLog(LogRequest, frozen=True):
    """Answered when there are entries after a position, or an origin."""

    after: int

    def apply(self, store: TenancyFile, session: int, again: bool) -> Any:
        """The position of the origin and its replica, if the reader is behind it; entries."""
        replica = None
        if store.origin > self.after:
            replica = store.fact("replica")
        elif store.next <= self.after + 1:
            return WAITS
        after = max(self.after, store.origin)
        return store.origin, replica, _entries(store, after, ENTRIES_MAX)


class ReadOriginAbove(LogRequest, frozen=True):
    """The origin, if its position is greater."""

    position: int

    def apply(self, store: TenancyFile, session: int, again: bool) -> tuple[int, bytes] | None:
        """Position and replica."""
        return (store.origin, store.fact("replica")) if store.origin > self.position else None


class CollectThrough(LogRequest, frozen=True):
    """Start the log from a later replica."""

    position: int
    replica: bytes

    def apply(self, store: TenancyFile, session: int, again: bool) -> bool:
        """False when there is a later one."""
        return store.collect(self.position, self.replica)


class BeginLogWith(LogRequest, frozen=True):
    """Start an empty log from a replica."""

    position: int
    replica: bytes

    def apply(self, store: TenancyFile, session: int, again: bool) -> bool:
        """False when anything has ever been in it."""
        if store.next > 0:
            begun = (store.next, store.origin) == (self.position + 1, self.position)
            return begun and store.fact("replica") == self.replica
        return store.collect(self.position, self.replica)


class TouchChunk(LogRequest, frozen=True):
    """Somebody is about to name a chunk."""

    digest: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> bool:
        """Whether it is there."""
        return _touched(store, self.digest)


class PutChunk(LogRequest, frozen=True):
    """Store a chunk, or touch it."""

    digest: str
    data: bytes

    def apply(self, store: TenancyFile, session: int, again: bool) -> None:
        """Store it."""
        if not _touched(store, self.digest):
            store.change("INSERT INTO chunk VALUES (?, ?, 0, ?)", self.digest, self.data, _now_ms())


class GetChunk(LogRequest, frozen=True):
    """The content of a chunk."""

    digest: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> bytes | None:
        """What is stored; None if nothing is."""
        found = store.rows("SELECT data FROM chunk WHERE digest = ?", self.digest)
        return bytes(found[0][0]) if found else None


class UntouchedChunks(LogRequest, frozen=True):
    """Which chunks nobody has touched for a time."""

    age_s: float

    def apply(self, store: TenancyFile, session: int, again: bool) -> list[tuple[str, int]]:
        """Their digests, and how often they have been touched."""
        before_ms = _now_ms() - int(self.age_s * 1_000)
        return store.rows("SELECT digest, touches FROM chunk WHERE at_ms < ?", before_ms)


class DeleteChunks(LogRequest, frozen=True):
    """Delete chunks that have been touched no more often than this."""

    chunks: Sequence[tuple[str, int]]

    def apply(self, store: TenancyFile, session: int, again: bool) -> int:
        """How many went."""
        statement = "DELETE FROM chunk WHERE digest = ? AND touches = ?"
        return sum(store.change(statement, *each) for each in self.chunks)


class HeldBytes(LogRequest, frozen=True):
    """What the tenancy holds."""

    def apply(self, store: TenancyFile, session: int, again: bool) -> int:
        """The sum of entries, documents and chunks, the replica of the origin among them."""
        tables = " UNION ALL ".join(
            f"SELECT SUM(LENGTH({column})) AS bytes FROM {table}"  # noqa: S608
            for table, column in (
                ("entry", "data"), ("chunk", "data"), ("document", "data"), ("fact", "value"),
            )
        )  # fmt: skip
        return int(store.rows(f"SELECT SUM(bytes) FROM ({tables})")[0][0])  # noqa: S608


class GetDocument(LogRequest, frozen=True):
    """A document."""

    folder: str
    name: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> tuple[bytes, int] | None:
        """Content and version."""
        return _document(store, self.folder, self.name)


class PutDocument(LogRequest, frozen=True):
    """Create or replace a document, if it still has a version."""

    folder: str
    name: str
    data: bytes
    version: int | None
    chunks: Sequence[str]
    fence: GroupId | None

    def apply(self, store: TenancyFile, session: int, again: bool) -> int | None:
        """The new version; None: somebody else was first. Raises Fenced, ChunkGone."""
        if self.fence is not None:
            _check_pulse(store, self.fence, session)
        written = 0 if self.version is None else self.version + 1
        found = _document(store, self.folder, self.name)
        if again and found == (self.data, written):
            return written
        if self.version != (None if found is None else found[1]):
            return None
        _touch(store, self.chunks)
        store.change(
            "REPLACE INTO document VALUES (?, ?, ?, ?)", self.folder, self.name, self.data, written
        )
        return written


class DeleteDocuments(LogRequest, frozen=True):
    """Delete a document and those in the folder of its name."""

    folder: str
    name: str
    fence: GroupId | None

    def apply(self, store: TenancyFile, session: int, again: bool) -> None:
        """Delete them. Raises Fenced."""
        if self.fence is not None:
            _check_pulse(store, self.fence, session)
        below = f"{self.folder}/{self.name}" if self.folder else self.name
        store.change(
            "DELETE FROM document WHERE folder = ? OR (folder = ? AND name = ?)",
            below, self.folder, self.name,
        )  # fmt: skip


class ListDocuments(LogRequest, frozen=True):
    """What is directly in a folder."""

    folder: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> list[str]:
        """The names, sorted."""
        found = store.rows("SELECT name FROM document WHERE folder = ? ORDER BY 1", self.folder)
        return [name for (name,) in found]


class ListFolders(LogRequest, frozen=True):
    """The folders directly in a folder."""

    folder: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> list[str]:
        """The names, sorted."""
        prefix = f"{self.folder}/" if self.folder else ""
        found = store.rows(
            "SELECT DISTINCT folder FROM document WHERE SUBSTR(folder, 1, ?) = ?",
            len(prefix), prefix,
        )  # fmt: skip
        return sorted({folder[len(prefix) :].partition("/")[0] for (folder,) in found} - {""})


class SetFactOnce(LogRequest, frozen=True):
    """Set a single value if nobody has."""

    name: str
    value: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> str:
        """The one that holds."""
        found = store.fact(self.name)
        if found is None:
            store.set_fact(self.name, self.value)
        return self.value if found is None else str(found)


class ReplaceFact(LogRequest, frozen=True):
    """Replace a single value by another one."""

    name: str
    former: str
    value: str

    def apply(self, store: TenancyFile, session: int, again: bool) -> bool:
        """False: it was not the former one any more."""
        found = store.fact(self.name)
        if found == self.former:
            store.set_fact(self.name, self.value)
        return found == self.former or (again and found == self.value)


class ListTenancies(LogRequest, frozen=True):
    """The other tenancies in the folder."""

    def apply(self, store: TenancyFile, session: int, again: bool) -> list[str]:
        """Their names, sorted."""
        found = store.file.parent.glob(f"*{ENDING}")
        return sorted(each.stem for each in found if each != store.file)


AnyRequest = (
    Greeting | Ping | EndSession | ForgetQuestion | RegisterPulse | PulseExists | AwaitPulseGone
    | AppendEntries | AppendOnce | ReadEntries | FollowLog | ReadOriginAbove | CollectThrough
    | BeginLogWith | TouchChunk | PutChunk | GetChunk | UntouchedChunks | DeleteChunks | HeldBytes
    | GetDocument | PutDocument | DeleteDocuments | ListDocuments | ListFolders | SetFactOnce
    | ReplaceFact | ListTenancies
)  # fmt: skip


def _check_pulse(store: TenancyFile, group: GroupId, session: int) -> None:
    found = store.pulses.get(group)
    if found is None or found.session != session:
        raise Fenced(f"group {group} was declared dead and may not write to the log")


def _touch(store: TenancyFile, digests: Sequence[str]) -> None:
    """Raises ChunkGone before anything is changed."""
    for digest in digests:
        if not store.rows("SELECT 1 FROM chunk WHERE digest = ?", digest):
            raise ChunkGone(f"chunk {digest} was collected before; try again")
    for digest in digests:
        _touched(store, digest)


def _touched(store: TenancyFile, digest: str) -> bool:
    statement = "UPDATE chunk SET touches = touches + 1, at_ms = ? WHERE digest = ?"
    return store.change(statement, _now_ms(), digest) > 0


def _entries(store: TenancyFile, after: int, entries_max: int) -> list[tuple[int, bytes]]:
    found, size_bytes = [], 0
    statement = "SELECT position, data FROM entry WHERE position > ? ORDER BY position LIMIT ?"
    for position, data in store.each(statement, after, min(entries_max, ENTRIES_MAX)):
        found.append((position, data))
        size_bytes += len(data)
        if size_bytes > ENTRIES_BYTES_MAX:
            break
    return found


def _document(store: TenancyFile, folder: str, name: str) -> tuple[bytes, int] | None:
    statement = "SELECT data, version FROM document WHERE folder = ? AND name = ?"
    found: list[tuple[bytes, int]] = store.rows(statement, folder, name)
    return found[0] if found else None


def _now_ms() -> int:
    return int(time.time() * 1_000)
