"""The states of a job, of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from onyx.client.states.functions import function_states_of
from onyx.client.states.joins import joins_of
from onyx.client.states.processors import processors_of
from onyx.client.states.state import State
from onyx.client.states.tables import tables_of
from onyx.client.states.windows import WindowState
from onyx.client.states.windows_by_spark import WindowBySpark
from onyx.errors import UserError
from onyx.model.job import Job
from onyx.model.report import nearest


def windows_of(job: Job) -> Iterator[State]:
    """The windows of a job."""
    for window in job.windows:
        by_spark = window.engine == "spark" and job.engine != "spark"
        yield (WindowBySpark if by_spark else WindowState)(job, window)


KINDS: tuple[Callable[[Job], Iterable[State]], ...] = (
    windows_of,
    function_states_of,
    tables_of,
    joins_of,
    processors_of,
)
"""What gives the states of a kind. Of two that are called alike, the first is meant."""


def states_of(job: Job) -> list[State]:
    """The states that a job keeps, by kind, then in the order of declaration."""
    return list(chain.from_iterable(kind(job) for kind in KINDS))


def state_named(job: Job, name: str) -> State:
    """The state that is called so. Raises UserError: there is none."""
    states = states_of(job)
    for each in states:
        if each.name == name:
            return each
    names = [each.name for each in states]
    has = f"it has {', '.join(names)}" if names else "it has none"
    hint = nearest(name, names)
    raise UserError(f"job {job.name} has no state {name!r}: {has}" + (f"; {hint}" if hint else ""))
