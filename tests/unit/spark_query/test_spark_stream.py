"""A query over inputs without end: each micro-batch is published once, whoever dies and whatever
Spark repeats.

Without a JVM (`support.spark.query`): the source, the fragments and the hand-over are real.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.spark.query import Frames
from tests.support.spark.stream import Worker, written

from onyx.errors import ManifestError
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.plan import render
from onyx.spark.driver.request import TaskCounts

MODULE = '''
from onyx.plugins.bases import IndexedReader
from onyx.plugins.protocol import Input

LINES = 50
PARTITIONS = ["a", "b"]

class Ticks(Input):
    """So many lines a read, and an end that is not known before it is reached."""
    cooperative = True

    def __init__(self, context, a_read=7, end=LINES):
        self.a_read, self.end = a_read, end

    def partitions(self):
        return PARTITIONS

    def open(self, partition, cursor):
        def fetch(first, most):
            return [
                {"at": partition, "n": n}
                for n in range(first, min(LINES, first + most, first + self.a_read))
            ]
        return IndexedReader(cursor.position, fetch, lambda: self.end)

    def close(self):
        pass

def ticks(context):
    return Ticks(context)

def quiet(context):
    return Ticks(context, 0, None)

def double(segment):
    return {**segment, "n": segment["n"] * 2}

def fails_at_30(segment):
    if segment["n"] == 30:
        raise ValueError("thirty")
    return segment
'''
EXPECTED = sorted((at, n * 2) for at in "ab" for n in range(50))
SPEC = """
  workflow: [[read, double], [double, write]]
  catalog:
    - {name: read, type: input, plugin: "ticking:ticks"}
    - {name: double, type: function, fn: "ticking:double"}
    - {name: write, type: output, plugin: files, options: {path: out, format: jsonl}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "ticking.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 20)
    yield tmp_path
    sys.modules.pop("ticking", None)


def job(spec: str = SPEC) -> Job:
    head = "apiVersion: onyx.dev/v1beta1\nkind: OnyxJob\nmetadata: {name: ticks}\nspec:\n"
    return parse_manifest((head + spec).encode())


def rows(folder: Path) -> list[tuple[str, int]]:
    return sorted((each["at"], each["n"]) for each in written(folder))


def worker_of(folder: Path, spec: str = SPEC) -> Worker:
    return Worker(job(spec), folder, ("ticking",))


def test_each_micro_batch_is_published_as_it_comes_and_the_query_ends_with_its_inputs(
    folder: Path,
) -> None:
    worker = worker_of(folder)
    seen: list[int] = []
    worker.then = lambda batch: seen.append(len(rows(folder)))
    reply = worker.run()
    assert reply.failure is None, reply.failure
    assert rows(folder) == EXPECTED
    assert [each.number for each in worker.batches] == [1, 2, 3]
    assert seen == [40, 80, 100]
    assert {each.position for each in worker.batches[-1].positions} == {50}
    assert reply.tasks["write"] == TaskCounts(100, 100)


@pytest.mark.parametrize("when", ["before the commit", "behind it"])
def test_a_worker_that_dies_leaves_every_row_once(folder: Path, when: str) -> None:
    worker = worker_of(folder)
    worker.dies = lambda batch: when if batch.number == 2 else ""
    failure = worker.run().failure
    assert failure is not None
    assert not failure.by_user
    worker.dies = lambda batch: ""
    assert worker.run().failure is None
    assert rows(folder) == EXPECTED


def test_a_partition_that_is_away_for_a_query_goes_on_where_it_was(folder: Path) -> None:
    """As files of a folder that is not mounted for a while."""
    worker = worker_of(folder)
    worker.dies = lambda batch: "before the commit" if batch.number == 2 else ""
    worker.run()
    sys.modules["ticking"].PARTITIONS = ["b"]  # type: ignore[attr-defined]
    worker.dies = lambda batch: "before the commit" if batch.number == 3 else ""
    worker.run()
    assert rows(folder) == sorted([("a", n * 2) for n in range(20)] + EXPECTED[50:90])
    sys.modules["ticking"].PARTITIONS = ["a", "b"]  # type: ignore[attr-defined]
    worker.dies = lambda batch: ""
    assert worker.run().failure is None
    assert rows(folder) == EXPECTED


def test_a_failure_names_its_task_and_leaves_what_was_committed(folder: Path) -> None:
    worker = worker_of(folder, SPEC.replace("ticking:double", "ticking:fails_at_30"))
    failure = worker.run().failure
    assert failure is not None
    assert (failure.by_user, failure.task) == (True, "double")
    assert rows(folder) == sorted((at, n) for at in "ab" for n in range(20))


def test_groups_are_shuffled_within_a_micro_batch(folder: Path) -> None:
    grouped = SPEC.replace('"ticking:double"}', '"ticking:double", groupByKey: n,'
                           " fluxPolicy: continue}")  # fmt: skip
    assert worker_of(folder, grouped).run().failure is None
    assert rows(folder) == EXPECTED


def test_a_query_that_waits_keeps_its_session_and_notices_that_spark_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(Frames):
        asked = 0

        def get(self, name: str) -> str:
            self.asked += 1
            if self.asked == 3:
                raise RuntimeError("INVALID_HANDLE.SESSION_CLOSED")
            return super().get(name)

    monkeypatch.setattr("onyx.spark_query.stream.LOOK_S", 0.0)
    worker, spark = worker_of(folder, SPEC.replace("ticking:ticks", "ticking:quiet")), Gone()
    failure = worker.run(spark).failure
    assert failure is not None
    assert "SESSION_CLOSED" in failure.message
    assert spark.asked == 3


def test_the_plan_says_that_it_is_a_streaming_query() -> None:
    lines = render(compile_job(job()), job()).splitlines()
    assert lines[0] == "job ticks on Spark: one streaming query, each micro-batch of 1 fragment"
    assert lines[-1].strip() == (
        "write: output, files staged, and published by the worker behind each micro-batch"
    )


def test_what_needs_the_end_of_its_inputs_is_refused_by_key_path() -> None:
    with pytest.raises(ManifestError) as raised:
        compile_job(
            job("""
  guarantee: exactly-once
  engine: spark
  spark: {master: "sc://spark:15002"}
  workflow: [[read, count], [count, write]]
  catalog:
    - {name: read, type: input, plugin: generator}
    - {name: count, type: reduce}
    - {name: write, type: output, plugin: spark, options: {path: out, stage: "m:stage"}}
  windows: [{id: ever, task: count, type: global, aggregation: count}]
  triggers: [{windowId: ever, type: segment, threshold: [2, elements], refinement: accumulating,
              emit: "m:row"}]
""")
        )
    assert [each.path for each in raised.value.problems] == ["spec.catalog[2].plugin"]


def test_micro_batches_begin_where_inputs_say_and_go_on_from_there(folder: Path) -> None:
    more = """
  workflow: [[read, double], [more, double], [double, write]]
  catalog:
    - {name: more, type: input, plugin: generator,
       options: {segments: 60, startFrom: {position: 35}}}
"""
    worker = worker_of(folder, more + SPEC.partition("catalog:\n")[2])
    reply = worker.run()
    assert reply.failure is None, reply.failure
    found = sorted(each["n"] for each in written(folder) if "at" not in each)
    assert found == [n * 2 for n in range(35, 60)]
