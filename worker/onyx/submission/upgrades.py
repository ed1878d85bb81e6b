"""Whether a job can upgrade an old one, and whether running jobs still need the state of theirs.

The new job copies the state of the old one while it starts. Until that is done the state exists
only in the old job's logs and documents, so the old job must be kept, and a further upgrade starts
from it.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.base.structs import stored
from onyx.errors import Problem, UserError
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.documents import is_at_rest, rests_at
from onyx.log.interface import LogReader
from onyx.model.job import Job, Upgrade
from onyx.model.parsing.mapping import stored_job
from onyx.replica import jobs
from onyx.replica.state import Replica
from onyx.spark.driver.committed import Committed, committed
from onyx.state.savepoint import Savepoint
from onyx.upgrade.plan import UpgradePlan, compare


def plan_upgrade(
    log: LogReader,
    replica: Replica,
    job: Job,
    upgrade: Upgrade,
    instead_of: JobId | None = None,
) -> UpgradePlan:
    """What a job would carry over of one in the log.

    Args:
        log: where manifests and the progress of jobs are stored.
        replica: the current one.
        job: the new job.
        upgrade: its `spec.upgrade`.
        instead_of: a job that may have upgraded the old job already: it ends as well.

    Raises:
        UserError: the old job is unknown, has no state left or none yet, or another job upgrades
            it already.
    """
    if upgrade.savepoint is not None:
        return _with_savepoint(job, upgrade, upgrade.savepoint)
    if upgrade.from_job is None:
        raise UserError("spec.upgrade names no job: give its id, as `onyx jobs` lists it")
    old = JobId(upgrade.from_job)
    digest = replica.digest_of(old)
    if digest is None:
        gone = jobs.has_completed(replica, old) is not None
        why = "has been collected, and its state with it" if gone else "is not known"
        raise UserError(f"job {old} {why}: `onyx jobs` lists those that are there")
    if old in replica.completed_jobs:
        raise UserError(f"job {old} has completed: it has no state to carry over")
    newer = [each for each in replica.jobs if replica.upgrades(each) == old and each != instead_of]
    if newer:
        raise UserError(f"job {newer[0]} upgrades job {old} already: upgrade that one")
    _check_whole(log, replica, old)
    manifest = stored_job(log.get_chunk(digest), old)
    found = compare(manifest, job, upgrade)
    if job.engine == manifest.engine:
        return found
    if job.engine == "spark":
        return _to_spark(log, replica, old, found)
    last = committed(log, old)
    return found if last is None else _from_spark(last[0], found)


def _check_whole(log: LogReader, replica: Replica, old: JobId) -> None:
    """Raises UserError: not all of the state of a job is its own yet."""
    loaded, older = replica.loaded(old), replica.upgrades(old)
    if loaded is not None and not loaded.whole:
        raise UserError(f"job {old} is being loaded from the savepoint {loaded.place}: use that")
    if older is not None and not _has_carried_over(log, replica, old):
        raise UserError(
            f"job {old} has not carried over the state of job {older} yet: wait until it runs, or "
            f"kill it and upgrade {older}"
        )


def _with_savepoint(job: Job, upgrade: Upgrade, place: str) -> UpgradePlan:
    """What a job would carry over of a saved one, as far as whoever asks sees the savepoint."""
    savepoint = Savepoint(place)
    manifest, saved = savepoint.manifest, savepoint.job()
    found = compare(saved, job, upgrade)
    if job.engine == saved.engine:
        return found
    if job.engine == "spark":
        rests = all(rests_at(each) for each in manifest.frontiers.values())
        return found if rests else replace(found, problems=(*found.problems, SAVED_IN_FLIGHT))
    if manifest.query is None:
        return found
    return _from_spark(stored(manifest.query, Committed, f"savepoint {place}"), found)


def _to_spark(log: LogReader, replica: Replica, old: JobId, found: UpgradePlan) -> UpgradePlan:
    """A plan between a job on peers and one on Spark, which needs that one to be at rest."""
    partitions = jobs.input_partitions(replica, old)
    if old in replica.jobs and not replica.run(old).suspended:
        # Also while it waits for peers: frontiers do not know what windows have emitted.
        moves = bool(partitions) and bool(jobs.restless(replica, old))
        return replace(found, pauses=old) if moves else found
    rests = all(is_at_rest(log, old, each) for each in partitions)
    return found if rests else replace(found, problems=(*found.problems, IN_FLIGHT))


IN_FLIGHT = Problem(
    "spec.engine",
    "is spark, and the old job stopped with segments in flight on peers, which a query cannot "
    "recognize",
    "resume it, if it is suspended: it comes to rest then; or let the engine be peers",
)
"""A problem of an old job that has no peers and gets none, as its frontiers say; the driver of the
new one looks again."""


SAVED_IN_FLIGHT = replace(
    IN_FLIGHT, hint="take the savepoint while nothing comes; or let the engine be peers"
)


def _from_spark(last: Committed, plan: UpgradePlan) -> UpgradePlan:
    """A plan between a job on Spark and one on peers. Processors that would be carried over, and
    whose inboxes were not empty behind the last micro-batch, are problems. One that leaves
    something in the next is found by its peers."""
    left = {each.task for each in last.held.states if each.left}
    problems = [
        Problem(
            f"spec.upgrade.tasks.{task}",
            "needs an answer: the processor has left items in its inbox on Spark, which peers do "
            "not take over",
            "keep engine: spark until nothing is left; or give initialize to begin anew",
        )
        for task in sorted(left)
        if plan.carries("task", task)
    ]
    return replace(plan, problems=(*plan.problems, *problems))


def state_holder(log: LogReader, replica: Replica, job: JobId) -> JobId:
    """The job that has the state of `job`: that job itself or, until it has carried over the state
    of the old job that it upgrades, the holder of that one's state."""
    for _ in replica.records:
        older = replica.upgrades(job)
        if older is None or _has_carried_over(log, replica, job):
            break
        job = older
    return job


def progress(log: LogReader, replica: Replica) -> tuple[list[JobId], set[JobId]]:
    """Running jobs that have carried over the state of their old job, and the old jobs of those
    that have not: the state of these is still needed."""
    done, needed = [], set()
    for job in sorted(replica.jobs):
        old = replica.upgrades(job)
        if old is not None:
            if _has_carried_over(log, replica, job):
                done.append(job)
            else:
                needed.add(old)
    return done, needed


def _has_carried_over(log: LogReader, replica: Replica, job: JobId) -> bool:
    """Frontiers are copied last: when each partition has its own, nothing else is missing."""
    registered = replica.partitions(job)
    stored = log.list_documents(documents.frontiers(job))
    return all(task in registered for task in replica.spec(job).inputs) and {
        str(number) for number in jobs.input_partitions(replica, job)
    }.issubset(stored)
