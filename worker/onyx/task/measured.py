"""What a task lets others see of how it gets on: its parts, and where those read.

A task of a peer is one part. The driver of a job on Spark has as many as the job has tasks, none of
which has peers. Whoever measures (`peer.work.measuring`) reads this on a thread of its own, so
nothing here waits for the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from onyx.ids import TaskName
from onyx.plugins.protocol import Behind, Cursor
from onyx.reports.measures import StateMeasures
from onyx.telemetry.tallies import BatchTally


class OpenPartition(msgspec.Struct, frozen=True):
    """How far a partition is that has not ended."""

    name: str
    position: int
    """Everything before it is processed."""
    cursor: Cursor
    """What is stored of it, at or before the position."""
    in_flight: int = 0
    ended: bool = False
    """Whether nothing is left of it but what is in flight."""
    newest_ms: int | None = None
    """The latest event time that was read."""


class PartSource(Protocol):
    """Where a part reads."""

    @property
    def in_flight(self) -> int:
        """Segments that were read and are not processed."""
        ...

    @property
    def completed(self) -> int:
        """Segments that are processed, since this process reads it."""
        ...

    @property
    def retried(self) -> int:
        """Segments that were read again, since this process reads it."""
        ...

    @property
    def has_end(self) -> bool:
        """Whether it ends some day, as its plugin and options say."""
        ...

    @property
    def done(self) -> int:
        """Positions of all its partitions, ended ones too, before which everything is processed."""
        ...

    @property
    def tasks(self) -> int | None:
        """Tasks of Spark that are known of so far, of which `done` says how many are done; None: it
        counts segments."""
        ...

    @property
    def unknown(self) -> str:
        """Why nobody can know now how far it is; empty if somebody can."""
        ...

    @property
    def behind(self) -> Callable[[Mapping[str, Cursor]], Mapping[str, Behind]] | None:
        """Asks the source (`protocol.MeasuredInput`), and may block; None: it does not say."""
        ...

    def oldest_open_s(self, now_s: float) -> float | None:
        """Since when the oldest segment in flight was read first; None if there is none."""
        ...

    def opened(self) -> Sequence[OpenPartition]:
        """The partitions that have not ended."""
        ...


class MeasuredPart(msgspec.Struct, frozen=True):
    """A task of a job, as far as a peer works on it."""

    name: TaskName
    tally: BatchTally | None
    """What it has counted; None before it counts."""
    source: PartSource | None = None
    """There for an input, and a stage in the middle."""
    of_query: bool = False
    """Whether a query on Spark works on it. Such a part counts once a micro-batch, so its rates are
    over a longer time, and nobody knows how much of its time it works."""
    counted: bool = True
    """Whether it counts as it goes on, and not only when it has ended."""
    state: StateMeasures | None = None
    """What a query keeps; peers are asked. So it is with the following."""
    watermark_ms: int | None = None
    sent: Mapping[TaskName, int] = {}
    """Segments by the child that they went to, as far as that is known."""
