"""What a replica says of its jobs: whether they are known and how they ended, how they end, what
people call them, and which partitions the peers of an input read.

**Partitions.** A peer reads a run of them, by the order of slots. If the runs cannot be equal, the
first ones have one more. Neighbours stay together, as the original has it for Kafka, so that
somebody who knows the number of a peer knows what it reads.

**Names.** A job is named by its id, by the name in the manifest, or by the beginning of an id. An
id counts first, then a name, then the beginning of ids: so what a job is called never depends on
the random ids of others. Of several jobs of one name those that run are meant; of those that have
ended, the one that ended last. Commands and requests share the rule, so a text that `onyx jobs`
takes is one that `onyx append` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec.structs import replace

from onyx.ids import JobId, PeerId, Position, TaskName
from onyx.replica.members import without
from onyx.replica.state import NOTHING, Replica


def is_collected(replica: Replica, job: JobId) -> bool:
    """Whether nobody needs the state of a job any more, so that a worker removes it."""
    record = replica.records.get(job)
    return record is None or (job in replica.completed_jobs and not record.spec.followed)


def is_known(replica: Replica, job: JobId) -> bool:
    """Whether the id is taken: the job runs, or it is remembered how it ended."""
    return job in replica.jobs or has_completed(replica, job) is not None


def has_completed(replica: Replica, job: JobId) -> bool | None:
    """How a job ended, also of one that was collected: True if it completed, False if it was
    killed; None when it runs or nobody knows it."""
    if job in replica.completed_jobs or job in replica.completed_before:
        return True
    return False if job in replica.killed_jobs or job in replica.killed_before else None


def runs(replica: Replica, job: JobId) -> bool:
    """Whether a job has been submitted and has not ended."""
    record = replica.records.get(job)
    return record is not None and record.run is not None


def in_place_of(replica: Replica, job: JobId) -> JobId | None:
    """The job itself, if it runs; or one that goes on with its journals; None: nobody does."""
    line = {job}
    while line:
        running = sorted(each for each in line if runs(replica, each))
        if running:
            return running[0]
        line = {each for old in line for each in upgraded_by(replica, old)}
    return None


def upgraded_by(replica: Replica, job: JobId) -> tuple[JobId, ...]:
    """The jobs that are known and carry over the state of a job, by their ids."""
    records = replica.records.items()
    return tuple(sorted(each for each, record in records if record.upgrades == job))


def listed_jobs(replica: Replica) -> list[JobId]:
    """The jobs that somebody has submitted, or killed before: those that run, in the order of
    submission, then those that have ended. What was loaded from savepoints is state of others."""
    known = (*replica.jobs, *replica.completed_jobs, *replica.killed_jobs)
    return [each for each in known if replica.loaded(each) is None]


def ended_last(replica: Replica, jobs_max: int) -> list[JobId]:
    """Jobs that have ended and are not forgotten, the last ones first."""
    ended = [
        each
        for each, record in replica.records.items()
        if record.run is None and record.loaded is None
    ]
    return sorted(ended, key=lambda each: -replica.records[each].ended)[:jobs_max]


def kill(replica: Replica, job: JobId) -> Replica:
    """The job is killed; its partitions stay, for a job that upgrades it needs them."""
    return replace(_stop(replica, job), killed_jobs=(*replica.killed_jobs, job))


def kill_by_flux(replica: Replica, leaving: Iterable[PeerId]) -> Replica:
    """Kill the jobs that lose a peer on a task of flux policy `kill`."""
    for peer in leaving:
        mine = assignment(replica, peer)
        if mine is not None:
            job, task = mine
            if replica.spec(job).by_name[task].flux_policy == "kill":
                replica = kill(replica, job)
    return replica


def complete(replica: Replica, job: JobId) -> Replica:
    """The job is complete; its partitions go, for nothing is left to carry over."""
    record = replace(replica.records[job], partitions=NOTHING)
    stopped = _stop(replace(replica, records=replica.records.set(job, record)), job)
    return replace(stopped, completed_jobs=(*replica.completed_jobs, job))


def forget(replica: Replica, jobs: Iterable[JobId]) -> Replica:
    """Everything about jobs that have ended, but their ids in the tuples."""
    jobs = frozenset(jobs)
    assert jobs.isdisjoint(replica.jobs), "what runs is not forgotten"
    return replace(replica, records=without(replica.records, *jobs))


def input_partitions(replica: Replica, job: JobId) -> list[int]:
    """Numbers of the partitions that inputs read; those of windowed tasks are not among them."""
    registered = replica.partitions(job)
    inputs = [registered[task] for task in replica.spec(job).inputs if task in registered]
    return [n for each in inputs for n in range(each.first, each.first + each.count)]


def restless(replica: Replica, job: JobId) -> tuple[TaskName, ...]:
    """The sources of a paused job that have not said that they are at rest."""
    run = replica.run(job)
    return tuple(task for task in replica.spec(job).sources if not run.has_rested(task))


def exhaust(replica: Replica, job: JobId, source: TaskName) -> Replica:
    """A source of a running job is exhausted. Without outputs left to seal, the job is complete
    when all its sources are."""
    run = replica.run(job)
    exhausted = run.exhausted_inputs.set(source, None)
    replica = replica.with_run(job, replace(run, exhausted_inputs=exhausted))
    left = any(task not in run.sealed_outputs for task in replica.spec(job).outputs)
    ends = not left and all_exhausted(replica, job)
    return complete(replica, job) if ends else replica


def all_exhausted(replica: Replica, job: JobId) -> bool:
    """Whether a running job has read and completed all that its sources have."""
    exhausted = replica.run(job).exhausted_inputs
    return all(task in exhausted for task in replica.spec(job).sources)


def may_seal(replica: Replica, job: JobId, output: TaskName) -> bool:
    """Whether all has ended that an output of a running job is fed by."""
    exhausted = replica.run(job).exhausted_inputs
    fed_by = replica.spec(job).by_name[output].fed_by or replica.spec(job).sources
    return all(task in exhausted for task in fed_by)


def assignment(replica: Replica, peer: PeerId) -> tuple[JobId, TaskName] | None:
    """The job and task that a peer is allocated to."""
    for job in replica.jobs:
        for task, peers in replica.run(job).allocation.items():
            if peer in peers:
                return job, task
    return None


def _stop(replica: Replica, job: JobId) -> Replica:
    records = replica.records
    assert job not in replica.completed_jobs, "a job ends once"
    assert job not in replica.killed_jobs, "a job ends once"
    if job in records:
        ended = Position(replica.version + 1)
        records = records.set(job, replace(records[job], run=None, ended=ended))
    return replace(
        replica, records=records, jobs=tuple(each for each in replica.jobs if each != job)
    )


def partitions_of(rank: int, partitions: int, peers: int) -> range:
    """The partitions, from 0 on, of the peer with this number among the peers of the task."""
    each, more = divmod(partitions, peers)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


def rank_of(partition: int, partitions: int, peers: int) -> int:
    """The number of the peer that reads a partition."""
    assert 0 <= partition < partitions, "partitions are numbered from 0 on"
    each, more = divmod(partitions, peers)
    longer = more * (each + 1)
    if partition < longer:
        return partition // (each + 1)
    return more + (partition - longer) // each


ENDED_MAX = 100
"""Jobs that have ended whose names are looked at: each is read from ZooKeeper."""


def jobs_called(replica: Replica, text: str, name_of: Callable[[JobId], str]) -> Sequence[JobId]:
    """The jobs that a text may mean: one where it is clear, none where there is no such job.

    Args:
        name_of: the name in the manifest of a job; it may block.
    """
    if is_known(replica, JobId(text)):
        return [JobId(text)]
    ended = (each for each in ended_last(replica, ENDED_MAX) if name_of(each) == text)
    return (
        [each for each in replica.jobs if name_of(each) == text]
        or list(islice(ended, 1))
        or [each for each in replica.records if text and each.startswith(text)]
    )
