"""WIRE to RESUME, the phases of a new allocation version: wiring, recovery, readiness, replay.

Every peer of the job passes through them, whether it moved or stayed. Invariant: before a peer
signals ready it has dropped the old channels and opened its inbox, so nothing of the new version
can reach it early. Inputs go on only when all are ready, so nothing of it is sent early either.
"""

from __future__ import annotations

from onyx.flow.groups.checks import GroupChecks
from onyx.flow.groups.keys import SHARDS
from onyx.ids import GroupId
from onyx.state.recovery import Recovered
from onyx.task.acking.owners import Owners
from onyx.task.acking.sender import AckSender
from onyx.task.batch_task import BatchTask
from onyx.task.channels.event_time import EventTime, Origin, needs
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring, commits, wire
from onyx.task.joining import is_allocated, note_ready
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Status
from onyx.task.recovery import carry_over, partitions
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.sink.exactly_once import Committing
from onyx.task.sink.sink import Sink
from onyx.task.source.batch_timeout import Filling
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.windowed.recover import recover_windows
from onyx.telemetry.catalog import QUEUE_CAPACITY


def take_wiring(task: BatchTask) -> Answer:
    """Join the newest version; an old inbox is closed with all that waits in it."""
    assignment, runtime = task.assignment, task.runtime
    if not is_allocated(assignment):
        return WAITING
    services, job = runtime.services, runtime.program.job
    wiring = wire(services.replica(), runtime.job_id, job, assignment.peer, assignment.task)
    task.allocate(_allocation(runtime, wiring))
    if runtime.source is None or runtime.sink is not None:
        runtime.metrics.set(QUEUE_CAPACITY, services.settings.task.inbox_segments_max)
    runtime.program.event["slot_id"] = wiring.slot
    return ADVANCED


def _allocation(runtime: Runtime, wiring: Wiring) -> Allocation:
    services, clock = runtime.services, runtime.clock
    transport, settings = services.transport, services.settings
    outbox = Outbox(transport, wiring)
    acks = AckSender(transport, wiring, clock, settings.ledger.ack_interval_s)
    several = {child.task for child in wiring.children if len(child.sites) > 1}
    return Allocation(
        wiring=wiring,
        outbox=outbox,
        acks=acks,
        inbox=transport.open_inbox(
            wiring.job,
            wiring.version,
            wiring.me.peer,
            settings.task.inbox_segments_max,
            runtime.assignment.wake,
        ),
        filling=Filling(clock, runtime.program.entry.batch_timeout / 1000),
        ends=runtime.delivery.end_of_input(wiring, outbox, acks),
        group_checks=GroupChecks(runtime.program.groupings, several),
        event_time=_event_time(runtime, wiring, settings.ledger.frontier_interval_s),
    )


def _event_time(runtime: Runtime, wiring: Wiring, epoch_interval_s: float) -> EventTime | None:
    needed, source = needs(runtime.program.job, wiring.task), runtime.source
    if needed is None:
        return None
    if source is None or runtime.sink is not None:
        return EventTime(needed, wiring.upstream)
    return EventTime(needed, (), Origin(source.mark, source.frontiers, epoch_interval_s))


def recover(runtime: Runtime, allocation: Allocation) -> Answer:
    """Take over from those who had this peer's part before, and fence off the dead."""
    source, sink = runtime.source, runtime.sink
    if source is not None:
        done = partitions.recover(runtime, allocation.wiring, source)
        if sink is not None:
            done = _recover_output(runtime, allocation, sink) and done
    else:
        done = sink is None or _recover_output(runtime, allocation, sink)
        done = done and recover_windows(runtime, allocation)
    return ADVANCED if done else WAITING


def _recover_output(runtime: Runtime, allocation: Allocation, sink: Sink) -> bool:
    if not carry_over.upgraded(runtime):
        return False
    if sink.transactional and commits(runtime.program.job, runtime.task):
        return _recover_commits(runtime, allocation, sink)
    sink.rewire(_not_dead_yet(runtime.assignment, allocation.wiring))
    return True


def _recover_commits(runtime: Runtime, allocation: Allocation, sink: Sink) -> bool:
    """Take over from those who wrote before: publish what they have committed, and begin."""

    def finished(recovered: Recovered) -> Committing:
        for token in carry_over.last_tokens(recovered.shards.values()):
            sink.finish(token)
        return Committing(recovered, sink)

    if allocation.wiring.rank >= SHARDS:
        return True
    if not carry_over.may_carry_over(runtime.assignment):
        return False
    allocation.committing = recovered_state(
        runtime,
        allocation.wiring,
        shards_of_rank(allocation.wiring, SHARDS),
        carry_over.carry_over_written(runtime),
        finished,
    )
    if allocation.committing is None:
        return False
    allocation.committing.begin()
    return True


def await_ready(runtime: Runtime, allocation: Allocation, status: Status) -> Answer:
    """Wait until all peers of the job are ready. From then on the owners of partitions are known,
    and whatever the dead have committed is published: the rest is fenced off."""
    if not allocation.ready:
        return WAITING
    wiring = allocation.wiring
    if allocation.committing is not None and runtime.sink is not None:
        runtime.sink.fence(_not_dead_yet(runtime.assignment, wiring))
    if runtime.sink is not None:
        runtime.sink.lead(wiring.rank == 0)
    note_ready(runtime.assignment, status)
    allocation.owners = Owners(runtime.services.replica(), runtime.job_id, wiring.sources)
    return ADVANCED


def _not_dead_yet(assignment: Assignment, wiring: Wiring) -> list[GroupId]:
    """Groups that are there, and those that were when this version began: what one of these has
    committed since is found by those who take over from it, in the next version."""
    return sorted({*wiring.groups, *assignment.services.replica().groups})


def resume(runtime: Runtime, allocation: Allocation) -> Answer:
    """Open the partitions that are new here, then read again what was in flight."""
    source = runtime.source
    assert source is not None
    if not partitions.open_owned(runtime, allocation.wiring, source):
        return WAITING
    source.replay_pending()
    return ADVANCED
