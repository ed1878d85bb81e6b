"""What a task has followed of the values that are set while its job runs."""

from __future__ import annotations

import msgspec
from immutables import Map

from onyx.ids import TaskName
from onyx.model.changing import with_options
from onyx.model.job import Job
from onyx.replica.state import NOTHING, JobRun


class Followed(msgspec.Struct):
    """The values that a task works with, and by what it found its part of a limit."""

    manifest: Job
    """The job as it was submitted."""
    options: Map[TaskName, Map[str, int]] = NOTHING
    declared: str = ""
    limited_by: JobRun | None = None
    """The run by which the peer's part of the task's limit was found."""

    def has(self, run: JobRun) -> bool:
        """Whether these are the values of a run."""
        return run.options is self.options and run.declared == self.declared

    def take(self, run: JobRun) -> Job:
        """The job with the values that were set in a run."""
        self.options, self.declared, self.limited_by = run.options, run.declared, None
        return with_options(self.manifest, run.options, bool(run.declared))
