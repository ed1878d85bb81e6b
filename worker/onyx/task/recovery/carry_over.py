"""Taking over from another job in whose place this one came.

That job was killed in the moment in which this one was submitted, but peers of it may not know yet.
So order matters: first every task that has state fences and reads the logs of the other job, before
its peer is ready; then, when all are ready, inputs read the frontiers. What a frontier covers is in
the logs, then, and nothing that is read again can be forgotten in them: it is in the ids that were
applied.

Each thing is read from the other job only until this one has its own: a log with a whole snapshot,
a document for each partition. All of it can be repeated at any time, until then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.ledger.lineage import renumbered
from onyx.log import job_documents
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.plugins.options import own_options
from onyx.plugins.protocol import Former, Token, TransactionalOutput
from onyx.replica import jobs
from onyx.replica.state import NOTHING, Partitions, Replica
from onyx.state.chunks import ShardChange
from onyx.state.gathering import Gathered
from onyx.state.recovery import Inherit, Inherited, read_state
from onyx.state.shard_state import ShardState
from onyx.state.sharing import check_shared
from onyx.state.stores.opening import state_place
from onyx.task.channels.wiring import commits
from onyx.task.parts import Assignment, Background, Program
from onyx.task.plugin_context import plugin_context
from onyx.task.recovery.progress import report_recovery
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.upgrade.compatibility import windowed
from onyx.upgrade.plan import Plan
from onyx.upgrade.plan import plan as plan_of
from onyx.upgrade.translation import Translation, is_of_the_end, numbers
from onyx.windows.records import StagedOutput


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The job from which this one takes over."""

    id: JobId
    job: Job
    plan: Plan
    numbers: Mapping[int, int]
    """Partitions that are carried over: their numbers here by those there."""
    has_more: bool
    """Whether there are partitions here that it does not have."""


def may_inherit(assignment: Assignment) -> bool:
    """Whether all partitions of the job are known, if it takes over from another one."""
    replica, job = assignment.services.replica(), assignment.job_id
    known = replica.partitions.get(job, NOTHING)
    return job not in replica.resumed_jobs or all(
        source in known for source in jobs.sources(replica, job)
    )


def inherit_windows(assignment: Assignment, program: Program) -> Inherit | None:
    """How a task with windows gets the state of the one of the other job; None without one."""
    if assignment.job_id not in assignment.services.replica().resumed_jobs:
        return None

    def inherit(shards: frozenset[int]) -> Inherited:
        before = _predecessor(assignment, program)
        if not before.plan.carries("task", assignment.task):
            return _NOTHING
        found = _read(assignment, program, before, shards)
        translation = Translation(before.job, program.job, assignment.task, before.plan)
        same_keys = before.job.entry(assignment.task).uniqueness_key == program.entry.uniqueness_key

        def state(shard: ShardState) -> ShardState:
            records = [each for part in shard.records() for each in translation.records(part)]
            if before.has_more:
                records = [each for each in records if not is_of_the_end(each)]
            keys = shard.keys if same_keys else []
            closed = shard.closed and not before.has_more
            return ShardState.of(ShardChange(records, shard.emitted, shard.settled, closed, keys))

        return _inherited(found, before, {n: state(shard) for n, shard in found.shards.items()})

    return inherit


def inherit_written(assignment: Assignment, program: Program) -> Inherit | None:
    """How an output that writes exactly once knows what the one of the other job has written; what
    that had only committed becomes visible."""
    if assignment.job_id not in assignment.services.replica().resumed_jobs:
        return None

    def inherit(shards: frozenset[int]) -> Inherited:
        before = _predecessor(assignment, program)
        if not before.plan.carries("output", assignment.task) or not commits(
            before.job, assignment.task
        ):
            return _NOTHING
        found = _read(assignment, program, before, shards)
        _finish(assignment, program, before, last_tokens(found.shards.values()))
        return _inherited(found, before, {})

    return inherit


def succeeded(assignment: Assignment, program: Program, background: Background) -> bool:
    """Whether an output whose result is made of what all versions of a job have written knows of
    those before; asked in the background, while the job waits."""
    sink = program.sink
    assert sink is not None
    if not sink.succeeded:
        work = partial(sink.succeed, lambda: _former(assignment, program))
        background.poll("former", work)
    return sink.succeeded


def _former(assignment: Assignment, program: Program) -> Former | None:
    if assignment.job_id not in assignment.services.replica().resumed_jobs:
        return None
    other, _, plan = _planned(assignment, program)
    if not plan.carries("output", assignment.task):
        return None
    return Former(
        other, bool(assignment.services.log.list_documents(job_documents.frontiers(other)))
    )


def last_tokens(shards: Iterable[ShardState]) -> list[Token]:
    """What may have been committed and not made visible. One record at a time is in memory: with
    some outputs a token holds all that was written."""
    lasts = []
    for state in shards:
        last: list[Token] = []
        for records in state.records():
            last = [each.token for each in records[-1:] if isinstance(each, StagedOutput)] or last
        lasts += last
    return lasts


