"""A new job carries over the state of the old job that it upgrades.

The log entry that submitted this job killed the old one, but peers of the old job may not know that
yet. So the order matters. First each task with state fences and reads the old job's state logs,
before its peer is ready. Only when all peers are ready do inputs read the old job's frontiers.
Invariant: everything that a frontier covers is in the logs that were read, and every segment that
is read again beyond it is among the applied ids, if it was applied.

State is read from the old job only until this job has its own: a state log with a complete
snapshot, a frontier document for each partition. Until then every step can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from onyx.errors import UserError
from onyx.ledger.lineage import renumbered
from onyx.plugins.options import alike, own_options
from onyx.plugins.protocol import Token, TransactionalOutput
from onyx.state.chunks import ShardChange
from onyx.state.gathering import Gathered
from onyx.state.opening import state_location
from onyx.state.recovery import CarriedOver, CarryOver, read_state
from onyx.state.shard_state import ShardState
from onyx.state.sharing import check_shared
from onyx.task.channels.wiring import commits
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.plugin_context import plugin_context
from onyx.task.recovery.old_job import OldJob, old_job, upgraded_job
from onyx.task.recovery.progress import report_recovery
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.upgrade.translation import Translation, is_of_the_end
from onyx.windows.records import StagedOutput


def may_carry_over(assignment: Assignment) -> bool:
    """Whether all partitions of the job are registered, if it upgrades another one."""
    replica, job = assignment.services.replica(), assignment.job_id
    known = replica.partitions(job)
    return replica.upgrades(job) is None or all(
        source in known for source in replica.spec(job).sources
    )


def carry_over_windows(runtime: Runtime) -> CarryOver | None:
    """How a task with windows gets its state from the old job; None if the job upgrades none."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None

    def carry_over(shards: frozenset[int]) -> CarriedOver:
        old = old_job(runtime)
        if not old.plan.carries("task", runtime.task):
            return _NOTHING
        found = _read(runtime, old, shards)
        translation = Translation(old.job, runtime.program.job, runtime.task, old.plan)
        same_keys = (
            old.job.entry(runtime.task).uniqueness_key == runtime.program.entry.uniqueness_key
        )

        def state(shard: ShardState) -> ShardState:
            records = [each for part in shard.records() for each in translation.records(part)]
            if old.has_more:
                records = [each for each in records if not is_of_the_end(each)]
            keys = shard.keys if same_keys else []
            closed = shard.closed and not old.has_more
            return ShardState.of(ShardChange(records, shard.emitted, shard.settled, closed, keys))

        return _carried_over(found, old, {n: state(shard) for n, shard in found.shards.items()})

    return carry_over


def carry_over_written(runtime: Runtime) -> CarryOver | None:
    """How an exactly-once output learns which segments the old job has written. What the old job
    has committed and not published is published."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None

    def carry_over(shards: frozenset[int]) -> CarriedOver:
        old = old_job(runtime)
        if not old.plan.carries("output", runtime.task) or not commits(old.job, runtime.task):
            return _NOTHING
        found = _read(runtime, old, shards)
        _finish(runtime, old, last_tokens(found.shards.values()))
        return _carried_over(found, old, {})

    return carry_over


def upgraded(runtime: Runtime) -> bool:
    """Whether a one-result output has the parts of earlier versions of the job in its result. The
    question runs in the background, while the task waits."""
    sink = runtime.sink
    assert sink is not None
    if not sink.upgraded:
        work = partial(sink.upgrade, lambda: upgraded_job(runtime, "output"))
        runtime.assignment.background.poll("upgrade", work)
    return sink.upgraded


def last_tokens(shards: Iterable[ShardState]) -> list[Token]:
    """Tokens that may be committed and not published. One record at a time is in memory, because
    a token of some outputs holds all that was written."""
    lasts = []
    for state in shards:
        last: list[Token] = []
        for records in state.records():
            last = [each.token for each in records[-1:] if isinstance(each, StagedOutput)] or last
        lasts += last
    return lasts


def load_frontiers(runtime: Runtime, stores: Mapping[int, FrontierStore]) -> dict[int, Frontier]:
    """Where to begin to read partitions, by their numbers. Blocks. Each partition without a
    document gets one, so that the old job is not needed any more.

    Raises:
        UserError: `onyx gc` has forgotten the old job.
    """
    found = {number: store.load() for number, store in stores.items()}
    missing = [number for number, store in stores.items() if not store.stored]
    if missing and runtime.services.replica().upgrades(runtime.job_id) is not None:
        old = old_job(runtime)
        theirs = {here: there for there, here in old.numbers.items()}
        for number in missing:
            if number in theirs:
                found[number] = FrontierStore(runtime.services, old.id, theirs[number]).load()
            stores[number].begin(found[number])
    return found


_EMPTY = np.empty(0, dtype=np.uint64)
_NOTHING = CarriedOver({}, _EMPTY, _EMPTY, None)


def _read(runtime: Runtime, old: OldJob, shards: frozenset[int]) -> Gathered:
    services = runtime.services
    store = services.state_store(durable=True)
    check_shared(
        store, services.log, old.id, runtime.assignment.peer, state_location(services.settings)
    )
    return read_state(
        store, old.id, runtime.task, shards, partial(report_recovery, runtime.metrics)
    )


def _carried_over(found: Gathered, old: OldJob, shards: Mapping[int, ShardState]) -> CarriedOver:
    roots, ids = renumbered(*found.applied(), old.numbers)
    return CarriedOver(shards, roots, ids, found.watermark)


def _finish(runtime: Runtime, old: OldJob, tokens: list[Token]) -> None:
    """Publish what the old job has committed, where it has written it. That calls no function of
    the user, so functions that only the old job named may be gone."""
    entry = old.job.entry(runtime.task)
    if not tokens or entry.plugin is None:
        return
    context = replace(
        plugin_context(runtime),
        job=old.id,
        options=own_options(entry),
        alike=alike(old.job, entry),
        resolve=_uncalled,
    )
    output = runtime.services.build_output(entry.plugin, context)
    assert isinstance(output, TransactionalOutput), "it has committed"
    for token in tokens:
        output.finish(token)
    output.close()


def _uncalled(name: str) -> Callable[..., Any]:
    def missing(*_: Any) -> Any:
        raise UserError(f"{name} was called while the old job's writes were published")

    return missing
