"""Keys of its entry that change while a task runs: it follows what the log says, batch by batch.

The values are in the newest replica of the process, so nobody has to be told: a task that begins
later, or that was busy for an hour, takes the same ones.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.task.batch_task import BatchTask
from onyx.task.parts.runtime import Runtime
from onyx.task.source.rate import part_of
from onyx.task.source.source import Source


def follow_options(task: BatchTask) -> None:
    """Take the values that were set since the last batch. A job that has ended has none, and
    nothing is done for it."""
    runtime = task.runtime
    run = runtime.assignment.latest_run()
    if runtime.followed.has(run) or not run.allocation:
        return
    job = runtime.followed.take(run)
    entry = job.entry(task.name)
    runtime.program.event.update(catalog=job.catalog, task_map=entry)
    task.load(replace(runtime, program=replace(runtime.program, job=job, entry=entry)))
    runtime.sizing.change(entry)
    if runtime.source is not None:
        runtime.source.change(entry)
    task.allocation.filling.timeout_s = entry.batch_timeout / 1000


def follow_limit(runtime: Runtime, source: Source) -> None:
    """Find the peer's part of the task's limit, again whenever the run of the job is another one:
    peers come and go, and partitions end."""
    run, followed = runtime.assignment.latest_run(), runtime.followed
    if run is followed.limited_by:
        return
    followed.limited_by = run
    most = runtime.program.entry.segments_per_second_max
    if most is None:
        source.limit(None)
        return
    registered = runtime.services.replica().partitions(runtime.job_id).get(runtime.task)
    numbers = range(0)
    if registered is not None:
        numbers = range(registered.first, registered.first + registered.count)
    source.limit(part_of(most, source.known, numbers, run.exhausted_partitions))
