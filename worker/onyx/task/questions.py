"""Answers about the state of a task, given between two of its steps: to clients that ask for a
state or a table, and to other tasks that look up groups.

So an answer is one moment of one peer: every batch is in it wholly or not at all. It is encoded
here and now, because states may change with the next step. If it is to be durable it is given
later, when all that is in it is in the state log. Answers change nothing and are not remembered:
what is asked again is answered again.

A table that the task looks up never changes, and may be large. It is asked on a thread of its own,
and its answer is as durable as its source, whatever the guarantee of the job.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from onyx.codec.questions import decode_keys, decode_selection, encode_extents, encode_states
from onyx.errors import OnyxError, Unavailable, UserError, describe
from onyx.keystate.extents import Extent
from onyx.keystate.groups import group_value
from onyx.keystate.selection import Selection, are_more
from onyx.tables.shared import SharedTable
from onyx.task.state.keeper import StateKeeper
from onyx.task.task import BatchTask, StateQuestion
from onyx.transport.interface import LookUp, LookUpAnswer, Transport
from onyx.transport.state_queries import ANSWER_BYTES_MAX, TABLE, StateAnswer, StateQuery

Ask = Callable[[Selection, int], list[Extent]]

STATES_BYTES_MAX = 1_000_000
"""States in one answer, encoded; a single one may be larger."""

STATE_BYTES_MAX = 2_097_152
"""Size of one state, as of one segment."""


# --- of clients ---------------------------------------------------------------------------------


def answer(task: BatchTask, message: StateQuestion) -> None:
    """Answer, unless the caller waits no more. What is wrong is raised in the caller."""
    future, query = message.answer, message.query
    if not future.set_running_or_notify_cancel():
        return
    try:
        if not task.wired or task.status.failed or task.version != query.version:
            raise _no_state(task)
        if query.state.startswith(TABLE):
            table = _table(task, query.state.removeprefix(TABLE))
            _pass_on(task.assignment.services.aside(partial(_of_table, table, query)), future)
            return
        _require_durable(task, query)
        keeper = _keeper(task)
        found = _answer(partial(keeper.operator.query, query.state), query)
        keeper.answer((future, found), query.durable, task.half_applied)
    except Exception as error:
        future.set_exception(error)


def _require_durable(task: BatchTask, query: StateQuery) -> None:
    if query.durable and not task.runtime.delivery.durable:
        raise UserError(
            f"task {task.name} keeps its state in memory (guarantee at-most-once): no answer about "
            "it is durable"
        )


def _keeper(task: BatchTask) -> StateKeeper:
    keeper = task.allocation.keeper
    if keeper is None:
        raise _no_state(task)
    return keeper


def _table(task: BatchTask, name: str) -> SharedTable:
    tables = task.runtime.tables
    table = None if tables is None else tables.by_name.get(name)
    if table is None or not table.is_there:
        raise _no_state(task)
    return table


def _of_table(table: SharedTable, query: StateQuery) -> StateAnswer:
    return _answer(table.asked().query, query)


def _pass_on(found: Future[StateAnswer], to: Future[StateAnswer]) -> None:
    def done(found: Future[StateAnswer]) -> None:
        error = found.exception()
        if error is None:
            to.set_result(found.result())
        else:
            to.set_exception(error)

    found.add_done_callback(done)


def _no_state(task: BatchTask) -> Unavailable:
    return Unavailable(f"task {task.name} has no state now: its job is being allocated anew")


def _answer(ask: Ask, query: StateQuery) -> StateAnswer:
    asked, extents_max = decode_selection(query.selection), query.extents_max
    found = ask(asked, extents_max + 1)
    data, sent = encode_extents(asked.inside.parts_of(found[:extents_max]), ANSWER_BYTES_MAX)
    return StateAnswer(data, are_more(found, sent))


# --- of other tasks -----------------------------------------------------------------------------


def answer_lookup(task: BatchTask, question: LookUp) -> None:
    """Answer a question, unless the state is not there yet: then it is asked again."""
    if not task.wired or task.status.failed or task.version != question.version:
        return
    keeper, transport = task.allocation.keeper, task.assignment.services.transport
    if keeper is None:
        return
    found = _found(keeper, question)
    if not question.durable or found.error:
        transport.send_lookup(question.group, found)
        return
    held: Future[LookUpAnswer] = Future()
    held.add_done_callback(lambda given: _send_if_durable(given, question, transport))
    keeper.answer((held, found), durable=True, half_applied=task.half_applied)


def _send_if_durable(given: Future[LookUpAnswer], question: LookUp, transport: Transport) -> None:
    if given.exception() is None:  # or the job is being allocated anew
        transport.send_lookup(question.group, given.result())


def _found(keeper: StateKeeper, question: LookUp) -> LookUpAnswer:
    states, error = b"", ""
    try:
        states = _states(keeper, question)
    except OnyxError as raised:
        error = describe(raised)
    return LookUpAnswer(
        question.job, question.version, question.asker, question.number, states, error
    )


def _states(keeper: StateKeeper, question: LookUp) -> bytes:
    keys = decode_keys(question.keys)
    found = keeper.operator.look_up(question.state, keys)
    states, count = encode_states(found, STATES_BYTES_MAX)
    if count == 1 and len(states) > STATE_BYTES_MAX:
        raise OnyxError(
            f"the state of group {group_value(keys[0])!r} has {len(states)} bytes, and at most "
            f"{STATE_BYTES_MAX} are looked up"
        )
    return states
