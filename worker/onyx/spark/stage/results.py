"""Where a stage finds its parts and puts its result: a directory, or an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from onyx.ids import GroupId, JobId
from onyx.plugins.other_jobs import UpgradedJob
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest, StageRunner
from onyx.spark.stage import versions
from onyx.storage.staging.interface import PartStore


@dataclass(slots=True)
class Results:
    """Both, for one peer of one task."""

    context: PluginContext
    parts: PartStore
    """Where the peers of the task write what the stage reads."""
    parts_of: Callable[[PluginContext], PartStore]
    """The parts in the job of a context."""
    notes: versions.Notes
    run: Callable[[StageRequest, StageRunner, float], None]
    """Runs a stage and publishes its result."""
    _after: tuple[JobId, ...] = field(default=(), init=False)

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it."""
        self._after = versions.upgrade(self.notes, self.context.job, old)

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence the writers of the parts, also those of the old job: its peers may not know yet
        that it was killed."""
        self.parts.fence(live)
        for job in self._after[:1]:
            self.parts_of(replace(self.context, job=job)).fence(live)
