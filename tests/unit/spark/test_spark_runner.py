"""The process of a stage, and the contract that the fake of the plugin's tests shares with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from tests.support.patience import WAIT_S
from tests.support.spark.children import warm_children

from onyx.errors import Fenced, Unavailable, UserFunctionError
from onyx.plugins.protocol import SealProgress
from onyx.spark.child import run_stage
from onyx.spark.child.protocol import StageFailure
from onyx.spark.child.request import Frame, StageRequest, StageRunner, Watch
from onyx.spark.child.run_stage import named
from onyx.spark.child.runner import run_in_child
from onyx.spark.session.blame import failure_message

PATIENCE_S = 540.0
USER_CODE = """
def doubled(frame):
    print("what a stage prints must not spoil the reply")
    if hasattr(frame, "num_rows"):
        return frame
    from pyspark.sql import functions as F
    twice = F.udf(lambda n: 2 * n, "double")
    return frame.withColumn("twice", twice("n"))

def raising(frame):
    raise ValueError("boom")

def forgetful(frame):
    len(frame)
"""

HANGING = """
import os, pathlib, time
pathlib.Path(os.environ["PID_FILE"] + ".new").write_text(str(os.getpid()))
os.rename(os.environ["PID_FILE"] + ".new", os.environ["PID_FILE"])
time.sleep(600)
"""


def run_here(request: StageRequest, timeout_s: float, watch: Watch) -> None:
    """The fake: the same request over Arrow tables, in this process."""
    if not watch.wanted():
        raise Fenced("declared dead")
    table = pa.concat_tables(
        [pq.read_table(part) for part in request.frames[0].parts], promote_options="permissive"
    )
    try:
        result = named(request.stage)(table)
    except Exception as error:
        raise UserFunctionError(failure_message(error)) from error
    Path(request.target).mkdir()
    pq.write_table(result, Path(request.target) / "part-0.parquet")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory on the import path with modules of a user's."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "stages_of_a_user.py").write_text(USER_CODE)
    (folder / "hanging_stages.py").write_text(HANGING)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture
def user_code(modules: Path, tmp_path: Path) -> Path:
    """A directory for files; stages of the user can be imported."""
    return tmp_path


@pytest.fixture
def hanging(user_code: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same; a module that hangs writes its process id there."""
    monkeypatch.setenv("PID_FILE", str(user_code / "pid"))
    return user_code


@pytest.fixture(scope="module")
def in_spark(modules: Path) -> Iterator[StageRunner]:
    """One child for all. It begins in a worker that has used a Connect server, and so has the
    variable that PySpark leaves behind; with that, PySpark starts no other master."""
    with pytest.MonkeyPatch.context() as patch, warm_children() as run:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        yield run


@pytest.fixture(params=["fake", pytest.param("spark", marks=pytest.mark.server)])
def runner(request: pytest.FixtureRequest) -> StageRunner:
    made: StageRunner = run_here if request.param == "fake" else request.getfixturevalue("in_spark")
    return made


def request_for(stage: str, folder: Path) -> StageRequest:
    """Two parts whose schemas differ: integers and floats, a column that one lacks."""
    pq.write_table(pa.table({"n": [1, 2]}), folder / "0.parquet")
    pq.write_table(pa.table({"n": [2.5], "note": pa.nulls(1)}), folder / "1.parquet")
    parts = (str(folder / "0.parquet"), str(folder / "1.parquet"))
    return StageRequest(stage, (Frame(None, parts),), str(folder / "result"), master="local[1]")


class FakeSessions:
    """What a run does with its session."""

    def __init__(self, ended: str = "") -> None:
        self.events: list[str] = []
        self._ended = ended

    def how_ended(self) -> str:
        return self._ended

    def open(self, group: str, name: str) -> Any:
        self.events.append(f"open {group}")

    def cancel(self) -> None:
        self.events.append("cancel")

    def progress(self) -> SealProgress | None:
        return None

    def close(self) -> None:
        self.events.append("close")


