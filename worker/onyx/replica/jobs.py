"""Changes of jobs that several commands share: how one ends, and who seals its outputs."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from onyx.ids import JobId, PeerId, Position, TaskName
from onyx.replica.members import without
from onyx.replica.state import Replica


def allocated(replica: Replica, job: JobId) -> tuple[PeerId, ...]:
    """All peers of a job, by task and within it in order."""
    tasks = replica.allocations.get(job)
    if tasks is None:
        return ()
    return tuple(peer for task in sorted(tasks) for peer in tasks[task])


def end(replica: Replica, job: JobId) -> Replica:
    """What belongs to a run of the job goes; what it was submitted with stays until gc."""
    peers = allocated(replica, job)
    state = replica.peer_state
    for peer in peers:
        state = state.set(peer, "idle")
    return replace(
        replica,
        jobs=tuple(each for each in replica.jobs if each != job),
        allocations=without(replica.allocations, job),
        task_slot_ids=without(replica.task_slot_ids, job),
        allocation_version=without(replica.allocation_version, job),
        ready=without(replica.ready, *peers),
        peer_state=state,
        partitions=without(replica.partitions, job),
        exhausted_partitions=without(replica.exhausted_partitions, job),
        exhausted_inputs=without(replica.exhausted_inputs, job),
        sealed_outputs=without(replica.sealed_outputs, job),
        sealers=without(replica.sealers, job),
    )


def is_exhausted(replica: Replica, job: JobId) -> bool:
    """Whether every input task of a running job is exhausted."""
    inputs = replica.input_tasks.get(job, ())
    done = replica.exhausted_inputs.get(job)
    return bool(inputs) and done is not None and all(task in done for task in inputs)


def elect_sealers(replica: Replica, position: Position) -> Replica:
    """One peer of each output task that is not sealed, once all inputs are exhausted.

    A peer that was elected stays so while it is on the task; otherwise the one at
    `position mod count` of the sorted peers takes over.
    """
    sealers = replica.sealers
    for job in replica.jobs:
        elected = _elect(replica, job, position) if is_exhausted(replica, job) else None
        if elected:
            sealers = sealers.set(job, elected)
        else:
            sealers = without(sealers, job)
    return replica if sealers == replica.sealers else replace(replica, sealers=sealers)


def _elect(replica: Replica, job: JobId, position: Position) -> Map[TaskName, PeerId]:
    before: Map[TaskName, PeerId] = replica.sealers.get(job, Map())
    sealed = replica.sealed_outputs.get(job, Map())
    elected: Map[TaskName, PeerId] = Map()
    for task in replica.output_tasks.get(job, ()):
        peers = sorted(replica.allocations.get(job, Map()).get(task, ()))
        if task in sealed or not peers:
            continue
        keep = before.get(task)
        chosen = keep if keep is not None and keep in peers else peers[position % len(peers)]
        elected = elected.set(task, chosen)
    return elected
