"""The plugin protocol: how Onyx reads from and writes to the world.

A plugin is a function that takes a `PluginContext` and returns an `Input` or an `Output`. Built-in
ones have short names (`files`, `generator`, ...); a user's own is named `package.module:name`.

Inputs are replayable: positions are dense within a partition and the same each time it is read, so
a segment that was lost downstream is read again from the source and nothing is held in memory.
Outputs tell how much of what they were given is durable; only that is acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from onyx.flow.batch import Segment
from onyx.ids import GroupId, JobId, PeerId, Slot, TaskName
from onyx.seams import Clock


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin may know about where it runs."""

    job: JobId
    job_name: str
    task: TaskName
    peer: PeerId
    slot: Slot
    incarnation: GroupId
    """New for every start of the process; names of unfinished work carry it (`Output.fence`)."""
    options: Mapping[str, Any]
    """`options` of the catalog entry."""
    batch_size: int
    clock: Clock
    resolve: Callable[[str], Callable[..., Any]]
    """`package.module:name` to a registered function; raises NameNotRegistered."""
    permitted: Callable[[], bool] = lambda: True
    """False while this incarnation may have been declared dead: publish nothing then."""
    wanted: Callable[[], bool] = lambda: True
    """False once the task has been told to stop: give up then what takes longer than a moment.
    From any thread."""
    data_dir: str = ""
    """Where relative paths count from; empty means the current folder."""

    @property
    def where(self) -> str:
        """Job and task as errors name them: `job 'flights', task 'read'`."""
        return f"job {self.job_name!r}, task {self.task!r}"

    def located(self, path: str) -> str:
        """Where a path that a job names is on this worker. URLs stay as they are, but
        `file:///path`, which is a path."""
        path = path.removeprefix("file://") if path.startswith("file:///") else path
        return path if "://" in path else os.path.join(self.data_dir, path)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place from which a partition can be read again: at or before a position."""

    position: int
    state: Any = None
    """JSON value of the plugin's own (a byte offset), kept beside the frontier."""


START = Cursor(0)


@runtime_checkable
class Reader(Protocol):
    """An open partition."""

    def read(self, segments_max: int) -> list[Segment]:
        """The next segments, at most `segments_max`; empty when there is none now. Their positions
        follow on from the position at which the reader was opened."""
        ...

    def exhausted(self) -> bool:
        """True once everything has been read and nothing will ever follow."""
        ...

    def cursor(self, position: int) -> Cursor:
        """The nearest known place at or before `position`. Never asked for less afterwards, so
        older ones may be forgotten."""
        ...

    def close(self) -> None:
        """Release the partition; nothing is read afterwards."""
        ...


@runtime_checkable
class Input(Protocol):
    """A source."""

    cooperative: bool
    """True if `read` never blocks; otherwise the task gets a thread of its own."""

    # One that has `examined = True` gives only segments that can travel (`codec.kinds`), and these
    # are not looked at once more.

    def partitions(self) -> Sequence[str]:
        """Names of the source's partitions, the same on every peer. Asked once a job: the first
        peer's answer is registered through the log and holds for all."""
        ...

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader whose next segment is at `cursor.position`. Also used to read again, beside an
        open reader, what has to be replayed."""
        ...

    def close(self) -> None:
        """Leave the task; all readers are closed by then."""
        ...


Token = Mapping[str, Any]
"""Plain data from which anybody can make visible what was committed under it."""
Commit = Callable[[Token, int], None]
"""Called with a token and how many segments it stands for, in the order of writing. Once it has
returned these segments count as written, whatever becomes of the writer."""


@runtime_checkable
class TransactionalOutput(Protocol):
    """What an output has besides so that nothing it writes is ever there twice (exactly-once)."""

    def begin(self, commit: Commit) -> None:
        """A new allocation version: drop what was not committed, it will be written again. From now
        on `commit` is called before anything becomes visible. It may raise Unavailable (try again
        later, with the same token) and Fenced (others have taken over)."""
        ...

    def finish(self, token: Token) -> None:
        """Make visible what this writer or another one has committed. Idempotent, and safe when
        several do it at once. Raises like `write`."""
        ...


@dataclass(frozen=True, slots=True)
class UpgradedJob:
    """The old job that a job upgrades."""

    job: JobId
    began: bool
    """Whether it has read segments, so that its outputs may have written."""


@runtime_checkable
class OneResultOutput(Protocol):
    """What an output has besides if it makes one result of the parts of all versions of a job
    (`spec.upgrade`)."""

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it. `old` returns the old job,
        or None where this output begins anew. Call it only while nothing is recorded yet, because
        `onyx gc` forgets jobs that have ended. Idempotent, and safe when several peers do it at
        once. Raises like `write`."""
        ...


@runtime_checkable
class Output(Protocol):
    """A sink."""

    cooperative: bool
    """True if no method blocks; otherwise the task gets a thread of its own."""

    def write(self, segments: list[Segment]) -> None:
        """Take segments; they may stay in memory or in an unfinished part for now."""
        ...

    def durable(self) -> int:
        """How many of the segments ever written to this instance will be found after a crash of
        the process and the loss of the machine's memory. Never goes back."""
        ...

    def flush(self) -> None:
        """Make durable what was written, now if possible."""
        ...

    def tick(self) -> None:
        """Called between batches and when idle: roll by time."""
        ...

    def fence(self, live: Sequence[GroupId]) -> None:
        """The allocation changed. `live` are the incarnations that may still publish: make it
        impossible for any other to make unfinished work of this task visible."""
        ...

    def seal(self) -> None:
        """All input of the job has been processed and is durable. Called on one elected peer of
        the task before the job completes, and again on another if that one dies: idempotent."""
        ...

    def close(self) -> None:
        """Leave the task. What is not durable yet may be dropped: it will be replayed."""
        ...
