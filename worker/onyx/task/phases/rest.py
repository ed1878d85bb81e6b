"""A paused job comes to rest (`replica/commands/pause_job`): what its tasks do about that.

Inputs read nothing new, and outputs are asked to make durable what they hold. Timers and event time
go on until all sources above a task are at rest, and then stand still: else a task that had said so
could emit again, and one whose timers are always due would never say it.
"""

from __future__ import annotations

from onyx.ids import TaskName
from onyx.replica.commands.pause_job import SignalRest
from onyx.task.parts import Allocation, Runtime
from onyx.transport.interface import FLUSH


def follow_pause(runtime: Runtime, allocation: Allocation) -> None:
    """Pause, or go on, as the log has it now."""
    run, source = runtime.assignment.latest_run(), runtime.source
    if source is not None and (source.paused or run.is_paused):
        source.paused = run.is_paused
        for partition in source.partitions.values():  # some may have been opened since
            partition.pause(source.paused)
    operator = runtime.program.operator
    above = () if operator is None else operator.fed_by
    allocation.rests = run.is_paused and all(run.has_rested(TaskName(each)) for each in above)


def signal_rest(runtime: Runtime, allocation: Allocation) -> None:
    """Say so once, when nothing of a source is in flight any more."""
    source, keeper = runtime.source, allocation.keeper
    paused = runtime.assignment.latest_run().paused
    if not allocation.rests or allocation.rest_signalled == paused:
        return
    if source is None and keeper is None:
        return
    if keeper is not None and keeper.emissions.wants_flush(ends=True):
        allocation.outbox.broadcast(FLUSH)
    partitions = () if source is None else source.partitions.values()
    rest = [each.come_to_rest() for each in partitions]  # each of them, so that all save at once
    if all(rest) and (keeper is None or keeper.come_to_rest()):
        allocation.rest_signalled = paused
        me, version = runtime.assignment.peer, allocation.wiring.version
        runtime.assignment.propose(
            SignalRest(runtime.job_id, runtime.task, version, paused, peers=(me,))
        )
