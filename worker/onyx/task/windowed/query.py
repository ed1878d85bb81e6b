"""Answering a client's question about a window, between two steps of the task that owns its state.

So an answer is one moment of one peer: every batch is in it wholly or not at all. It is encoded
here and now, because states may change with the next step.
"""

from __future__ import annotations

from onyx.codec.extents import decode_key, encode_extents
from onyx.errors import Unavailable
from onyx.task.messages import Query
from onyx.task.task import Task
from onyx.transport.state_queries import ANSWER_BYTES_MAX, StateAnswer, StateQuery


def answer(task: Task, message: Query) -> None:
    """Answer, unless nobody waits any more; whatever is wrong is told to who has asked."""
    future = message.answer
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(_answer(task, message.query))
    except Exception as error:
        future.set_exception(error)


def _answer(task: Task, query: StateQuery) -> StateAnswer:
    windowing = task.live.windowing if task.wired and not task.failed else None
    if windowing is None or task.live.wiring.version != query.version:
        raise Unavailable(f"task {task.name} has no state now: its job is being allocated anew")
    key, extents_max = decode_key(query.key), query.extents_max
    found = windowing.windows.query(query.window, key, extents_max + 1)
    data, sent = encode_extents(found[:extents_max], ANSWER_BYTES_MAX)
    return StateAnswer(data, sent < len(found))
