"""What windows and triggers mean, as simply as it can be said: a reference for tests.

An extent is the list of its segments and its state is computed from all of them each time somebody
looks; every question is answered by looking at everything. One segment at a time, one owner, no
changes, no snapshots. Written against the user guide and the information model, and checked with
the conformance cases; where these leave something open:

* The watermark passes an extent when it is greater than the upper bound (plus the trigger's delay),
  or for a percentile when it has reached the share. A trigger that goes by the watermark fires an
  extent at the advance that passes it, and again at the next advance after more segments have come.
* Where no watermarks are assigned, the greatest place that a shard has seen is its watermark. With
  `fireAllExtents`, and for percentiles, the rule is that of 0.9: each segment's place is compared.
* A timer runs for a shard, from its first segment on.
* A session ends a gap after its last segment: only then has the watermark passed it, and only then
  can it be late or dropped.
* A segment is late for a window when the watermark has passed all its extents by more than the
  lateness that is allowed; extents passed by that much are dropped, after they have fired.
* Functions of the user are those of `FUNCTIONS`, written again here without their protocol.
* `discarding` sets the state back to the first one (in 0.9 it was nil until the next segment),
  or, when the watermark has passed the extent, removes it. `postEvictor: [all]` removes it always.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onyx.model.job import Trigger, Window

UNITS = {
    "element": 1, "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000,
    "day": 86_400_000,
}  # fmt: skip


class Fired(NamedTuple):
    """One call of a trigger's functions."""

    window: str
    trigger: Trigger
    event_type: str
    group: Any
    lower: float
    upper: float
    state: Any


def done(trigger: Trigger, event: Mapping[str, Any]) -> bool:
    """The predicate of a punctuation trigger."""
    return bool(event["segment"].get("done"))


def texts() -> dict[str, Callable[..., Any]]:
    """An aggregation in which the order of segments shows."""
    return {
        "init": lambda window: [],
        "create_state_update": lambda window, state, segment: f"{len(state)}:{segment['v']}",
        "apply_state_update": lambda window, state, update: [*state, update],
        "super_aggregation": lambda window, one, other: [*one, *other],
    }


def every_third() -> dict[str, Callable[..., Any]]:
    """A trigger with a state of its own: each third segment of a group, and the end."""
    return {
        "init_state": lambda trigger: 0,
        "next_state": lambda trigger, state, event: state + (event["event_type"] == "new-segment"),
        "trigger_fire": lambda trigger, state, event: (
            event["event_type"] == "job-completed"
            or (event["event_type"] == "new-segment" and state % 3 == 0)
        ),
    }


def last_one() -> dict[str, Callable[..., Any]]:
    """A refinement: of a list of texts the last one is kept."""
    return {
        "create_state_update": lambda trigger, state, event: state[-1:],
        "apply_state_update": lambda trigger, state, update: update,
    }


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "app:done": done, "app:texts": texts, "app:every_third": every_third, "app:last_one": last_one,
    "app:sync": lambda *_: None,
}  # fmt: skip


