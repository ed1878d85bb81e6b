"""What a join of two streams runs, worked out once from its job."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.flow.groups.getters import KeyGetter, key_getter
from onyx.flow.predicates import Resolve
from onyx.model.job import CatalogEntry, Job, JoinSide
from onyx.model.requests import asked_for
from onyx.model.workflow import sources_above
from onyx.operators.stream_join.spans import TIME_MAX, US_A_MS, Interval, Latest, SameExtent, Spans
from onyx.program.program import Definition, Needs
from onyx.windows.assigning.coordinates import Coordinates


class StreamSide(msgspec.Struct, frozen=True):
    """One of the two streams."""

    task: str
    keys: tuple[str, ...]
    """Keys of a segment that are equal in two segments that meet."""
    getter: KeyGetter
    times: Coordinates
    prefix: str
    outer: bool
    """Whether segments are emitted that have met none."""


class StreamJoin(Definition, frozen=True, kw_only=True):
    """A join of two streams."""

    sides: tuple[StreamSide, StreamSide]
    spans: Spans
    latest: bool
    """Whether each left segment meets one right segment, the latest."""
    tells_apart: bool = False
    """Whether it is noted of which segment of a request each was made, and it goes into the shard
    of that."""

    words = "join"
    made_by = OnDemand("onyx.operators.stream_join.operator:join_operator")

    def key_of(self, parent: str | None) -> KeyGetter | None:
        """The key of a side."""
        return next(side.getter for side in self.sides if side.task == parent)

    @property
    def by_task(self) -> Mapping[str, int]:
        """The number of the side that a parent is."""
        return {side.task: number for number, side in enumerate(self.sides)}


def stream_join(job: Job, task: str, resolve: Resolve) -> StreamJoin:
    """The join that a task is."""
    entry = job.entry(task)
    assert entry.left is not None, "the table looks before"
    assert entry.right is not None, "validated: both sides"
    outer = entry.how in ("left", "outer", "asof"), entry.how in ("right", "outer")
    late = entry.late_to
    left = _side(entry, entry.left, outer[0], resolve)
    right = _side(entry, entry.right, outer[1], resolve)
    return StreamJoin(
        task=task,
        group_key=left.getter,
        needs=Needs(parents_apart=True, absorbs=True),
        sides=(left, right),
        spans=_spans(entry, outer),
        latest=entry.how == "asof",
        unique_key=entry.uniqueness_key if entry.deduplicate else None,
        late_to=() if late is None else (late,),
        fed_by=frozenset(sources_above(job, task)),
        tells_apart=task in asked_for(job),
    )


def _side(entry: CatalogEntry, side: JoinSide, outer: bool, resolve: Resolve) -> StreamSide:
    getter = key_getter(entry, resolve, side.task)
    assert getter is not None, "both sides have keys"
    times = Coordinates(f"join {entry.name}", side.at, time=True, word="at")
    return StreamSide(side.task, side.keys, getter, times, side.prefix, outer)


def _spans(entry: CatalogEntry, outer: tuple[bool, bool]) -> Spans:
    within = entry.within
    if entry.how == "asof":
        return Latest(None if within is None or within.before is None else _us(within.before))
    if entry.range is not None:
        return SameExtent(_us(entry.range))
    assert within is not None, "validated: within, or range"
    return Interval(_us(within.before), _us(within.after), outer)


def _us(milliseconds: int) -> int:
    """No two times are farther apart than that."""
    return min(milliseconds * US_A_MS, TIME_MAX)
