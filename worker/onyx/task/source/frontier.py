"""How far a partition is complete, as a small versioned document beside the log.

Not in the log, which is for coordination. Every write is conditional on the version last seen and
fenced by the writer's pulse, so a zombie cannot move a frontier.

The document also says how far anybody may have read (`reserved`), and is written before that is
read. A job that is drained ends exactly there: whatever a peer that died had sent is sent again,
and nothing that was never read.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future

import msgspec
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.errors import Unavailable
from onyx.ids import JobId, TaskName
from onyx.log import documents
from onyx.log.documents import decoded
from onyx.log.interface import Document
from onyx.plugins.protocol import START, Cursor
from onyx.task.services import Services

CONFLICTS_MAX = 5


@prepared
class Frontier(msgspec.Struct, frozen=True):
    """What is remembered of a partition."""

    position: int
    """Lowest position that is not complete; nothing below it is ever replayed."""
    cursor: Cursor = START
    """From where to read again: at or before `position`."""
    exhausted: bool = False
    """Everything has been read and is complete."""
    reserved: int = 0
    """Nobody has ever sent a segment at this position or a later one."""
    come_to_ms: int | None = None
    """Where event time had come, if it follows the clock in a lull: what gave it may be complete,
    and is then not read again."""
    newest_ms: int | None = None
    """The greatest event time of all that was read, and perhaps of what is read again."""
    sent: int = 0
    """The position behind the last one that its owner has sent: at rest it is `position`."""


BEGIN = Frontier(0)
"""The frontier of a partition that nobody has read."""


def stored_cursors(services: Services, job: JobId, task: TaskName) -> list[Cursor]:
    """Where the partitions of a task are read again from, at the earliest; empty before they are
    registered. Blocks.

    Raises:
        Unavailable: ZooKeeper does not answer.
    """
    known = services.replica().partitions(job).get(task)
    if known is None:
        return []
    numbers = range(known.first, known.first + known.count)
    return [FrontierStore(services, job, number).load().cursor for number in numbers]


def newest_of(services: Services, job: JobId, tasks: Collection[TaskName]) -> int | None:
    """The greatest event time that inputs have read, as far as that is stored; None: nobody has
    stored one. Blocks.

    Raises:
        Unavailable: ZooKeeper does not answer.
    """
    partitions = services.replica().partitions(job)
    known = [partitions[task] for task in tasks if task in partitions]
    numbers = [number for each in known for number in range(each.first, each.first + each.count)]
    found = [FrontierStore(services, job, number).load().newest_ms for number in numbers]
    return max((each for each in found if each is not None), default=None)


class FrontierStore:
    """Loads and saves the frontier of one partition; saves in the background, one at a time."""

    def __init__(self, services: Services, job: JobId, partition: int) -> None:
        self._services = services
        self._job = job
        self._path = documents.frontier(job, partition)
        self._version: int | None = None
        self._saving: Future[None] | None = None
        self._wanted = BEGIN
        """What is being saved, or was last."""
        self._saved: Frontier | None = None

    @property
    def reserved(self) -> int:
        """Positions below this may be sent, whichever of the last two saves is the one stored."""
        saved = self._saved.reserved if self._saved is not None else 0
        return min(saved, self._wanted.reserved)

    @property
    def position(self) -> int:
        """Whoever takes over the partition begins here or later."""
        return self._saved.position if self._saved is not None else 0

    @property
    def cursor(self) -> Cursor:
        """The cursor that is stored: from any thread."""
        return START if self._saved is None else self._saved.cursor

    @property
    def exhausted(self) -> bool:
        """Whether all is read and complete, as it is stored: from any thread."""
        return self._saved is not None and self._saved.exhausted

    @property
    def stored(self) -> bool:
        """Whether there is one, as far as is known."""
        return self._saved is not None

    def begin(self, frontier: Frontier) -> None:
        """Store the first one. Blocks."""
        self._wanted = frontier
        self._save(frontier)

    def load(self) -> Frontier:
        """The stored frontier, or the beginning when there is none. Blocks.

        Raises:
            StateError: what is stored is something else.
            Unavailable: ZooKeeper does not answer.
        """
        document = self._services.log.get_document(self._path)
        if document is None:
            return BEGIN
        self._version = document.version
        self._saved = self._wanted = self._decoded(document)
        return self._saved

    def save(self, frontier: Frontier) -> bool:
        """Begin to save, unless a save is running or nothing changed; True when it is stored."""
        if self._saving is not None:
            if not self._saving.done():
                return False
            saving, self._saving = self._saving, None
            saving.result()
        if self._saved == frontier:
            return True
        self._wanted = frontier
        self._saving = self._services.background(lambda: self._save(frontier))
        return False

    def _decoded(self, document: Document) -> Frontier:
        found: Frontier = decoded(self._job, self._path, document.data, Frontier)
        return found

    def _save(self, frontier: Frontier) -> None:
        stored = frontier
        for _ in range(CONFLICTS_MAX):
            data = msgspec.json.encode(stored)
            version = self._services.log.put_document(self._path, data, self._version)
            if version is not None:
                self._version, self._saved = version, frontier
                return
            # The last save of the partition's former owner came late. Both are true lower bounds of
            # what is complete, and the higher reservation is one of what nobody has sent.
            found = self._services.log.get_document(self._path)
            self._version = found.version if found else None
            if found is not None:
                before = self._decoded(found)
                stored = replace(frontier, reserved=max(frontier.reserved, before.reserved))
        raise Unavailable(f"frontier {self._path} keeps changing: another peer writes it too")
