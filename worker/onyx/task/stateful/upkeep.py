"""What a windowed task does between batches: event time, timers, chunks, acks of what is durable.

It ends when everything that feeds it has ended.
"""

from __future__ import annotations

from onyx.errors import describe
from onyx.ledger.returns import Trees
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.task.messages import Completions
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.state.keeper import StateKeeper
from onyx.task.stateful.end import end
from onyx.task.stateful.fire import fire, next_page


def follow(allocation: Allocation) -> None:
    """Event time and epochs, as far as they have come: what they pass fires or is forgotten, and
    tasks downstream get a watermark when what it made fire has been sent."""
    keeper, event_time = allocation.keeper, allocation.event_time
    if allocation.committing is not None and event_time is not None:
        allocation.committing.forget(event_time.take_frontiers())
    if keeper is None or event_time is None:
        return
    watermark = event_time.watermark
    if watermark is not None and keeper.may_advance:
        fire(keeper, lambda: keeper.advance(watermark))
    keeper.forget(event_time.take_frontiers())
    released = keeper.release(event_time.mark) if keeper.may_advance else None
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
    moved = next_page(keeper) if keeper.firing is not None else tick and _tick(keeper)
    durable = _ack_durable(runtime, allocation, keeper)
    if ends and not durable and keeper.firing is None and not keeper.operator.unfinished:
        moved |= end(runtime, allocation, keeper)
    return keeper.cut(idle) or moved or durable or keeper.emissions.waiting


def make_answers_durable(runtime: Runtime, allocation: Allocation) -> None:
    """While a batch waits for another task: that one may wait for an answer of this one, which is
    given when all before it is durable. Nothing of the batch may be half applied."""
    keeper = allocation.keeper
    if keeper is not None and keeper.answers.waiting:
        _ack_durable(runtime, allocation, keeper)
        keeper.cut(idle=True)


def make_durable(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> bool:
    """Write what has changed, at once; whether all of it is durable."""
    _ack_durable(runtime, allocation, keeper)
    keeper.cut(idle=True, at_once=True)
    return keeper.durable


def _ack_durable(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> bool:
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


def _tick(keeper: StateKeeper) -> bool:
    due_ms, clock = keeper.operator.next_tick_ms, keeper.clock
    now_ms = clock.wall_ms() if due_ms is not None else 0
    if due_ms is None or now_ms < due_ms or keeper.emissions.full:
        return False
    if clock.monotonic_s() < keeper.timers_from_s and not keeper.operator.unfinished:
        return False
    fire(keeper, lambda: keeper.operator.tick(now_ms))
    return True


def wants_flush(keeper: StateKeeper | None) -> bool:
    """Whether much was emitted that outputs should make durable now, or a request waits for it."""
    if keeper is None:
        return False
    wanted = keeper.held_acks is not None and keeper.held_acks.wants_flush()
    return keeper.emissions.wants_flush(ends=False) or wanted


def returned(allocation: Allocation, trees: Trees) -> None:
    """Functions of tasks behind give something back: it goes to the tree that it was made of."""
    keeper = allocation.keeper
    if keeper is None or keeper.held_acks is None:
        return
    for root, parts in keeper.held_acks.returned(trees):
        allocation.acks.give_back(root, parts)


def blocked(keeper: StateKeeper | None) -> bool:
    """Whether nothing more should be read: some of what fires at one moment is still to be carried
    out, an item of a processor to be finished, or too much was emitted that has not arrived."""
    if keeper is None:
        return False
    unfinished = keeper.firing is not None or keeper.operator.unfinished
    return unfinished or keeper.emissions.full


def complete(keeper: StateKeeper, message: Completions) -> None:
    """Trees of what the task has emitted."""
    if message.retries_max:
        keeper.emissions.force_retry(message.roots, message.retries_max)
    else:
        keeper.complete(message.roots)
