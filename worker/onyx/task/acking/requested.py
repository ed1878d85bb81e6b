"""Which trees begin with a request: those of inputs that take requests, and those that a task with
state begins for what such inputs alone have given it.

What a window emits belongs to no request, and what several kinds of inputs have given cannot be
separated behind a state: there a failure ends the job, as it does without requests.
"""

from __future__ import annotations

import numpy as np

from onyx.base.runs import Numbers, array_of
from onyx.flow.batch import Mask
from onyx.ids import JobId, TaskName
from onyx.ledger.lineage import PARTITION_SHIFT, partitions_of
from onyx.model.job import Job
from onyx.model.requests import requested_tasks
from onyx.replica.state import Replica


class Requested:
    """Made when the job is ready, so every partition is registered. Implements
    `program.answering.Answering`."""

    def __init__(self, replica: Replica, job_id: JobId, job: Job) -> None:
        registered = replica.partitions(job_id)
        self._at_once: dict[int, bool] = {}
        """By the number of a partition whose trees are of requests."""
        for task, at_once in requested_tasks(job).items():
            its = registered.get(TaskName(task))
            if its is not None:
                self._at_once |= dict.fromkeys(range(its.first, its.first + its.count), at_once)
        self._numbers = np.array(sorted(self._at_once), dtype=np.uint64)
        self.any = bool(self._at_once)

    def among(self, roots: Numbers) -> Mask:
        """Which of these roots are of requests."""
        found: Mask = np.isin(partitions_of(array_of(roots)), self._numbers)
        return found

    def at_once(self, root: int) -> bool:
        """Whether the first failure of a segment is its last (`onFailure: answer`)."""
        return self._at_once.get(root >> PARTITION_SHIFT, False)
