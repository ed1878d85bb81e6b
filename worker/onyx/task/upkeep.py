"""What a task with state does between batches: event time, timers, chunks, acks of what is durable,
and its end.

What fires at one moment, with a watermark or at the end, may be more than memory holds. So one page
is carried out, what it emits goes to the log with what it changed, and only then comes the next, if
not too much waits to arrive. Until the last page, the task reads nothing and nothing else fires:
windows are between two moments, and a segment that came in between would be counted for some groups
and not for others. Rejected: reading between two pages, which needs the states as they were, or
rules for each trigger about what comes in the middle.

When all that feeds the task has ended, its windows fire for the last time. `exhaust-input` is
proposed when all that was emitted has arrived. Only then may outputs be sealed.
"""

from __future__ import annotations

from collections.abc import Callable

from onyx.errors import describe
from onyx.ids import TaskName
from onyx.keystate.pages import PENDING, Pages, weight
from onyx.ledger.returns import Trees
from onyx.model.workflow import ancestors
from onyx.program.failure import Failure
from onyx.program.operator import carry_out
from onyx.program.phases import Phase
from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.task.parts import Allocation, Assignment, Runtime
from onyx.task.source.frontier import newest_of
from onyx.task.state.keeper import Moment, StateKeeper
from onyx.transport.interface import FLUSH


def _nothing() -> None:
    """When nothing is to be done."""


def follow(allocation: Allocation) -> None:
    """Event time and epochs, as far as they have come: what they pass fires or is forgotten, and
    tasks downstream get a watermark when what it made fire has been sent."""
    keeper, event_time = allocation.keeper, allocation.event_time
    if allocation.committing is not None and event_time is not None:
        allocation.committing.forget(event_time.take_frontiers())
    if keeper is None or event_time is None:
        return
    watermark = event_time.watermark
    advances = keeper.may_advance and not allocation.rests
    if watermark is not None and advances:
        fire(keeper, lambda: keeper.advance(watermark))
    keeper.forget(event_time.take_frontiers())
    advances = keeper.may_advance and not allocation.rests
    released = keeper.release(event_time.mark) if advances else None
    if released is not None:
        event_time.release(released)
    first = keeper.emissions.first_partition
    if first is not None:
        settled = keeper.take_settled().items()
        event_time.add_frontiers({first + shard: position for shard, position in settled})


def tend(runtime: Runtime, allocation: Allocation, idle: bool, tick: bool, ends: bool) -> bool:
    """Between batches: timers, acks of what is durable, the next chunk; True when something moved.

    Args:
        idle: there is nothing to read now.
        tick: timers may fire. Only where something could be read before: timers that are always
            due stop nobody.
        ends: the task may end. Not only when idle: control items may keep coming, and a task that
            is held up for each of them would wait long for none.
    """
    keeper = allocation.keeper
    if keeper is None:
        return False
    tick &= not allocation.rests or keeper.operator.unfinished
    ends &= not allocation.rests
    # One moment after the other: a timer that is due waits for the pages of what fires now.
    moved = next_page(keeper) if keeper.firing is not None else tick and _tick(keeper)
    durable = _ack_logged(runtime, allocation, keeper)
    if ends and not durable and keeper.firing is None and not keeper.operator.unfinished:
        moved |= end(runtime, allocation, keeper)
    return keeper.cut(idle) or moved or durable or keeper.emissions.waiting


def _tick(keeper: StateKeeper) -> bool:
    due_ms, clock = keeper.operator.next_tick_ms, keeper.clock
    now_ms = clock.wall_ms() if due_ms is not None else 0
    if due_ms is None or now_ms < due_ms or keeper.emissions.full:
        return False
    if clock.monotonic_s() < keeper.timers_from_s and not keeper.operator.unfinished:
        return False
    fire(keeper, lambda: keeper.operator.tick(now_ms))
    return True


