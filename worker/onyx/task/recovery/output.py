"""An output takes over from those who wrote before its peer, and fences off the dead."""

from __future__ import annotations

from functools import partial

from onyx.flow.groups.keys import SHARDS
from onyx.ids import GroupId
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring, commits
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_state import may_carry_over
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.recovery.upgraded import upgraded_job
from onyx.task.recovery.written import carry_over_written, last_tokens
from onyx.task.sink.exactly_once import Committing
from onyx.task.sink.sink import Sink


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

    def finished(recovered: Recovered) -> Committing:
        for token in last_tokens(recovered.shards.values()):
            sink.finish(token)
        return Committing(recovered, sink, runtime.services.background)

    if allocation.wiring.rank >= SHARDS:
        return True
    if not may_carry_over(runtime.assignment):
        return False
    allocation.committing = recovered_state(
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
