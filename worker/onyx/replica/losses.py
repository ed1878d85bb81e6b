"""What is known of segments in whose processing worker processes have died.

A process that dies inside user code puts the segments of its batch under suspicion; who gets one of
them works on it alone. So the next death is of one segment. That one is guilty, and then all deaths
count against it, those over batches that it was in as well. A segment that was in such batches and
has never been alone in a death is innocent, however many there were. What a death outside user
code, or a kill from outside, concerns is never here.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.ids import JobId, TaskName
from onyx.replica.state import Replica, SuspectRun

SUSPECT_RUNS_MAX = 256
"""Runs of suspects of one task; the newest stay."""
COUNTED_MAX = 1_000
"""Losses counted of one job; those beyond are not counted any more."""
REPORTS_KEPT_MAX = 64
"""Reports kept of one job, to know one that comes again."""


def key_of(task: TaskName, partition: int, position: int, id: str) -> str:
    """Under which losses of one segment are counted."""
    return f"{partition}:{position} {id} {task}"


def over_task(replica: Replica, job: JobId, task: TaskName) -> int:
    """How often a process has died in code of a task over no segment."""
    return replica.run(job).losses.get(task, 0)


def over_segment(
    replica: Replica, job: JobId, task: TaskName, partition: int, position: int, id: str
) -> int:
    """How many processes have died with a segment in user code, if one of them had nothing else
    there; 0 otherwise: then it may only have been near."""
    run = replica.run(job)
    alone = run.losses.get(key_of(task, partition, position, id), 0)
    if not alone:
        return 0
    return alone + sum(
        deaths
        for number, first, last, deaths in run.suspects_of(task)
        if number == partition and first <= position <= last
    )


def with_suspects(
    known: Sequence[SuspectRun], found: Sequence[SuspectRun], alone: bool
) -> tuple[SuspectRun, ...]:
    """The runs of suspects after another death, the newest at most `SUSPECT_RUNS_MAX`.

    Args:
        found: runs that were in user code, without deaths.
        alone: it was one segment and nothing else, which is counted by itself.
    """
    deaths = {run[:3]: run[3] for run in known}
    for run in found:
        deaths[tuple(run)] = deaths.get(tuple(run), 0) + (not alone)
    assert all(count >= 0 for count in deaths.values()), "nobody comes back to life"
    return tuple((*run, count) for run, count in deaths.items())[-SUSPECT_RUNS_MAX:]
