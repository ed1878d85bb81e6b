"""The seam between the engine and the log: what a peer group or a client asks of it.

`log/zookeeper` is the real one; tests have one in memory. Both pass the same contract tests.
Callbacks are called on a thread of the log, one at a time, in order, and must only enqueue.

Who follows the log is given nothing more once it has raised (`Reader`). Going on with the next
entry was rejected: a function that folds entries would go on with a wrong value. Giving the same
entry again was rejected too: the function may have done half of its work.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from onyx.errors import Unavailable
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.tenancy import Usage
from onyx.replica.command import Command, Entry
from onyx.reports.measures import ZooKeeperMeasures

logger = logging.getLogger("onyx.log")


class Session(enum.Enum):
    """What became of the session."""

    SUSPENDED = "suspended"
    """The connection is gone; whether the session lives is not known."""
    CONNECTED = "connected"
    """Connected, with the same session as before."""
    LOST = "lost"
    """The session has expired: this incarnation is dead."""


class Origin(msgspec.Struct, frozen=True):
    """A replica to start from instead of the first entry."""

    position: Position
    """Last entry that it contains; -1 for the empty log."""
    replica: bytes


class Document(msgspec.Struct, frozen=True):
    """A small versioned value beside the log (a frontier, a stored exception)."""

    data: bytes
    version: int


class ChunkGone(Unavailable):
    """A chunk that was to be named has been collected: put it again, then name it. Nothing was
    written."""


class LogReader(Protocol):
    """Reading, and what needs no incarnation."""

    @property
    def identity(self) -> int:
        """Distinguishes this log from one made anew under the same name. The next incarnation of
        the same process must find the same identity."""
        ...

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call this at every change of the session, on the log's thread."""
        ...

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        """Entries after a position, in order, at most `entries_max`."""
        ...

    def subscribe(
        self,
        after: Position,
        deliver: Callable[[Entry | Origin], None],
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> Callable[[], None]:
        """Deliver every entry after a position, in order, until the returned function is called.

        A reader that has fallen behind a garbage collection gets the origin first. When `deliver`
        raises, that ends the subscription, and `failed` is given the exception.
        """
        ...

    def origin(self, above: Position = NO_POSITION) -> Origin:
        """The origin, if its position is greater than `above`; else an empty one at -1."""
        ...

    def collect(self, origin: Origin) -> bool:
        """Start the log from a later replica and delete the entries that it contains.

        Idempotent. False when a later origin is there already.
        """
        ...

    def put_chunk(self, data: bytes, if_room: bool = False) -> str:
        """Store a document under its content address (SHA-256, hex). Idempotent.

        What nothing names is deleted after a while. An entry of the log that names a chunk keeps
        it, and a document that says so (`put_document`).

        Args:
            if_room: refuse it with NoRoom if the tenancy would hold too much. Without it, which is
                for what makes room and for what jobs have done, all is taken.
        """
        ...

    def usage(self) -> Usage:
        """What the tenancy holds, and what it may hold."""
        ...

    def get_chunk(self, digest: str) -> bytes:
        """Raises Unavailable when it is missing, StateError when it is not what it says."""
        ...

    def sweep_chunks(self, named: Callable[[], Collection[str]], age_s: float) -> int:
        """Delete the chunks that nothing names and nobody has put or named for a time; how many.

        Safe against whoever puts and names them meanwhile. `named` reads from this log what is
        named at the time of the call; it is called more than once.
        """
        ...

    def get_document(self, path: str) -> Document | None:
        """The document at `folder/name`; None if there is none."""
        ...

    def put_document(
        self, path: str, data: bytes, version: int | None, names: Sequence[str] = ()
    ) -> int | None:
        """Create (`version` None) or replace a document if its version is still `version`.

        Returns the new version, or None when somebody else was first. Of a group, fenced by its
        pulse: raises Fenced when the incarnation is dead. `names`: chunks that it names; raises
        ChunkGone when one has been collected.
        """
        ...

    def list_documents(self, folder: str) -> Sequence[str]:
        """Sorted names of the documents directly in a folder; empty when there is none."""
        ...

    def list_folders(self, folder: str) -> Sequence[str]:
        """Sorted names of the folders directly in a folder; empty when there is none."""
        ...

    def delete_documents(self, path: str) -> None:
        """Delete the document and those directly in the folder of this name. Idempotent. Of a
        group, fenced by its pulse as `put_document`."""
        ...

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """Write the cluster's parameters if nobody has; return those that hold."""
        ...

    def pulse_exists(self, group: GroupId) -> bool:
        """Whether the group's pulse is there now. Waits for the answer."""
        ...

    def claim(self, owner: str) -> str:
        """Write who has the tenancy if nobody has; return who it is."""
        ...

    def close(self) -> None:
        """End the session and the threads. Idempotent."""
        ...


class ClientLog(LogReader, Protocol):
    """A client's log: appends are idempotent by the ids in the command."""

    def append(self, command: Command, by: str = "") -> Position:
        """Write and wait until the entry is there; safe to repeat when in doubt. `by`: who does
        it, kept in the entry with the time.

        Raises ChunkGone when a chunk that the command names has been collected.
        """
        ...

    def begin_with(self, origin: Origin) -> bool:
        """Begin an empty log with a replica; the next entry comes behind its position. False, and
        nothing is written, if anything has ever been in the log. Idempotent.
        """
        ...

    def pass_on(self, former: str, owner: str) -> bool:
        """Give the tenancy to another owner; False if it is not the former one's any more."""
        ...

    def other_tenancies(self) -> list[str]:
        """The tenancies that share the ZooKeeper with this one, in order."""
        ...


class GroupLog(LogReader, Protocol):
    """The log of one incarnation of a peer group: every write is fenced by its pulse."""

    group: GroupId
    session_timeout_s: float
    """The time-out as negotiated with the server."""

    def register_pulse(self) -> None:
        """Create the ephemeral node that says this incarnation lives."""
        ...

    def append(self, commands: Sequence[Command], parent: Position | None = None) -> None:
        """Enqueue for writing, in order, each exactly once in effect. Does not wait.

        Raises Fenced when the session is lost, Unavailable when the queue is full. A chunk that a
        command names must have been put by this incarnation: if it has been collected since, the
        incarnation ends.
        """
        ...

    def watch_pulse(self, group: GroupId, gone: Callable[[GroupId], None]) -> None:
        """Call `gone` once when the pulse is deleted, or at once if it is not there."""
        ...

    def unwatch_pulse(self, group: GroupId) -> None:
        """Do not call `gone` any more. Idempotent."""
        ...

    def call(self, function: Callable[[], None]) -> None:
        """Run this on the log's thread: proves that the thread moves."""
        ...

    def traffic(self) -> ZooKeeperMeasures:
        """What has passed between this process and ZooKeeper, in this session. From any thread."""
        ...

    def confirmed_s(self) -> float:
        """Monotonic time at which the server last confirmed the session (for the lease)."""
        ...


class Reader:
    """One reader of the log. `give` belongs to the thread of the log."""

    def __init__(
        self,
        deliver: Callable[[Entry | Origin], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            deliver: is given each entry, and an origin that stands for entries that are gone.
            failed: is given, once, what `deliver` has raised.
        """
        self._deliver = deliver
        self._failed = failed
        self.stopped = False
        """The reader is given nothing more."""

    def give(self, item: Entry | Origin) -> None:
        """Give the reader the next entry."""
        if self.stopped:
            return
        try:
            self._deliver(item)
        except BaseException as error:  # a function that calls exit() must not end the log's thread
            self.stopped = True
            logger.exception(
                "%s, which follows the log, has raised at entry %d and is given no more entries: "
                "mend it, and follow the log again after position %d",
                getattr(self._deliver, "__qualname__", repr(self._deliver)),
                item.position,
                item.position - 1,
            )
            self._failed(error)

    def stop(self) -> None:
        """Give nothing more; a call that has begun is not waited for."""
        self.stopped = True
