"""A question for the state of a window or of a function, and what is shown of the answer."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from onyx.client.state_batches import record_batch
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.job import Job, Window
from onyx.model.report import nearest
from onyx.model.state_types import StateType, parse_state_type
from onyx.spark.compiler.refusals import is_unbounded
from onyx.task.channels.wiring import has_one_owner
from onyx.transport.state_queries import EXTENTS_MAX
from onyx.windows.answers import Answer
from onyx.windows.firing import Extent
from onyx.windows.selection import EVERYTHING, Place, Selection, place_of
from onyx.windows.units import is_time

EXTENTS_DEFAULT = 10_000


@dataclass(frozen=True, slots=True)
class WindowView:
    """Extents of a window, in the order of their places: by group and lower bound."""

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


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a window."""

    job: JobId
    window: str
    """Its id; `task.state` for a state of a function."""
    select: Selection = EVERYTHING
    extents_max: int = EXTENTS_DEFAULT
    """The first so many."""
    durable: bool = False
    """Only what no crash takes back."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is about: a window, or a state of a function, which is like a window with one
    extent."""

    name: str
    task: str
    of: Window | StateType

    @property
    def in_records(self) -> str:
        """What it is called in the state log of its task."""
        if isinstance(self.of, Window):
            return self.name
        return self.name.removeprefix(f"{self.task}.")

    @property
    def in_time(self) -> bool:
        """Whether it has extents of event time."""
        amount = self.of.range or self.of.timeout_gap if isinstance(self.of, Window) else None
        return amount is not None and is_time(amount)

    @property
    def by_spark(self) -> bool:
        """Whether peers have Spark aggregate it, so that its state is in files."""
        return isinstance(self.of, Window) and self.of.engine == "spark"

    @property
    def by_session_key(self) -> bool:
        """Whether its extents have session keys."""
        return isinstance(self.of, Window) and self.of.session_key is not None


def asked_of(job: Job, question: Question) -> Asked:
    """The window or state that is asked for.

    Raises:
        UserError: there is none, or the question cannot be asked of it.
    """
    if not 1 <= question.extents_max <= EXTENTS_MAX:
        raise UserError(f"from 1 to {EXTENTS_MAX} extents can be asked for")
    select = question.select
    select.check()
    found = _found(job, question)
    if select.by_group and has_one_owner(job, found.task):
        raise UserError(
            f"task {found.task} of window {found.name} is not grouped: leave the key out"
        )
    if isinstance(found.of, StateType) and (select.time_from, select.time_to) != (None, None):
        raise UserError(f"state {found.name} of a function has no times: leave them out")
    _check_readable(question, job, found)
    return found


def _found(job: Job, question: Question) -> Asked:
    windows = [Asked(window.id, window.task, window) for window in job.windows]
    states = _states(job)
    for each in (*windows, *states):
        if each.name == question.window:
            return each
    if any(each.type == "join" and each.name == question.window for each in job.catalog):
        raise UserError(f"task {question.window} is a join, whose rows are not shown: emit them")
    names = [each.name for each in (*windows, *states)]
    what = "window or state" if states else "window"
    has = f"it has {', '.join(names)}" if names else "it has none"
    hint = nearest(question.window, names)
    raise UserError(
        f"job {question.job} has no {what} {question.window!r}: {has}"
        + (f"; {hint}" if hint else "")
    )


def _states(job: Job) -> list[Asked]:
    return [
        Asked(f"{entry.name}.{name}", entry.name, parse_state_type(declared))
        for entry in job.catalog
        for name, declared in (entry.state or {}).items()
    ]


def _check_readable(question: Question, job: Job, asked: Asked) -> None:
    """Raises UserError when nobody could tell, or not what is asked for."""
    if job.engine == "spark":
        if not is_unbounded(job):
            raise UserError(
                f"job {question.job} is one query of Spark, because all its inputs have an end, "
                "and such a query keeps no state: emit what you want to see"
            )
        return  # what is committed is durable, whatever the guarantee
    if asked.by_spark and asked.by_session_key:
        raise UserError(
            f"window {asked.name} has a sessionKey and engine: spark, whose files tell sessions of "
            "different keys apart but not which keys these are: emit what you want to see"
        )
    if question.durable and job.guarantee == "at-most-once":
        raise UserError(
            f"job {question.job} is at most once and keeps its state in the memory of workers: "
            "nothing of it is durable"
        )


def view_of(question: Question, asked: Asked, answer: Answer) -> WindowView:
    """What is shown of an answer."""
    return WindowView(
        question.job,
        asked.task,
        asked.name,
        tuple(answer.extents),
        answer.more,
        asked.in_time,
        asked.by_session_key,
    )


@dataclass(frozen=True, slots=True)
class StateName:
    """A state of a job that can be asked for."""

    name: str
    task: str
    kind: str
    """What it is, in words."""
    grouped: bool


def states_of(job: Job) -> list[StateName]:
    """The states that a job keeps, in the order of declaration."""
    windows = [
        StateName(each.id, each.task, f"{each.type} window", not has_one_owner(job, each.task))
        for each in job.windows
    ]
    return windows + [
        StateName(each.name, each.task, "state of a function", True) for each in _states(job)
    ]
