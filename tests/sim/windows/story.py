"""What one simulated job is asked to do: its segments, its windows, and what must come of it.

A segment of the source falls apart into *leaves*, up to 60 in all, each with a bit of its own. So
whatever an aggregation says can be read back as the set of leaves that it has seen: one that is
missing, counted twice or in the wrong extent shows, whichever trigger fired when.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from tests.sim.windows.columns import draw_formats, over_columns
from tests.sim.windows.failing import Failing, add_bad, add_to, draw_failing

from onyx.ledger.pending import OrderedPositions
from onyx.task.source import partition

Segment = dict[str, Any]

LEAVES_MAX = 60
"""Bits of a signed integer that a record of state may hold, less some."""
STEP_MS = 1_000
"""Event time between two segments of a partition."""
GROUPS = "abcdefg"


@dataclass(frozen=True, slots=True)
class Leaf:
    number: int
    group: str
    time: int


@dataclass(frozen=True, slots=True)
class Story:
    """One job, drawn from a seed."""

    spec: Mapping[str, Any]
    partitions: tuple[tuple[Segment, ...], ...]
    leaves: Mapping[int, Leaf]
    disorder_ms: int
    """What the job allows its source."""
    honest: bool
    """The source is not more disordered than that, so nothing may ever be late."""
    reduces: Mapping[str, bool] = field(default_factory=dict)
    """Whether `gather` and `again` pass on only what their triggers emit."""
    failing: Failing = field(default_factory=Failing)
    all_after: bool = False
    """The source reads all again after what has failed, in order."""

    @contextmanager
    def retry_mode(self) -> Iterator[None]:
        """Under exactly-once windows keep no order, and `retryMode: all-after` is refused; but
        nothing may be lost or counted twice either way, and the source has to keep it."""
        windows = {"individual": OrderedPositions} if self.all_after else {}
        with mock.patch.dict(partition.PENDING, windows):
            yield

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """What the names in the job stand for."""
        return FUNCTIONS | self.failing.functions(fall_apart)

    def window(self, name: str) -> Mapping[str, Any]:
        return next(each for each in self.spec["windows"] if each["id"] == name)

    def trigger(self, window: str) -> Mapping[str, Any]:
        return next(each for each in self.spec["triggers"] if each["windowId"] == window)

    def windows(self, task: str) -> list[Mapping[str, Any]]:
        return [each for each in self.spec["windows"] if each["task"] == task]

    def group(self, leaf: Leaf) -> str | None:
        return leaf.group if "groupByKey" in self._entry("gather") else None

    def extents(self, window: Mapping[str, Any]) -> dict[tuple[Any, Any, Any], frozenset[int]]:
        """The reference: leaves by group and bounds, when nothing is late."""
        groups: dict[Any, list[Leaf]] = {}
        for leaf in self.leaves.values():
            groups.setdefault(self.group(leaf), []).append(leaf)
        return {
            (group, *bounds): frozenset(numbers)
            for group, mine in groups.items()
            for bounds, numbers in _extents(window, mine)
        }

    def _entry(self, task: str) -> Mapping[str, Any]:
        return next(each for each in self.spec["catalog"] if each["name"] == task)


def _extents(
    window: Mapping[str, Any], leaves: Iterable[Leaf]
) -> Iterable[tuple[tuple[Any, Any], list[int]]]:
    ordered = sorted(leaves, key=lambda leaf: leaf.time)
    if window["type"] == "global":
        return [((None, None), [leaf.number for leaf in ordered])]
    if window["type"] == "fixed":
        width = window["range"][0]
        fixed: dict[int, list[int]] = {}
        for leaf in ordered:
            fixed.setdefault(leaf.time // width * width, []).append(leaf.number)
        return [((lower, lower + width - 1), numbers) for lower, numbers in fixed.items()]
    sessions: list[list[Leaf]] = []
    for leaf in ordered:
        if sessions and leaf.time - sessions[-1][-1].time <= window["timeoutGap"][0]:
            sessions[-1].append(leaf)
        else:
            sessions.append([leaf])
    return [((each[0].time, each[-1].time), [leaf.number for leaf in each]) for each in sessions]


# --- functions of the job -----------------------------------------------------------------------


def pair(leaf: Mapping[str, Any]) -> tuple[int, str]:
    return leaf["number"], leaf["group"]


def fall_apart(segment: Segment) -> list[Segment]:
    return [
        {
            "kind": "leaf",
            "key": f"leaf {number}",
            "bits": 1 << number,
            "g": group,
            "h": "xyz"[ord(group) % 3],
            "time": segment["time"],
        }
        for number, group in map(pair, segment["leaves"])
    ]


def same(segment: Segment) -> Segment:
    return segment


def emit_row(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Any:
    """Of `gather`: which leaves an extent had when it fired."""
    leaves = leaves_in(state)
    if not leaves:
        return None
    group, bounds = state_event["group_key"], _bounds(state_event)
    kind = state_event["event_type"]
    return {
        "kind": "row",
        "key": f"{window.id} {group} {bounds} {kind} {leaves}",
        "window": window.id,
        "g": group,
        "h": "xyz"[len(leaves) % 3],
        "lower": bounds[0],
        "upper": bounds[1],
        "type": kind,
        "leaves": leaves,
        "time": bounds[1] or 0,
    }


def emit_keys(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Any:
    """Of `again`: what an extent had been given when it fired."""
    keys = [each if isinstance(each, str) else each["key"] for each in state]
    lower, upper = _bounds(state_event)
    if not keys:
        return None
    return {
        "kind": "keys",
        "window": window.id,
        "h": state_event["group_key"],
        "lower": lower,
        "upper": upper,
        "type": state_event["event_type"],
        "keys": keys,
    }


def leaves_in(state: Any) -> list[int]:
    """Numbers of the leaves that a state of any aggregation used here says it has."""
    if isinstance(state, int):
        return [number for number in range(state.bit_length()) if state >> number & 1]
    bits = [each["bits"] if isinstance(each, dict) else each for each in state]
    return sorted(each.bit_length() - 1 for each in bits)


def _bounds(state_event: Mapping[str, Any]) -> tuple[int | None, int | None]:
    lower, upper = state_event["lower_bound"], state_event["upper_bound"]
    return (None, None) if math.isinf(lower) else (lower, upper)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "m:fall_apart": fall_apart,
    "m:same": same,
    "m:same_columns": over_columns(same),
    "m:emit_row": emit_row,
    "m:emit_keys": emit_keys,
}


# --- drawing a job ------------------------------------------------------------------------------


def publishes_late(seed: int) -> bool:
    """Whether what an output has committed is mostly seen some steps later. Whoever had committed
    it may have ended by then."""
    return seed % 8 == 3


def draw_story(
    choice: random.Random,
    failures: random.Random,
    formats: random.Random,
    retries: random.Random,
) -> Story:
    """`failures`: for what fails, so that all else is as without; so is `formats`, for columns, and
    `retries`, for who asks for them."""
    honest = choice.random() < 0.75
    real_ms = choice.choice((0, 500, 3_000, 8_000))
    disorder_ms = real_ms if honest else 0
    partitions, leaves = draw_segments(choice, real_ms if honest else 8_000)
    gather = _draw_gather(choice, honest)
    again = _draw_again(choice)
    reduces = {"gather": choice.random() < 0.6, "again": choice.random() < 0.6}
    workflow = [["read", "pass"], ["pass", "gather"], ["gather", "again"], ["again", "write"]]
    if not honest:
        workflow.append(["gather", "late"])
    spec = {
        "guarantee": "exactly-once",
        "workflow": workflow,
        "catalog": _catalog(choice, reduces, disorder_ms, honest),
        "windows": [window for window, _ in gather + again],
        "triggers": [trigger for _, trigger in gather + again],
    }
    failing = draw_failing(failures, spec, len(leaves))
    if failing is not None:
        failing.asks = retries.random() < 0.5
        add_to(spec, failing, failures)
        parts = list(map(list, partitions))
        add_bad(parts, failing, failures)
        partitions = tuple(map(tuple, parts))
    else:  # a function over columns fails for all rows of a batch
        draw_formats(formats, spec)
    all_after = retries.random() < 0.4
    failing = failing or Failing()
    return Story(spec, partitions, leaves, disorder_ms, honest, reduces, failing, all_after)


def draw_segments(
    choice: random.Random, disorder_ms: int
) -> tuple[tuple[tuple[Segment, ...], ...], dict[int, Leaf]]:
    left = choice.randint(20, LEAVES_MAX)
    groups = GROUPS[: choice.randint(1, len(GROUPS))]
    parts: list[list[Segment]] = [[] for _ in range(choice.randint(1, 3))]
    leaves: dict[int, Leaf] = {}
    while left > 0:
        part = choice.choice(parts)
        time = len(part) * STEP_MS + choice.randint(0, disorder_ms)
        count = min(left, choice.choice((0, 1, 1, 1, 1, 1, 2, 3)))
        left -= count
        mine = [Leaf(len(leaves) + n, choice.choice(groups), time) for n in range(count)]
        leaves.update((leaf.number, leaf) for leaf in mine)
        pairs = [{"number": leaf.number, "group": leaf.group} for leaf in mine]
        part.append({"leaves": pairs, "time": time})
    return tuple(map(tuple, parts)), leaves


def _draw_gather(choice: random.Random, honest: bool) -> list[tuple[Segment, Segment]]:
    kinds = [choice.choice(("fixed", "session", "global"))]
    if honest and choice.random() < 0.5:
        kinds.append(choice.choice(("fixed", "session", "global")))
    if not honest:
        kinds = [choice.choice(("fixed", "session"))]
    found = []
    for number, kind in enumerate(kinds):
        window: Segment = {"id": f"{kind}-{number}", "task": "gather", "type": kind}
        window["aggregation"] = choice.choice(
            (["sum", "bits"], ["collect-key-value", "bits"], "conj")
        )
        if kind != "global":
            window["windowKey"] = "time"
        if kind == "fixed":
            window["range"] = [choice.choice((2_000, 7_000)), "milliseconds"]
        if kind == "session":
            window["timeoutGap"] = [choice.choice((1_000, 2_500)), "milliseconds"]
        trigger = _draw_trigger(choice, window, "m:emit_row", honest)
        if not honest or (trigger["type"] == "watermark" and choice.random() < 0.5):
            # Other triggers might not see an extent before it is dropped.
            window["allowedLateness"] = [choice.choice((0, 2_000)), "milliseconds"]
        if not honest:
            window["lateTo"] = "late"
        found.append((window, trigger))
    return found


def _draw_again(choice: random.Random) -> list[tuple[Segment, Segment]]:
    kind = choice.choice(("global", "fixed"))
    window: Segment = {"id": "again", "task": "again", "type": kind}
    window["aggregation"] = choice.choice((["collect-key-value", "key"], "conj"))
    if kind == "fixed":
        window |= {"windowKey": "time", "range": [10_000, "milliseconds"]}
    return [(window, _draw_trigger(choice, window, "m:emit_keys"))]


def _draw_trigger(
    choice: random.Random, window: Segment, emit: str, honest: bool = True
) -> Segment:
    kinds = ["segment", "timer"] if honest else []
    if window["type"] != "global":
        kinds += ["watermark"] * 3
    kind = choice.choice(kinds)
    trigger: Segment = {
        "windowId": window["id"],
        "id": f"{window['id']}-{kind}",
        "type": kind,
        "emit": emit,
        "refinement": choice.choice(("accumulating", "discarding")),
    }
    if kind == "segment":
        trigger["threshold"] = [choice.choice((1, 4, 1_000)), "elements"]
    if kind == "timer":
        trigger["period"] = [choice.choice((300, 2_000)), "milliseconds"]
    return trigger


def _catalog(
    choice: random.Random, reduces: Mapping[str, bool], disorder_ms: int, honest: bool
) -> list[Segment]:
    def size() -> int:
        return choice.choice((1, 2, 5, 20))

    def windowed(name: str, key: str) -> Segment:
        kind = {"type": "reduce"} if reduces[name] else {"type": "function"}
        entry: Segment = {"name": name, **kind, "fn": "m:same", "batchSize": size()}
        if choice.random() < 0.85:
            entry |= {"groupByKey": key, "minPeers": 1, "fluxPolicy": "continue"}
        return entry

    timeout_ms = choice.choice((1_000, 3_000, 60_000))
    read = {
        "name": "read", "type": "input", "plugin": "m:simulated", "batchSize": size(),
        "watermarkKey": "time", "allowedDisorder": [disorder_ms, "milliseconds"],
        "pendingTimeout": timeout_ms, "inputRetryTimeout": 500,
        "maxPending": choice.choice((4, 12, 100)),
    }  # fmt: skip
    outputs = ["write"] if honest else ["write", "late"]
    return [
        read,
        {"name": "pass", "type": "function", "fn": "m:fall_apart", "batchSize": size()},
        windowed("gather", "g"),
        windowed("again", "h"),
        *({"name": name, "type": "output", "plugin": "m:simulated", "batchSize": size()}
          for name in outputs),
    ]  # fmt: skip


def keys_of(rows: Iterable[Segment]) -> Counter[str]:
    return Counter(each["key"] for each in rows)
