"""A stage in the middle of a job whose bundles are in an object store, without a JVM: the runner
does what executors do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context
from tests.support.patience import WAIT_S
from tests.support.servers.object_stores import ObjectStore

from onyx.errors import Unavailable, UserError
from onyx.plugins.options import check_options
from onyx.plugins.protocol import START, Cursor, PluginContext
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.middle.bundles import Bundle, Bundles
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import folder_of
from onyx.spark.middle.results import PARTITIONS, StageResults
from onyx.spark.middle.spool import StageSpool
from onyx.spark.objects.messages import Staged, write_list
from onyx.spark.objects.reading import rows_of
from onyx.spark.objects.writing import UploadOrder, uploaded
from onyx.storage.objects.urls import parse_url
from onyx.testing import check_input

NUMBERS = pa.schema([("n", pa.int64())])
PLACE = "bundles/job-1.work"


class FakeSpark:
    """An object for each part, with twice its numbers, and one that Spark does not report."""

    def __init__(self) -> None:
        self.requests: list[StageRequest] = []
        self.during: Callable[[], Any] = lambda: None

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        self.requests.append(request)
        assert request.objects is not None
        order, staged = UploadOrder(request.objects), list[Staged]()
        parts = [part for frame in request.frames for part in frame.parts]
        for number, part in enumerate(parts):
            found = [n for batch in rows_of(parse_url(part), NUMBERS) for n in batch.to_pylist()]
            rows = pa.RecordBatch.from_pylist([{"n": 2 * row["n"]} for row in found], NUMBERS)
            uploaded(order, number, 0, [rows])
            staged += uploaded(order, number, 1, [rows])
        write_list(Path(request.target), tuple(staged))
        self.during()


class Task:
    """The output half of one peer, and its clock."""

    def __init__(self, store: ObjectStore, spark: FakeSpark, incarnation: str = "one") -> None:
        self.clock = ManualClock()
        self.context = context(self.clock, incarnation)
        self.spool = StageSpool(self.context, options(store, bundleSegments=2), spark)
        self.spool.lead(True)
        self.bundles = bundles(store)

    def write(self, *rows: int) -> None:
        """A part of these rows."""
        self.spool.choose("read")
        self.spool.write([{"n": row} for row in rows])
        self.spool.flush()

    def until(self, reached: Callable[[], Any]) -> None:
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.01)):
            self.clock.advance(10.0)
            self.spool.tick()
            if reached():
                return
            pause.wait(0.01)
        raise AssertionError("never reached")


def options(store: ObjectStore, **given: Any) -> MiddleOptions:
    read, problems = check_options({"path": f"{store.url}/bundles", **given}, MiddleOptions)
    assert read is not None, problems
    return read


def context(clock: ManualClock, incarnation: str = "one") -> PluginContext:
    def stage(frame: Any) -> None:
        """Never called here."""

    made = plugin_context({}, functions={"m:f": stage}, clock=clock, incarnation=incarnation)
    return replace(made, upstream=("read",), spark_stage="m:f")


def bundles(store: ObjectStore, clock: ManualClock | None = None) -> Bundles:
    """As another process sees them, each time anew."""
    return folder_of(context(clock or ManualClock()), options(store))


def rows(store: ObjectStore) -> list[int]:
    source, found = StageResults(context(ManualClock()), options(store)), list[int]()
    for partition in source.partitions():
        reader = source.open(partition, START)
        while batch := reader.read(2):
            found += [row["n"] for row in batch]
        assert reader.exhausted()
        reader.close()
    return sorted(found)


def stands(store: ObjectStore, number: int) -> Callable[[], bool]:
    return lambda: bundles(store).result(number) is not None


def test_what_comes_goes_on_and_nothing_else_stays(store: ObjectStore) -> None:
    spark = FakeSpark()
    task = Task(store, spark)
    task.write(1, 2)
    task.until(stands(store, 1))
    task.write(3)
    task.spool.seal()
    task.until(stands(store, 2))
    assert rows(store) == [2, 4, 6]
    task.until(lambda: not store.keys(f"{PLACE}/parts/part"))
    task.spool.close()
    results = [key for key in store.keys("bundles/") if not key.startswith(f"{PLACE}/bundles/")]
    runs = [[name for name, _ in bundles(store).result(n).files] for n in (1, 2)]  # type: ignore[union-attr]
    assert results == [
        f"{PLACE}/results/0000000{number}/{name}"
        for number, (file,) in enumerate(runs, 1)
        for name in ("_onyx.json", file)
    ]
    first = spark.requests[0]
    assert [part.startswith(f"{store.url}/{PLACE}/parts/read.") for part in first.frames[0].parts]


def test_of_two_results_of_a_bundle_the_first_stands_and_the_other_goes(store: ObjectStore) -> None:
    slow, quick = FakeSpark(), FakeSpark()
    first, second = Task(store, slow), Task(store, quick, "two")

    def meanwhile() -> None:
        second.until(stands(store, 1))

    slow.during = meanwhile
    first.write(1, 2)
    first.until(lambda: slow.requests and not first.spool.doing)
    first.spool.seal()
    first.until(stands(store, 2))
    assert (len(quick.requests), rows(store)) == (1, [2, 4])
    kept = [key for key in store.keys(f"{PLACE}/results/") if key.endswith(".parquet")]
    assert [each.removeprefix(f"{PLACE}/results/00000001/") for each in kept] == [
        name
        for name, _ in bundles(store).result(1).files  # type: ignore[union-attr]
    ]


def test_of_two_bundles_of_one_number_the_first_stands(store: ObjectStore) -> None:
    first = Bundle(1, (), last=True)
    assert bundles(store).make(first) == first
    assert bundles(store).make(Bundle(1)) == first
    assert bundles(store).waiting().ended


def published(store: ObjectStore, number: int, *files: list[int], last: bool = False) -> None:
    made = bundles(store)
    bundle = made.make(Bundle(number, last=last))
    with made.target(bundle) as target:
        asked = target.asked(StageRequest("m:f"))
        assert asked.objects is not None
        staged = list[Staged]()
        for place, numbers in enumerate(files):
            batch = pa.record_batch({"n": numbers})
            staged += uploaded(UploadOrder(asked.objects), place, 0, [batch])
        write_list(Path(asked.target), tuple(staged))
        made.publish(target.settle("local"), bundle)


def test_rows_have_positions_that_never_change(fake_store: ObjectStore) -> None:
    """By the rules of all inputs: read anew from any cursor, in batches of any size."""
    published(fake_store, 1, [1, 2], [3])
    published(fake_store, 2)
    published(fake_store, 3, [4], [5, 6, 7], [8], last=True)
    partitions: dict[str, list[dict[str, Any]]] = {str(n): [] for n in range(PARTITIONS)}
    for name, numbers in {"1": [1, 2], "2": [3], "3": [4], "4": [5, 6, 7], "5": [8]}.items():
        partitions[name] = [{"n": number} for number in numbers]

    def source() -> StageResults:
        return StageResults(context(ManualClock()), options(fake_store))

    assert check_input(source, partitions) == partitions


def test_rows_that_are_gone_because_all_are_complete_are_waited_for(store: ObjectStore) -> None:
    published(store, 1, [1])
    published(store, 2, [2], last=True)
    bundles(store).drop_results(2)
    reader = StageResults(context(ManualClock()), options(store)).open("1", START)
    with pytest.raises(Unavailable, match="is gone, because all of its rows are complete"):
        reader.read(1)
    behind = StageResults(context(ManualClock()), options(store)).open("1", Cursor(1, [1, 0]))
    assert behind.read(1) == []
    assert rows_left(store) == [2]


def rows_left(store: ObjectStore) -> list[int]:
    found = StageResults(context(ManualClock()), options(store)).open("2", START).read(5)
    return [row["n"] for row in found]


def test_a_damaged_bundle_and_a_missing_bucket_are_named(store: ObjectStore) -> None:
    store.put(f"{PLACE}/bundles/00000001.json", "{")
    with pytest.raises(UserError, match=f"{PLACE}/bundles/00000001.json is damaged"):
        bundles(store).bundle(1)
    nowhere = MiddleOptions(path="s3://no-such-bucket/x")
    with pytest.raises(UserError, match=r"job 'flights', task 'work': option 'path': .*no such bu"):
        folder_of(context(ManualClock()), nowhere).bundle(1)
