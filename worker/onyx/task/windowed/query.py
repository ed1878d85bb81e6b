"""Answering a client's question about a window, between two steps of the task that owns its state.

So an answer is one moment of one peer: every batch is in it wholly or not at all. It is encoded
here and now, because states may change with the next step. If it is to be durable it is given
later, when all that it tells of is in the state log.
"""

from __future__ import annotations

from onyx.codec.extents import decode_selection, encode_extents
from onyx.errors import Unavailable, UserError
from onyx.task.messages import Query
from onyx.task.parts.allocation import Allocation
from onyx.task.window_state.windowing import Windowing
from onyx.transport.state_queries import ANSWER_BYTES_MAX, StateAnswer, StateQuery


def answer(task: str, allocation: Allocation | None, message: Query, durable: bool) -> None:
    """Answer, unless the caller waits no more. What is wrong is raised in the caller.

    Args:
        allocation: of the task; None while it has no state.
        durable: whether its state outlives this process.
    """
    future, query = message.answer, message.query
    if not future.set_running_or_notify_cancel():
        return
    try:
        if query.durable and not durable:
            raise UserError(
                f"task {task} keeps its state in memory (guarantee at-most-once): no answer about "
                "it is durable"
            )
        windowing = _windowing(task, allocation, query)
        windowing.answer((future, _answer(windowing, query)), query.durable)
    except Exception as error:
        future.set_exception(error)


def _windowing(task: str, allocation: Allocation | None, query: StateQuery) -> Windowing:
    windowing = None if allocation is None else allocation.windowing
    if allocation is None or windowing is None or allocation.wiring.version != query.version:
        raise Unavailable(f"task {task} has no state now: its job is being allocated anew")
    return windowing


def _answer(windowing: Windowing, query: StateQuery) -> StateAnswer:
    asked, extents_max = decode_selection(query.selection), query.extents_max
    found = windowing.held.query(query.state, asked, extents_max + 1)
    data, sent = encode_extents(found[:extents_max], ANSWER_BYTES_MAX)
    return StateAnswer(data, sent < len(found))
