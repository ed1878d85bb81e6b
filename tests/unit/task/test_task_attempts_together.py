"""A batch may have a segment twice, when another branch has asked for it again before it was looked
at. What keeps one of the two from being applied must not make the other count as applied."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench

import onyx
from onyx.processors import Inbox, Processor

SEGMENTS = [{"n": n, "key": n % 3} for n in range(8)]
Segment = dict[str, Any]


class Later(onyx.Retry):
    """May be asked for as often as this test has a mind to."""

    max_retries = 100


class Once:
    """Fails for each segment the first time that it is asked."""

    def __init__(self) -> None:
        self._asked: Counter[int] = Counter()

    def check(self, *numbers: int) -> None:
        self._asked.update(numbers)
        if any(self._asked[each] == 1 for each in numbers):
            raise Later("the first time")


def over_dicts(once: Once) -> Any:
    def work(segment: Segment, state: Any) -> Segment:
        once.check(segment["n"])
        state.count = (state.count or 0) + 1
        return segment

    return work


def over_columns(once: Once) -> Any:
    def work(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        once.check(*batch["n"].to_pylist())
        return batch

    return work


def processing(once: Once) -> type[Processor]:
    class Work(Processor):
        """Takes one segment at a time."""

        def process(self, ordinal: int, inbox: Inbox[Segment]) -> None:
            segment = inbox.peek()
            once.check(segment["n"])
            if self.try_emit(segment):
                inbox.remove()

    return Work


def before_windows(once: Once) -> Any:
    def work(segment: Segment) -> Segment:
        once.check(segment["n"])
        return segment

    return work


STATE = {"groupByKey": "key", "fluxPolicy": "continue", "state": {"count": "value[int]"}}
KINDS: dict[str, tuple[Any, Segment, Segment]] = {
    "function over dicts": (over_dicts, {"fn": "m:work", **STATE}, {}),
    "function over columns": (over_columns, {"fn": "m:work", "batchFormat": "arrow", **STATE}, {}),
    "processor": (processing, {"processor": "m:work"}, {}),
    "window": (
        before_windows,
        {"type": "reduce", "fn": "m:work"},
        {
            "windows": [{"id": "seen", "task": "work", "type": "global",
                         "aggregation": "count"}],
            "triggers": [{"windowId": "seen", "type": "segment", "threshold": [1000, "elements"],
                          "refinement": "accumulating", "emit": "m:emit"}],
        },
    ),
}  # fmt: skip


def counted(event: Any, window: Any, trigger: Any, state_event: Any, extent: int) -> Any:
    return [{"n": n} for n in range(extent)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_segment_is_applied_once(kind: str) -> None:
    made, work, more = KINDS[kind]
    blackhole = {"type": "output", "plugin": "blackhole"}
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "work"], ["read", "picky"], ["work", "write"], ["picky", "nowhere"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "inputRetryTimeout": 1,
             "options": {"segments": SEGMENTS, "partitions": 1}},
            {"name": "work", "type": "function", **work},
            {"name": "picky", "type": "function", "fn": "m:picky"},
            {"name": "write", **blackhole},
            {"name": "nowhere", **blackhole},
        ],
        **more,
    }  # fmt: skip
    picky = before_windows(Once())
    bench = Bench(spec, {"m:work": made(Once()), "m:picky": picky, "m:emit": counted})
    bench.start()
    for _ in range(5):
        bench.settle(["read", "picky", "nowhere"])
        bench.clock.advance(0.5)
    assert bench.task("work").allocation.inbox.waiting_segments() >= 2 * len(SEGMENTS)

    for _ in range(40):
        bench.settle()
        bench.clock.advance(1.0)
    assert bench.exceptions == []
    assert bench.completed
    assert sorted(each["n"] for each in bench.written("write")) == [each["n"] for each in SEGMENTS]
