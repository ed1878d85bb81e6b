"""Event time at a place behind a shuffle, by what has come from each origin.

An origin is a partition of an input, or a place of a task behind a shuffle: whatever begins a tree
of tasks and keeps the order of what it sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onyx.model.workflow import children, parents
from onyx.spark.query.outlet import place_of
from onyx.spark.query.programs import Query
from onyx.spark.query.rows import Row
from onyx.windows.watermarks import IDLE, ChannelMarks, Rising


class Arrivals:
    """The watermark of one place: the least of its origins', as on a peer that of its channels."""

    def __init__(self, origins: Iterable[str]) -> None:
        """`origins`: all that may send here; as long as one has said nothing, nothing is known."""
        self._marks = ChannelMarks(origins)
        self._own = Rising()

    @property
    def mark(self) -> int | None:
        """Event time has come to this, in milliseconds."""
        return self._own.time_ms

    def hear(self, row: Row) -> bool:
        """The row has been worked on; True when event time has risen."""
        if row.kind == "end":
            self._marks.hear(row.origin, IDLE)
        elif row.mark is not None:
            self._marks.hear(row.origin, row.mark)
        before = self._own.time_ms
        self._own.follow(self._marks.mark)
        return self._own.time_ms != before


def downstream(query: Query, task: str) -> frozenset[str]:
    """Tasks behind a shuffle to which a task may send, itself or through others."""
    return _reached(query, task, children(query.job.workflow))


def origins(query: Query, task: str) -> list[str]:
    """All origins that may send to a task behind a shuffle."""
    above, found = parents(query.job.workflow), list[str]()
    begins = {each for stage in query.plan.stages for each in stage.begins}
    waiting, seen = list(above[task]), set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in begins:
            found += _of(query, each)
        else:
            waiting += above[each]
    return found


def _reached(query: Query, task: str, below: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found, waiting = set[str](), list(below[task])
    while waiting:
        each = waiting.pop()
        if query.plan.exchange(each) is not None:
            found.add(each)
        else:
            waiting += below[each]
    return frozenset(found)


def _of(query: Query, task: str) -> list[str]:
    exchange, places = query.plan.exchange(task), query.config.places
    if exchange is None:
        numbers = [n for n, (its, _) in enumerate(query.config.partitions) if its == task]
    elif exchange.key is None:
        numbers = [place_of(task, places)]
    else:
        numbers = list(range(places))
    return [f"{task}:{number}" for number in numbers]