@dataclass(eq=False)
class Extent:
    """Segments of one group between two bounds, both inclusive."""

    lower: float
    upper: float
    segments: list[dict[str, Any]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Of the texts of earlier segments what `last_one` has kept."""
    unfired: list[Trigger] = field(default_factory=list)
    """Triggers that have not fired since its last segment."""
    session_key: Any = None
    """Value of the window's `sessionKey`, which distinguishes the sessions of a group."""


def units(amount: tuple[int, str]) -> int:
    """An amount in milliseconds or elements."""
    return amount[0] * UNITS[amount[1].removesuffix("s")]


def aggregate(window: Window, extent: Extent) -> Any:
    """The state of an extent."""
    segments: Sequence[dict[str, Any]] = extent.segments
    if window.aggregation == "app:texts":
        state = list(extent.kept)
        for segment in segments:
            state.append(f"{len(state)}:{segment['v']}")
        return state
    parts = (window.aggregation,) if isinstance(window.aggregation, str) else window.aggregation
    if "ordered-log" in window.storage_strategy and "incremental" not in window.storage_strategy:
        segments = sorted(segments, key=lambda each: each[window.window_key])
    values = [each.get(parts[1]) for each in segments] if len(parts) > 1 else []
    match parts[0]:
        case "count":
            return len(segments)
        case "conj":
            return list(segments)
        case "collect-key-value":
            return values
        case "sum":
            return sum(values)
        case "min" | "max" as name:
            best = min if name == "min" else max
            first = [] if window.init is None else [window.init]
            return best([*first, *values], default=None)
        case "average":
            mean = {"average": sum(values) / len(values)} if values else {}
            return {"n": len(values), "sum": sum(values), **mean}
        case "collect-by-key":
            found: dict[Any, list[Any]] = {}
            for value, segment in zip(values, segments, strict=True):
                found.setdefault(value, []).append(segment)
            return found
    raise AssertionError(f"no such aggregation: {parts[0]}")


class WindowModel:
    """One window with its triggers; `assigned`: an input of the job assigns watermarks."""

    def __init__(
        self,
        window: Window,
        triggers: Sequence[Trigger],
        assigned: bool = True,
        shard_of: Callable[[Any], int] = lambda group: 0,
    ) -> None:
        self.shard_of = shard_of
        self.window = window
        self.triggers = [each for each in triggers if each.window_id == window.id]
        self.assigned = assigned
        self.groups: dict[Any, list[Extent]] = {}
        self.counts: dict[tuple[Any, int], int] = {}
        """Segments counted by the segment triggers, by group and index of the trigger."""
        self.due_ms: dict[tuple[int, int], int] = {}
        """When the timers are due, by shard and index of the trigger."""
        self.watermark = -math.inf
        self.seen: dict[int, float] = {}
        """The greatest place, by shard."""

    def add(self, segment: dict[str, Any], group: Any, now_ms: int) -> tuple[list[Fired], bool]:
        """What fires for a segment, and whether it is late."""
        shard = self.shard_of(group)
        place = segment.get(self.window.window_key or "", -math.inf)
        rises = place > self.seen.get(shard, -math.inf)
        self.seen[shard] = max(place, self.seen.get(shard, -math.inf))
        extents = self._extents_of(segment, group)
        if not extents:
            return [], True
        for extent in extents:
            extent.segments.append(segment)
            extent.unfired = list(self.triggers)
        fired: list[Fired] = []
        for index, trigger in enumerate(self.triggers):
            if trigger.type == "timer":
                period = units(trigger.period or (0, "seconds"))
                self.due_ms.setdefault((shard, index), now_ms + period)
            elif self._goes_by_watermark(trigger):
                if rises and not self.assigned:
                    fired += self._pass(trigger, self._of_shard(shard))
            elif self._wakes(index, trigger, group):
                there = self.groups[group]
                looked_at = there if trigger.fire_all_extents else extents
                waked = [
                    each
                    for each in there
                    if each in looked_at and self._fires_for_segment(trigger, each, segment)
                ]
                fired += [self._fire(trigger, "new-segment", group, each) for each in waked]
        if not self.assigned:
            self._drop(self._of_shard(shard))
        return fired, False

    def tick(self, now_ms: int) -> list[Fired]:
        """Timers fire strictly after they are due, and are due a period later again."""
        fired = []
        for (shard, index), due_ms in sorted(self.due_ms.items()):
            trigger = self.triggers[index]
            if now_ms > due_ms:
                self.due_ms[shard, index] = now_ms + units(trigger.period or (0, "seconds"))
                for group in self._of_shard(shard):
                    fired += self._fire_all(trigger, "timer-tick", group)
        return fired

    def advance(self, watermark: float) -> list[Fired]:
        """What the watermark has passed fires, and is then dropped if nothing can come any more."""
        self.watermark = watermark
        by_watermark = [each for each in self.triggers if self._goes_by_watermark(each)]
        fired = [one for each in by_watermark for one in self._pass(each, list(self.groups))]
        self._drop(list(self.groups))
        return fired

    def complete(self) -> list[Fired]:
        """Every extent fires for every trigger, as far as `fireAtEnd` says so."""
        fired = []
        for group, trigger in itertools.product(list(self.groups), self.triggers):
            for extent in list(self.groups[group]):
                has_changed = trigger in extent.unfired
                if {"always": True, "changed": has_changed, "never": False}[trigger.fire_at_end]:
                    fired.append(self._fire(trigger, "job-completed", group, extent))
        return fired

    def extents(self) -> Iterator[tuple[Any, float, float, Any]]:
        """All that is held: group, bounds and state."""
        for group, extents in self.groups.items():
            for each in extents:
                yield group, each.lower, each.upper, aggregate(self.window, each)

    def _of_shard(self, shard: int) -> list[Any]:
        return [group for group in self.groups if self.shard_of(group) == shard]

    def _goes_by_watermark(self, trigger: Trigger) -> bool:
        if self.assigned:
            return trigger.type in ("watermark", "percentile-watermark")
        return trigger.type == "watermark" and not trigger.fire_all_extents

    def _pass(self, trigger: Trigger, groups: Sequence[Any]) -> list[Fired]:
        """What the watermark has passed and has changed since it last fired."""
        fired = []
        for group in groups:
            fired += [
                self._fire(trigger, "watermark", group, extent)
                for extent in list(self.groups[group])
                if trigger in extent.unfired and self._is_passed(trigger, extent, group)
            ]
        return fired

    def _is_passed(self, trigger: Trigger, extent: Extent, group: Any) -> bool:
        if trigger.type == "percentile-watermark":
            return self._watermark_of(group) >= self._share(trigger, extent)
        delay = units(trigger.delay) if trigger.delay else 0
        return self._end(extent) + delay < self._watermark_of(group)

    def _share(self, trigger: Trigger, extent: Extent) -> float:
        width = extent.upper - extent.lower
        return extent.lower + (trigger.watermark_percentage or 0.0) * width

    def _watermark_of(self, group: Any) -> float:
        shard = self.shard_of(group)
        return self.watermark if self.assigned else self.seen.get(shard, -math.inf)

    def _drop(self, groups: Sequence[Any]) -> None:
        for group in groups:
            there = self.groups[group]
            self.groups[group] = [each for each in there if not self._is_past(each, group)]

    def _wakes(self, index: int, trigger: Trigger, group: Any) -> bool:
        if trigger.type not in ("segment", "app:every_third"):
            return True
        counted = self.counts.get((group, index), 0) + 1
        threshold = trigger.threshold[0] if trigger.threshold else 3
        self.counts[group, index] = counted % threshold
        return counted == threshold

    def _fires_for_segment(self, trigger: Trigger, extent: Extent, segment: dict[str, Any]) -> bool:
        match trigger.type:
            case "segment" | "app:every_third":
                return True
            case "punctuation":
                return bool(segment.get("done"))
            case "percentile-watermark":
                return bool(segment[self.window.window_key] >= self._share(trigger, extent))
            case "watermark":
                return bool(segment[self.window.window_key] >= extent.upper)
        return False

    def _fire_all(self, trigger: Trigger, event_type: str, group: Any) -> list[Fired]:
        return [
            self._fire(trigger, event_type, group, extent) for extent in list(self.groups[group])
        ]

    def _fire(self, trigger: Trigger, event_type: str, group: Any, extent: Extent) -> Fired:
        state = aggregate(self.window, extent)
        extent.unfired = [each for each in extent.unfired if each is not trigger]
        passed = event_type == "watermark" and trigger.type == "watermark"
        if trigger.post_evictor == ("all",) or (trigger.refinement == "discarding" and passed):
            self.groups[group].remove(extent)
        elif trigger.refinement == "discarding":
            extent.segments, extent.kept = [], []
        elif trigger.refinement == "app:last_one":
            extent.segments, extent.kept = [], state[-1:]
        bounds = extent.lower, extent.upper
        return Fired(self.window.id, trigger, event_type, group, *bounds, state)

    def _extents_of(self, segment: dict[str, Any], group: Any) -> list[Extent]:
        """The extents that take a segment, made where needed; none when it is late."""
        there = self.groups.setdefault(group, [])
        if self.window.type == "session":
            found = [self._session(there, segment)]
        else:
            found = []
            for lower, upper in self._bounds(segment):
                same = [each for each in there if (each.lower, each.upper) == (lower, upper)]
                found += same or [Extent(lower, upper)]
        taken = [each for each in found if not self._is_past(each, group)]
        joined = [each for each in there if taken and self._is_joined(each, taken[0])]
        self.groups[group] = [each for each in there if each not in (*joined, *taken)] + taken
        return taken

    def _is_joined(self, extent: Extent, into: Extent) -> bool:
        inside = into.lower <= extent.lower and extent.upper <= into.upper
        same = extent.session_key == into.session_key
        return self.window.type == "session" and inside and same

    def _session(self, there: Sequence[Extent], segment: dict[str, Any]) -> Extent:
        """The session of a segment, with all that are no further away than the gap."""
        gap = units(self.window.timeout_gap or (0, "elements"))
        place, key = segment[self.window.window_key], segment.get(self.window.session_key or "")
        same = [each for each in there if each.session_key == key]
        near = [each for each in same if each.lower - gap <= place <= each.upper + gap]
        near.sort(key=lambda each: each.lower)
        lower = min([place, *(each.lower for each in near)])
        upper = max([place, *(each.upper for each in near)])
        joined = Extent(lower, upper, session_key=key)
        for each in near:
            joined.segments += each.segments
        return joined

    def _bounds(self, segment: dict[str, Any]) -> Iterator[tuple[float, float]]:
        """All extents of a fixed, sliding or global window that a segment is in.

        Extent n ends where n + 1 slides have passed and begins a range before, but not below
        `minValue` if it reaches over it, which only those of fixed windows never do.
        """
        if self.window.range is None:
            yield -math.inf, math.inf
            return
        width = units(self.window.range)
        slide = units(self.window.slide or self.window.range)
        least = self.window.min_value
        place = segment[self.window.window_key]
        first = math.floor((place - least) / slide)
        for number in range(first, first + width // slide + 2):
            end = least + (number + 1) * slide
            lower, upper = max(least, end - width) if end > least else end - width, end - 1
            if end - width <= place < end:
                yield lower, upper

    def _end(self, extent: Extent) -> float:
        gap = units(self.window.timeout_gap) if self.window.timeout_gap else 0
        return extent.upper + gap

    def _is_past(self, extent: Extent, group: Any) -> bool:
        if self.window.allowed_lateness is None:
            return False
        return self._end(extent) + units(self.window.allowed_lateness) < self._watermark_of(group)
