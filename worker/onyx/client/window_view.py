"""A question for a state of a job, and what is shown of the answer: extents as a record batch, or
as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from onyx.client.states.kinds import state_named
from onyx.client.states.state import State
from onyx.errors import UserError
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.ids import JobId
from onyx.keystate.extents import Extent, Number
from onyx.keystate.selection import EVERYTHING, Answer, Place, Selection, place_of
from onyx.model.job import Job
from onyx.transport.state_queries import EXTENTS_MAX

EXTENTS_DEFAULT = 10_000
STATE_CHARACTERS_MAX = 1_000
"""Length of a state in a table; JSON has all of it."""
_TIME = pa.timestamp("ms", tz="UTC")


class WindowView(msgspec.Struct, frozen=True):
    """Extents of a window, or of another state, in the order of their places: by group and lower
    bound."""

    job: JobId
    task: str
    window: str
    extents: tuple[Extent, ...]
    more: bool
    """There are more than were asked for, or than can be sent; these are the first."""
    in_time: bool
    """Bounds are milliseconds since the epoch, in UTC."""
    by_session_key: bool = False
    """Extents have session keys."""

    def record_batch(self) -> pa.RecordBatch:
        """A row for each extent: `key`, `from`, `to`, `sessionKey` where there is one, `state`."""
        return record_batch(self.extents, self.in_time, self.by_session_key)

    def bound(self, bound: Number) -> str:
        """A bound of an extent in a table; empty if there is none."""
        if not math.isfinite(bound):
            return ""
        if not self.in_time:
            return str(bound)
        try:
            moment = datetime.fromtimestamp(bound / 1_000, UTC)
        except (ValueError, OverflowError, OSError):
            return str(bound)
        return moment.isoformat(timespec="milliseconds" if bound % 1_000 else "seconds")

    @property
    def next(self) -> Place | None:
        """What the next page is `after`; None: there is none."""
        return place_of(self.extents[-1]) if self.more and self.extents else None


class Question(msgspec.Struct, frozen=True):
    """What is asked of a state."""

    job: JobId
    window: str
    """The name of the state: the id of a window, `task.state` of a function, the name of a task."""
    select: Selection = EVERYTHING
    extents_max: int = EXTENTS_DEFAULT
    """The first so many."""
    durable: bool = False
    """Only what no crash takes back."""


def asked_of(job: Job, question: Question) -> State:
    """The state that is asked for.

    Raises:
        UserError: there is none, or the question cannot be asked of it.
    """
    if not 1 <= question.extents_max <= EXTENTS_MAX:
        raise UserError(f"from 1 to {EXTENTS_MAX} extents can be asked for")
    question.select.check()
    state = state_named(job, question.window)
    state.check(question.select, question.durable)
    return state


def view_of(question: Question, state: State, answer: Answer) -> WindowView:
    """What is shown of an answer."""
    return WindowView(
        question.job,
        state.task,
        state.name,
        tuple(answer.extents),
        answer.more,
        state.in_time,
        state.by_session_key,
    )


def record_batch(
    extents: Sequence[Extent], in_time: bool, by_session_key: bool = False
) -> pa.RecordBatch:
    """A row for each extent: `key`, `from`, `to`, `sessionKey` where sessions have one, `state`.

    Keys and states have the type that holds all of them; where there is none, each is the text of
    its JSON. Bounds are times where the window's are; those of a global window are null.

    Args:
        in_time: bounds are milliseconds since the epoch.
        by_session_key: extents have session keys.
    """
    columns = {
        "key": _values([each.group for each in extents]),
        "from": _bounds([each.lower for each in extents], in_time),
        "to": _bounds([each.upper for each in extents], in_time),
    }
    if by_session_key:
        columns["sessionKey"] = _values([each.session_key for each in extents])
    columns["state"] = _values([each.state for each in extents])
    return pa.RecordBatch.from_pydict(columns)


def arrow_stream(batch: pa.RecordBatch) -> bytes:
    """A record batch as a stream of the Arrow IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def json_line(extent: Extent, by_session_key: bool = False) -> str:
    """An extent for programs; the bounds of a global window are null."""
    line = {"key": extent.group, "from": _finite(extent.lower), "to": _finite(extent.upper)}
    if by_session_key:
        line["sessionKey"] = extent.session_key
    return json_text({**line, "state": extent.state})


def json_document(value: Any) -> bytes:
    """A value as JSON."""
    return json_text(value).encode()


def json_text(value: Any) -> str:
    """A value as JSON. Keys of dicts that are no text become their JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return msgspec.json.encode(_with_text_keys(value), enc_hook=str).decode()


def shown(value: Any) -> str:
    """Text itself, and anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def shown_state(state: Any) -> str:
    """A state in a table."""
    text = shown(state)
    if len(text) <= STATE_CHARACTERS_MAX:
        return text
    return f"{text[:STATE_CHARACTERS_MAX]}… ({len(text)} characters)"


def _values(values: Sequence[Any]) -> pa.Array:
    try:
        return to_array(values)
    except MISMATCH:
        return pa.array([None if each is None else shown(each) for each in values], pa.string())


def _bounds(bounds: Sequence[Number], in_time: bool) -> pa.Array:
    finite = list(map(_finite, bounds))
    if in_time:
        return pa.array([None if each is None else int(each) for each in finite], _TIME)
    whole = all(each is None or isinstance(each, int) for each in finite)
    return pa.array(finite, pa.int64() if whole else pa.float64())


def _finite(bound: Number) -> Any:
    return bound if math.isfinite(bound) else None


def _with_text_keys(value: Any) -> Any:
    """The value with keys of dicts that JSON can have."""
    if isinstance(value, dict):
        return {shown(key): _with_text_keys(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_text_keys(each) for each in value]
    return value
