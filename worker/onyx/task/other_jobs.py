"""Other jobs of the cluster, as an input that follows one of their tasks asks for them.

A job and those that upgrade it, or that it upgraded, are one: a *chain* of versions. Which jobs
these are is in the replica, and where they write in their manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onyx.errors import Unavailable, UserError
from onyx.ids import JobId, TaskName
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import journals_of, keeps_journal, keeps_processed
from onyx.model.report import listed, nearest
from onyx.plugins.protocol import JobJournal, JobOutput, OtherJobState
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.storage.opening import absolute
from onyx.task.services import Services

FOLLOWED = "files"
"""The plugin of outputs that can be followed."""


def output_of(services: Services, job: str, task: str, known: Sequence[str]) -> JobOutput:
    """What an output of a job is now. Blocks.

    Args:
        job: id or name.
        known: versions that are followed already; then the name does not matter any more.

    Raises:
        Unavailable: there is no such job yet, or ZooKeeper does not answer.
        UserError: several jobs have the name, or there is no such output, or none of parts.
    """
    replica = services.replica()
    chain = versions_of(replica, [JobId(each) for each in known] or [_named(services, job)])
    new = [each for each in chain if each not in known]
    entries = {each: _output(services, replica, each, task) for each in new}
    data_dir = services.settings.data_dir
    paths = {
        str(each): absolute(str(entry.options["path"]), data_dir)
        for each, entry in entries.items()
        if entry is not None
    }
    records = [(each, replica.records[each]) for each in chain if each in replica.records]
    last = {str(each): record.parts.get(TaskName(task), ()) for each, record in records}
    return JobOutput(paths, _state(replica, chain), last)


def journal_of(services: Services, job: str, task: str, known: Sequence[str]) -> JobJournal | None:
    """The journal of an input of a job as it is now; None: the task is no input. Blocks.

    Args:
        job, known: as those of `output_of`.

    Raises:
        Unavailable: as `output_of`.
        UserError: several jobs have the name, or the input keeps no journal.
    """
    replica = services.replica()
    chain = versions_of(replica, [JobId(each) for each in known] or [_named(services, job)])
    ordered = _by_age(replica, chain)
    there = [each for each in ordered if each in replica.records]
    partitions: int | None = None
    found: list[JobId] = []
    for each in reversed(there):
        if each not in known:
            manifest = _manifest(services, replica, each)
            catalog = manifest.catalog if manifest is not None else ()
            entry = next((one for one in catalog if one.name == task), None)
            if entry is None or entry.type != "input":
                break
            if not found:
                _check_kept(each, entry)
                partitions = journals_of(entry.options)
        found.append(each)
    if not found and not (known and not there):
        return None
    return JobJournal(tuple(reversed(found)) or tuple(ordered), partitions, _state(replica, chain))


def _check_kept(job: JobId, entry: CatalogEntry) -> None:
    what = f"input {entry.name} of job {job}"
    if not keeps_journal(entry.type, entry.plugin, entry.options):
        raise UserError(
            f"{what} has no journal that could be followed: read its source, or have the job write "
            f"to an output {FOLLOWED!r}"
        )
    if not keeps_processed(entry.type, entry.plugin, entry.options):
        raise UserError(f"{what} keeps nothing that is processed: give it keepDays or keepBytes")


def _by_age(replica: Replica, chain: Iterable[JobId]) -> list[JobId]:
    """The oldest first."""
    left, found = list(chain), []
    while left:
        oldest = [each for each in left if replica.upgrades(each) not in left]
        found += oldest
        left = [each for each in left if each not in oldest]
    return found


def versions_of(replica: Replica, jobs: Iterable[JobId]) -> list[JobId]:
    """These jobs, those that they upgraded, and those that upgraded them, one after another."""
    chain = list(dict.fromkeys(jobs))
    for job in chain:  # which grows
        old = replica.upgrades(job)
        newer = (each for each, record in replica.records.items() if record.upgrades == job)
        found = [*([old] if old is not None else []), *newer]
        chain += [each for each in found if each not in chain]
    return chain


def _state(replica: Replica, chain: Sequence[JobId]) -> OtherJobState:
    if any(each in replica.jobs for each in chain):
        return "runs"
    ends = [has_completed(replica, each) for each in chain]
    if True in ends:
        return "completed"
    return "killed" if False in ends else "forgotten"


def _named(services: Services, job: str) -> JobId:
    replica = services.replica()
    if JobId(job) in replica.records or has_completed(replica, JobId(job)) is not None:
        return JobId(job)
    named = [each for each in replica.records if _name(services, replica, each) == job]
    running = [each for each in named if each in replica.jobs] or named
    if not running:
        raise Unavailable(f"there is no job {job!r} yet")
    if not set(running) <= set(versions_of(replica, running[:1])):
        raise UserError(f"several jobs are named {job!r}: give the id of {listed(running)}")
    return running[0]


def _name(services: Services, replica: Replica, job: JobId) -> str:
    manifest = _manifest(services, replica, job)
    return "" if manifest is None else manifest.name


def _output(services: Services, replica: Replica, job: JobId, task: str) -> CatalogEntry | None:
    """The entry of the output; None where nobody knows the job any more."""
    manifest = _manifest(services, replica, job)
    if manifest is None:
        return None
    outputs = {entry.name: entry for entry in manifest.catalog if entry.type == "output"}
    entry = outputs.get(task)
    if entry is None:
        there = f"its outputs are {listed(outputs)}" if outputs else "it has no outputs"
        hint = nearest(task, outputs) or there
        if any(each.name == task for each in manifest.catalog):
            hint = f"that task is none; have the job write to an output {FOLLOWED!r}; {there}"
        raise UserError(f"job {job} has no output {task!r}: {hint}")
    if entry.plugin != FOLLOWED:
        raise UserError(
            f"task {task} of job {job} is an output {entry.plugin!r}; only outputs {FOLLOWED!r} "
            "can be followed"
        )
    return entry


def _manifest(services: Services, replica: Replica, job: JobId) -> Job | None:
    digest = replica.digest_of(job)
    if digest is None:
        return None
    return stored_job(services.log.get_chunk(digest), job)
