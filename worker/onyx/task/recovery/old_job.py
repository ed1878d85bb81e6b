"""The old job that a job upgrades: its manifest, its partitions by name, what is carried over from
it, and what plugins hear of it that go on with its files or in its journals.

Either may run on peers or on Spark. What an old job on Spark has done is in one document: it is
closed before it is read, so nothing follows, and nothing of it is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import structs

from onyx.base.on_demand import OnDemand
from onyx.base.structs import stored
from onyx.errors import UserError
from onyx.ids import JobId, TaskName
from onyx.log import documents
from onyx.log.documents import RESTORE_LOG
from onyx.log.interface import LogReader
from onyx.model.job import Job, Upgrade
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import keeps_journal
from onyx.model.workflow import stateful_tasks
from onyx.plugins.protocol import OldJournal, UpgradedJob
from onyx.replica.state import Partitions, Replica
from onyx.task.parts import Assignment, Runtime
from onyx.task.source.frontier import stored_cursors

if TYPE_CHECKING:
    from onyx.spark.driver.committed import Committed
    from onyx.upgrade.plan import UpgradePlan

_COMPARE: OnDemand[Callable[[Job, Job, Upgrade], UpgradePlan]] = OnDemand(
    "onyx.upgrade.plan:compare"
)
_CLOSE: OnDemand[Callable[[LogReader, JobId, JobId], Committed]] = OnDemand(
    "onyx.spark.driver.committed:close"
)


class OldManifest(msgspec.Struct, frozen=True):
    """The old job that a job upgrades, and what is carried over by their manifests."""

    id: JobId
    job: Job
    plan: UpgradePlan
    origin: JobId
    """The id under which it has written: another one than `id` if it was loaded from a
    savepoint."""
    publishes: bool = True
    """Whether the new job publishes what its outputs have committed."""


class OldJob(OldManifest, frozen=True):
    """The old job that this one upgrades, and what is carried over from it."""

    numbers: Mapping[int, int] = {}
    """Partitions that are carried over: their numbers in this job by those in the old one. Those of
    one on Spark are numbered as in `Committed.read`."""
    has_more: bool = False
    """Whether this job has partitions of inputs that the old one does not have."""
    query: Committed | None = None
    """What was committed last, if it ran on Spark."""


def old_manifest(assignment: Assignment, new: Job) -> OldManifest:
    """The old job, by its manifest. Blocks.

    Raises:
        UserError: `onyx gc` has forgotten the old job, or this job cannot upgrade it.
    """
    services, job = assignment.services, assignment.job_id
    replica = services.replica()
    job_id = replica.upgrades(job)
    assert job_id is not None, "only a job that upgrades another one comes here"
    digest = replica.digest_of(job_id)
    if digest is None or new.upgrade is None:
        raise UserError(
            f"job {job} cannot carry over the state of job {job_id}, which `onyx gc` "
            "has forgotten; submit it without `upgrade`, to begin anew"
        )
    old = stored_job(services.log.get_chunk(digest), job_id)
    plan = _COMPARE.load()(old, new, new.upgrade)
    if plan.problems:
        raise UserError("\n".join(map(str, plan.problems)))
    loaded = replica.loaded(job_id)
    if loaded is None:
        return OldManifest(job_id, old, plan, job_id)
    # A saved job that ran has published it, or will: it is its own.
    return OldManifest(job_id, old, plan, loaded.origin, loaded.publishes)


def old_job(assignment: Assignment, new: Job) -> OldJob:
    """The old job, for a peer of the new one. Blocks. Raises like `old_manifest` and `close`."""
    services, job = assignment.services, assignment.job_id
    replica, log, old = services.replica(), services.log, old_manifest(assignment, new)
    query = _CLOSE.load()(log, old.id, job) if old.job.engine == "spark" else None
    inputs, tasks = _inputs(new), stateful_tasks(new)
    carried = {name for name in inputs if old.plan.carries("input", name)}
    carried |= {name for name in tasks if old.plan.carries("task", name)}
    if query is None:
        before = named_partitions(log, replica, old.id, carried)
    else:
        before = _read_by(query, carried)
    here = named_partitions(log, replica, job, {*inputs, *tasks})
    mapped = numbers(before, here)
    ranges = (range(here[name][0], here[name][0] + len(here[name][1])) for name in inputs)
    has_more = not set(chain.from_iterable(ranges)) <= set(mapped.values())
    return OldJob(**structs.asdict(old), numbers=mapped, has_more=has_more, query=query)


def _read_by(query: Committed, tasks: set[str]) -> dict[str, tuple[int, list[str]]]:
    """The partitions that a query has read of these inputs, as `numbers` takes them."""
    found: dict[str, tuple[int, list[str]]] = {}
    for number, each in enumerate(query.read):
        if each.task in tasks:
            found.setdefault(each.task, (number, []))[1].append(each.name)
    return found


def numbers(
    old: Mapping[str, tuple[int, list[str]]], new: Mapping[str, tuple[int, list[str]]]
) -> dict[int, int]:
    """New numbers of partitions by their old ones.

    Args:
        old: for each task that is carried over, the number of its first partition, and the names of
            all in order.
        new: the same in the other job.
    """
    found: dict[int, int] = {}
    for task in old.keys() & new.keys():
        first, names = new[task]
        numbers = {name: first + index for index, name in enumerate(names)}
        before, names = old[task]
        found |= {
            before + index: numbers[name] for index, name in enumerate(names) if name in numbers
        }
    return found


def _inputs(job: Job) -> tuple[str, ...]:
    return tuple(entry.name for entry in job.catalog if entry.type == "input")


def may_carry_over(assignment: Assignment) -> bool:
    """Whether all partitions of the job are registered, if it upgrades another one."""
    # A peer that read before its own partitions have numbers could not renumber what the old job
    # has applied, and would take segments that come again for new ones.
    replica, job = assignment.services.replica(), assignment.job_id
    known = replica.partitions(job)
    return replica.upgrades(job) is None or all(
        source in known for source in replica.spec(job).sources
    )


def named_partitions(
    log: LogReader, replica: Replica, job: JobId, tasks: Collection[str]
) -> dict[str, tuple[int, list[str]]]:
    """Number of the first partition, and the names of all, of those of the tasks that have some."""
    registered = replica.partitions(job)
    return {
        task: (each.first, names_of(log, job, task, each))
        for task, each in sorted(registered.items())
        if task in tasks
    }


def names_of(log: LogReader, job: JobId, task: TaskName, partitions: Partitions) -> list[str]:
    """The names of the partitions of a task; those of a windowed one are the shards of its state.
    Blocks. Raises StateError: what is stored is something else."""
    digest = partitions.digest
    if not digest:
        return [str(shard) for shard in range(partitions.count)]
    where = f"job {job}, task {task}: chunk {digest} with the names of its partitions"
    names: list[str] = stored(log.get_chunk(digest), list[str], where, RESTORE_LOG)
    return names


# --- as plugins hear of it ----------------------------------------------------------------------


def upgraded_job(runtime: Runtime, part: Literal["input", "output"]) -> UpgradedJob | None:
    """The old job, if this one goes on with what this input or output has made there. Blocks."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None
    old = old_manifest(runtime.assignment, runtime.program.job)
    if not old.plan.carries(part, runtime.task):
        return None
    began = bool(runtime.services.log.list_documents(documents.frontiers(old.id)))
    return UpgradedJob(old.origin, began)


def initialized_journal(runtime: Runtime) -> OldJournal | None:
    """The journal of this input in the old job, if this job does not carry it over. Blocks."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None
    old = old_manifest(runtime.assignment, runtime.program.job)
    entry = next((each for each in old.job.catalog if each.name == runtime.task), None)
    if entry is None or old.plan.carries("input", runtime.task):
        return None
    if not keeps_journal(entry.type, entry.plugin, entry.options):
        return None
    cursors = stored_cursors(runtime.services, old.id, runtime.task)
    if not cursors:
        return None
    positions, states = zip(*((each.position, each.state) for each in cursors), strict=True)
    return OldJournal(old.id, positions, states)
