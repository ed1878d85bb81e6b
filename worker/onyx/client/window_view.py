"""A question for the state of a window or of a function, and what is shown of the answer."""

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
    """Its id; `task.state` for a state of a function."""
    key: Any = ALL
    extents_max: int = EXTENTS_DEFAULT


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is about: a window, or a state of a function, which is like a window with one
    extent."""

    task: str
    in_time: bool


def asked_of(job: Job, question: Question) -> Asked:
    """The window or state that is asked for.

    Raises:
        UserError: there is none, or the question cannot be asked of it.
    """
    if not 1 <= question.extents_max <= EXTENTS_MAX:
        raise UserError(f"from 1 to {EXTENTS_MAX} extents can be asked for")
    windows = {window.id: Asked(window.task, _in_time(window)) for window in job.windows}
    states = {
        f"{entry.name}.{name}": Asked(entry.name, False)
        for entry in job.catalog
        for name in entry.state or ()
    }
    found = {**windows, **states}.get(question.window)
    if found is None:
        raise UserError(_unknown(question, list(windows), list(states)))
    if question.key is not ALL and has_one_owner(job, found.task):
        raise UserError(
            f"task {found.task} of window {question.window} is not grouped: leave the key out"
        )
    return found


def _unknown(question: Question, windows: list[str], states: list[str]) -> str:
    names = [*windows, *states]
    what = "window or state" if states else "window"
    has = f"it has {', '.join(names)}" if names else "it has none"
    hint = nearest(question.window, names)
    return f"job {question.job} has no {what} {question.window!r}: {has}" + (
        f"; {hint}" if hint else ""
    )


def _in_time(window: Window) -> bool:
    amount = window.range or window.timeout_gap
    return amount is not None and is_time(amount)


def view_of(question: Question, asked: Asked, answer: Answer) -> WindowView:
    """What is shown of an answer."""
    extents = tuple(answer.extents)
    return WindowView(
        question.job, asked.task, question.window, extents, answer.more, asked.in_time
    )
