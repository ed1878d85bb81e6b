"""The `spark` output over an object store: executors read parts there and stage a result there, the
worker publishes it, and of several runs one wins. The runner is a fake that does what executors do
(`test_objects_executors` has real ones)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.examples import some_of
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore
from tests.support.spark.outputs import output

from onyx.errors import Fenced, Unavailable, UserError, UserFunctionError
from onyx.ids import GroupId, JobId
from onyx.plugins.protocol import Output, UpgradedJob
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.objects.messages import Staged, write_list
from onyx.spark.objects.reading import rows_of
from onyx.spark.objects.writing import UploadOrder, uploaded
from onyx.spark.stage.output import SparkOutput
from onyx.storage.objects.urls import ObjectUrl, parse_url

STAGE = "tests.support.jobs.job_functions:spark_total"
MANIFEST = "out/result/_onyx.json"


class SummingRunner:
    """The result is the sum of `n`, staged as executors do; fails as often as the test says."""

    def __init__(self, *failures: Exception, lost: int = 0) -> None:
        """`lost`: tasks of Spark that have staged something before the one that is reported."""
        self.failures = list(failures)
        self.runs = 0
        self.lost = lost
        self.requests: list[StageRequest] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        self.runs += 1
        self.requests.append(request)
        parts = [parse_url(part) for frame in request.frames for part in frame.parts]
        total = sum(sum(n) for part in parts for n in numbers_in(part))
        assert request.objects is not None
        staged = list[Staged]()
        for attempt in range(self.lost + 1):
            rows = pa.record_batch({"total": pa.array([total if attempt == self.lost else -1])})
            staged = uploaded(UploadOrder(request.objects), 0, attempt, [rows])
        write_list(Path(request.target), tuple(staged))
        self.meanwhile()
        if self.failures:
            raise self.failures.pop(0)


def numbers_in(part: ObjectUrl) -> list[list[int]]:
    schema = pa.schema([("n", pa.int64())])
    return [batch.column("n").to_pylist() for batch in rows_of(part, schema)]


def spark_output(
    store: ObjectStore,
    runner: Any,
    incarnation: str = "g1",
    job: str = "job-1",
    old: UpgradedJob | None = None,
    **options: Any,
) -> SparkOutput:
    context = plugin_context(
        {"path": f"{store.url}/out", "stage": STAGE, **options},
        functions={STAGE: lambda frame: frame},
        incarnation=incarnation,
    )
    sink = output(replace(context, job=JobId(job)), runner)
    sink.upgrade(lambda: old)
    return sink


def written(sink: Output, *numbers: int) -> None:
    sink.write([{"n": n} for n in numbers])
    sink.flush()
    assert sink.durable() == len(numbers)


def result(store: ObjectStore) -> list[int]:
    """The rows of all files that a reader of `result/*.parquet` sees."""
    found = [key for key in store.keys("out/result/") if key.endswith(".parquet")]
    tables = [pq.read_table(pa.BufferReader(store.get(key))) for key in found]
    return [total for table in tables for total in table["total"].to_pylist()]


def manifest(store: ObjectStore) -> dict[str, Any]:
    return dict(json.loads(store.get(MANIFEST)))


def test_the_stage_gets_the_parts_of_all_peers_and_its_result_is_published(
    store: ObjectStore,
) -> None:
    runner = SummingRunner()
    first, second = spark_output(store, runner), spark_output(store, runner, "g2")
    written(first, 1, 2)
    written(second, 3)
    first.seal()
    assert result(store) == [6]
    (name,) = manifest(store)["files"]
    assert store.keys("out/result/") == sorted(
        [f"out/result/{name}", MANIFEST, "out/result/_SUCCESS"]
    )
    assert manifest(store) | {"files": [], "run": ""} == {
        "job": "job-1", "stage": STAGE, "parts": 2, "run": "", "files": [], "replaces": [],
    }  # fmt: skip
    for sink in (first, second):
        sink.close()
    assert store.keys("out/.staging/") == []


def test_a_second_seal_finds_the_result_and_runs_nothing(store: ObjectStore) -> None:
    runner = SummingRunner()
    sink = spark_output(store, runner)
    written(sink, 1)
    sink.seal()
    sink.seal()
    spark_output(store, runner, "g2").seal()
    assert (runner.runs, result(store)) == (1, [1])


def test_another_job_replaces_the_result_of_the_first(store: ObjectStore) -> None:
    for job, number in (("job-1", 1), ("job-2", 20), ("job-3", 300)):
        sink = spark_output(store, SummingRunner(), job=job)
        written(sink, number)
        sink.seal()
        assert (result(store), manifest(store)["job"]) == ([number], job)


def test_the_result_of_a_version_holds_what_every_version_before_it_wrote(
    store: ObjectStore,
) -> None:
    old = None
    for number in range(3):
        job = f"job-{number}"
        sink = spark_output(store, SummingRunner(), f"g{number}", job, old)
        written(sink, 10**number)
        old = UpgradedJob(JobId(job), began=True)
    sink.seal()
    assert result(store) == [111]
    sink = spark_output(store, SummingRunner(), "g9", "job-3", old)
    store.put("out/parts/job-0/_onyx.json", "{")
    with pytest.raises(UserError, match=r"out/parts/job-0/_onyx.json is damaged"):
        sink.seal()


@pytest.mark.parametrize("wreck", ["{", "[]", '{"job": "job-1"}'])
def test_a_manifest_of_another_kind_is_replaced(store: ObjectStore, wreck: str) -> None:
    store.put(MANIFEST, wreck)
    store.put("out/result/old.parquet", "of somebody")
    sink = spark_output(store, SummingRunner())
    written(sink, 1)
    sink.seal()
    assert result(store) == [1]


def test_a_failing_stage_leaves_nothing_and_may_be_run_again(store: ObjectStore) -> None:
    sink = spark_output(store, SummingRunner(UserFunctionError("boom"), Unavailable("memory")))
    written(sink, 1)
    with pytest.raises(UserFunctionError, match=f"job 'flights', task 'work': stage {STAGE}: boom"):
        sink.seal()
    with pytest.raises(Unavailable, match="memory"):
        sink.seal()
    assert store.keys("out/result/") == []
    sink.seal()
    assert result(store) == [1]


def test_of_two_runs_at_once_the_first_wins_and_the_other_takes_its_files_away(
    store: ObjectStore,
) -> None:
    slow, quick = SummingRunner(), SummingRunner()
    first, second = spark_output(store, slow), spark_output(store, quick, "g2")
    written(first, 1)
    slow.meanwhile = second.seal
    first.seal()
    assert (slow.runs, quick.runs, result(store)) == (1, 1, [1])
    assert manifest(store)["files"][0].startswith(manifest(store)["run"])


def test_two_jobs_at_once_do_not_mix(store: ObjectStore) -> None:
    runner = SummingRunner()
    first = spark_output(store, runner)
    second = spark_output(store, SummingRunner(), "g2", job="job-2")
    written(first, 1)
    written(second, 20)
    runner.meanwhile = second.seal
    with pytest.raises(Unavailable, match="let one job at a time write to a path"):
        first.seal()
    assert (result(store), manifest(store)["job"]) == ([20], "job-2")


@pytest.mark.parametrize("moment", ["while the stage runs", "at the last question"])
def test_a_zombie_that_was_fenced_publishes_nothing_even_if_it_believes_it_may(
    store: ObjectStore, moment: str
) -> None:
    runner = SummingRunner()
    successor = spark_output(store, SummingRunner(), "g2")
    context, asked = spark_output(store, runner)._context, []

    def permitted() -> bool:
        """Yes; but meanwhile the living have fenced the one who asks."""
        asked.append(runner.runs)
        if moment == "at the last question" and runner.runs:
            successor.fence([GroupId("g2")])
        return True

    zombie = output(replace(context, permitted=permitted), runner)
    written(zombie, 1)
    if moment == "while the stage runs":
        runner.meanwhile = lambda: successor.fence([GroupId("g2")])
    with pytest.raises(Fenced):
        zombie.seal()
    assert asked[-1] == 1
    assert store.keys("out/result/") == []
    successor.seal()
    assert result(store) == [1]


@pytest.mark.short(3)
@pytest.mark.parametrize("moment", some_of(range(24)))
def test_a_crash_at_any_request_of_a_seal_leaves_what_another_seal_completes(
    fake_store: ObjectStore, moment: int
) -> None:
    """[job 0 done; write, seal, CRASH at the n-th request, fence, seal elsewhere]"""
    server = fake_store.server.store  # type: ignore[union-attr]
    earlier = spark_output(fake_store, SummingRunner(), "g0", job="job-0")
    written(earlier, 100)
    earlier.seal()
    dying = spark_output(fake_store, SummingRunner())
    written(dying, 1)
    left = [moment]

    def before(request: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ConnectionAbortedError("the process is no more")

    server.before = before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        finished = _sealed(dying)
    server.before = lambda request: None
    successor = spark_output(fake_store, SummingRunner(), "g2")
    successor.fence([GroupId("g2")])
    successor.seal()
    assert result(fake_store) == [1]
    assert manifest(fake_store)["job"] == "job-1"
    assert not finished or moment > 12, "all requests of a seal have been tried"


def _sealed(sink: SparkOutput) -> bool:
    try:
        sink.seal()
    except Unavailable:
        return False
    return True


def test_what_an_attempt_has_staged_that_spark_did_not_report_never_counts(
    store: ObjectStore,
) -> None:
    sink = spark_output(store, SummingRunner(lost=2))
    written(sink, 1)
    sink.seal()
    sink.close()
    assert (result(store), store.keys("out/.staging/")) == ([1], [])


def test_the_worker_gets_names_and_no_rows(store: ObjectStore) -> None:
    runner = SummingRunner()
    sink = spark_output(store, runner, master="spark://far:7077")
    written(sink, 1)
    sink.seal()
    (request,) = runner.requests
    assert request.frames[0].parts == (f"{store.url}/{store.keys('out/parts/job-1/part-')[0]}",)
    assert (request.master, request.objects.url) == (  # type: ignore[union-attr]
        "spark://far:7077",
        f"{store.url}/out/result",
    )


def test_without_any_segment_the_result_is_empty(store: ObjectStore) -> None:
    runner = SummingRunner()
    spark_output(store, runner).seal()
    assert runner.runs == 0
    assert store.keys("out/result/") == ["out/result/_SUCCESS", MANIFEST]
