"""The program of a task, and what a peer needs to run it."""

from __future__ import annotations

from msgspec import field

from onyx.program.program import Program
from onyx.task.batching.sizing import BatchSizing
from onyx.task.channels.combining import Combiners
from onyx.task.delivery.policy import Delivery
from onyx.task.parts.assignment import Assigned, Registration
from onyx.task.parts.followed import Followed
from onyx.task.parts.tables import TaskTables
from onyx.task.seal_progress import LatestProgress
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.telemetry.interface import TaskMetrics


class Runtime(Assigned, frozen=True):
    """A task as a peer runs it."""

    program: Program
    delivery: Delivery
    sizing: BatchSizing
    """How many segments a batch may have."""
    followed: Followed
    source: Source | None = None
    sink: Sink | None = None
    tables: TaskTables | None = None
    """What the task looks up; None: nothing."""
    combiners: Combiners = field(default_factory=dict)
    """Fold what is sent to children whose windows are combined."""
    registration: Registration = field(default_factory=Registration)
    seal_progress: LatestProgress = field(default_factory=LatestProgress)

    @property
    def metrics(self) -> TaskMetrics:
        """Where the task reports what it does."""
        return self.program.metrics
