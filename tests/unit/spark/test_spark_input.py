"""The input `spark` without a JVM: one snapshot, whatever dies, and its rows by position."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Fenced, Problem, Unavailable, UserError, UserFunctionError
from onyx.ids import JobId
from onyx.plugins.options import check_options
from onyx.plugins.protocol import START, UpgradedJob
from onyx.spark.child.request import FrameSource, StageRequest, Watch
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.input.plugin import SparkInput
from onyx.spark.target import Target
from onyx.testing import check_input


class FakeSpark:
    """Writes as Spark does: two files with rows, marks and checksums beside them."""

    def __init__(self, during: Callable[[Path], None] = lambda _: None) -> None:
        self.requests: list[StageRequest] = []
        self._during = during

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        target = Path(request.target)
        target.mkdir(parents=True)
        try:
            self._write(request, target)
        except FileNotFoundError as error:
            raise UserFunctionError("the target is gone") from error

    def _write(self, request: StageRequest, target: Path) -> None:
        self.requests.append(request)
        run = len(self.requests)
        for number in range(2):
            rows = pa.table({"run": [run, run], "n": [2 * number, 2 * number + 1]})
            pq.write_table(rows, target / f"part-0000{number}-{run}.snappy.parquet")
            (target / f".part-0000{number}-{run}.snappy.parquet.crc").touch()
            self._during(target)
        (target / "_SUCCESS").touch()


def source(
    folder: Path,
    spark: Callable[..., None],
    incarnation: str = "one",
    job: str = "job-1",
    wanted: Callable[[], bool] = lambda: True,
    master_of_worker: str = "local[*]",
    **options: Any,
) -> SparkInput:
    given = {"path": str(folder / "out"), "frame": "m:f", **options}
    context = plugin_context(given, incarnation=incarnation, functions={"m:f": lambda spark: None})
    context = replace(context, job=JobId(job), wanted=wanted, spark_master=master_of_worker)
    read, problems = check_options(given, SparkInputOptions)
    assert read is not None, problems
    return SparkInput(context, read, spark)


def rows(source: SparkInput) -> list[dict[str, Any]]:
    found = []
    for partition in source.partitions():
        reader = source.open(partition, START)
        while not reader.exhausted():
            found += reader.read(3)
        reader.close()
    return found


def numbers(source: SparkInput) -> list[int]:
    return [row["n"] for row in rows(source)]


def left(folder: Path) -> list[Path]:
    """Folders of runs whose files are in no snapshot."""
    named = {
        path.parent.parent / manifest["snapshot"] / name
        for path in (folder / "out").rglob("_onyx.json")
        for manifest in [json.loads(path.read_text())]
        for name in manifest["files"]
    }
    runs = (folder / "out").glob("*/run-*")
    return [run for run in runs if not named & set(run.iterdir())]


def test_the_plugin_keeps_the_rules_of_inputs(tmp_path: Path) -> None:
    spark = FakeSpark()
    check_input(lambda: source(tmp_path, spark))
    assert len(spark.requests) == 1


def test_a_frame_is_evaluated_once_for_all_peers(tmp_path: Path) -> None:
    spark = FakeSpark()
    assert numbers(source(tmp_path, spark)) == [0, 1, 2, 3]
    assert numbers(source(tmp_path, spark, "two")) == [0, 1, 2, 3]
    assert len(spark.requests) == 1
    assert left(tmp_path) == []


def test_what_is_evaluated_is_what_the_options_say(tmp_path: Path) -> None:
    spark = FakeSpark()
    source(tmp_path, spark, arguments={"day": 3}, master="local[1]").partitions()
    read = {"frame": None, "format": "csv", "formatOptions": {"path": "x"}, "schema": "n INT"}
    source(tmp_path, spark, job="job-2", **read, sparkConf={"a": "b"}).partitions()
    first, second = spark.requests
    assert (first.stage, first.master, second.master) == ("m:f", "local[1]", "local[*]")
    assert (first.source, first.params) == (FrameSource(), {"day": 3})
    assert second.source == FrameSource("csv", {"path": "x"}, "n INT")
    assert second.spark_conf == {"a": "b"}, "else it needs another child than other stages"


def test_what_a_killed_worker_has_left_is_removed_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(target: Path) -> None:
        raise KeyboardInterrupt

    dying = source(tmp_path, FakeSpark(die), "dead")
    monkeypatch.setattr(Target, "drop", lambda self: None)
    with pytest.raises(KeyboardInterrupt):
        dying.partitions()
    monkeypatch.undo()
    assert left(tmp_path)
    assert numbers(source(tmp_path, FakeSpark(), "alive")) == [0, 1, 2, 3]
    assert left(tmp_path) == []


def test_a_frozen_worker_that_wakes_up_changes_no_snapshot(tmp_path: Path) -> None:
    other = FakeSpark()

    def freeze(target: Path) -> None:
        if not other.requests:
            assert numbers(source(tmp_path, other, "alive")) == [0, 1, 2, 3]

    woken = FakeSpark(freeze)  # and what it goes on to write was removed under its hands
    woken.requests += [StageRequest("m:f")]  # so that its rows are of run 2
    assert {row["run"] for row in rows(source(tmp_path, woken, "frozen"))} == {1}
    assert left(tmp_path) == []


def test_of_two_snapshots_the_first_one_stands(tmp_path: Path) -> None:
    """Two tasks of one process."""
    first = FakeSpark()

    def other(target: Path) -> None:
        if not first.requests:
            source(tmp_path, first).partitions()

    slow = FakeSpark(other)
    slow.requests += [StageRequest("m:f")]  # so that its rows are of run 2
    assert {row["run"] for row in rows(source(tmp_path, slow))} == {1}
    assert left(tmp_path) == []


def test_a_task_that_is_to_stop_cancels_spark(tmp_path: Path) -> None:
    def spark(request: StageRequest, timeout_s: float, watch: Watch) -> None:
        assert not watch.wanted()
        raise Fenced("not wanted")

    with pytest.raises(Fenced):
        source(tmp_path, spark, wanted=lambda: False).partitions()


@pytest.mark.parametrize("kind", [UserFunctionError, Unavailable])
def test_errors_name_task_and_frame(tmp_path: Path, kind: type[Exception]) -> None:
    def spark(*_: Any) -> None:
        raise kind("boom")

    with pytest.raises(kind, match="job 'flights', task 'work': snapshot of m:f: boom"):
        source(tmp_path, spark).partitions()
    assert left(tmp_path) == []


def test_a_snapshot_that_this_worker_does_not_see_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be on a volume that both share"):
        source(tmp_path, lambda *_: None).partitions()
    with pytest.raises(Unavailable, match="all workers must see the same folder"):
        source(tmp_path, FakeSpark(), job="job-2").open("part-0.parquet", START)


def old(job: str, began: bool = True) -> Callable[[], UpgradedJob | None]:
    return lambda: UpgradedJob(JobId(job), began)


def test_a_job_that_upgrades_another_one_reads_the_same_rows(tmp_path: Path) -> None:
    spark = FakeSpark()
    names = source(tmp_path, spark, job="job-1").partitions()
    for job, before in (("job-2", "job-1"), ("job-3", "job-2")):
        upgraded = source(tmp_path, spark, job=job)
        for _ in range(2):
            upgraded.upgrade(old(before))
        assert upgraded.partitions() == names
        assert numbers(source(tmp_path, spark, "another peer", job=job)) == [0, 1, 2, 3]
    assert len(spark.requests) == 1


def test_an_upgrade_of_a_job_that_has_read_nothing_makes_its_own_snapshot(tmp_path: Path) -> None:
    spark = FakeSpark()
    for job, before in (("job-2", old("job-1", began=False)), ("job-4", lambda: None)):
        upgraded = source(tmp_path, spark, job=job)
        upgraded.upgrade(before)
        assert numbers(upgraded) == [0, 1, 2, 3]
    assert len(spark.requests) == 2


def test_an_upgrade_whose_rows_are_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"job-1\.work of job job-1 is gone"):
        source(tmp_path, FakeSpark(), job="job-2").upgrade(old("job-1"))


def test_a_snapshot_of_the_job_before_that_is_removed_is_asked_for(tmp_path: Path) -> None:
    spark = FakeSpark()
    source(tmp_path, spark, job="job-1").partitions()
    upgraded = source(tmp_path, spark, job="job-2")
    upgraded.upgrade(old("job-1"))
    (tmp_path / "out" / "job-1.work").rename(tmp_path / "away")
    with pytest.raises(UserError, match=r"snapshot .*/job-1\.work is gone.*put it back"):
        upgraded.partitions()
    (tmp_path / "away").rename(tmp_path / "out" / "job-1.work")
    assert numbers(upgraded) == [0, 1, 2, 3]


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    made = source(tmp_path, FakeSpark())
    made.partitions()
    (tmp_path / "out" / "job-1.work" / "_onyx.json").write_text("{")
    with pytest.raises(UserError, match=r"_onyx\.json is damaged"):
        made.partitions()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, Problem("path", "is missing")),
        ({"path": "p"}, Problem("frame", "or `format` has to say what is read: one of them")),
        (
            {"path": "p", "frame": "m:f", "format": "csv"},
            Problem("frame", "or `format` has to say what is read: one of them"),
        ),
        (
            {"path": "p", "frame": "m:f", "schema": "n INT"},
            Problem("schema", "belongs to `format`, which is missing"),
        ),
        (
            {"path": "p", "format": "csv", "arguments": {"a": 1}},
            Problem("arguments", "are those of `frame`, which is missing"),
        ),
        (
            {"path": "s3://", "frame": "m:f"},
            Problem("path", 'is "s3://", which names no bucket; write s3://bucket/path'),
        ),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], problem: Problem) -> None:
    assert check_options(options, SparkInputOptions)[1] == [problem]


def test_settings_that_a_session_cannot_have_are_named() -> None:
    given = {"path": "p", "frame": "m:f", "master": "sc://h:1", "sparkConf": {"spark.ui": "x"}}
    assert [each.path for each in check_options(given, SparkInputOptions)[1]] == [
        "sparkConf.spark.ui"
    ]


def test_settings_that_the_server_of_the_worker_refuses_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sparkConf\.spark\.ui .*ONYX_SPARK_MASTER of the workers"):
        source(
            tmp_path, FakeSpark(), master_of_worker="sc://h:1", sparkConf={"spark.ui": "x"}
        ).partitions()