def test_a_stage_sees_the_rows_of_all_parts(runner: StageRunner, user_code: Path) -> None:
    request = request_for("stages_of_a_user:doubled", user_code)
    runner(request, PATIENCE_S, Watch())
    rows = pq.read_table(request.target).to_pylist()
    assert sorted(row["n"] for row in rows) == [1.0, 2.0, 2.5]
    assert {row["note"] for row in rows} == {None}
    if runner is not run_here:
        assert sorted(row["twice"] for row in rows) == [2.0, 4.0, 5.0]
        assert not {"metastore_db", "spark-warehouse", "artifacts"} & set(os.listdir())


@pytest.mark.server
def test_a_stage_sees_columns_of_types_that_dicts_never_have(
    in_spark: StageRunner, user_code: Path
) -> None:
    request = request_for("stages_of_a_user:doubled", user_code)
    unsigned = {"n": pa.array([250], pa.uint8()), "small": pa.array([[7]], pa.list_(pa.uint16()))}
    wide = {"big": pa.array([2**64 - 1], pa.uint64()), "note": pa.array(["x"])}
    pq.write_table(pa.table({**unsigned, **wide}), user_code / "1.parquet")
    in_spark(request, PATIENCE_S, Watch())
    rows = {row["n"]: row for row in pq.read_table(request.target).to_pylist()}
    assert sorted(rows) == [1, 2, 250]
    assert (rows[250]["small"], rows[250]["big"], rows[250]["note"]) == ([7], 2**64 - 1, "x")
    assert rows[1]["big"] is None


@pytest.mark.server
def test_fields_of_nested_segments_meet_by_their_names(
    in_spark: StageRunner, user_code: Path
) -> None:
    """Also below a folder that is a pattern for Spark, and in columns with any name."""
    folder = user_code / "[2024]"
    folder.mkdir()
    parts = [
        [{"n": 1, "at": {"x": 1, "y": 2}, "all": [{"x": 1, "y": 2}], "a`b": 1}],
        [{"n": 2, "at": {"y": 2.5, "x": 1}, "all": [{"y": 2.5, "x": 1}, None], "a`b": 2.5}],
        [{"n": 3, "at": {"y": 2}, "all": [{"z": "new"}], "a`b": None}, {"n": 4, "at": None}],
    ]
    for number, rows in enumerate(parts):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")
    frame = Frame(None, tuple(map(str, sorted(folder.iterdir()))))
    target = str(user_code / "result")
    request = StageRequest("stages_of_a_user:doubled", (frame,), target, master="local[1]")
    in_spark(request, PATIENCE_S, Watch())
    found = {row["n"]: row for row in pq.read_table(request.target).to_pylist()}
    assert found[1]["at"] == {"x": 1, "y": 2.0}
    assert found[2]["all"] == [{"x": 1, "y": 2.5, "z": None}, None]
    assert found[3]["at"] == {"x": None, "y": 2.0}
    assert found[3]["all"] == [{"x": None, "y": None, "z": "new"}]
    assert (found[4]["at"], found[4]["all"]) == (None, None)
    assert [found[n]["a`b"] for n in (1, 2, 3, 4)] == [1.0, 2.5, None, None]


