"""RECOVER to RESUME, the phases of a new allocation version behind its wiring: recovery, readiness,
replay.
"""

from __future__ import annotations

from onyx.task.acking.owners import Owners
from onyx.task.acking.requested import Requested
from onyx.task.joining import note_ready
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Status
from onyx.task.recovery import partitions
from onyx.task.recovery.output import not_dead_yet, recover_output
from onyx.task.stateful.recover import recover_windows
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.tables import tables_again


def recover(runtime: Runtime, allocation: Allocation) -> Answer:
    """Take over from those who had this peer's part before, and fence off the dead."""
    source, sink = runtime.source, runtime.sink
    if not tables_again(runtime, allocation):
        return WAITING
    if source is not None:
        done = partitions.recover(runtime, allocation.wiring, source)
        # Both in each step, though one is not done: what they read is read side by side.
        if sink is not None:
            done = recover_output(runtime, allocation, sink) and done
    else:
        done = sink is None or recover_output(runtime, allocation, sink)
        done = done and recover_windows(runtime, allocation)
    return ADVANCED if done else WAITING


def await_ready(runtime: Runtime, allocation: Allocation, status: Status) -> Answer:
    """Wait until all peers of the job are ready. From then on the owners of partitions are known,
    and whatever the dead have committed is published: the rest is fenced off."""
    if not allocation.ready:
        return WAITING
    wiring = allocation.wiring
    # Only when all are ready, because each of them publishes first what it has found committed:
    # a fence would take the parts of the dead away before they are in their result.
    if allocation.committing is not None and runtime.sink is not None:
        runtime.sink.fence(not_dead_yet(runtime.assignment, wiring))
    if runtime.sink is not None:
        runtime.sink.lead(wiring.rank == 0)
    note_ready(runtime.assignment, status)
    replica = runtime.services.replica()
    allocation.owners = Owners(replica, runtime.job_id, wiring.sources)
    allocation.answering = Requested(replica, runtime.job_id, runtime.program.job)
    return ADVANCED


def resume(runtime: Runtime, allocation: Allocation) -> Answer:
    """Open the partitions that are new here, then read again what was in flight."""
    source = runtime.source
    assert source is not None
    if not partitions.open_owned(runtime, allocation.wiring, source):
        return WAITING
    source.replay_pending()
    return ADVANCED
