"""The input `spark` whose snapshot is in an object store, without a JVM: the runner does what
executors do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.plugins.options import check_options
from onyx.plugins.protocol import START, UpgradedJob
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.input.plugin import SparkInput
from onyx.spark.objects.messages import Staged, write_list
from onyx.spark.objects.writing import UploadOrder, uploaded
from onyx.testing import check_input

NEVER = "a frame is evaluated although there is a snapshot"


class FakeSpark:
    """Two objects with rows, and one of a task that Spark has repeated."""

    def __init__(self, during: Callable[[], Any] = lambda: None) -> None:
        self.runs = 0
        self._during = during

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        self.runs += 1
        assert request.objects is not None
        order, staged = UploadOrder(request.objects), list[Staged]()
        for number in range(2):
            rows = pa.record_batch({"n": [2 * number, 2 * number + 1]})
            uploaded(order, number, 0, [rows])
            staged += uploaded(order, number, 1, [rows])
        write_list(Path(request.target), tuple(staged))
        self._during()


def refused(request: StageRequest, timeout_s: float, watch: Watch) -> None:
    raise AssertionError(NEVER)


def source(store: ObjectStore, spark: Any, job: str = "job-1", name: str = "") -> SparkInput:
    given = {"path": f"s3://{name or store.name}/snapshots", "frame": "m:f"}
    context = plugin_context(given, functions={"m:f": lambda spark: None})
    read, problems = check_options(given, SparkInputOptions)
    assert read is not None, problems
    return SparkInput(replace(context, job=JobId(job)), read, spark)


def numbers(source: SparkInput) -> list[int]:
    found = []
    for partition in source.partitions():
        reader = source.open(partition, START)
        while not reader.exhausted():
            found += [row["n"] for row in reader.read(3)]
        reader.close()
    return found


def test_the_plugin_keeps_the_rules_of_inputs(fake_store: ObjectStore) -> None:
    spark = FakeSpark()
    check_input(lambda: source(fake_store, spark))
    assert spark.runs == 1


def test_of_two_snapshots_the_first_is_final_and_the_other_goes(store: ObjectStore) -> None:
    def meanwhile() -> None:
        assert numbers(source(store, FakeSpark())) == [0, 1, 2, 3]

    slow = source(store, FakeSpark(meanwhile))
    assert numbers(slow) == [0, 1, 2, 3]
    assert numbers(source(store, refused)) == [0, 1, 2, 3]
    named = [f"snapshots/job-1.work/{name}" for name in slow.partitions()]
    runs = {key.rpartition("/")[0] for key in store.keys("snapshots/job-1.work/run-")}
    assert {each.rpartition("/")[0] for each in named} == runs


def test_a_job_that_upgrades_another_one_reads_on_in_its_snapshot(store: ObjectStore) -> None:
    first = source(store, FakeSpark())
    first.partitions()
    second = source(store, refused, job="job-2")
    second.upgrade(lambda: UpgradedJob(JobId("job-1"), began=True))
    assert numbers(second) == numbers(first)
    third = source(store, refused, job="job-3")
    third.upgrade(lambda: UpgradedJob(JobId("job-2"), began=True))
    assert numbers(third) == numbers(first)
    lost = source(store, refused, job="job-5")
    with pytest.raises(UserError, match=r"snapshots/job-4\.work of job job-4 is gone"):
        lost.upgrade(lambda: UpgradedJob(JobId("job-4"), began=True))


def test_what_is_wrong_is_named_with_job_task_and_key(store: ObjectStore) -> None:
    with pytest.raises(
        UserError, match=r"job 'flights', task 'work': option 'path': .*no such buck"
    ):
        source(store, refused, name="no-such-bucket").partitions()
    store.put("snapshots/job-1.work/_onyx.json", "{")
    with pytest.raises(UserError, match=r"snapshots/job-1\.work/_onyx\.json is damaged"):
        source(store, refused).partitions()
