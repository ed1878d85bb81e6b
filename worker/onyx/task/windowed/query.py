"""Answering a client's question about a window, between two steps of the task that owns its state.

So an answer is one moment of one peer: every batch is in it wholly or not at all. It is encoded
here and now, because states may change with the next step.
"""

from __future__ import annotations

from onyx.codec.extents import decode_key, encode_extents
from onyx.errors import Unavailable
from onyx.task.messages import Query
from onyx.task.parts.allocation import Allocation
from onyx.transport.state_queries import ANSWER_BYTES_MAX, StateAnswer, StateQuery


def answer(task: str, allocation: Allocation | None, message: Query) -> None:
    """Answer, unless the caller waits no more. What is wrong is raised in the caller.

    Args:
        allocation: of the task; None while it has no state.
    """
    future = message.answer
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(_answer(task, allocation, message.query))
    except Exception as error:
        future.set_exception(error)


def _answer(task: str, allocation: Allocation | None, query: StateQuery) -> StateAnswer:
    windowing = None if allocation is None else allocation.windowing
    if allocation is None or windowing is None or allocation.wiring.version != query.version:
        raise Unavailable(f"task {task} has no state now: its job is being allocated anew")
    key, extents_max = decode_key(query.key), query.extents_max
    found = windowing.held.query(query.window, key, extents_max + 1)
    data, sent = encode_extents(found[:extents_max], ANSWER_BYTES_MAX)
    return StateAnswer(data, sent < len(found))