def load_frontiers(
    assignment: Assignment, program: Program, stores: Mapping[int, FrontierStore]
) -> dict[int, Frontier]:
    """Where to begin to read partitions, by their numbers. Blocks. What this job has no document of
    gets one, so that from then on nothing is asked of the other job.

    Raises:
        UserError: the other job has been forgotten.
    """
    found = {number: store.load() for number, store in stores.items()}
    missing = [number for number, store in stores.items() if not store.stored]
    if missing and assignment.job_id in assignment.services.replica().resumed_jobs:
        before = _predecessor(assignment, program)
        theirs = {here: there for there, here in before.numbers.items()}
        for number in missing:
            if number in theirs:
                found[number] = FrontierStore(assignment.services, before.id, theirs[number]).load()
            stores[number].begin(found[number])
    return found


_EMPTY = np.empty(0, dtype=np.uint64)
_NOTHING = Inherited({}, _EMPTY, _EMPTY, None)


def _planned(assignment: Assignment, program: Program) -> tuple[JobId, Job, Plan]:
    """The job in whose place this one came, and what is carried over from it. Blocks.

    Raises:
        UserError: it has been forgotten, or is not such that this job can take over.
    """
    replica, new = assignment.services.replica(), program.job
    other = replica.resumed_jobs[assignment.job_id]
    digest = replica.job_digests.get(other)
    if digest is None or new.upgrade is None:
        raise UserError(
            f"job {assignment.job_id} cannot go on where job {other} stopped: that has been "
            "forgotten (`onyx gc`); submit it without `upgrade`, to begin anew"
        )
    old = parse_mapping(msgspec.json.decode(assignment.services.log.get_chunk(digest)))
    plan = plan_of(old, new, new.upgrade)
    if plan.problems:
        raise UserError("\n".join(map(str, plan.problems)))
    return other, old, plan


def _predecessor(assignment: Assignment, program: Program) -> Predecessor:
    """Blocks. Raises like `_planned`."""
    other, old, plan = _planned(assignment, program)
    replica, log, new = assignment.services.replica(), assignment.services.log, program.job
    inputs, tasks = _inputs(new), windowed(new)
    carried = {name for name in inputs if plan.carries("input", name)}
    carried |= {name for name in tasks if plan.carries("task", name)}
    before = _named_partitions(log, replica, other, carried)
    here = _named_partitions(log, replica, assignment.job_id, {*inputs, *tasks})
    mapped = numbers(before, here)
    ranges = (range(here[name][0], here[name][0] + len(here[name][1])) for name in inputs)
    has_more = not set(chain.from_iterable(ranges)) <= set(mapped.values())
    return Predecessor(other, old, plan, mapped, has_more)


def _inputs(job: Job) -> tuple[str, ...]:
    return tuple(entry.name for entry in job.catalog if entry.type == "input")


def _named_partitions(
    log: LogReader, replica: Replica, job: JobId, tasks: Collection[str]
) -> dict[str, tuple[int, list[str]]]:
    """Number of the first partition, and the names of all, of those of the tasks that have some."""
    registered = replica.partitions.get(job, NOTHING)
    return {
        task: (each.first, _names(log, each))
        for task, each in sorted(registered.items())
        if task in tasks
    }


def _names(log: LogReader, partitions: Partitions) -> list[str]:
    """The partitions of a windowed task are the shards of its state."""
    if not partitions.digest:
        return [str(shard) for shard in range(partitions.count)]
    names: list[str] = json.loads(log.get_chunk(partitions.digest))
    return names


def _read(
    assignment: Assignment, program: Program, before: Predecessor, shards: frozenset[int]
) -> Gathered:
    services = assignment.services
    store = services.state_store(durable=True)
    check_shared(store, services.log, before.id, assignment.peer, state_place(services.settings))
    return read_state(
        store, before.id, assignment.task, shards, partial(report_recovery, program.metrics)
    )


def _inherited(found: Gathered, before: Predecessor, shards: Mapping[int, ShardState]) -> Inherited:
    roots, ids = renumbered(*found.applied(), before.numbers)
    return Inherited(shards, roots, ids, found.watermark)


def _finish(
    assignment: Assignment, program: Program, before: Predecessor, tokens: list[Token]
) -> None:
    """Make visible what the other job has committed, where it has written it. No function of the
    user is called for that, so those that only the other job named may be gone."""
    entry = before.job.entry(assignment.task)
    if not tokens or entry.plugin is None:
        return
    context = replace(
        plugin_context(assignment, program),
        job=before.id,
        options=own_options(entry),
        resolve=_uncalled,
    )
    output = assignment.services.build_output(entry.plugin, context)
    assert isinstance(output, TransactionalOutput), "it has committed"
    for token in tokens:
        output.finish(token)
    output.close()


def _uncalled(name: str) -> Callable[..., Any]:
    def missing(*_: Any) -> Any:
        raise UserError(f"{name} was called while the other job's writes were finished")

    return missing
