"""What fails of a message is told to its queue: what may succeed later comes again, and nothing
else of the job is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench
from tests.support.jobs.memory_queue import MemoryQueue
from tests.support.patience import rounds

import onyx
import onyx.plugin

Segment = dict[str, Any]


def refuses(*numbers: int) -> Callable[[Segment], Segment]:
    """Fails for good over these."""

    def fn(segment: Segment) -> Segment:
        if segment["n"] in numbers:
            raise ValueError(f"{segment['n']} is bad")
        return segment

    return fn


def asks(*numbers: int, times: int = 1, result: Any = None) -> Callable[[Segment], Segment]:
    """Asks for a retry over these, so many times each."""
    left = dict.fromkeys(numbers, times)

    def fn(segment: Segment) -> Segment:
        if left.get(segment["n"], 0):
            left[segment["n"]] -= 1
            if result is None:
                raise onyx.Retry("not now")
            return result
        return segment

    return fn


def same(segment: Segment) -> Segment:
    return segment


BAD = {"name": "bad", "type": "output", "plugin": "blackhole"}


class World:
    """read -> work -> write, with an output `bad`; `read` takes from a queue in memory."""

    def __init__(
        self,
        fn: Callable[..., Any] = same,
        numbers: int = 10,
        work: Mapping[str, Any] | None = None,
        read: Mapping[str, Any] | None = None,
        after: tuple[Mapping[str, Any], ...] = (),
        edges: tuple[list[str], ...] = (),
        functions: Mapping[str, Callable[..., Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        parts: int = 1,
        **more: Any,
    ) -> None:
        self.queue = MemoryQueue(list(range(numbers)), parts=parts)
        source = {"fn": "m:queue", "mode": "native", "onFailure": "source"} | dict(options or {})
        middle = [{"name": "work", "type": "function", "fn": "m:work", **(work or {})}]
        path = ["read", "work", *[each["name"] for each in after], "write"]
        catalog = [
            {"name": "read", "type": "input", "plugin": "source", "options": source}
            | dict(read or {}),
            *middle,
            *after,
            {"name": "write", "type": "output", "plugin": "blackhole", **more.pop("write", {})},
            *more.pop("outputs", ()),
        ]
        workflow = [*(list(each) for each in pairwise(path)), *edges]
        spec = {"guarantee": "at-least-once", "workflow": workflow, "catalog": catalog, **more}
        named = {"m:queue": self.queue.open, "m:work": fn, "m:same": same, **(functions or {})}
        self.bench = Bench(spec, named)
        self.bench.start()

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in rounds():
            self.bench.settle()
            if condition():
                return
            assert not self.bench.exceptions, self.bench.exceptions
            self.bench.clock.advance(1.0)
            for output in (each for its in self.bench.outputs.values() for each in its):
                if output.flushes:  # as one does whose part has been open for long enough
                    output.flush()
        raise AssertionError(vars(self.queue))

    def settled(self) -> World:
        """Until the queue has heard of everything."""
        self.until(lambda: not self.queue.waiting and not self.queue.pending)
        return self

    @property
    def ended_by(self) -> str:
        """What has ended the job."""
        self.until(lambda: bool(self.bench.exceptions))
        return str(self.bench.exceptions[0]["detail"])

    @property
    def written(self) -> list[int]:
        return sorted(each["n"] for each in self.bench.written("write"))


def of_columns(fn: Callable[[Segment], Segment]) -> Callable[[pa.RecordBatch], Any]:
    """The function for batches of columns: what asks for a retry is marked."""

    def batch_fn(batch: pa.RecordBatch) -> pa.RecordBatch:
        marks = []
        for each in batch.to_pylist():
            try:
                fn(each)
            except onyx.Retry:
                marks.append(True)
            else:
                marks.append(False)
        return batch.append_column("__retry__", pa.array(marks))

    return batch_fn


COLUMNS = {"batchFormat": "arrow"}


def test_what_fails_for_good_is_never_given_again_and_the_others_go_on() -> None:
    world = World(refuses(3, 7)).settled()
    assert world.written == [0, 1, 2, 4, 5, 6, 8, 9]
    assert sorted(world.queue.acked) == world.written
    assert sorted(world.queue.terminated) == [3, 7]
    assert world.queue.terminated[3].startswith("work: ValueError: 3 is bad (test_task_returned")
    assert world.queue.given[3] == 1


@pytest.mark.parametrize("result", [None, onyx.FAIL, onyx.Retry("later")])
def test_what_asks_for_a_retry_is_given_again_by_the_queue(result: Any) -> None:
    world = World(asks(2, 5, times=3, result=result)).settled()
    assert sorted(world.queue.acked) == world.written == list(range(10))
    assert sorted(world.queue.failed) == [2, 2, 2, 5, 5, 5]
    assert world.queue.given[2] == 4
    assert sorted(set(world.queue.rests)) == [0.1, 0.2, 0.4], "longer with each delivery"


def test_rows_of_columns_that_ask_for_a_retry_are_given_again() -> None:
    world = World(of_columns(asks(2, 5)), work=COLUMNS, read=COLUMNS).settled()
    assert sorted(world.queue.acked) == world.written == list(range(10))
    assert sorted(world.queue.failed) == [2, 5]


def test_columns_that_fail_for_good_do_so_as_a_batch() -> None:
    def fn(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 3 in batch["n"].to_pylist():
            raise ValueError("three")
        return batch

    world = World(fn, work={**COLUMNS, "batchSize": 2}, read={**COLUMNS, "batchSize": 1}).settled()
    assert 3 in world.queue.terminated
    assert sorted([*world.queue.acked, *world.queue.terminated]) == list(range(10))
    assert sorted(world.queue.acked) == world.written


def test_a_condition_that_asks_for_a_retry_asks_the_queue() -> None:
    left = [2, 2, 5]

    def predicate(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
        if new["n"] in left:
            left.remove(new["n"])
            return True
        return False

    condition = {"from": "work", "to": "none", "predicate": "m:again", "action": "retry",
                 "shortCircuit": True}  # fmt: skip
    others = {"from": "work", "to": ["write"], "predicate": "m:always"}
    functions = {"m:again": predicate, "m:always": lambda *_: True}
    world = World(functions=functions, flowConditions=[condition, others]).settled()
    assert sorted(world.queue.failed) == [2, 2, 5]
    assert world.written == list(range(10))


def test_what_a_dead_letter_takes_is_processed() -> None:
    world = World(
        refuses(3), work={"deadLetter": "bad"}, edges=(["work", "bad"],), outputs=(BAD,)
    ).settled()
    assert sorted(world.queue.acked) == list(range(10))
    assert not world.queue.terminated
    assert len(world.bench.written("bad")) == 1


def test_a_retry_goes_to_the_queue_and_not_to_the_dead_letter() -> None:
    world = World(
        asks(3), work={"deadLetter": "bad"}, edges=(["work", "bad"],), outputs=(BAD,)
    ).settled()
    assert world.queue.failed == [3]
    assert world.bench.written("bad") == []
    assert sorted(world.queue.acked) == world.written == list(range(10))


def test_a_message_of_several_segments_fails_as_a_whole_when_all_are_done() -> None:
    def fn(segment: Segment) -> Segment:
        if (segment["n"], segment["part"]) == (2, 1):
            raise ValueError("bad part")
        return segment

    world = World(fn, numbers=4, parts=3).settled()
    assert sorted(world.queue.acked) == [0, 1, 3]
    assert list(world.queue.terminated) == [2]
    assert world.written == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3]


def test_a_message_that_may_succeed_in_part_is_given_again_before_it_has_failed() -> None:
    left = [1]

    def fn(segment: Segment) -> Segment:
        if segment["part"] == 0:
            raise ValueError("bad part")
        if segment["part"] == 1 and left:
            left.pop()
            raise onyx.Retry("not now")
        return segment

    world = World(fn, numbers=1, parts=2).settled()
    assert world.queue.failed == [0]
    assert list(world.queue.terminated) == [0]
    assert world.written == [0], "the part that succeeded the second time"


def test_a_failure_in_one_branch_is_one_of_the_message() -> None:
    other = {"name": "other", "type": "function", "fn": "m:other"}
    functions = {
        "m:other": refuses(1, 14),
        "m:three": lambda segment: [{"n": segment["n"]}, {"n": segment["n"] + 10}],
    }
    world = World(functions["m:three"], after=(other,), functions=functions).settled()
    assert sorted(world.queue.terminated) == [1, 4]
    assert world.queue.terminated[4].startswith("other: ValueError: 14 is bad")
    assert world.written == sorted({*range(20)} - {1, 14})


def test_a_retry_further_down_sends_the_message_back() -> None:
    other = {"name": "other", "type": "function", "fn": "m:other"}
    world = World(after=(other,), functions={"m:other": asks(4, times=2)}).settled()
    assert world.queue.failed == [4, 4]
    assert sorted(world.queue.acked) == world.written == list(range(10))


@pytest.mark.parametrize("where", ["read", "write"])
def test_a_function_of_an_input_or_output_may_fail(where: str) -> None:
    given = {where: {"fn": "m:bad"}}
    world = World(functions={"m:bad": refuses(3)}, **given).settled()
    assert list(world.queue.terminated) == [3]
    assert world.queue.terminated[3].startswith(f"{where}: ValueError")


def count(segment: Segment, state: Any) -> Segment:
    if segment["n"] == 3:
        raise ValueError("bad key")
    state.seen = (state.seen or 0) + 1
    return segment


STATE = {
    "fn": "m:count", "groupByKey": "n", "state": {"seen": "value"}, "fluxPolicy": "continue",
    "deduplicate": False,
}  # fmt: skip


@pytest.mark.parametrize("where", ["read", "write"])
def test_a_function_of_an_input_or_output_may_ask_for_a_retry(where: str) -> None:
    given = {where: {"fn": "m:asks"}}
    world = World(functions={"m:asks": asks(3, times=2)}, **given).settled()
    assert world.queue.failed == [3, 3]
    assert sorted(world.queue.acked) == world.written == list(range(10))


def test_what_a_condition_for_exceptions_takes_is_processed() -> None:
    condition = {
        "from": "work", "to": ["bad"], "predicate": "m:always", "thrownException": True,
        "shortCircuit": True, "postTransform": "m:mend",
    }  # fmt: skip
    others = {"from": "work", "to": ["write"], "predicate": "m:always"}
    functions = {"m:always": lambda *_: True, "m:mend": lambda event, old, error: {"n": old["n"]}}
    world = World(
        refuses(3), functions=functions, flowConditions=[condition, others],
        edges=(["work", "bad"],), outputs=(BAD,),
    ).settled()  # fmt: skip
    assert sorted(world.queue.acked) == list(range(10))
    assert world.bench.written("bad") == [{"n": 3}]


def test_what_matches_no_condition_is_processed() -> None:
    even = {"from": "work", "to": ["write"], "predicate": "m:even"}
    functions = {"m:even": lambda event, old, new, all_new: new["n"] % 2 == 0}
    world = World(functions=functions, flowConditions=[even]).settled()
    assert sorted(world.queue.acked) == list(range(10))


def test_a_function_with_state_that_asks_for_a_retry_keeps_nothing_of_it() -> None:
    left, seen = [4], dict[int, int]()

    def fn(segment: Segment, state: Any) -> Segment:
        state.seen = (state.seen or 0) + 1
        seen[segment["n"]] = state.seen
        if segment["n"] in left:
            left.remove(4)
            raise onyx.Retry("not now")
        return segment

    world = World(work=STATE, functions={"m:count": fn}).settled()
    assert world.queue.failed == [4]
    assert sorted(world.queue.acked) == world.written == list(range(10))
    assert seen == dict.fromkeys(range(10), 1)


def test_what_does_not_fit_the_schema_has_failed() -> None:
    read = {**COLUMNS, "schema": {"m": "int64"}, "required": ["m"]}
    world = World(numbers=1, read=read).settled()
    assert list(world.queue.terminated) == [0]


def test_behind_a_function_with_state_a_message_is_acked_when_the_outputs_have_it() -> None:
    other = {"name": "other", "type": "function", "fn": "m:other"}
    functions = {"m:count": count, "m:other": refuses(5)}
    world = World(work=STATE, after=(other,), functions=functions)
    for output in world.bench.outputs["write"]:
        output.flushes = False
    for _ in range(20):
        world.bench.settle()
        world.bench.clock.advance(1.0)
    assert world.queue.acked == []
    for output in world.bench.outputs["write"]:
        output.flushes = True
    world.settled()
    assert sorted(world.queue.terminated) == [3, 5]
    assert sorted(world.queue.acked) == world.written == [0, 1, 2, 4, 6, 7, 8, 9]


def test_behind_a_function_with_state_a_retry_comes_from_its_log() -> None:
    other = {"name": "other", "type": "function", "fn": "m:other"}
    functions = {"m:count": count, "m:other": asks(5)}
    world = World(work=STATE, after=(other,), functions=functions).settled()
    assert world.queue.failed == [], "its state has the message already"
    assert sorted(world.queue.acked) == world.written == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_behind_a_window_a_failure_ends_the_job() -> None:
    window = {"id": "sums", "task": "work", "type": "global", "aggregation": "count"}
    trigger = {
        "windowId": "sums", "type": "segment", "refinement": "accumulating",
        "threshold": [5, "elements"], "emit": "m:emit",
    }  # fmt: skip
    other = {"name": "other", "type": "function", "fn": "m:other"}
    functions = {"m:emit": lambda *_: {"n": 99}, "m:other": refuses(99)}
    work = {"fn": "m:same", "deduplicate": False}
    world = World(
        work=work, after=(other,), functions=functions, windows=[window], triggers=[trigger]
    )
    assert "99 is bad" in world.ended_by


def test_with_retry_mode_none_what_was_lost_is_given_back() -> None:
    world = World(read={"retryMode": "none"})
    for output in world.bench.outputs["write"]:
        output.flushes = False
    world.bench.settle()
    world.bench.rewire()
    for output in world.bench.outputs["write"]:
        output.flushes = True
    world.settled()
    assert set(world.queue.failed) == set(range(10)), "all that was in flight"
    assert set(world.written) == set(range(10))


def test_what_was_in_flight_when_a_worker_died_is_given_again_and_fails_there() -> None:
    world = World(refuses(3))
    for output in world.bench.outputs["write"]:
        output.flushes = False
    world.bench.settle()
    world.bench.crash(world.bench.task("read"))
    for output in world.bench.outputs["write"]:
        output.flushes = True
    world.settled()
    assert list(world.queue.terminated) == [3]
    assert set(world.queue.acked) == set(world.written) == {0, 1, 2, 4, 5, 6, 7, 8, 9}


def test_a_job_that_drains_leaves_what_comes_again_in_the_queue() -> None:
    world = World(asks(*range(10), times=1000))
    for _ in range(50):
        world.bench.round()
    world.bench.drain()
    world.until(lambda: world.bench.completed)
    assert not world.queue.acked
    assert world.queue.failed


def test_a_job_ends_with_its_source_when_all_has_been_processed_or_refused() -> None:
    world = World(lambda segment: refuses(3)(asking(segment)))
    asking = asks(5, times=3)
    world.queue.ends = True
    world.until(lambda: world.bench.completed)
    assert world.written == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert list(world.queue.terminated) == [3]


def test_a_hook_for_exceptions_decides_first() -> None:
    calls = {"handle_exception": lambda event, lifecycle, phase, error: "kill"}
    lifecycles = [{"task": "work", "calls": "m:calls"}]
    world = World(refuses(3), functions={"m:calls": lambda: calls}, lifecycles=lifecycles)
    assert "3 is bad" in world.ended_by
    assert not world.queue.terminated


def test_a_queue_that_hears_of_no_failures_ends_the_job() -> None:
    world = World(refuses(3), options={"onFailure": "kill"})
    assert "3 is bad" in world.ended_by


def test_a_source_of_ones_own_has_to_take_failures() -> None:
    class Deaf:
        lease_s = None
        term = onyx.plugin.LiveSource.term

        def receive(self, wait_s: float) -> None: ...
        def ack(self, handles: Any) -> None: ...
        def fail(self, handles: Any, after_s: float) -> None: ...
        def working(self, handles: Any) -> None: ...
        def exhausted(self) -> bool:
            return False

        def close(self) -> None: ...

    world = World(functions={"m:deaf": lambda *_: Deaf()}, options={"fn": "m:deaf"})
    assert "has no method term(handles, reasons)" in world.ended_by
