"""A windowed task answers questions about its state between its steps."""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.bench import JOB, Bench
from tests.support.spark import keyed_functions

from onyx.codec.questions import decode_extents, encode_selection
from onyx.errors import OnyxError, Unavailable, UserError
from onyx.ids import AllocationVersion, GroupId
from onyx.keystate.extents import ALL
from onyx.keystate.selection import Place, Selection
from onyx.task.task import StateQuestion, Task
from onyx.transport.state_queries import StateAnswer, StateQuery

KEYED = "tests.support.spark.keyed_functions"
WORDS = [{"word": "abc"[n % 3], "n": n} for n in range(30)]
SPEC: dict[str, Any] = {
    "guarantee": "exactly-once",
    "workflow": [["read", "keep"], ["keep", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 3,
         "options": {"segments": WORDS}},
        {"name": "keep", "type": "reduce", "batchSize": 3, "groupByKey": "word", "minPeers": 1,
         "fluxPolicy": "continue"},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 3},
    ],
    "windows": [
        {"id": "counts", "task": "keep", "type": "global", "aggregation": "count"},
        {"id": "whole", "task": "keep", "type": "global", "aggregation": "conj"},
    ],
    "triggers": [
        {"windowId": each, "id": "seldom", "type": "segment", "threshold": [1000, "elements"],
         "refinement": "accumulating", "emit": "m:nothing"}
        for each in ("counts", "whole")
    ],
}  # fmt: skip


@pytest.fixture
def bench() -> Bench:
    return Bench(SPEC, {"m:nothing": lambda *_: None})


def query(task: Task, window: str = "counts", key: Any = ALL, **more: Any) -> StateQuery:
    version = task.allocation.wiring.version if task.wired else AllocationVersion(1)
    asked = StateQuery(
        "tenancy",
        GroupId("g"),
        task.peer,
        JOB,
        version,
        window,
        encode_selection(Selection(key=key)),
        100,
    )
    return replace(asked, **more)


def ask(task: Task, asked: StateQuery) -> Future[StateAnswer]:
    answer: Future[StateAnswer] = Future()
    task.post(StateQuestion(asked, answer))
    return answer


def counts(answer: Future[StateAnswer]) -> dict[Any, int]:
    return {each.group: each.state for each in decode_extents(answer.result(0).data)}


def failure(bench: Bench, asked: StateQuery) -> OnyxError:
    answer = ask(bench.task("keep"), asked)
    bench.step(bench.task("keep"))
    error = answer.exception(0)
    assert isinstance(error, OnyxError)
    assert not bench.exceptions
    return error


def test_what_has_been_gathered_is_told_for_all_groups_or_for_one(bench: Bench) -> None:
    bench.settle()
    task = bench.task("keep")
    everything, one, none = (ask(task, query(task, key=key)) for key in (ALL, "b", "z"))
    bench.step(task)
    assert counts(everything) == {"a": 10, "b": 10, "c": 10}
    assert counts(one) == {"b": 10}
    assert counts(none) == {}
    assert not everything.result().more


def test_an_answer_has_a_batch_wholly_or_not_at_all(bench: Bench) -> None:
    bench.start()
    task = bench.task("keep")
    seen = set()
    for _ in range(200):
        bench.round(["read"])
        answer = ask(task, query(task))
        bench.round(["keep"])
        found = counts(answer)
        assert len(set(found.values())) <= 1, "a batch has one of each"
        seen.add(sum(found.values()))
    assert len(seen) > 5


def test_an_answer_is_not_changed_by_what_comes_after_it(bench: Bench) -> None:
    bench.start()
    task = bench.task("keep")
    answer: Future[StateAnswer] = Future()
    while not (answer.done() and decode_extents(answer.result().data)):
        bench.round()
        answer = ask(task, query(task, "whole", "a"))
        bench.step(task)
    before = decode_extents(answer.result().data)[0].state
    bench.settle()
    assert decode_extents(answer.result().data)[0].state == before
    assert len(before) < 10


def test_only_so_many_extents_are_sent_and_there_are_more(bench: Bench) -> None:
    bench.settle()
    task = bench.task("keep")
    answer = ask(task, query(task, extents_max=2))
    bench.step(task)
    assert list(counts(answer)) == ["a", "b"]
    assert answer.result().more


def test_another_allocation_version_is_answered_by_nobody(bench: Bench) -> None:
    bench.settle()
    asked = query(bench.task("keep"), version=AllocationVersion(7))
    assert isinstance(failure(bench, asked), Unavailable)


def test_a_task_that_has_not_recovered_its_state_is_asked_again_later(bench: Bench) -> None:
    assert isinstance(failure(bench, query(bench.task("keep"))), Unavailable)


def test_a_window_that_does_not_exist_harms_nobody(bench: Bench) -> None:
    bench.start()
    error = failure(bench, query(bench.task("keep"), "none"))
    assert isinstance(error, UserError)
    assert "counts" in str(error)
    bench.settle()
    assert bench.completed


