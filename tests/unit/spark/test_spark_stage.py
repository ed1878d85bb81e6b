"""The `spark` output: parts, then one result, whole, and only by a live worker. No Spark here: the
runner is a fake whose contract with the real one is kept by `test_spark_runner`."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.spark.outputs import output

from onyx.errors import Fenced, NameNotRegistered, Unavailable, UserError, UserFunctionError
from onyx.ids import GroupId, JobId
from onyx.plugins.protocol import Output, UpgradedJob
from onyx.plugins.registry import build_output
from onyx.spark.child.request import Frame, StageRequest, Watch
from onyx.spark.result_files import MANIFEST
from onyx.spark.stage import output as stage_output
from onyx.spark.stage.output import FolderWorkspace, SparkOutput, run_folder_stage
from onyx.spark.stage.versions import NOTE, VERSIONS_MAX, Notes, upgrade
from onyx.storage.opening import location_of

STAGE = "demo.stages:total"


def parts_of(request: StageRequest) -> list[str]:
    """Of all frames."""
    return [part for frame in request.frames for part in frame.parts]


class SummingRunner:
    """The result of a stage is the sum of the column `n`; fails as often as the test says."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.requests: list[StageRequest] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        self.requests.append(request)
        rows = [row for part in parts_of(request) for row in pq.read_table(part).to_pylist()]
        os.makedirs(request.target)
        self.meanwhile()
        os.makedirs(request.target, exist_ok=True)
        (Path(request.target) / "total.txt").write_text(str(sum(row["n"] for row in rows)))
        if not watch.wanted():
            raise Fenced("the runner ended the run")
        if self.failures:
            raise self.failures.pop(0)


def spark_output(
    root: Path,
    runner: SummingRunner,
    incarnation: str = "g1",
    job: str = "job-1",
    permitted: Callable[[], bool] = lambda: True,
    old: UpgradedJob | None = None,
    **options: Any,
) -> SparkOutput:
    context = plugin_context(
        {"path": str(root), "stage": STAGE, **options},
        functions={STAGE: lambda frame: frame},
        incarnation=incarnation,
        permitted=permitted,
    )
    sink = output(replace(context, job=JobId(job)), runner)
    sink.upgrade(lambda: old)
    return sink


def written(sink: Output, *numbers: int) -> None:
    sink.write([{"n": n} for n in numbers])
    sink.flush()
    assert sink.durable() == len(numbers)


def total(root: Path) -> str:
    return (root / "result" / "total.txt").read_text()


def unfinished(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and ".staging" in path.parts]


def test_a_part_may_hold_dicts_and_columns(tmp_path: Path) -> None:
    sink = spark_output(tmp_path, SummingRunner())
    sink.write_columns(pa.record_batch({"n": pa.array([1, 2], pa.int32())}))
    sink.write([{"n": 3}])
    sink.flush()
    assert sink.durable() == 3
    sink.seal()
    assert total(tmp_path) == "6"
    assert len(list((tmp_path / "parts" / "job-1").glob("*.parquet"))) == 1


def test_the_stage_gets_the_parts_of_all_peers_and_its_result_is_published(tmp_path: Path) -> None:
    runner = SummingRunner()
    first, second = spark_output(tmp_path, runner), spark_output(tmp_path, runner, "g2")
    written(first, 1, 2)
    written(second, 3)
    first.seal()
    assert total(tmp_path) == "6"
    assert json.loads((tmp_path / "result" / MANIFEST).read_text()) == {
        "job": "job-1",
        "stage": STAGE,
        "parts": 2,
    }
    assert len(list((tmp_path / "parts" / "job-1").glob("*.parquet"))) == 2
    assert unfinished(tmp_path) == []


class NamingRunner(SummingRunner):
    """Names files as Spark does, and leaves others."""

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        super().__call__(request, timeout_s, watch)
        folder = Path(request.target) / "day=3"
        folder.mkdir()
        for name in (*BY_SPARK, "part-of-mine.json"):
            (folder / name).write_text("{}")


BY_SPARK = [
    f"part-00000-{UUID(int=7)}-c000.snappy.parquet",
    f"part-00000-{UUID(int=7)}-c001.snappy.parquet",
    f"part-00012-{UUID(int=7)}.c000.json.gz",
    f"part-00012-{UUID(int=7)}_00003.c000.json.gz",
]


