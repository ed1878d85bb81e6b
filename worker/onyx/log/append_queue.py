"""The entries that one incarnation of a group appends to the log: a pure state machine.

One transaction is in flight at a time. It carries all entries that waited when it was sent: it
checks that the pulse of this incarnation exists, and creates one sequential node for each entry.

Invariants:

* *Fenced.* The check and the writes are one transaction, so an incarnation that was declared dead
  writes nothing, however late its request arrives ("Fencing" in docs/architecture.md).
* *In order.* The next transaction is sent only after the reply to the last one. Several in flight
  were rejected: after a reconnect a client library may send a later one before we send the earlier
  one again. Throughput comes from the size of a transaction.
* *Once.* When a reply is lost, the entries may or may not be in the log. They are sent again, from
  the first one not acknowledged, once the *same* session is connected again. Entries carry
  `(writer, sequence)`, and a replica ignores those that it has applied.

When the session has expired or the pulse is gone, all entries are dropped: only a new incarnation
may write.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence

import msgspec

from onyx.codec.entries import AT_MS_MAX, encode_entry
from onyx.errors import Fenced, Unavailable, UserError
from onyx.ids import GroupId, Position
from onyx.log.interface import Session
from onyx.replica.command import Command
from onyx.settings import LogSettings

SEQUENCE_MAX = 2**63 - 1
"""The longest sequence number of a writer, for the size of an entry before it has one."""
BATCH_ENTRIES_MAX = 100
"""Entries of one transaction; beyond this throughput no longer grows."""
BATCH_BYTES_MAX = 524_288
"""Bytes of one transaction, well below the 1 MiB at which ZooKeeper drops the connection."""


class Reply(enum.Enum):
    """What became of a transaction."""

    WRITTEN = "written"
    UNKNOWN = "unknown"
    """The connection broke: it may have been written or not."""
    PULSE_GONE = "pulse-gone"
    """The check failed: nothing was written and this incarnation is dead. The same of a chunk that
    was collected before an entry could name it: a new incarnation puts it again."""


class Append(msgspec.Struct, frozen=True):
    """Request: one transaction, all or nothing."""

    attempt: int
    """To be given back with the reply; replies to earlier attempts are ignored."""
    fence: GroupId | None
    """Group whose pulse must exist."""
    payloads: tuple[bytes, ...]
    """Data of the sequential nodes to create, in order."""
    chunks: tuple[str, ...] = ()
    """Digests that these entries name, to be touched (`zookeeper/chunks`)."""


class AppendQueue:
    """The entries of one incarnation that are not yet known to be in the log.

    Every `on_...` and `enqueue` returns the request to send now, or None.
    """

    def __init__(self, group: GroupId, settings: LogSettings | None = None) -> None:
        self.group = group
        self.fenced = False
        self._settings = settings or LogSettings()
        self._unacknowledged: deque[tuple[bytes, tuple[str, ...]]] = deque()
        """Each with the chunks that it names."""
        self._sequence = 0
        self._attempt = 0
        self._under_way = 0
        """Entries of the transaction in flight."""
        self._connected = True

    def __len__(self) -> int:
        """Entries not yet known to be in the log."""
        return len(self._unacknowledged)

    def enqueue(
        self, commands: Sequence[Command], parent: Position | None = None, at_ms: int = 0
    ) -> Append | None:
        """Take commands for writing, all or none of them. `at_ms`: when they were decided.

        Raises:
            Fenced: this incarnation is dead.
            Unavailable: the queue is full; nothing was taken.
            UserError: a command is too large or cannot be encoded; nothing was taken.
        """
        if self.fenced:
            raise Fenced(f"group {self.group} lost its session and may not write to the log")
        limit = self._settings.append_queue_entries_max
        if len(self._unacknowledged) + len(commands) > limit:
            raise Unavailable(
                f"{len(self._unacknowledged)} entries wait to be written to the log and at most "
                f"{limit} may; the log is slow or cannot be reached"
            )
        payloads = [
            (self._encode(command, self._sequence + number, parent, at_ms), command.chunks)
            for number, command in enumerate(commands, start=1)
        ]
        # Only now, when all of them could be encoded: a command that is refused takes no number.
        self._sequence += len(payloads)
        self._unacknowledged.extend(payloads)
        return self._send()

    def on_reply(self, attempt: int, reply: Reply) -> Append | None:
        """The transaction of this attempt was answered, or its connection broke."""
        if self.fenced:
            return None
        # Before the attempt is compared: that the pulse is gone is true whichever attempt says so.
        if reply is Reply.PULSE_GONE:
            self._drop_everything()
        if attempt != self._attempt or self._under_way == 0:
            return None
        if reply is Reply.UNKNOWN:
            # Not sent again here: kazoo keeps requests for its next connection, which may be one of
            # another session. `on_session` sends it when this session is back.
            self._connected = False
            return None
        for _ in range(self._under_way):
            self._unacknowledged.popleft()
        self._under_way = 0
        return self._send()

    def on_session(self, session: Session) -> Append | None:
        """The session was suspended, is connected again, or is lost."""
        if session is Session.LOST:
            self._drop_everything()
            return None
        if session is Session.SUSPENDED:
            self._connected = False
            return None
        if self._connected:
            return None
        self._connected = True
        # What was under way is sent again from its first entry, with a new attempt: it is still at
        # the front of the queue, and a reply to the old attempt no longer counts.
        self._under_way = 0
        return self._send()

    def fence(self) -> GroupId | None:
        """The pulse that every transaction checks."""
        return self.group

    def _send(self) -> Append | None:
        if self.fenced or not self._connected or self._under_way or not self._unacknowledged:
            return None
        batch: list[bytes] = []
        chunks: dict[str, None] = {}
        size_bytes = 0
        for payload, named in self._unacknowledged:
            size_bytes += len(payload)
            if batch and (size_bytes > BATCH_BYTES_MAX or len(batch) == BATCH_ENTRIES_MAX):
                break
            batch.append(payload)
            chunks.update(dict.fromkeys(named))
        self._attempt += 1
        self._under_way = len(batch)
        return Append(self._attempt, self.fence(), tuple(batch), tuple(chunks))

    def _encode(
        self, command: Command, sequence: int, parent: Position | None, at_ms: int
    ) -> bytes:
        payload = encode_entry(command, self.group, sequence, parent, at_ms=at_ms)
        check_size(command, payload, self._settings.entry_bytes_max)
        return payload

    def _drop_everything(self) -> None:
        self.fenced = True
        self._unacknowledged.clear()
        self._under_way = 0


def check_command(command: Command, group: GroupId, entry_bytes_max: int) -> None:
    """Refuse a command that `enqueue` would refuse, whatever its sequence number will be.

    Raises:
        UserError: it is too large or cannot be encoded.
    """
    check_size(
        command, encode_entry(command, group, SEQUENCE_MAX, at_ms=AT_MS_MAX), entry_bytes_max
    )


def check_size(command: Command, payload: bytes, entry_bytes_max: int) -> None:
    """Refuse an entry that is too large, before it is sent: ZooKeeper would drop the connection.

    Raises:
        UserError: with the size and the limit.
    """
    if len(payload) > entry_bytes_max:
        raise UserError(
            f"command {command.NAME} takes {len(payload)} bytes and a log entry at most "
            f"{entry_bytes_max}; put large values into a chunk (`put_chunk`) and log its digest"
        )
