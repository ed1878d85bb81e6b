"""Outputs that share a path feed one stage, and a stage may write directly: what is read, noted,
refused. The runner is a fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.spark.outputs import output

from onyx.errors import Fenced, Unavailable, UserError, UserFunctionError
from onyx.ids import JobId
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.stage.output import SparkOutput

STAGE = "demo.stages:joined"
JDBC = {"format": "jdbc", "mode": "append", "options": {"dbtable": "t"}}


class Runner:
    """Notes what each frame holds; a direct write does as the test says."""

    def __init__(self) -> None:
        self.requests: list[StageRequest] = []
        self.rows: dict[str | None, list[Any]] = {}
        self.before_write: Callable[[], Any] = lambda: None
        self.in_write: Callable[[], Any] = lambda: None

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        self.requests.append(request)
        self.rows = {
            frame.name: sorted(
                row["n"] for part in frame.parts for row in pq.read_table(part).to_pylist()
            )
            for frame in request.frames
        }
        self.before_write()
        if request.write.direct:
            watch.begin_write()
            self.in_write()
        else:
            Path(request.target).mkdir()
            (Path(request.target) / "rows.json").write_text(json.dumps(sorted(self.rows)))


def failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def made(
    root: Path,
    runner: Runner,
    job: str = "job-1",
    task: str = "work",
    alike: dict[str, Any] | None = None,
    function: Callable[..., Any] = lambda *_, **__: None,
    **options: Any,
) -> SparkOutput:
    context = plugin_context({"path": str(root), **options}, functions={STAGE: function}, task=task)
    sink = output(replace(context, job=JobId(job), alike=alike or {}), runner)
    sink.upgrade(lambda: None)
    return sink


def written(sink: SparkOutput, *numbers: int) -> SparkOutput:
    sink.write([{"n": n} for n in numbers])
    sink.flush()
    return sink


def test_the_stage_gets_the_parts_of_each_output_as_a_frame_of_its_own(tmp_path: Path) -> None:
    runner = Runner()
    other = {"path": f"{tmp_path}/", "frame": "carriers", "schema": "n BIGINT"}
    elsewhere = {"path": str(tmp_path / "x"), "frame": "far"}
    carriers = made(tmp_path, runner, task="carriers", frame="carriers", schema="n BIGINT")
    flights = made(
        tmp_path, runner, alike={"carriers": other, "far": elsewhere}, frame="flights",
        stage=STAGE, stageParams={"since": 7},
    )  # fmt: skip
    written(flights, 1, 2)
    written(carriers, 3)
    carriers.seal()
    assert runner.requests == []
    flights.seal()
    assert runner.rows == {"flights": [1, 2], "carriers": [3]}
    (request,) = runner.requests
    assert request.params == {"since": 7}
    assert [frame.schema for frame in request.frames] == [None, "n BIGINT"]
    assert json.loads((tmp_path / "result" / "_onyx.json").read_text())["parts"] == 2


@pytest.mark.parametrize(
    ("function", "reported"),
    [
        (lambda flights: None, "cannot be called with flights, carriers, since"),
        (lambda flights, carriers, since, more: None, "missing a required argument: 'more'"),
    ],
)
def test_a_stage_that_takes_other_arguments_is_refused_at_the_start(
    tmp_path: Path, function: Callable[..., Any], reported: str
) -> None:
    other = {"carriers": {"path": str(tmp_path), "frame": "carriers"}}
    with pytest.raises(UserError, match=reported):
        made(tmp_path, Runner(), alike=other, function=function, frame="flights", stage=STAGE,
             stageParams={"since": 1})  # fmt: skip


@pytest.mark.parametrize("frame", ["flights", None])
def test_two_frames_of_one_name_are_refused_at_the_start(tmp_path: Path, frame: str | None) -> None:
    other = {"path": str(tmp_path), **({"frame": frame} if frame else {})}
    with pytest.raises(UserError, match="is that of task second too"):
        made(tmp_path, Runner(), alike={"second": other}, frame="flights", stage=STAGE)


def test_results_that_are_appended_stand_beside_each_other(tmp_path: Path) -> None:
    for job in ("a", "b", "a"):
        sink = made(tmp_path, Runner(), job, stage=STAGE, write={"mode": "append"})
        written(sink, 1).seal()
    found = sorted(path.parent.name for path in (tmp_path / "result").rglob("rows.json"))
    assert found == ["job=a", "job=b"]


def test_a_direct_write_is_done_once(tmp_path: Path) -> None:
    runner = Runner()
    for _ in range(2):
        written(made(tmp_path, runner, stage=STAGE, write=JDBC), 1).seal()
    assert len(runner.requests) == 1
    note = json.loads((tmp_path / "writes" / "job-1.json").read_text())
    assert (note["state"], note["format"]) == ("done", "jdbc")
    assert not (tmp_path / "result").exists()


def test_what_fails_before_the_write_may_be_tried_again(tmp_path: Path) -> None:
    runner = Runner()
    sink = written(made(tmp_path, runner, stage=STAGE, write=JDBC), 1)
    runner.before_write = failing(UserFunctionError("no column"))
    with pytest.raises(UserFunctionError, match="no column"):
        sink.seal()
    runner.before_write = lambda: None
    sink.seal()
    assert len(runner.requests) == 2


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (Unavailable("the JVM died"), "an earlier attempt to write to jdbc failed: the JVM died"),
        (KeyboardInterrupt(), "an earlier attempt to write to jdbc was ended in the middle"),
    ],
)
def test_rows_that_may_have_been_appended_are_not_appended_again(
    tmp_path: Path, error: BaseException, reported: str
) -> None:
    """[write begins, failure or CRASH, seal again, here or elsewhere]"""
    runner = Runner()
    sink = written(made(tmp_path, runner, stage=STAGE, write=JDBC), 1)

    def die() -> None:
        raise error

    runner.in_write = die
    with pytest.raises(type(error)):
        sink.seal()
    runner.in_write = lambda: None
    with pytest.raises(UserFunctionError, match=reported):
        sink.seal()
    assert len(runner.requests) == 1
    made(tmp_path, runner, stage=STAGE, write={**JDBC, "repeat": True}).seal()
    assert len(runner.requests) == 2


def test_an_overwrite_may_be_repeated(tmp_path: Path) -> None:
    runner = Runner()
    write = {**JDBC, "mode": "overwrite"}
    sink = written(made(tmp_path, runner, stage=STAGE, write=write), 1)
    runner.in_write = failing(Unavailable("the JVM died"))
    with pytest.raises(Unavailable):
        sink.seal()
    runner.in_write = lambda: None
    sink.seal()
    assert len(runner.requests) == 2


def test_a_worker_that_was_declared_dead_begins_no_write(tmp_path: Path) -> None:
    runner = Runner()
    sink = written(made(tmp_path, runner, stage=STAGE, write=JDBC), 1)
    successor = made(tmp_path, runner, stage=STAGE, write=JDBC)
    runner.before_write = lambda: [
        made(tmp_path, runner, stage=STAGE, write=JDBC),
        remove_staging(tmp_path),
    ]
    with pytest.raises(Fenced):
        sink.seal()
    assert not (tmp_path / "writes").exists()
    runner.before_write = lambda: None
    successor.seal()


def remove_staging(root: Path) -> None:
    """As a fence does."""
    for path in (root / "parts" / "job-1" / ".staging").rglob("incarnation-1.*"):
        path.rmdir()


def test_of_two_workers_that_begin_a_write_one_does(tmp_path: Path) -> None:
    runner, other = Runner(), Runner()
    sink = written(made(tmp_path, runner, stage=STAGE, write=JDBC), 1)
    runner.before_write = made(tmp_path, other, stage=STAGE, write=JDBC).seal
    runner.in_write = failing(AssertionError("two have begun"))
    with pytest.raises(Unavailable, match="another worker has begun to write"):
        sink.seal()
    sink.seal()
    assert len(runner.requests) == len(other.requests) == 1


def test_a_worker_that_wakes_up_marks_no_write_of_its_successor_as_done(tmp_path: Path) -> None:
    class InTheMiddle(BaseException):
        """The successor is frozen, too."""

    runner, other = Runner(), Runner()
    jdbc = {**JDBC, "mode": "overwrite"}
    frozen = written(made(tmp_path, runner, stage=STAGE, write=jdbc), 1)
    successor = made(tmp_path, other, stage=STAGE, write=jdbc)
    other.in_write = failing(InTheMiddle())

    def sleep() -> None:
        with pytest.raises(InTheMiddle):
            successor.seal()

    runner.in_write = sleep
    with pytest.raises(Unavailable, match="another worker has begun to write"):
        frozen.seal()
    note = json.loads((tmp_path / "writes" / "job-1.json").read_text())
    assert note["state"] == "began"
    other.in_write = lambda: None
    successor.seal()
    assert len(other.requests) == 2


def test_a_secret_of_a_format_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = {**JDBC, "optionsEnv": {"password": "DB_SECRET"}}
    with pytest.raises(UserError, match=r"write\.optionsEnv\.password.* 'DB_SECRET'"):
        made(tmp_path, Runner(), stage=STAGE, write=write)
    monkeypatch.setenv("DB_SECRET", "s3")
    runner = Runner()
    written(made(tmp_path, runner, stage=STAGE, write=write), 1).seal()
    assert runner.requests[0].write.options == {"dbtable": "t", "password": "s3"}


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "'stage' is missing"),
        ({"frame": "a-b", "stage": STAGE}, "frame"),
        ({"frame": "a", "stageParams": {"x": 1}}, "'stageParams' belongs to a stage"),
        ({"stage": STAGE, "write": {"format": "jdbc"}}, r"'write\.mode' is missing"),
        ({"stage": STAGE, "write": {"mode": "ignore"}}, r"'write\.mode' is 'ignore'"),
        ({"stage": STAGE, "write": {"mode": "upsert"}}, r"'write\.mode' is 'upsert'"),
        ({"stage": STAGE, "write": {"fromat": "csv"}}, "write"),
        ({"stage": STAGE, "write": {"repeat": True}}, r"'write\.repeat'"),
        (
            {"stage": STAGE, "write": {**JDBC, "options": {"password": "x"}}},
            r"'write\.options' has 'password', which is a secret.*optionsEnv",
        ),
    ],
)
def test_wrong_options_are_refused_with_their_keys(
    tmp_path: Path, options: dict[str, Any], reported: str
) -> None:
    with pytest.raises(UserError, match=reported):
        made(tmp_path, Runner(), **options)
