"""A question for the state of a window, and what is shown of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.job import Job, Window
from onyx.model.report import nearest
from onyx.task.channels.wiring import has_one_owner
from onyx.transport.state_queries import EXTENTS_MAX
from onyx.windows.answers import Answer
from onyx.windows.firing import ALL, Extent
from onyx.windows.units import is_time

EXTENTS_DEFAULT = 10_000


@dataclass(frozen=True, slots=True)
class WindowView:
    """The extents of a window, by group and lower bound."""

    job: JobId
    task: str
    window: str
    extents: tuple[Extent, ...]
    more: bool
    """There are more than were asked for, or than can be sent; these are the first."""
    in_time: bool
    """Bounds are milliseconds since the epoch, in UTC."""


@dataclass(frozen=True, slots=True)
class Question:
    """Extents of a window, of all groups or of one."""

    job: JobId
    window: str
    key: Any = ALL
    extents_max: int = EXTENTS_DEFAULT


def window_of(job: Job, question: Question) -> Window:
    """The window that is asked for.

    Raises:
        UserError: there is none, or the question cannot be asked of it.
    """
    if not 1 <= question.extents_max <= EXTENTS_MAX:
        raise UserError(f"from 1 to {EXTENTS_MAX} extents can be asked for")
    names = [window.id for window in job.windows]
    if question.window not in names:
        has = f"it has {', '.join(names)}" if names else "it has none"
        hint = nearest(question.window, names)
        raise UserError(
            f"job {question.job} has no window {question.window!r}: {has}"
            + (f"; {hint}" if hint else "")
        )
    window = job.windows[names.index(question.window)]
    if question.key is not ALL and has_one_owner(job, window.task):
        raise UserError(
            f"task {window.task} of window {window.id} is not grouped: leave the key out"
        )
    return window


def view_of(question: Question, window: Window, answer: Answer) -> WindowView:
    """What is shown of an answer."""
    amount = window.range or window.timeout_gap
    in_time = amount is not None and is_time(amount)
    extents = tuple(answer.extents)
    return WindowView(question.job, window.task, window.id, extents, answer.more, in_time)
