"""The driver of a job with windows over inputs without end: which state counts, and what goes."""

from __future__ import annotations

from typing import Any

from tests.support.jobs.bench import Bench, ScriptedQuery

from onyx.spark.driver.request import (
    BucketState,
    Held,
    Position,
    QueryBatch,
    QueryReply,
    TaskCounts,
)
from onyx.state.names import bucket_chunk, bucket_prefix

SPEC: dict[str, Any] = {
    "engine": "spark",
    "guarantee": "exactly-once",
    "workflow": [["read", "count"], ["count", "drop"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "kafka", "options": {"topic": "t"}},
        {"name": "count", "type": "reduce", "groupByKey": "k", "fluxPolicy": "continue"},
        {"name": "drop", "type": "output", "plugin": "blackhole"},
    ],
    "windows": [{"id": "ever", "task": "count", "type": "global", "aggregation": "count"}],
    "triggers": [{"windowId": "ever", "type": "segment", "threshold": [2, "elements"],
                  "refinement": "accumulating", "emit": "m:row"}],
}  # fmt: skip


def a_bench() -> Bench:
    return Bench(SPEC)


def begun(bench: Bench) -> ScriptedQuery:
    bench.settle()
    return bench.queries[-1]


def staged(bench: Bench, number: int, *names: str, over: bool = False) -> QueryBatch:
    """A micro-batch behind which the state of one bucket is in these chunks; the last is new."""
    for name in names[-1:]:
        bench.store.create(bucket_chunk(bench.id, "count", name), b"state")
    files = tuple((name, 5) for name in names)
    held = Held(4, (BucketState("count", 1, files=files, over=over),))
    position = Position("read", "t-0", number, number, exhausted=over)
    return QueryBatch(number, {}, {"read": TaskCounts(number, number)}, (position,), held)


def chunks(bench: Bench) -> list[str]:
    return [each.name.rpartition("/")[2] for each in bench.store.list(bucket_prefix(bench.id))]


def test_chunks_that_the_new_commit_does_not_name_are_removed_behind_it() -> None:
    bench = a_bench()
    query = begun(bench)
    query.batch = staged(bench, 1, "1-1-aa")
    bench.settle()
    query.batch = staged(bench, 2, "1-1-aa", "2-1-bb")
    bench.settle()
    assert chunks(bench) == ["1-1-aa", "2-1-bb"]
    query.batch = staged(bench, 3, "3-1-cc")
    bench.settle()
    assert chunks(bench) == ["3-1-cc"]


def test_who_takes_over_begins_with_the_state_of_the_last_commit_and_removes_what_tries_left() -> (
    None
):
    bench = a_bench()
    query = begun(bench)
    query.batch = staged(bench, 1, "1-1-aa")
    bench.settle()
    assert bench.store.create(bucket_chunk(bench.id, "count", "1-1-try"), b"of a try that failed")
    assert bench.store.create(bucket_chunk(bench.id, "count", "2-1-late"), b"of a try that runs")
    bench.crash(bench.task("spark"))
    after = begun(bench).request
    assert after.batches == 1
    assert after.held == Held(4, (BucketState("count", 1, files=(("1-1-aa", 5),)),))
    assert chunks(bench) == ["1-1-aa", "2-1-late"]


def test_a_job_that_drains_begins_a_query_that_only_fires_its_windows() -> None:
    bench = a_bench()
    first = begun(bench)
    first.batch = staged(bench, 1, "1-1-aa")
    bench.settle()
    bench.drain()
    last = begun(bench)
    assert first.ended
    assert last is not first
    assert last.request.draining
    last.batch = staged(bench, 2, over=True)
    bench.settle()
    last.answer = QueryReply()
    bench.settle()
    assert bench.completed
    assert len(bench.queries) == 2
    assert chunks(bench) == []


def test_a_job_that_drains_before_its_first_commit_has_nothing_to_fire() -> None:
    bench = a_bench()
    query = begun(bench)
    bench.drain()
    bench.settle()
    assert query.ended
    assert bench.completed
    assert len(bench.queries) == 1


def test_a_worker_with_another_state_store_kills_the_job_rather_than_begin_anew() -> None:
    bench = a_bench()
    query = begun(bench)
    query.batch = staged(bench, 1, "1-1-aa")
    bench.settle()
    for each in bench.store.list(f"{bench.id}/"):
        bench.store.delete(each.name)
    bench.store.create(f"{bench.id}/location.id", b"of another peer")
    bench.crash(bench.task("spark"))
    bench.settle()
    assert [command.NAME for command in bench.proposed][-1] == "kill-job"
    (stored,) = bench.exceptions
    assert "ONYX_STATE_URL" in stored["detail"]