def _ack_logged(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> bool:
    """Ack what the state log has; whether there was something."""
    try:
        durable = keeper.take_durable()
    except Exception as error:
        detail = f"state of {runtime.task}: {describe(error)}"
        raise Failure(Phase.ASSIGN_WINDOWS.value, error, detail) from error
    for roots, values in durable:
        allocation.acks.add(roots, values)
    if durable and keeper.held_acks is not None:
        allocation.acks.hurry()  # a request may wait
    return bool(durable)


def make_durable(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> bool:
    """Write what has changed, at once; whether all of it is durable."""
    _ack_logged(runtime, allocation, keeper)
    keeper.cut(idle=True, at_once=True)
    return keeper.durable


def make_answers_durable(runtime: Runtime, allocation: Allocation) -> None:
    """While a batch waits for another task: that one may wait for an answer of this one, which is
    given when all before it is durable. Nothing of the batch may be half applied."""
    keeper = allocation.keeper
    if keeper is not None and keeper.answers.waiting:
        _ack_logged(runtime, allocation, keeper)
        keeper.cut(idle=True)


def returned(allocation: Allocation, trees: Trees) -> None:
    """Functions of tasks behind give something back: it goes to the tree that it was made of."""
    keeper = allocation.keeper
    if keeper is None or keeper.held_acks is None:
        return
    for root, parts in keeper.held_acks.returned(trees):
        allocation.acks.give_back(root, parts)


# --- what fires, page by page -------------------------------------------------------------------


def fire(
    keeper: StateKeeper, runs: Callable[[], Pages], through: Callable[[], None] = _nothing
) -> None:
    """Carry out the first page of what fires now; `next_page` does the others.

    Args:
        runs: asks the operator.
        through: called when all of it has been carried out.
    """
    assert keeper.firing is None, "one moment after the other"
    with keeper.operator.failures():
        keeper.firing = Moment(runs(), through, keeper.clock.monotonic_s())
    _page(keeper)


def next_page(keeper: StateKeeper) -> bool:
    """Carry out the next page, if there is room for it; True when something was done."""
    if keeper.firing is None or not keeper.ready_to_fire:
        return False
    since_s = keeper.firing.since_s
    if not _page(keeper):
        return False
    if keeper.firing is None:
        keeper.changed(1)  # so that the log records the end of the moment
        now_s = keeper.clock.monotonic_s()
        keeper.timers_from_s = now_s + (now_s - since_s)
    return True


def _page(keeper: StateKeeper) -> bool:
    """False if it is being computed elsewhere, and nothing was done."""
    firing, count = keeper.firing, 0
    assert firing is not None, "something fires"
    with keeper.operator.failures():
        for run in firing.runs:
            if run is PENDING:
                return count > 0
            carry_out(keeper, run)
            count += weight(run)
            if count >= keeper.settings.firings_page_max or keeper.emissions.full:
                return True
        keeper.firing = None
        firing.through()
    return True


# --- the end ------------------------------------------------------------------------------------


def end(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> bool:
    """Go on with ending, if it is time for that; True when something was done."""
    if keeper.ended or not _fed_no_more(runtime, allocation):
        return False
    # The last firing, page by page; then outputs make durable what came of it; then come the trees
    # of all that. Each step is asked for again until it is through.
    left = [shard for shard in keeper.shards if shard not in keeper.closed]
    if left and keeper.ready_to_fire:
        if not _end_is_known(runtime, keeper):
            return False
        _fire_last(keeper, left)
        return True
    if keeper.emissions.wants_flush(ends=True):
        allocation.outbox.broadcast(FLUSH)
        return True
    if left or keeper.emissions.unsettled or not keeper.durable:
        return False
    keeper.ended = True
    _propose_exhausted(runtime.assignment, keeper)
    if runtime.sink is None:
        allocation.ends.pass_on()
    return True


def _end_is_known(runtime: Runtime, keeper: StateKeeper) -> bool:
    """Whether the operator knows where event time ends, if that matters to it. Inputs store it
    before they end."""
    if keeper.operator.end_is_known:
        return True
    job = runtime.program.job
    above = ancestors(job.workflow, runtime.task)
    inputs = [TaskName(task) for task in sorted(above) if job.entry(task).type == "input"]

    def read() -> tuple[int | None]:
        return (newest_of(runtime.services, runtime.job_id, inputs),)

    found = runtime.assignment.background.poll("end of event time", read)
    if found is not None:
        keeper.operator.ends_at(*found)
    return found is not None


def _fed_no_more(runtime: Runtime, allocation: Allocation) -> bool:
    exhausted = runtime.services.replica().run(runtime.job_id).exhausted_inputs
    its = runtime.program.operator
    ended = its is not None and bool(exhausted) and all(s in exhausted for s in its.fed_by)
    return runtime.delivery.fed_no_more(allocation.ends, ended)


def _fire_last(keeper: StateKeeper, shards: list[int]) -> None:
    """Shards fire for the last time: together, for a state in memory is gone through once."""
    now_ms = keeper.clock.wall_ms()

    def through() -> None:
        for shard in shards:
            keeper.close(shard)

    fire(keeper, lambda: keeper.operator.complete(shards, now_ms), through)


def _propose_exhausted(assignment: Assignment, keeper: StateKeeper) -> None:
    first = keeper.emissions.first_partition
    if first is None:
        return
    # Also without shards: the group writes when the last of its peers has proposed.
    partitions = [first + shard for shard in keeper.shards]
    job, task = assignment.job_id, assignment.task
    assignment.propose(ExhaustInput(job=job, task=task, partitions=tuple(partitions)))
