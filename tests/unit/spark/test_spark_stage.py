"""A stage is published once, whole, and only by a live worker. No Spark: the runner is a fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onyx.errors import Fenced, Unavailable, UserFunctionError
from onyx.ids import GroupId, JobId
from onyx.spark.request import StageRequest
from onyx.spark.stage import MANIFEST, Layout, fence, run_stage

REQUEST = StageRequest(stage="demo.stages:totals", parts=(), target="", name="task delays")


def layout(root: Path, job: str = "job-1", incarnation: str = "g1") -> Layout:
    made = Layout(root, JobId(job), GroupId(incarnation))
    made.parts.mkdir(parents=True, exist_ok=True)
    return made


class CopyingRunner:
    """The result of a stage is the names of its parts; fails as often as told."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.requests: list[StageRequest] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(
        self, request: StageRequest, timeout_s: float, permitted: Callable[[], bool]
    ) -> None:
        self.requests.append(request)
        Path(request.target).mkdir()
        (Path(request.target) / "part-0.txt").write_text(
            " ".join(Path(part).stem for part in request.parts)
        )
        self.meanwhile()
        if self.failures:
            raise self.failures.pop(0)


def seal(
    where: Layout, runner: CopyingRunner, permitted: Callable[[], bool] = lambda: True
) -> None:
    run_stage(where, REQUEST, runner, 60.0, permitted)


def content(where: Layout) -> str:
    return (where.result / "part-0.txt").read_text()


def parts(where: Layout, *names: str) -> None:
    for name in names:
        (where.parts / f"{name}.parquet").touch()


def test_the_result_appears_with_a_manifest_and_nothing_else_stays(tmp_path: Path) -> None:
    where = layout(tmp_path)
    parts(where, "b", "a")
    (where.parts / "c.parquet.unfinished").touch()
    runner = CopyingRunner()
    seal(where, runner)
    assert content(where) == "a b"
    assert json.loads((where.result / MANIFEST).read_text()) == {
        "job": "job-1",
        "stage": "demo.stages:totals",
        "format": "parquet",
        "parts": 2,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == [".staging", "parts", "result"]
    assert list(where.all_staging.iterdir()) == []


def test_a_second_run_for_the_same_job_finds_it_done(tmp_path: Path) -> None:
    where = layout(tmp_path)
    parts(where, "a")
    runner = CopyingRunner()
    seal(where, runner)
    seal(layout(tmp_path, incarnation="g2"), runner)
    assert len(runner.requests) == 1


def test_a_failed_stage_leaves_no_result_and_may_be_run_again(tmp_path: Path) -> None:
    where = layout(tmp_path)
    parts(where, "a")
    runner = CopyingRunner(UserFunctionError("ValueError: boom"), Unavailable("no memory"))
    with pytest.raises(UserFunctionError, match=r"demo.stages:totals of task delays.*boom"):
        seal(where, runner)
    assert not where.result.exists()
    with pytest.raises(Unavailable, match="no memory"):
        seal(where, runner)
    assert not where.result.exists()
    seal(where, runner)
    assert content(where) == "a"


def test_the_result_of_another_job_is_replaced(tmp_path: Path) -> None:
    for job in ("job-1", "job-2"):
        where = layout(tmp_path, job)
        parts(where, f"part-of-{job}")
        seal(where, CopyingRunner())
        assert content(where) == f"part-of-{job}"
    assert list(where.all_staging.iterdir()) == []


@pytest.mark.parametrize("wreck", ["{", "[]", '{"job": "job-0"}'])
def test_a_result_without_the_mark_of_this_job_is_not_taken_for_done(
    tmp_path: Path, wreck: str
) -> None:
    where = layout(tmp_path)
    where.result.mkdir()
    (where.result / MANIFEST).write_text(wreck)
    parts(where, "a")
    seal(where, CopyingRunner())
    assert content(where) == "a"


def test_a_zombie_publishes_nothing(tmp_path: Path) -> None:
    where = layout(tmp_path)
    parts(where, "a")
    with pytest.raises(Fenced):
        seal(where, CopyingRunner(), permitted=lambda: False)
    assert not where.result.exists()


def test_a_zombie_that_was_fenced_cannot_publish_even_if_it_believes_it_may(tmp_path: Path) -> None:
    zombie, successor = layout(tmp_path), layout(tmp_path, incarnation="g2")
    parts(zombie, "a")
    runner = CopyingRunner()
    runner.meanwhile = lambda: fence(successor, [GroupId("g2")])
    with pytest.raises(Unavailable):
        seal(zombie, runner)
    assert not zombie.result.exists()
    seal(successor, CopyingRunner())
    assert content(successor) == "a"


def test_a_fence_spares_the_living(tmp_path: Path) -> None:
    for name in ("g1", "g2", "g3"):
        layout(tmp_path, incarnation=name).staging.mkdir(parents=True)
    fence(layout(tmp_path, incarnation="g1"), [GroupId("g1"), GroupId("g3")])
    assert sorted(path.name for path in (tmp_path / ".staging").iterdir()) == ["g1", "g3"]
    fence(Layout(tmp_path / "nowhere", JobId("j"), GroupId("g1")), [])


def test_without_any_segment_and_schema_the_result_is_empty(tmp_path: Path) -> None:
    where = layout(tmp_path)
    runner = CopyingRunner()
    seal(where, runner)
    assert runner.requests == []
    assert sorted(path.name for path in where.result.iterdir()) == ["_SUCCESS", MANIFEST]


def test_without_any_segment_a_known_schema_reaches_the_stage(tmp_path: Path) -> None:
    where = layout(tmp_path)
    runner = CopyingRunner()
    with_schema = StageRequest(stage="demo.stages:totals", parts=(), target="", schema="n BIGINT")
    run_stage(where, with_schema, runner, 60.0, lambda: True)
    assert [request.parts for request in runner.requests] == [()]


def test_a_target_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / ".staging").write_text("a file in the way")
    with pytest.raises(Unavailable, match="cannot be written"):
        run_stage(
            Layout(tmp_path, JobId("j"), GroupId("g")), REQUEST, CopyingRunner(), 60.0, lambda: True
        )
