"""What is known of segments in whose processing worker processes have died.

A process that dies inside user code puts the segments of its batch under suspicion; who gets one of
them works on it alone. So the next death is of one segment, and counts against it. What a death
outside user code, or a kill from outside, concerns is never here.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.ids import JobId, TaskName
from onyx.replica.state import JobRun, Replica, Run

SUSPECT_RUNS_MAX = 256
"""Of one task; the newest stay."""
COUNTED_MAX = 1_000
"""Of one job; those beyond are not counted any more."""
REPORTS_KEPT_MAX = 64
"""Of one job, to know one that comes again."""


def key_of(task: TaskName, partition: int, position: int, id: str) -> str:
    """Under which losses of one segment are counted."""
    return f"{partition}:{position} {id} {task}"


def suspects(run: JobRun, task: TaskName) -> tuple[Run, ...]:
    """Runs of positions that are to be worked on one by one, of a job that runs."""
    return run.suspects.get(task, ()) if run.suspects else ()


def counted(replica: Replica, job: JobId, key: str) -> int:
    """How often a process has died over a segment, or (`key` is a task) over none of a task."""
    return replica.run(job).losses.get(key, 0)


def is_suspect(runs: Sequence[Run], partition: int, position: int) -> bool:
    """Whether a position lies in one of the runs."""
    return any(run[0] == partition and run[1] <= position <= run[2] for run in runs)
