"""A question for a state of a job, and what is shown of the answer."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from onyx.client.state_batches import record_batch
from onyx.client.states.named import state_named
from onyx.client.states.state import State
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.keystate.extents import Extent
from onyx.keystate.selection import EVERYTHING, Answer, Place, Selection, place_of
from onyx.model.job import Job
from onyx.transport.state_queries import EXTENTS_MAX

EXTENTS_DEFAULT = 10_000


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