def test_an_exception_of_a_stage_is_answered_with_its_place(
    user_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = FakeSessions()
    monkeypatch.setattr(run_stage, "read_parts", lambda *_: "a frame")

    def answer(stage: str) -> StageFailure | None:
        request = request_for(f"stages_of_a_user:{stage}", user_code)
        return run_stage.answer(request, run_stage.Turn(sessions, "1", user_code))

    failure = answer("raising")
    assert failure is not None
    assert failure.by_user
    assert re.search(r"(?s)^ValueError: boom.*user.py:11 in raising", failure.message)
    assert sessions.events == ["open 1", "close"]
    failure = answer("forgetful")
    assert failure is not None
    assert "a stage returns a DataFrame, this one a NoneType" in failure.message


def test_what_a_stage_raises_when_its_jvm_has_died_is_no_mistake_of_its_author(
    user_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = FakeSessions("has ended with code 1")
    monkeypatch.setattr(run_stage, "read_parts", lambda *_: "a frame")
    turn = run_stage.Turn(sessions, "1", user_code)
    failure = run_stage.answer(request_for("stages_of_a_user:raising", user_code), turn)
    assert failure is not None
    assert not failure.by_user
    assert "the JVM of Spark has ended with code 1 while the stage ran" in failure.message
    assert "boom" in failure.message
    assert sessions.events == ["open 1"], "what is gone is not asked to close"


@pytest.mark.parametrize(
    ("condition", "schema", "by_user", "said"),
    [
        ("DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION", None, True, "give the task a `schema`"),
        ("DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION", "n INT", True, "change the task's `schema`"),
        ("PATH_NOT_FOUND", None, False, "no such cast"),
    ],
)
def test_parts_that_spark_cannot_unite_are_for_the_user_to_mend(
    user_code: Path,
    monkeypatch: pytest.MonkeyPatch,
    condition: str,
    schema: str | None,
    by_user: bool,
    said: str,
) -> None:
    class Refused(AnalysisException):
        def getCondition(self) -> str:
            return condition

    def refuse(*_: Any) -> None:
        raise Refused("no such cast")

    monkeypatch.setattr(run_stage, "read_parts", refuse)
    request = msgspec.structs.replace(
        request_for("stages_of_a_user:doubled", user_code), frames=(Frame("n", schema=schema),)
    )
    failure = run_stage.answer(request, run_stage.Turn(FakeSessions(), "1", user_code))
    assert failure is not None
    assert failure.by_user is by_user
    assert said in failure.message


@pytest.mark.server
def test_a_stage_that_does_not_exist_is_reported_without_starting_spark(user_code: Path) -> None:
    with pytest.raises(UserFunctionError, match="has no 'nothing'"):
        run_in_child(request_for("stages_of_a_user:nothing", user_code), 60.0, Watch())


@pytest.mark.server
def test_a_stage_that_hangs_is_ended(hanging: Path) -> None:
    with pytest.raises(UserFunctionError, match="stageTimeout"):
        run_in_child(request_for("hanging_stages:any", hanging), 1.0, Watch())
    assert_ended(hanging)


@pytest.mark.server
def test_a_stage_is_ended_when_its_worker_is_declared_dead(hanging: Path) -> None:
    with pytest.raises(Fenced):
        run_in_child(
            request_for("hanging_stages:any", hanging),
            60.0,
            Watch(lambda: not (hanging / "pid").exists()),
        )
    assert_ended(hanging)


@pytest.mark.server
def test_a_process_that_is_killed_is_reported(hanging: Path) -> None:
    def kill() -> bool:
        if (hanging / "pid").exists():
            os.kill(int((hanging / "pid").read_text()), signal.SIGKILL)
        return True

    with pytest.raises(Unavailable, match="code -9 and no reply"):
        run_in_child(request_for("hanging_stages:any", hanging), 60.0, Watch(kill))


@pytest.mark.server
def test_a_stage_dies_with_its_worker(hanging: Path, modules: Path) -> None:
    code = (
        "from onyx.spark.child.runner import run_in_child\n"
        "from onyx.spark.child.request import StageRequest, Watch\n"
        "import os, pathlib, signal\n"
        "def die():\n"
        "    if pathlib.Path(os.environ['PID_FILE']).exists():\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return True\n"
        "request = StageRequest('hanging_stages:any')\n"
        "run_in_child(request, 60.0, Watch(die))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(modules)}
    worker = subprocess.run(
        [sys.executable, "-c", code], env=environment, timeout=WAIT_S, check=False
    )
    assert worker.returncode == -signal.SIGKILL
    assert_ended(hanging)


def assert_ended(folder: Path) -> None:
    pid = int((folder / "pid").read_text())
    try:
        psutil.Process(pid).wait(timeout=WAIT_S)
    except psutil.NoSuchProcess:
        return
