"""A peer answers what another task asks about its state, between two of its steps.

So all that one answer has is of one moment. Answers change nothing and are not remembered: what is
asked again is answered again.
"""

from __future__ import annotations

from concurrent.futures import Future

from onyx.codec.lookups import decode_keys, encode_states
from onyx.errors import OnyxError, describe
from onyx.keystate.groups import group_value
from onyx.task.batch_task import BatchTask
from onyx.task.state.keeper import StateKeeper
from onyx.transport.interface import Transport
from onyx.transport.lookups import Found, LookUp

STATES_BYTES_MAX = 1_000_000
"""States in one answer, encoded; a single one may be larger."""
STATE_BYTES_MAX = 2_097_152
"""Size of one state, as of one segment."""


def answer(task: BatchTask, question: LookUp) -> None:
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
    held: Future[Found] = Future()
    held.add_done_callback(lambda given: _send_if_durable(given, question, transport))
    keeper.answer((held, found), durable=True, half_applied=task.half_applied)


def _send_if_durable(given: Future[Found], question: LookUp, transport: Transport) -> None:
    if given.exception() is None:  # or the job is being allocated anew
        transport.send_lookup(question.group, given.result())


def _found(keeper: StateKeeper, question: LookUp) -> Found:
    states, error = b"", ""
    try:
        states = _states(keeper, question)
    except OnyxError as raised:
        error = describe(raised)
    return Found(question.job, question.version, question.asker, question.number, states, error)


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
