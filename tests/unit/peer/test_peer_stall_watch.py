"""A task that does not advance is reported beside the log, and the report goes when it does."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.jobs.bench import GROUP, JOB, Bench, chain

from onyx.client.client import Client
from onyx.errors import Blocked
from onyx.log import documents
from onyx.peer.watch import stall_watch
from onyx.peer.watch.stall_watch import StallReports, StallWatch
from onyx.reports.stalls import Reason, Stall, cause
from onyx.task import machine
from onyx.task.source.source import Source
from onyx.telemetry.catalog import JOB_STALLED
from onyx.telemetry.interface import GroupMetrics

SEGMENTS = [{"n": n} for n in range(4)]
AFTER_S = 15.0


class Metrics(GroupMetrics):
    def __init__(self):
        self.found = []

    def replace(self, metric, series):
        assert metric is JOB_STALLED
        self.found = list(series)


class Watched:
    """A bench under a watch, whose tasks share one thread."""

    def __init__(self, fn=lambda segment: segment, functions=None, write=None, **more):
        spec = chain(SEGMENTS, fn="m:fn", **more)
        spec["catalog"][-1].update(write or {})
        self.bench = Bench(spec, {"m:fn": fn, **(functions or {})})
        self.metrics = Metrics()
        self.looks = 0
        reports = StallReports(self.bench.log, self.now)
        self.watch = StallWatch(reports, self.metrics, self.bench.clock, AFTER_S)
        self.permitted = True

    def now(self, work):
        future = Future()
        future.set_result(work())
        return future

    def look(self, seconds=1.0):
        """Seconds pass, with a look after each."""
        runners = [
            SimpleNamespace(task=task, shared=True, thread=threading.get_ident())
            for task in self.bench.tasks.values()
        ]
        for _ in range(int(seconds)):
            self.bench.clock.advance(1.0)
            self.watch.look(runners, self.bench.replica(), self.permitted)

    @property
    def reported(self):
        found = self.bench.log.get_document(documents.stall(JOB, GROUP))
        if found is None:
            return []
        return msgspec.json.decode(found.data, type=list[Stall])

    @property
    def cause(self):
        return cause(self.reported, ("read", "work", "write"))


def test_a_job_that_advances_or_has_ended_is_not_reported():
    watched = Watched()
    watched.bench.start()
    watched.look(2)
    watched.bench.settle()
    watched.look(60)
    assert watched.bench.completed
    assert watched.reported == []
    assert watched.metrics.found == []


def test_an_output_that_has_no_room_is_reported_after_a_while_and_until_it_goes_on(monkeypatch):
    watched = Watched()
    watched.bench.clock.advance(100.0)
    watched.bench.start()
    (output,) = watched.bench.outputs["write"]

    def full(*_):
        raise Blocked("no space left on /data, see https://u:pw@host/x")

    monkeypatch.setattr(output, "write", full)
    watched.bench.settle()
    watched.look(AFTER_S - 1)
    assert watched.reported == []
    watched.look(3)
    assert watched.cause.task == "write"
    assert watched.cause.reason is Reason.UNAVAILABLE
    assert watched.cause.why == "no space left on /data, see https://***@host/x"
    (read,) = [each for each in watched.reported if each.task == "read"]
    assert (read.reason, read.segments, read.is_input) == (Reason.COMPLETIONS, 4, True)
    assert read.oldest_ms > 0
    assert {(task, reason) for _, task, reason in watched.metrics.found} == {
        ("write", Reason.UNAVAILABLE),
        ("read", Reason.COMPLETIONS),
    }
    monkeypatch.undo()
    watched.bench.settle()
    watched.look(2)
    assert watched.bench.completed
    assert watched.reported == []
    assert watched.metrics.found == []


def test_nothing_stalls_while_somebody_debugs(monkeypatch):
    watched = Watched()
    watched.bench.start()
    (output,) = watched.bench.outputs["write"]
    monkeypatch.setattr(output, "write", Mock(side_effect=Blocked("no space left")))
    watched.bench.settle()
    monkeypatch.setattr(stall_watch, "somebody_debugs", lambda: True)
    watched.look(10 * AFTER_S)
    assert watched.reported == []
    monkeypatch.undo()
    monkeypatch.setattr(output, "write", Mock(side_effect=Blocked("no space left")))
    watched.look(AFTER_S - 1)
    assert watched.reported == []
    watched.look(3)
    assert watched.cause.task == "write"


def test_segments_that_rest_before_a_retry_are_counted_with_the_next_try():
    def fails(segment):
        raise ValueError

    retry = {
        "from": "work", "to": "none", "thrownException": True, "shortCircuit": True,
        "predicate": "m:always", "action": "retry",
    }  # fmt: skip
    everything = {"from": "work", "to": ["write"], "predicate": "m:always"}
    functions = {"m:always": lambda *_: True}
    watched = Watched(fails, functions=functions, flowConditions=[retry, everything])
    watched.bench.start()
    for _ in range(40):
        watched.bench.settle()
        watched.look()
    found = watched.cause
    assert (found.task, found.reason) == ("read", Reason.RETRY)
    assert found.why.startswith("4 segments wait for a retry, the next at 1970-01-01T00:")


def test_a_batch_that_fills_for_its_time_out_is_no_stall(monkeypatch):
    monkeypatch.setattr(Source, "finished_reading", lambda _: False)  # else nothing is waited for
    watched = Watched(work={"batchTimeout": 40_000, "batchSize": 10})
    watched.bench.start()
    for _ in range(30):
        watched.bench.settle()
        watched.look()
        assert watched.cause is None
        assert watched.metrics.found == []
    assert watched.bench.outputs["write"][0].written == []
    assert [each.reason for each in watched.reported] == [Reason.COMPLETIONS]
    for _ in range(12):
        watched.bench.settle()
        watched.look()
    assert watched.bench.outputs["write"][0].written == SEGMENTS


def test_a_quiet_part_is_a_stall_only_when_it_is_over_due():
    watched = Watched(write={"options": {"rollSeconds": 40}})
    watched.bench.start()
    watched.bench.outputs["write"][0].flushes = False
    watched.bench.settle()
    watched.look(40 + AFTER_S - 2)
    assert watched.cause is None
    assert watched.metrics.found == []
    watched.look(4)
    assert (watched.cause.task, watched.cause.reason) == ("write", Reason.NOT_DURABLE)
    assert {reason for _, _, reason in watched.metrics.found} >= {Reason.NOT_DURABLE}


def test_the_function_that_keeps_the_thread_is_the_cause_and_shows_where_it_is():
    entered, leave = threading.Event(), threading.Event()

    def stuck(segment):
        entered.set()
        leave.wait(60)
        return segment

    watched = Watched(stuck)
    bench = watched.bench
    bench.start()
    for _ in range(10):
        bench.round(["read"])
    task = bench.task("work")

    thread = threading.Thread(target=machine.advance, args=(task,))
    thread.start()
    assert entered.wait(60)
    try:
        runners = [
            SimpleNamespace(task=each, shared=True, thread=thread.ident)
            for each in bench.tasks.values()
        ]
        for _ in range(20):
            bench.clock.advance(1.0)
            watched.watch.look(runners, bench.replica(), True)
    finally:
        leave.set()
        thread.join()
    found = watched.cause
    assert (found.task, found.reason, found.why) == (
        "work",
        Reason.FUNCTION,
        "function m:fn is running",
    )
    assert [each.function for each in found.stack if each.file == __file__] == ["stuck"]
    others = {each.task: each.reason for each in watched.reported if each.task != "work"}
    assert others == {"read": Reason.THREAD, "write": Reason.THREAD}


def test_a_report_is_not_written_again_while_nothing_changes_nor_without_zookeeper(monkeypatch):
    watched = Watched()
    watched.bench.start()
    (output,) = watched.bench.outputs["write"]
    monkeypatch.setattr(output, "flushes", False)
    watched.bench.settle()
    watched.permitted = False
    watched.look(20)
    assert watched.reported == []
    assert {reason for *_, reason in watched.metrics.found} == {Reason.ZOOKEEPER}
    watched.permitted = True
    watched.look(20)
    assert watched.cause.reason is Reason.NOT_DURABLE
    assert not any(each.overdue_ms for each in watched.reported)
    watched.look(60)
    assert {each.task: each.overdue_ms for each in watched.reported} == {"read": 60_000, "write": 0}
    version = watched.bench.log.get_document(documents.stall(JOB, GROUP)).version
    watched.look(60)
    assert watched.bench.log.get_document(documents.stall(JOB, GROUP)).version == version


@pytest.mark.parametrize("there", [True, False])
def test_reports_of_groups_that_are_gone_count_for_nothing(monkeypatch, there):
    watched = Watched()
    watched.bench.start()
    monkeypatch.setattr(watched.bench.outputs["write"][0], "flushes", False)
    watched.bench.settle()
    watched.look(20)
    replica = watched.bench.replica()
    index = {GROUP: ()} if there else {}
    view = replace(replica, groups_index=Map(index))
    found = Client(watched.bench.log, "balanced").stalls(view, JOB)
    assert bool(found) is there