def test_a_question_that_nobody_waits_for_any_more_is_dropped(bench: Bench) -> None:
    bench.settle()
    answer = ask(bench.task("keep"), query(bench.task("keep")))
    assert answer.cancel()
    bench.step(bench.task("keep"))
    assert answer.cancelled()


class SlowLog:
    """The state log of the task is written when the test says so; all else goes on."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.waiting: list[Any] = []
        bench.start()
        self.task = bench.task("keep")
        for _ in range(200):
            if self.waiting:
                return
            self.go_on()
        raise AssertionError("no chunk is on its way")

    def go_on(self) -> None:
        self.bench.round(["read"])
        self.step()

    def step(self) -> None:
        self.bench.slow = self.waiting
        self.bench.clock.advance(0.2)
        self.bench.step(self.task)
        self.bench.slow = None

    def write(self) -> None:
        self.bench.slow, self.waiting = self.waiting, []
        self.bench.finish_slow()

    def ask(self, durable: bool) -> Future[StateAnswer]:
        answer = ask(self.task, query(self.task, durable=durable))
        self.step()
        return answer


def test_a_durable_answer_comes_when_all_that_it_tells_of_is_in_the_state_log(
    bench: Bench,
) -> None:
    log = SlowLog(bench)
    first, now = log.ask(durable=True), log.ask(durable=False)
    while log.ask(durable=False).result(0).data == now.result(0).data:
        log.go_on()
    behind = log.ask(durable=True)
    assert not first.done()

    log.write()
    log.step()
    assert counts(first) == counts(now)
    assert not behind.done(), "the next chunk has it"
    log.write()
    bench.settle()
    assert sum(counts(behind).values()) > sum(counts(first).values())


def test_a_durable_answer_comes_at_once_when_nothing_is_on_its_way(bench: Bench) -> None:
    bench.settle()
    task = bench.task("keep")
    answer = ask(task, query(task, durable=True))
    bench.step(task)
    assert counts(answer) == {"a": 10, "b": 10, "c": 10}


def test_a_durable_answer_is_asked_for_again_after_a_new_allocation(bench: Bench) -> None:
    log = SlowLog(bench)
    answer = log.ask(durable=True)
    assert not answer.done()
    bench.rewire()
    log.step()
    assert isinstance(answer.exception(0), Unavailable)


def test_a_durable_answer_of_a_task_that_ends_is_given_up(bench: Bench) -> None:
    log = SlowLog(bench)
    answer = log.ask(durable=True)
    bench.stop(log.task)
    assert isinstance(answer.exception(0), Unavailable)


def test_a_state_in_memory_has_no_durable_answer() -> None:
    bench = Bench({**SPEC, "guarantee": "at-most-once"}, {"m:nothing": lambda *_: None})
    bench.start()
    error = failure(bench, query(bench.task("keep"), durable=True))
    assert "at-most-once" in str(error)


def test_pages_go_on_behind_the_place_that_they_are_given(bench: Bench) -> None:
    bench.settle()
    task = bench.task("keep")
    selection = encode_selection(Selection(after=Place("a", -math.inf, math.inf)))
    answer = ask(task, query(task, selection=selection, extents_max=1))
    bench.step(task)
    assert counts(answer) == {"b": 10}
    assert answer.result().more


def test_tasks_that_only_keep_state_need_no_output() -> None:
    keyed = {"type": "function", "groupByKey": "word", "fluxPolicy": "continue",
             "state": {"count": "value[int]"}}  # fmt: skip
    spec = {
        **SPEC,
        "workflow": [["read", "keep"], ["read", "dicts"], ["read", "columns"]],
        "catalog": [
            *SPEC["catalog"][:-1],
            {"name": "dicts", "fn": f"{KEYED}:tallied", **keyed},
            {"name": "columns", "fn": f"{KEYED}:counted", "batchFormat": "arrow", **keyed},
        ],
        "triggers": [],
    }
    words = [{"key": each["word"], "v": each["n"], **each} for each in WORDS]
    spec["catalog"][0] = {**spec["catalog"][0], "options": {"segments": words}}
    functions = {f"{KEYED}:{name}": fn for name, fn in vars(keyed_functions).items()}
    bench = Bench(spec, functions, peers={"dicts": 2})
    bench.settle()
    assert bench.completed
    for name in ("keep", "columns", "dicts"):
        tasks = [task for task in bench.tasks.values() if task.name == name]
        what = "counts" if name == "keep" else f"{name}.count"
        answers = [ask(task, query(task, what)) for task in tasks]
        for task in tasks:
            bench.step(task)
        found = [each for answer in answers for each in counts(answer).items()]
        assert sorted(found) == [("a", 10), ("b", 10), ("c", 10)]
