"""A task that works on batches: inputs, functions, outputs and stages of Spark."""

from __future__ import annotations

from onyx.ids import AllocationVersion
from onyx.program.phases import Phase
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.task import Task

_HALF_APPLIED = (Phase.AFTER_APPLY_FN, Phase.ROUTE, Phase.ASSIGN_WINDOWS)


class BatchTask(Task):
    """Plain attributes: each phase of each batch asks for them."""

    runtime: Runtime
    """What it runs; there when `loaded`."""
    allocation: Allocation
    """What belongs to its allocation version; there when `wired`. Set by `allocate`."""

    def load(self, runtime: Runtime) -> None:
        """Take what the task runs, as far as it is known."""
        self.runtime = runtime
        self.job, self.metrics = runtime.program.job, runtime.metrics

    def allocate(self, allocation: Allocation) -> None:
        """Take this allocation in the place of the last one, whose inbox is closed."""
        if self.wired:
            self.allocation.inbox.close()
        self.allocation = allocation

    @property
    def half_applied(self) -> bool:
        """Whether a function with state or a processor has worked on the batch, and the changes
        have still to be accounted for."""
        return self.phase in _HALF_APPLIED

    @property
    def cooperative(self) -> bool:
        """Whether its steps never block: known once the plugin is built."""
        return bool(self.runtime.program.event["cooperative"])

    @property
    def loaded(self) -> bool:
        """Whether the job is loaded."""
        return hasattr(self, "runtime")

    @property
    def wired(self) -> bool:
        """Whether the task has taken a wiring (and so has built its plugin)."""
        return hasattr(self, "allocation")

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        return self.allocation.wiring.version if self.wired else None