def test_the_files_of_a_result_have_the_id_of_the_job(tmp_path: Path) -> None:
    sink = spark_output(tmp_path, NamingRunner())
    written(sink, 1)
    sink.seal()
    names = [path.name for path in (tmp_path / "result" / "day=3").iterdir()]
    ends = [name.partition("--job-1--")[2][12:] for name in names]
    found = ["", "-00000-c000.snappy.parquet", "-00000-c001.snappy.parquet"]
    assert sorted(ends) == [*found, "-00012.c000.json.gz", "-00012_00003.c000.json.gz"]


def test_only_durable_segments_are_acked_and_an_open_part_is_not_read(tmp_path: Path) -> None:
    runner = SummingRunner()
    sink, other = spark_output(tmp_path, runner), spark_output(tmp_path, runner, "g2")
    written(sink, 1)
    other.write([{"n": 100}])
    assert other.durable() == 0
    sink.seal()
    other.close()
    assert total(tmp_path) == "1"


def test_a_second_seal_finds_the_result_and_runs_nothing(tmp_path: Path) -> None:
    runner = SummingRunner()
    sink = spark_output(tmp_path, runner)
    written(sink, 1)
    sink.seal()
    sink.seal()
    spark_output(tmp_path, runner, "g2").seal()
    assert len(runner.requests) == 1


def test_a_failing_stage_is_told_with_its_job_and_may_be_run_again(tmp_path: Path) -> None:
    runner = SummingRunner(UserFunctionError("ValueError: boom"), Unavailable("out of memory"))
    sink = spark_output(tmp_path, runner)
    written(sink, 1)
    with pytest.raises(
        UserFunctionError, match=r"job 'flights', task 'work': stage demo.stages:total: .*boom"
    ):
        sink.seal()
    assert not (tmp_path / "result").exists()
    with pytest.raises(Unavailable, match="out of memory"):
        sink.seal()
    assert not (tmp_path / "result").exists()
    sink.seal()
    assert total(tmp_path) == "1"


def test_another_job_replaces_the_result_and_does_not_see_the_parts_of_the_first(
    tmp_path: Path,
) -> None:
    for job, number in (("job-1", 1), ("job-2", 20)):
        sink = spark_output(tmp_path, SummingRunner(), job=job)
        written(sink, number)
        sink.seal()
        assert total(tmp_path) == str(number)
    assert unfinished(tmp_path) == []


def versions_of_a_job(root: Path, count: int) -> SparkOutput:
    """Each wrote the power of ten of its number, and upgraded the one before."""
    old = None
    for number in range(count):
        job = f"job-{number}"
        sink = spark_output(root, SummingRunner(), f"g{number}", job, old=old)
        written(sink, 10**number)
        old = UpgradedJob(JobId(job), began=True)
    return sink


def test_the_result_of_a_version_holds_what_every_version_before_it_wrote(tmp_path: Path) -> None:
    versions_of_a_job(tmp_path, 4).seal()
    assert total(tmp_path) == "1111"


def test_a_version_that_was_given_up_is_not_in_the_result(tmp_path: Path) -> None:
    """job-1 upgraded job-0 and was given up: job-2 upgrades job-0 again."""
    versions_of_a_job(tmp_path, 2)
    first = UpgradedJob(JobId("job-0"), began=True)
    sink = spark_output(tmp_path, SummingRunner(), "g9", "job-2", old=first)
    written(sink, 100)
    sink.seal()
    assert total(tmp_path) == "101"


def test_who_came_before_is_asked_once_for_all_peers_and_incarnations(tmp_path: Path) -> None:
    versions_of_a_job(tmp_path, 2)
    later = spark_output(tmp_path, SummingRunner(), "g9", "job-1", old=None)
    written(later, 100)
    later.seal()
    assert total(tmp_path) == "111"


def test_a_job_before_that_never_began_has_nothing_to_give(tmp_path: Path) -> None:
    old = UpgradedJob(JobId("never"), began=False)
    sink = spark_output(tmp_path, SummingRunner(), old=old)
    written(sink, 1)
    sink.seal()
    assert total(tmp_path) == "1"


