"""WIRE to RESUME, the phases of a new allocation version: channels, recovery, readiness, replay.

Every peer of the job passes through them, whether it moved or stayed. Invariant: before a peer
signals ready it has dropped the old channels and opened its inbox, so nothing of the new version
can reach it early. Inputs go on only when all are ready, so nothing of it is sent early either.
"""

from __future__ import annotations

from onyx.flow.groups.grouping import GroupChecks
from onyx.ids import TaskName
from onyx.model.workflow import ordered_parents, read_of
from onyx.replica.state import Replica
from onyx.task.acking.owners import Owners, RequestTrees
from onyx.task.acking.sender import AckSender
from onyx.task.batching import Filling
from onyx.task.channels.alignment import alignment
from onyx.task.channels.edges import Edges
from onyx.task.channels.event_time import EventTime, InputOrigin, needs
from onyx.task.channels.lookups import Lookups, Reads
from onyx.task.channels.outbox import Outbox
from onyx.task.channels.wiring import Wiring, sites_of, wire
from onyx.task.parts import Allocation, Runtime, TaskStatus, is_allocated, note_ready
from onyx.task.recovery import partitions
from onyx.task.recovery.output import not_dead_yet, recover_output
from onyx.task.recovery.state import recover_state
from onyx.task.table import ADVANCED, WAITING, Answer
from onyx.task.tables import tables_again
from onyx.task.task import BatchTask
from onyx.telemetry.catalog import QUEUE_CAPACITY
from onyx.transport.interface import Bounds


def take_wiring(task: BatchTask) -> Answer:
    """Join the newest version; an old inbox is closed with all that waits in it."""
    assignment, runtime = task.assignment, task.runtime
    if not is_allocated(assignment):
        return WAITING
    services, job = runtime.services, runtime.program.job
    replica = services.replica()
    wiring = wire(replica, runtime.job_id, job, assignment.peer, assignment.task)
    # This closes the old inbox before the new one is announced by `signal_ready`: what waits in it
    # is of the old version, and is replayed.
    task.allocate(_allocation(runtime, wiring, replica))
    if runtime.source is None or runtime.sink is not None:
        runtime.metrics.set(QUEUE_CAPACITY, services.settings.task.inbox_segments_max)
    runtime.program.event["slot_id"] = wiring.slot
    return ADVANCED


def _allocation(runtime: Runtime, wiring: Wiring, replica: Replica) -> Allocation:
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
            Bounds(settings.task.inbox_segments_max, settings.task.inbox_bytes_max),
            runtime.assignment.wake,
        ),
        filling=Filling(clock, runtime.program.entry.batch_timeout / 1000),
        ends=runtime.delivery.end_of_input(wiring, outbox, acks),
        group_checks=GroupChecks(runtime.program.routes.groupings, several),
        edges=_edges(runtime, wiring),
        event_time=_event_time(runtime, wiring, settings.ledger.frontier_interval_s),
        lookups=_lookups(runtime, wiring, replica),
        alignment=alignment(transport, wiring, runtime.program.job),
    )


def _edges(runtime: Runtime, wiring: Wiring) -> Edges | None:
    its = runtime.program.operator
    if its is None or not its.needs.inbox:
        return None
    parents = ordered_parents(runtime.program.job.workflow, runtime.task)
    return Edges([TaskName(each) for each in parents], wiring.upstream, runtime.clock)


def _lookups(runtime: Runtime, wiring: Wiring, replica: Replica) -> Lookups | None:
    program = runtime.program
    read, join, kept = read_of(program.job, program.entry), program.entry.join, program.kept
    if read is None or join is None or kept is None:
        return None
    sites = sites_of(replica, wiring.job, TaskName(read.task.name))
    reads = Reads(read.state, sites, join.durable)
    return Lookups(kept, reads, wiring, runtime.services.transport, runtime.clock)


def _event_time(runtime: Runtime, wiring: Wiring, epoch_interval_s: float) -> EventTime | None:
    needed, source = needs(runtime.program.job, wiring.task), runtime.source
    if needed is None:
        return None
    if source is None or runtime.sink is not None:
        return EventTime(needed, wiring.upstream)
    return EventTime(needed, (), InputOrigin(source.mark, source.frontiers, epoch_interval_s))


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
        done = done and recover_state(runtime, allocation)
    return ADVANCED if done else WAITING


def await_ready(runtime: Runtime, allocation: Allocation, status: TaskStatus) -> Answer:
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
    allocation.answering = RequestTrees(replica, runtime.job_id, runtime.program.job)
    return ADVANCED


def resume(runtime: Runtime, allocation: Allocation) -> Answer:
    """Open the partitions that are new here, then read again what was in flight."""
    source = runtime.source
    assert source is not None
    if not partitions.open_owned(runtime, allocation.wiring, source):
        return WAITING
    source.replay_pending()
    return ADVANCED
