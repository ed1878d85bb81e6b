"""An output takes over from those who wrote before its peer, in this job and in the one that it
upgrades, and fences off the dead.

A token that is committed may not be published yet. Whoever takes over publishes it before its peer
is ready, so nothing that was committed is lost, and nothing is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.errors import UserError
from onyx.flow.groups.keys import SHARDS
from onyx.ids import GroupId
from onyx.keystate.records import StagedOutput
from onyx.plugins.options import alike, own_options
from onyx.plugins.protocol import PluginContext, Token, TransactionalOutput
from onyx.state.recovery import NOTHING, CarriedState, CarryOver, RecoveredState
from onyx.state.shard_states import GatheredState, ShardState
from onyx.task.channels.wiring import Wiring, commits
from onyx.task.parts import Allocation, Assignment, Runtime
from onyx.task.plugin_context import plugin_context
from onyx.task.recovery.old_job import OldJob, OldManifest, may_carry_over, old_job, upgraded_job
from onyx.task.recovery.state_log import from_state_log, shards_of_rank
from onyx.task.services import Services
from onyx.task.sink.exactly_once import OutputCommits
from onyx.task.sink.sink import Sink

_READ_OLD_STATE: OnDemand[Callable[[Runtime, OldJob, frozenset[int]], GatheredState]]
_READ_OLD_STATE = OnDemand("onyx.task.recovery.old_state:read_old_state")
_CARRIED_OVER: OnDemand[Callable[[GatheredState, OldJob, Mapping[int, ShardState]], CarriedState]]
_CARRIED_OVER = OnDemand("onyx.task.recovery.old_state:carried_over")


def recover_output(runtime: Runtime, allocation: Allocation, sink: Sink) -> bool:
    """Take over the writes of an output; False while the job waits for it."""
    if not _upgraded(runtime):
        return False
    if sink.transactional and commits(runtime.program.job, runtime.task):
        return _recover_commits(runtime, allocation, sink)
    sink.rewire(not_dead_yet(runtime.assignment, allocation.wiring))
    return True


def _recover_commits(runtime: Runtime, allocation: Allocation, sink: Sink) -> bool:
    """Take over from those who wrote before: publish what they have committed, and begin."""

    def finished(recovered: RecoveredState) -> OutputCommits:
        for token in last_tokens(recovered.shards.values()):
            sink.finish(token)
        return OutputCommits(recovered, sink, runtime.services.background)

    if allocation.wiring.rank >= SHARDS:
        return True
    if not may_carry_over(runtime.assignment):
        return False
    allocation.committing = from_state_log(
        runtime,
        allocation.wiring,
        shards_of_rank(allocation.wiring, SHARDS),
        carry_over_written(runtime),
        finished,
    )
    if allocation.committing is None:
        return False
    allocation.committing.begin()
    return True


def _upgraded(runtime: Runtime) -> bool:
    """Whether a one-result output has the parts of earlier versions of the job in its result. The
    question runs in the background, while the task waits."""
    sink = runtime.sink
    assert sink is not None
    if not sink.upgraded:
        work = partial(sink.upgrade, lambda: upgraded_job(runtime, "output"))
        runtime.assignment.background.poll("upgrade", work)
    return sink.upgraded


def not_dead_yet(assignment: Assignment, wiring: Wiring) -> list[GroupId]:
    """Groups that are there, and those that were when this version began: what one of these has
    committed since is found by those who take over from it, in the next version."""
    return sorted({*wiring.groups, *assignment.services.replica().groups})


# --- what the old job has committed -------------------------------------------------------------


def carry_over_written(runtime: Runtime) -> CarryOver | None:
    """How an exactly-once output learns which segments the old job has written. What the old job
    has committed and not published is published."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None

    def carry_over(shards: frozenset[int]) -> CarriedState:
        old = old_job(runtime.assignment, runtime.program.job)
        if not old.plan.carries("output", runtime.task) or not commits(old.job, runtime.task):
            return NOTHING
        found = _READ_OLD_STATE.load()(runtime, old, shards)
        tokens = last_tokens(found.shards.values())
        finish(runtime.services, old, runtime.task, plugin_context(runtime), tokens)
        return _CARRIED_OVER.load()(found, old, {})

    return carry_over


def last_tokens(shards: Iterable[ShardState]) -> list[Token]:
    """Tokens that may be committed and not published. One record at a time is in memory, because
    a token of some outputs holds all that was written."""
    # The last one of each shard alone: a token is committed only when the one before is published.
    lasts = []
    for state in shards:
        last: list[Token] = []
        for records in state.records():
            last = [each.token for each in records[-1:] if isinstance(each, StagedOutput)] or last
        lasts += last
    return lasts


def finish(
    services: Services, old: OldManifest, task: str, context: PluginContext, tokens: Sequence[Token]
) -> None:
    """Publish what an output of the old job has committed, where it has written it. That calls no
    function of the user, so functions that only the old job named may be gone.

    Args:
        context: of the output in the new job.
    """
    entry = old.job.entry(task)
    if not tokens or entry.plugin is None or not old.publishes:
        return
    context = replace(
        context,
        job=old.origin,
        options=own_options(entry),
        alike=alike(old.job, entry),
        resolve=_uncalled,
    )
    output = services.build_output(entry.plugin, context)
    assert isinstance(output, TransactionalOutput), "it has committed"
    with closing(output):
        for token in tokens:
            output.finish(token)


def _uncalled(name: str) -> Callable[..., Any]:
    def missing(*_: Any) -> Any:
        raise UserError(f"{name} was called while the old job's writes were published")

    return missing