def test_parts_of_a_job_before_that_are_not_there_are_missed_at_the_start(tmp_path: Path) -> None:
    old = UpgradedJob(JobId("elsewhere"), began=True)
    with pytest.raises(UserError, match=r"job elsewhere has written parts.*initialize"):
        spark_output(tmp_path, SummingRunner(), old=old)


@pytest.mark.parametrize("job", ["job-0", "job-1"])
def test_parts_that_were_removed_are_missed_and_not_left_out(tmp_path: Path, job: str) -> None:
    sink = versions_of_a_job(tmp_path, 3)
    shutil.rmtree(tmp_path / "parts" / job)
    with pytest.raises(UserError, match=rf"parts/{job} is gone.*put it back"):
        sink.seal()
    assert not (tmp_path / "result").exists()


def test_unfinished_parts_of_the_dead_of_the_version_before_are_taken_away(tmp_path: Path) -> None:
    """[job-0 opens a part, CRASH, job-1 takes over, the dead one goes on and publishes]"""
    zombie = spark_output(tmp_path, SummingRunner(), "dead", "job-0")
    written(zombie, 1)
    zombie.write([{"n": 500}])
    old = UpgradedJob(JobId("job-0"), began=True)
    sink = spark_output(tmp_path, SummingRunner(), "g1", "job-1", old=old)
    sink.fence([GroupId("g1")])
    with pytest.raises(Fenced):
        zombie.flush()
    sink.seal()
    assert total(tmp_path) == "1"


def test_a_damaged_note_is_told_with_its_file(tmp_path: Path) -> None:
    sink = versions_of_a_job(tmp_path, 2)
    (tmp_path / "parts" / "job-0" / NOTE).write_text("{")
    with pytest.raises(UserError, match=rf"parts/job-0/{NOTE} is damaged"):
        sink.seal()


def test_there_are_not_more_versions_than_a_note_may_name(tmp_path: Path) -> None:
    versions_of_a_job(tmp_path, 1)
    names = ",".join(f'"v{number}"' for number in range(VERSIONS_MAX))
    (tmp_path / "parts" / "job-0" / NOTE).write_text(f'{{"after":[{names}]}}')
    old = UpgradedJob(JobId("job-0"), began=True)
    with pytest.raises(UserError, match="initialize"):
        spark_output(tmp_path, SummingRunner(), job="job-1", old=old)


@pytest.mark.parametrize("wreck", ["{", "[]", '{"job": "job-0"}'])
def test_a_result_without_the_mark_of_this_job_is_not_taken_for_done(
    tmp_path: Path, wreck: str
) -> None:
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / MANIFEST).write_text(wreck)
    sink = spark_output(tmp_path, SummingRunner())
    written(sink, 1)
    sink.seal()
    assert total(tmp_path) == "1"


