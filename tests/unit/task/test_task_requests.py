"""A segment of a request that fails for good is the answer to that request, and of no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.jobs.bench import JOB, Bench
from tests.support.patience import WAIT_S, rounds

import onyx
from onyx.errors import OutputFailed, Unavailable, UserError
from onyx.ids import GroupId, TaskName
from onyx.journal.journal import Journal
from onyx.journal.logs import PartitionFolder
from onyx.ledger.outcomes import FailedSegment, Outcomes
from onyx.plugins.protocol import RefusedSegments
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.requests.mailboxes import Address
from onyx.requests.request import Answer, Level, Request, Status

Segment = dict[str, Any]


def greet(segment: Segment) -> Segment:
    """What the README has."""
    return {"n": segment["n"], "text": f"Hello, {segment['who']}"}


class World:
    """read -> work -> write, with an output `bad`; requests go to the mailbox of `read`."""

    def __init__(
        self,
        work: Mapping[str, Any] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        read: Mapping[str, Any] | None = None,
        after: tuple[Mapping[str, Any], ...] = (),
        guarantee: str = "at-least-once",
        **more: Any,
    ) -> None:
        middle = [{"name": "work", "type": "function", "fn": "m:greet", **(work or {})}, *after]
        names = [each["name"] for each in middle]
        path = ["read", *names, "write"]
        edges = more.pop("edges", [])
        catalog = [
            {"name": "read", "type": "input", "plugin": "requests", "options": options or {}}
            | dict(read or {}),
            *middle,
            {"name": "write", "type": "output", "plugin": "blackhole"} | more.pop("write", {}),
            *([{"name": "bad", "type": "output", "plugin": "blackhole"}] if edges else ()),
        ]
        workflow = [list(each) for each in pairwise(path)]
        spec = {
            "guarantee": guarantee,
            "workflow": [*workflow, *edges],
            "catalog": catalog,
            **more,
        }
        self._begin(Bench(spec, {"m:greet": greet, **(functions or {})}))

    @classmethod
    def of(cls, bench: Bench) -> World:
        """Of another job, with an input `read` of requests and an output `write`."""
        world = cls.__new__(cls)
        world._begin(bench)
        return world

    def _begin(self, bench: Bench) -> None:
        self.bench = bench
        bench.start()
        self.numbers = iter(range(1_000_000))

    @property
    def mailbox(self) -> RequestQueue:
        found = self.bench.mailboxes.find(Address(JOB, TaskName("read"), 0))
        assert isinstance(found, RequestQueue)
        return found

    def ask(self, *segments: Segment, id: str = "", level: Level = Level.ACK) -> Future[Answer]:
        id = id or f"request-{next(self.numbers)}"
        return self.mailbox.offer(Request(id, id.encode(), list(segments), level, 100))

    def answered(self, future: Future[Answer]) -> Answer:
        """The answer, when the thread of the journal has taken the request."""
        self.until(future.done)
        return future.result()

    def taken(self) -> None:
        """Wait until the thread of the journal has taken all requests."""
        ends_s = time.monotonic() + WAIT_S
        while self.mailbox.waiting[0]:
            assert time.monotonic() < ends_s, "the journal takes nothing"

    def until(self, condition: Callable[[], bool]) -> None:
        self.taken()
        for _ in rounds():
            self.bench.settle()
            if condition():
                return
            assert not self.bench.exceptions, self.bench.exceptions
            self.bench.clock.advance(1.0)
        raise AssertionError("it does not come")

    def failed(self) -> list[dict[str, Any]]:
        """What has ended the job."""
        for _ in rounds():
            self.bench.settle()
            if self.bench.exceptions:
                break
        return self.bench.exceptions

    def answer(self, *segments: Segment, **more: Any) -> Answer:
        return self.answered(self.ask(*segments, **more))

    @property
    def written(self) -> list[int]:
        return sorted(each["n"] for each in self.bench.written("write"))


def good(n: int) -> Segment:
    return {"n": n, "who": "Ann"}


def bad(n: int) -> Segment:
    return {"n": n, "name": "Bob"}


def of_batch(segments: list[Segment]) -> list[Segment]:
    return [greet(each) for each in segments]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_what_fails_is_the_answer_and_other_requests_go_on(guarantee: str) -> None:
    world = World(guarantee=guarantee)
    answer = world.answer(good(0), bad(1), good(2))
    assert answer.status is Status.FAILED
    [failed] = answer.outcomes.failures
    assert (failed.task, failed.segment) == ("work", 1)
    assert failed.error.startswith("KeyError: 'who' (test_task_requests.py, line ")
    assert answer.reason == f"segment 1 of the request failed in task work: {failed.error}"
    assert answer.segments == 3
    assert world.answer(good(3)) == Answer(Status.PROCESSED, segments=1)
    assert world.written == [0, 2, 3]


def test_a_request_that_has_failed_has_the_same_answer_again() -> None:
    world = World()
    first = world.answer(bad(0), id="once")
    assert world.answer(bad(0), id="once") == first


def test_of_many_failures_the_first_are_named_and_all_are_counted() -> None:
    answer = World().answer(*map(bad, range(500)))
    assert answer.outcomes.failed == 500
    assert len(answer.outcomes.failures) == 100
    assert answer.reason.endswith("(500 segments of the request failed)")


def test_dead_letters_are_counted_with_their_first_error() -> None:
    world = World({"deadLetter": "bad"}, edges=[["work", "bad"]])
    answer = world.answer(good(0), bad(1), bad(2))
    assert answer.status is Status.PROCESSED
    error = answer.outcomes.first_error
    assert error.startswith("work: KeyError: 'who'")
    assert answer.outcomes == Outcomes(dead_letters=2, first_error=error)
    assert len(world.bench.written("bad")) == 2


def test_what_a_condition_for_exceptions_takes_is_counted() -> None:
    condition = {
        "from": "work", "to": ["bad"], "predicate": "m:always", "thrownException": True,
        "shortCircuit": True, "postTransform": "m:mend",
    }  # fmt: skip
    others = {"from": "work", "to": ["write"], "predicate": "m:always"}
    functions = {"m:always": lambda *_: True, "m:mend": lambda event, old, error: {"n": old["n"]}}
    world = World(functions=functions, flowConditions=[condition, others], edges=[["work", "bad"]])
    answer = world.answer(good(0), bad(1))
    assert answer.status is Status.PROCESSED
    assert answer.outcomes.exceptions == 1
    assert answer.outcomes.first_error.startswith("work: KeyError")


def test_what_matches_no_condition_is_counted() -> None:
    even = {"from": "work", "to": ["write"], "predicate": "m:even"}
    functions = {"m:even": lambda event, old, new, all_new: new["n"] % 2 == 0}
    world = World(functions=functions, flowConditions=[even])
    answer = world.answer(*map(good, range(5)))
    assert (answer.status, answer.outcomes) == (Status.PROCESSED, Outcomes(unmatched=2))


def test_of_several_made_of_one_those_that_match_nothing_are_counted() -> None:
    even = {"from": "work", "to": ["write"], "predicate": "m:even"}
    functions = {
        "m:even": lambda event, old, new, all_new: new["n"] % 2 == 0,
        "m:twice": lambda segment: [{"n": segment["n"]}, {"n": segment["n"] + 1}],
    }
    world = World({"fn": "m:twice"}, functions, flowConditions=[even])
    answer = world.answer({"n": 0}, {"n": 2})
    assert (answer.status, answer.outcomes) == (Status.PROCESSED, Outcomes(unmatched=2))
    assert world.written == [0, 2]


def fails_at(*tries: int) -> Callable[[Segment], Segment]:
    """Asks for a retry at these calls."""
    calls = iter(range(1_000_000))

    def fn(segment: Segment) -> Segment:
        if next(calls) in tries:
            raise onyx.Retry("not now", max_retries=10_000)
        return segment

    return fn


def test_a_retry_is_waited_for() -> None:
    world = World({"fn": "m:flaky"}, {"m:flaky": fails_at(0, 1)})
    assert world.answer(good(0)) == Answer(Status.PROCESSED, segments=1)


def test_with_on_failure_answer_the_first_failure_is_the_answer() -> None:
    flaky = {"m:flaky": fails_at(0)}
    world = World({"fn": "m:flaky"}, flaky, options={"onFailure": "answer"})
    answer = world.answer(good(0))
    assert answer.status is Status.FAILED
    assert answer.outcomes.first_error.startswith("work: Retry: not now")
    assert world.written == []


def test_who_waits_for_a_retry_without_end_can_ask_why() -> None:
    flaky = {"m:flaky": fails_at(*range(1_000))}
    world = World({"fn": "m:flaky"}, flaky)
    future = world.ask(good(0), id="slow")
    world.until(lambda: bool(world.mailbox.obstacle("slow")))
    assert "work: Retry: not now" in world.mailbox.obstacle("slow")
    assert not future.done()


def test_what_is_given_up_has_failed() -> None:
    flaky = {"m:flaky": fails_at(0)}
    world = World({"fn": "m:flaky"}, flaky, read={"retryMode": "none"})
    answer = world.answer(good(0))
    assert answer.status is Status.FAILED
    assert answer.outcomes.given_up == 1
    assert "Retry: not now" in answer.reason
    assert world.answer(good(1)) == Answer(Status.PROCESSED, segments=1)


@pytest.mark.parametrize("retry_mode", ["individual", "all-after", "none"])
def test_a_failure_for_good_is_the_answer_in_each_retry_mode(retry_mode: str) -> None:
    world = World(read={"retryMode": retry_mode})
    assert world.answer(good(0), bad(1)).status is Status.FAILED
    assert world.answer(good(2)).status is Status.PROCESSED


def test_a_failure_further_down_is_the_answer_too() -> None:
    later = {"name": "later", "type": "function", "fn": "m:later"}
    functions = {"m:later": lambda segment: greet({**segment, "who": segment["whom"]})}
    functions["m:same"] = lambda segment: segment
    world = World({"fn": "m:same"}, functions, after=(later,))
    answer = world.answer(good(0))
    assert answer.outcomes.failures[0].task == "later"
    assert answer.outcomes.failures[0].segment == 0


def test_a_function_of_an_output_may_fail() -> None:
    world = World({"fn": "m:same"}, {"m:same": lambda segment: segment}, write={"fn": "m:greet"})
    answer = world.answer(good(0), bad(1))
    assert (answer.status, answer.outcomes.failures[0].task) == (Status.FAILED, "write")
    assert world.written == [0]


def test_a_function_of_an_input_may_fail() -> None:
    world = World({"fn": "m:same"}, {"m:same": lambda segment: segment}, read={"fn": "m:greet"})
    answer = world.answer(good(0), bad(1))
    assert (answer.status, answer.outcomes.failures[0].task) == (Status.FAILED, "read")
    assert world.written == [0]


def test_a_function_over_a_batch_fails_for_all_of_it() -> None:
    world = World({"batchFn": True, "fn": "m:batch"}, {"m:batch": of_batch})
    answer = world.answer(good(0), bad(1))
    assert (answer.status, answer.outcomes.failed) == (Status.FAILED, 2)
    assert world.answer(good(2)).status is Status.PROCESSED


def test_what_does_not_fit_the_schema_has_failed() -> None:
    work = {"batchFormat": "arrow", "schema": {"n": "int64", "who": "string"}, "fn": "m:same"}
    world = World(work, {"m:same": lambda batch: batch})
    answer = world.answer(good(0), {"n": "x", "who": "Ann"})
    assert (answer.status, answer.outcomes.failed) == (Status.FAILED, 1)
    assert answer.outcomes.failures[0].segment == 1
    assert world.written == [0]


def count(segment: Segment, state: Any) -> Segment:
    greet(segment)
    state.seen = (state.seen or 0) + 1
    return segment


def test_a_function_with_state_may_fail() -> None:
    work = {
        "fn": "m:count",
        "groupByKey": "n",
        "state": {"seen": "value"},
        "fluxPolicy": "continue",
        "deduplicate": False,
    }
    world = World(work, {"m:count": count})
    answer = world.answer(good(0), bad(1))
    assert (answer.status, answer.outcomes.failures[0].task) == (Status.FAILED, "work")
    assert world.answer(good(2)).status is Status.PROCESSED
    assert world.written == [0, 2]


def test_a_window_refuses_a_segment() -> None:
    window = {
        "id": "sums", "task": "work", "type": "fixed", "range": "1 hour", "windowKey": "at",
        "aggregation": "count",
    }  # fmt: skip
    work = {"fn": "m:same", "deduplicate": False}
    world = World(work, {"m:same": lambda segment: segment}, windows=[window])
    answer = world.answer({"n": 1, "at": "2026-01-01T00:00:00Z"}, {"n": 2})
    assert (answer.status, answer.outcomes.failures[0].segment) == (Status.FAILED, 1)


def test_with_ack_returns_the_others_give_back() -> None:
    def fn(segment: Segment) -> Segment:
        onyx.ack_return("n", segment["n"])
        return greet(segment)

    world = World({"fn": "m:fn"}, {"m:fn": fn}, ackReturns={"n": "sum"})
    answer = world.answer(good(1), bad(2), good(3))
    assert (answer.status, answer.outcomes.failed) == (Status.FAILED, 1)
    assert answer.outcomes.failures == (
        FailedSegment("work", answer.outcomes.failures[0].error, 1),
    )


def test_what_another_input_has_given_ends_the_job() -> None:
    spec = {
        "workflow": [["read", "work"], ["numbers", "work"], ["work", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "requests"},
            {
                "name": "numbers", "type": "input", "plugin": "sequence",
                "options": {"segments": [{"n": 0}]},
            },
            {"name": "work", "type": "function", "fn": "m:greet"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    }  # fmt: skip
    bench = Bench(spec, {"m:greet": greet})
    bench.settle()
    [reported] = bench.exceptions
    assert "m:greet raised KeyError: 'who'" in reported["detail"]


@pytest.mark.parametrize("verdict", ["kill", "defer"])
def test_a_hook_for_exceptions_decides_first(verdict: str) -> None:
    calls = {"handle_exception": lambda event, lifecycle, phase, error: verdict}
    lifecycles = [{"task": "work", "calls": "m:calls"}]
    world = World(functions={"m:calls": lambda: calls}, lifecycles=lifecycles)
    future = world.ask(bad(0))
    if verdict == "defer":
        assert world.answered(future).status is Status.FAILED
        return
    world.until(lambda: bool(world.bench.exceptions))


def test_a_failure_is_in_the_journal_before_it_is_answered_while_the_job_drains() -> None:
    world = World()
    waiting = world.ask(bad(1), good(2), id="one")
    world.taken()
    world.bench.drain()
    answer = world.answered(waiting)

    assert answer.status is Status.FAILED
    folder = PartitionFolder(JOB, "read", 0)
    (known,) = Journal(world.bench.store, folder, 2, GroupId("next")).restored
    assert known.outcomes is not None, "the next owner would say that it is processed"
    world.until(lambda: world.bench.completed)


def _nothing(wait_s: float) -> None:
    time.sleep(wait_s / 10)


def test_the_frontier_of_a_job_that_drains_waits_for_what_the_journal_is_to_know() -> None:
    world = World()
    # From the beginning: its thread may judge before the job drains.
    judged, world.mailbox.judged = world.mailbox.judged, _nothing  # type: ignore[method-assign]
    world.ask(bad(1), id="one")
    world.taken()
    world.bench.drain()
    world.bench.settle()
    assert not world.bench.completed

    world.mailbox.judged = judged  # type: ignore[method-assign]
    world.until(lambda: world.bench.completed)


def picky(world: World, on_write: Callable[[Segment], None]) -> None:
    """The plugin of the output cannot write some segments."""
    (output,) = world.bench.outputs["write"]
    write = output.write

    def checked(segments: list[Segment]) -> None:
        for each in segments:
            on_write(each)
        write(segments)

    output.write = checked  # type: ignore[method-assign]


def no_bob(segment: Segment) -> None:
    if segment.get("text") == "Hello, Bob":
        raise ValueError("no Bob in this table")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_what_a_plugin_of_an_output_cannot_write_is_the_answer(guarantee: str) -> None:
    world = World(guarantee=guarantee)
    picky(world, no_bob)
    waiting = [world.ask(good(0), {"n": 1, "who": "Bob"}, good(2)), world.ask(good(3))]
    one, other = [world.answered(each) for each in waiting]

    assert (one.status, other.status) == (Status.FAILED, Status.PROCESSED)
    (failure,) = one.outcomes.failures
    assert (failure.task, failure.segment) == ("write", 1)
    assert "no Bob in this table" in failure.error
    assert world.written == [0, 2, 3]
    assert world.answer(good(4)).status is Status.PROCESSED, "the job goes on"


def mixed(segment: Segment) -> Segment:
    return {"n": segment["n"] if segment["who"] == "Ann" else segment["who"]}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_what_does_not_fit_into_parquet_is_the_answer(guarantee: str, tmp_path: Path) -> None:
    write = {"plugin": "files", "options": {"path": str(tmp_path), "format": "parquet"}}
    world = World({"fn": "m:mixed"}, {"m:mixed": mixed}, write=write, guarantee=guarantee)
    waiting = [world.ask(good(0), {"n": 1, "who": "Bob"}, good(2)), world.ask(good(3))]
    one, other = [world.answered(each) for each in waiting]

    assert (one.status, other.status) == (Status.FAILED, Status.PROCESSED)
    (failure,) = one.outcomes.failures
    assert (failure.task, failure.segment) == ("write", 1)
    assert "cannot be written as Parquet" in failure.error
    assert world.answer(good(4)).status is Status.PROCESSED, "the job goes on"
    parts = [pq.read_table(part).to_pylist() for part in tmp_path.glob("part-*")]
    assert sorted(row["n"] for rows in parts for row in rows) == [0, 2, 3, 4]


class Server:
    """Refuses some of what an output had taken, as a server does: `protocol.RefusingOutput`."""

    def __init__(self, world: World, kept: bool = False) -> None:
        (output,) = world.bench.outputs["write"]
        self.refused: list[RefusedSegments] = []
        flush = output.flush

        def flushed() -> None:
            first = output.durable_count
            flush()
            for at, each in enumerate(output.written[first:], first):
                if each.get("text") == "Hello, Bob":
                    error = UserError("422: no Bob in this shop")
                    self.refused.append(RefusedSegments(at, 1, error, kept))

        def take_refused() -> list[RefusedSegments]:
            refused, self.refused = self.refused, []
            return refused

        output.flush = flushed  # type: ignore[method-assign]
        output.take_refused = take_refused  # type: ignore[attr-defined]
        world.bench.task("write").runtime.sink._refusing = output


def test_what_a_server_refuses_later_is_the_answer() -> None:
    world = World()
    Server(world)
    waiting = [world.ask(good(0), {"n": 1, "who": "Bob"}, good(2)), world.ask(good(3))]
    one, other = [world.answered(each) for each in waiting]

    assert (one.status, other.status) == (Status.FAILED, Status.PROCESSED)
    (failure,) = one.outcomes.failures
    assert (failure.task, failure.segment) == ("write", 1)
    assert "no Bob in this shop" in failure.error
    assert world.answer(good(4)).status is Status.PROCESSED, "the job goes on"


def test_what_a_server_refuses_and_is_in_dead_letters_is_counted() -> None:
    world = World()
    Server(world, kept=True)
    answer = world.answer(good(0), {"n": 1, "who": "Bob"})
    assert (answer.status, answer.outcomes.dead_letters) == (Status.PROCESSED, 1)
    assert answer.outcomes.first_error == "write: 422: no Bob in this shop"


def test_of_several_made_of_one_segment_one_refusal_is_told() -> None:
    def twice(segment: Segment) -> list[Segment]:
        return [segment, segment]

    world = World(write={"fn": "m:twice"}, functions={"m:twice": twice})
    Server(world)
    answer = world.answer(good(0), {"n": 1, "who": "Bob"}, good(2))
    assert [each.segment for each in answer.outcomes.failures] == [1]
    assert answer.outcomes.failed == 1


@pytest.mark.parametrize("verdict", ["kill", "defer"])
def test_a_hook_for_exceptions_decides_first_about_what_a_server_refuses(verdict: str) -> None:
    world = World(
        lifecycles=[{"task": "write", "calls": "m:calls"}],
        functions={"m:calls": lambda: {"handle_exception": lambda *of: verdict}},
    )
    Server(world)
    future = world.ask({"n": 1, "who": "Bob"})
    if verdict == "defer":
        assert world.answered(future).status is Status.FAILED
        return
    assert "no Bob in this shop" in str(world.failed())


def test_what_a_server_refuses_of_another_input_ends_the_job() -> None:
    segments = [{"n": 1, "who": "Bob"}]
    spec = {
        "workflow": [["read", "work"], ["others", "work"], ["work", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "requests"},
            {"name": "others", "type": "input", "plugin": "sequence",
             "options": {"segments": segments}},
            {"name": "work", "type": "function", "fn": "m:greet"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    }  # fmt: skip
    world = World.of(Bench(spec, {"m:greet": greet}))
    Server(world)
    assert "no Bob in this shop" in str(world.failed())


def test_a_plugin_that_cannot_write_now_is_waited_for() -> None:
    world, times = World(), iter(range(3))

    def later(segment: Segment) -> None:
        if next(times, None) is not None:
            raise Unavailable("not now")

    picky(world, later)
    assert world.answer(good(0), good(1)).status is Status.PROCESSED
    assert world.written == [0, 1]


def test_what_an_output_had_taken_and_cannot_keep_is_no_answer_to_what_comes_then() -> None:
    world = World()

    def failed(segment: Segment) -> None:
        raise OutputFailed("task 'write': the table is gone")

    picky(world, failed)
    world.ask(good(0))
    assert "the table is gone" in str(world.failed())


def test_what_a_plugin_raises_at_a_flush_ends_the_job_and_names_it() -> None:
    world = World()
    (output,) = world.bench.outputs["write"]

    def flush() -> None:
        raise KeyError("no such table")

    output.flush = flush  # type: ignore[method-assign]
    world.ask(good(0))
    (reported, *_) = world.failed()
    assert reported["task"] == "write"
    assert "raised KeyError: 'no such table' (test_task_requests.py, line" in reported["detail"]
    assert reported["detail"].startswith("plugin ")


@pytest.mark.parametrize("verdict", ["kill", "defer"])
def test_a_hook_for_exceptions_decides_first_about_what_a_plugin_raises(verdict: str) -> None:
    hooks = {"handle_exception": lambda event, lifecycle, phase, error: verdict}
    world = World(
        lifecycles=[{"task": "write", "calls": "m:hooks"}], functions={"m:hooks": lambda: hooks}
    )
    picky(world, no_bob)
    waiting = world.ask({"n": 1, "who": "Bob"})
    if verdict == "kill":
        assert world.failed()
    else:
        assert world.answered(waiting).status is Status.FAILED


@pytest.mark.short(3)
@pytest.mark.parametrize("columns", [False, True], ids=["dicts", "columns"])
@pytest.mark.parametrize("peers", [(1, 3), (3, 2), (2, 4)])
def test_after_a_rescaling_an_answer_still_waits_for_what_was_made_before(
    columns: bool, peers: tuple[int, int]
) -> None:
    work = {
        "fn": "m:same", "groupByKey": "n", "state": {"seen": "value[int]"},
        "fluxPolicy": "continue",
        **({"batchFormat": "arrow"} if columns else {}),
    }  # fmt: skip
    functions = {"m:same": lambda segment, state: segment}
    world = World(work, functions, guarantee="exactly-once")
    world.bench.rewire(work=peers[0])
    world.bench.settle()
    wait_for_the_output(world, [{"n": n} for n in range(6)], work=peers[1])


def wait_for_the_output(world: World, segments: list[Segment], **peers: int) -> None:
    """Requests with a segment each are answered when the output is durable, and not before, though
    a task has other peers meanwhile."""
    (output,) = world.bench.outputs["write"]
    before, output.flushes = len(output.written), False
    waiting = [world.ask(each) for each in segments]
    world.taken()
    world.bench.settle()
    assert len(output.written) == before + len(segments)
    world.bench.rewire(**peers)
    for _ in range(3):
        world.bench.settle()
        world.bench.clock.advance(1.0)
    assert [each.done() for each in waiting] == [False] * len(waiting)
    output.flushes = True
    for each in waiting:
        assert world.answered(each).status is Status.PROCESSED


@pytest.mark.parametrize("peers", [(1, 3), (2, 4)])
def test_after_a_rescaling_an_answer_waits_for_what_a_join_had_made(peers: tuple[int, int]) -> None:
    sides = tuple({"name": each, "type": "function", "fn": "m:same"} for each in ("left", "right"))
    catalog = [
        {"name": "read", "type": "input", "plugin": "requests"},
        *sides,
        {
            "name": "meet", "type": "join", "how": "inner", "fluxPolicy": "continue",
            "left": {"task": "left", "key": "n", "at": "at"},
            "right": {"task": "right", "key": "n", "at": "at", "prefix": "r_"},
            "within": {"before": 0, "after": 0},
        },
        {"name": "give", "type": "function", "fn": "m:give"},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ]  # fmt: skip
    workflow = [["read", "left"], ["read", "right"], ["left", "meet"], ["right", "meet"],
                ["meet", "give"], ["give", "write"]]  # fmt: skip
    spec = {"guarantee": "exactly-once", "workflow": workflow, "catalog": catalog,
            "ackReturns": {"sum": "sum"}}  # fmt: skip

    def give(segment: Segment) -> Segment:
        onyx.ack_return("sum", segment["n"])
        return segment

    world = World.of(Bench(spec, {"m:same": lambda segment: segment, "m:give": give}))
    world.bench.rewire(meet=peers[0])
    world.bench.settle()
    waiting = [world.ask({"n": n, "at": n}) for n in range(6)]
    answers = [world.answered(each) for each in waiting]
    assert [each.parts["sum"].value for each in answers] == list(range(6)), "told apart"

    wait_for_the_output(world, [{"n": n, "at": n} for n in range(10, 16)], meet=peers[1])


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, set()),
        ({"read": {"batchTimeout": 50}}, {"read"}),
        ({"read": {"segmentsPerSecondMax": 10}}, {"read"}),
        ({"work": {"batchTimeout": 50}}, {"work"}),
        ({"write": {"plugin": "stdout"}}, set()),
    ],
)
def test_tasks_are_woken_by_requests_unless_they_wait_for_time(
    options: Mapping[str, Any], asked: set[str]
) -> None:
    world = World(**options)
    assert world.answer(good(1)).status is Status.PROCESSED
    world.bench.clock.advance(1.0)  # acks that gather have left
    world.bench.settle()
    names = ("read", "work", "write")
    assert {each for each in names if not world.bench.task(each).woken} == asked