def test_a_peer_that_dies_while_the_stage_runs_is_replaced(tmp_path: Path) -> None:
    """[write, seal, CRASH, fence, seal again elsewhere]"""
    dying = spark_output(tmp_path, SummingRunner(KeyboardInterrupt()))  # type: ignore[arg-type]
    written(dying, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        dying.seal()
    assert unfinished(tmp_path) != []
    successor = spark_output(tmp_path, SummingRunner(), "g2")
    successor.fence([GroupId("g2")])
    assert unfinished(tmp_path) == []
    successor.seal()
    assert total(tmp_path) == "3"


def test_a_zombie_that_was_fenced_publishes_nothing_even_if_it_believes_it_may(
    tmp_path: Path,
) -> None:
    """Its Spark goes on and makes the staging directory again; the worker's is still gone."""
    runner = SummingRunner()
    zombie, successor = spark_output(tmp_path, runner), spark_output(tmp_path, runner, "g2")
    written(zombie, 1)
    runner.meanwhile = lambda: successor.fence([GroupId("g2")])
    with pytest.raises(Fenced):
        zombie.seal()
    assert not (tmp_path / "result").exists()
    runner.meanwhile = lambda: None
    successor.seal()
    assert total(tmp_path) == "1"


def test_the_rename_itself_fails_for_a_zombie_that_passed_every_check(tmp_path: Path) -> None:
    own = tmp_path / "staging"
    own.mkdir()

    def permitted() -> bool:
        """The last check before the rename: at this very moment the directory is replaced."""
        own.rename(tmp_path / "gone")
        shutil.rmtree(tmp_path / "gone")
        (own / "result").mkdir(parents=True)
        return True

    work = FolderWorkspace(location_of(str(tmp_path)), JobId("job-1"), permitted)
    upgrade(Notes(work.location), work.job, lambda: None)
    request = StageRequest(STAGE, (Frame(schema="n BIGINT"),))
    with pytest.raises(Fenced):
        run_folder_stage(work, lambda: own, request, SummingRunner(), 60.0)
    assert not work.result.exists()


def failing_rename(monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    """The rename of a new result to its name fails; or the worker dies there."""
    rename = os.rename

    def renamed(source: Any, target: Any, **more: Any) -> None:
        if str(source).startswith("result-"):
            raise KeyboardInterrupt if dies else OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", renamed)


def test_a_result_goes_back_if_the_next_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = spark_output(tmp_path, SummingRunner())
    written(first, 1)
    first.seal()
    second = spark_output(tmp_path, SummingRunner(), job="job-2")
    written(second, 2)
    failing_rename(monkeypatch, dies=False)
    with pytest.raises(Unavailable, match="Input/output error"):
        second.seal()
    assert total(tmp_path) == "1"
    monkeypatch.undo()
    second.seal()
    assert total(tmp_path) == "2"


@pytest.mark.parametrize("who", ["its own next attempt", "who fences it"])
def test_a_result_goes_back_if_a_worker_dies_before_the_next_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    first = spark_output(tmp_path, SummingRunner())
    written(first, 1)
    first.seal()
    runner = SummingRunner()
    dying = spark_output(tmp_path, runner, job="job-2")
    written(dying, 2)
    monkeypatch.setattr(stage_output, "put_back", lambda *_: None)
    failing_rename(monkeypatch, dies=True)
    with pytest.raises(KeyboardInterrupt):
        dying.seal()
    monkeypatch.undo()
    assert not (tmp_path / "result").exists()
    if who == "who fences it":
        spark_output(tmp_path, SummingRunner(), "g2", job="job-2").fence([GroupId("g2")])
    else:
        runner.failures.append(UserFunctionError("the stage fails now"))
        with pytest.raises(UserFunctionError):
            dying.seal()
    assert total(tmp_path) == "1"


def test_an_earlier_run_that_a_server_goes_on_with_writes_into_no_other_result(
    tmp_path: Path,
) -> None:
    """[the process of the first run is ended, the server goes on, the second run publishes]"""
    runner = SummingRunner(Unavailable("the server was lost"))
    sink = spark_output(tmp_path, runner)
    written(sink, 1)
    with pytest.raises(Unavailable):
        sink.seal()
    (earlier,) = runner.requests

    def goes_on() -> None:
        os.makedirs(earlier.target, exist_ok=True)
        (Path(earlier.target) / "late.parquet").touch()

    runner.meanwhile = goes_on
    sink.seal()
    assert sorted(each.name for each in (tmp_path / "result").iterdir()) == [MANIFEST, "total.txt"]


def test_a_result_that_is_not_where_the_worker_looks_is_no_fence(tmp_path: Path) -> None:
    def elsewhere(request: StageRequest, timeout_s: float, watch: Watch) -> None:
        """Spark has another disk."""

    context = plugin_context(
        {"path": str(tmp_path), "stage": STAGE, "schema": "n BIGINT", "master": "sc://host"},
        functions={STAGE: lambda frame: frame},
    )
    sink = output(context, elsewhere)
    sink.upgrade(lambda: None)
    with pytest.raises(UserFunctionError, match=r"sc://host has written .* a volume that both"):
        sink.seal()


def test_a_stage_is_ended_when_its_task_is_told_to_stop(tmp_path: Path) -> None:
    runner, wanted = SummingRunner(), [True]
    context = plugin_context(
        {"path": str(tmp_path), "stage": STAGE}, functions={STAGE: lambda frame: frame}
    )
    sink = output(replace(context, wanted=lambda: wanted[0]), runner)
    sink.upgrade(lambda: None)
    written(sink, 1)
    runner.meanwhile = lambda: wanted.__setitem__(0, False)
    with pytest.raises(Fenced, match="the runner ended the run"):
        sink.seal()
    assert not (tmp_path / "result").exists()


def test_a_worker_that_has_lost_sight_of_zookeeper_waits_with_its_result(tmp_path: Path) -> None:
    own = tmp_path / "staging"
    own.mkdir()
    answers = [False, False, True]
    pauses: list[float] = []
    work = FolderWorkspace(
        location_of(str(tmp_path)), JobId("job-1"), lambda: answers.pop(0), pauses.append
    )
    upgrade(Notes(work.location), work.job, lambda: None)
    request = StageRequest(STAGE, (Frame(schema="n BIGINT"),))
    run_folder_stage(work, lambda: own, request, SummingRunner(), 60.0)
    assert work.result.exists()
    assert len(pauses) == 2


def test_a_worker_that_never_sees_zookeeper_again_gives_up(tmp_path: Path) -> None:
    own = tmp_path / "staging"
    own.mkdir()
    work = FolderWorkspace(
        location_of(str(tmp_path)), JobId("job-1"), lambda: False, lambda _: None
    )
    upgrade(Notes(work.location), work.job, lambda: None)
    request = StageRequest(STAGE, (Frame(schema="n BIGINT"),))
    with pytest.raises(Unavailable, match="lost sight of the log"):
        run_folder_stage(work, lambda: own, request, SummingRunner(), 60.0)
    assert not work.result.exists()


def test_without_any_segment_and_schema_the_result_is_empty(tmp_path: Path) -> None:
    runner = SummingRunner()
    spark_output(tmp_path, runner).seal()
    assert runner.requests == []
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == ["_SUCCESS", MANIFEST]


def test_without_any_segment_a_known_schema_reaches_the_stage(tmp_path: Path) -> None:
    runner = SummingRunner()
    spark_output(tmp_path, runner, schema="n BIGINT").seal()
    assert [request.frames for request in runner.requests] == [(Frame(schema="n BIGINT"),)]


def test_options_reach_the_stage(tmp_path: Path) -> None:
    runner = SummingRunner()
    sink = spark_output(
        tmp_path,
        runner,
        master="local[2]",
        write={"format": "json"},
        sparkConf={"spark.driver.memory": "4g"},
    )
    written(sink, 1)
    sink.seal()
    (request,) = runner.requests
    assert (request.master, request.write.format) == ("local[2]", "json")
    assert request.spark_conf == {"spark.driver.memory": "4g"}
    assert request.name == "onyx: flights, work"


@pytest.mark.parametrize(
    "wrong", [{"stage": 1}, {"path": ""}, {"stageTimeout": 0}, {"stageTimout": 5}, {"master": ""}]
)
def test_wrong_options_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        spark_output(tmp_path, SummingRunner(), **wrong)


def test_a_stage_that_the_worker_does_not_offer_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(NameNotRegistered):
        spark_output(tmp_path, SummingRunner(), stage="os:system")


def test_the_registry_knows_the_plugin(tmp_path: Path) -> None:
    context = plugin_context(
        {"path": str(tmp_path), "stage": STAGE}, functions={STAGE: lambda frame: frame}
    )
    assert isinstance(build_output("spark", context), SparkOutput)


@pytest.mark.parametrize(
    ("options", "workers", "used"),
    [
        ({}, "local[*]", "local[*]"),
        ({}, "sc://fleet-spark:15002", "sc://fleet-spark:15002"),
        ({"master": "local[2]"}, "sc://fleet-spark:15002", "local[2]"),
    ],
)
def test_a_task_without_a_master_runs_where_its_worker_says(
    tmp_path: Path, options: dict[str, Any], workers: str, used: str
) -> None:
    runner = SummingRunner()
    context = plugin_context(
        {"path": str(tmp_path), "stage": STAGE, **options}, functions={STAGE: lambda frame: frame}
    )
    sink = output(replace(context, spark_master=workers), runner)
    sink.upgrade(lambda: None)
    written(sink, 1)
    sink.seal()
    assert runner.requests[0].master == used


def test_a_stage_that_the_workers_master_cannot_run_is_refused(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "stage": STAGE, "sparkConf": {"spark.driver.memory": "2g"}}
    context = plugin_context(given, functions={STAGE: lambda frame: frame})
    there = replace(context, spark_master="sc://fleet-spark:15002")
    with pytest.raises(UserError, match=r"spark\.driver\.memory is set where a Spark") as raised:
        output(there, SummingRunner())
    assert "ONYX_SPARK_MASTER of the workers" in str(raised.value)
