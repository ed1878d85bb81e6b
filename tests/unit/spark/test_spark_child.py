"""The warm child: who gets it, when it ends, what it hears and says. Processes are real where the
end of one is tested; Spark is real in the last tests only."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.patience import WAIT_S

from onyx.errors import Blocked, Fenced, Unavailable, UserFunctionError
from onyx.plugins.protocol import SealProgress
from onyx.spark.child import protocol, runner
from onyx.spark.child.protocol import Cancel, Ended, Run, StageFailure, read_line, write_message
from onyx.spark.child.request import Frame, StageRequest, Watch
from onyx.spark.child.runner import ChildKeeper, run_in_child
from onyx.state.local.scratch import temporary_folder

REQUEST = StageRequest("m:f", master="local[1]")
SCRIPTED = """
import os, sys, time, msgspec
from onyx.plugins.protocol import SealProgress
from onyx.spark.child.protocol import *
orders = msgspec.json.Decoder(Order)
runs = 0
for line in sys.stdin.buffer:
    order = orders.decode(line)
    if isinstance(order, Cancel):
        if stage != "m:deaf":
            write_message(sys.stdout.buffer, Ended(order.number, StageFailure("cancelled", False)))
        continue
    runs += 1
    stage = order.request.stage
    if stage == "m:dies":
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)
    elif stage == "m:stale" and runs > 1:
        write_message(sys.stdout.buffer, Ended(order.number, StageFailure("", False, stale=True)))
    elif stage == "m:fails":
        write_message(sys.stdout.buffer, Ended(order.number, StageFailure("boom", True)))
    elif stage == "m:babbles":
        print("no reply", flush=True)
    elif stage == "m:reports":
        write_message(sys.stdout.buffer, Progressed(order.number, SealProgress(4, 1)))
        write_message(sys.stdout.buffer, Writing(order.number))
        runs = orders.decode(sys.stdin.buffer.readline()).number
        write_message(sys.stdout.buffer, Ended(runs))
    elif stage not in ("m:waits", "m:deaf"):
        write_message(sys.stdout.buffer, Ended(order.number))
"""
"""A child without Spark: what it does is in the name of the stage."""


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildKeeper]:
    """Of children that follow the script."""
    (tmp_path / "scripted_child.py").write_text(SCRIPTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(runner, "_MODULE", "scripted_child")
    made = ChildKeeper()
    yield made
    made.end()


def run(keeper: ChildKeeper, stage: str, wanted: Callable[[], bool] = lambda: True) -> None:
    request = StageRequest(stage, master="local[1]")
    run_in_child(request, 60.0, Watch(wanted), keeper)


def pid_of_next(keeper: ChildKeeper, request: StageRequest = REQUEST) -> int:
    """Of the child that a request gets; it is kept."""
    with keeper.lent(request, lambda: True) as loan:
        loan.keep = True
        return loan.child.pid


def assert_ended(pid: int) -> None:
    try:
        psutil.Process(pid).wait(timeout=WAIT_S)
    except psutil.NoSuchProcess:
        return


def test_a_child_serves_request_after_request(keeper: ChildKeeper) -> None:
    run(keeper, "m:f")
    pid = pid_of_next(keeper)
    run(keeper, "m:f")
    assert pid_of_next(keeper) == pid


def test_other_settings_have_another_child_and_the_idle_one_makes_room(keeper: ChildKeeper) -> None:
    pid = pid_of_next(keeper)
    other = StageRequest("m:f", master="local[1]", spark_conf={"a": "b"})
    assert pid_of_next(keeper, other) != pid
    assert_ended(pid)


def test_another_search_path_of_modules_has_another_child(
    keeper: ChildKeeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = pid_of_next(keeper)
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    assert pid_of_next(keeper) != pid


def test_an_idle_child_ends_in_time(keeper: ChildKeeper) -> None:
    hasty = ChildKeeper(idle_max_s=0.0)
    assert_ended(pid_of_next(hasty))
    run(hasty, "m:f")
    hasty.end()


def test_a_child_that_died_while_idle_is_replaced_unnoticed(keeper: ChildKeeper) -> None:
    pid = pid_of_next(keeper)
    os.kill(pid, signal.SIGKILL)
    assert_ended(pid)
    run(keeper, "m:f")


def test_a_session_that_died_while_idle_is_replaced_unnoticed(keeper: ChildKeeper) -> None:
    pid = pid_of_next(keeper)
    run(keeper, "m:f")
    run(keeper, "m:stale")
    assert_ended(pid)


@pytest.mark.parametrize(
    ("stage", "error", "reported"),
    [
        ("m:fails", UserFunctionError, "boom"),
        ("m:dies", Unavailable, r"(?s)stage m:dies ended with code 7 and no reply.*last words"),
        ("m:babbles", Unavailable, "has written no reply"),
    ],
)
def test_after_a_failure_the_next_run_has_a_new_child(
    keeper: ChildKeeper, stage: str, error: type[Exception], reported: str
) -> None:
    pid = pid_of_next(keeper)
    with pytest.raises(error, match=reported):
        run(keeper, stage)
    assert_ended(pid)
    run(keeper, "m:f")


def test_a_child_has_a_folder_that_goes_with_it_or_after_a_killed_worker(
    keeper: ChildKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = temporary_folder() / "killed"
    killed.mkdir()
    (killed / "owner").touch()
    run(keeper, "m:f")
    (own,) = (each for each in temporary_folder().iterdir() if each.is_dir())
    assert own != killed
    keeper.end()
    assert not own.exists()


def test_a_child_starts_only_where_there_is_room(
    keeper: ChildKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(Blocked, match=r"TMPDIR: nothing can be written.*No space left on device"):
        run(keeper, "m:f")


def test_a_child_that_obeys_a_cancel_stays_warm(keeper: ChildKeeper) -> None:
    pid = pid_of_next(keeper)
    with pytest.raises(Fenced):
        run(keeper, "m:waits", wanted=lambda: False)
    assert pid_of_next(keeper) == pid


def test_a_child_that_does_not_obey_is_killed(
    keeper: ChildKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.spark.child.runner.OBEY_S", 0.1)
    pid = pid_of_next(keeper)
    with pytest.raises(Fenced):
        run(keeper, "m:deaf", wanted=lambda: False)
    assert_ended(pid)


def test_a_run_reports_and_waits_for_leave_to_write(keeper: ChildKeeper) -> None:
    events: list[Any] = []
    watch = Watch(seen=events.append, begin_write=lambda: events.append("may write"))
    run_in_child(StageRequest("m:reports", master="local[1]"), 60.0, watch, keeper)
    assert events == [SealProgress(tasks=4, tasks_done=1), "may write"]


def test_a_run_without_leave_to_write_is_cancelled(keeper: ChildKeeper) -> None:
    def refuse() -> None:
        raise Unavailable("no sight of ZooKeeper")

    with pytest.raises(Unavailable, match="no sight"):
        run_in_child(
            StageRequest("m:reports", master="local[1]"), 60.0, Watch(begin_write=refuse), keeper
        )


def test_a_run_that_takes_too_long_is_cancelled(keeper: ChildKeeper) -> None:
    request = StageRequest("m:waits", master="local[1]")
    with pytest.raises(UserFunctionError, match=r"did not end within 0\.1 s; raise `stageTimeout`"):
        run_in_child(request, 0.1, Watch(), keeper)


def test_runs_of_one_child_take_turns_and_who_waits_may_give_up(keeper: ChildKeeper) -> None:
    with keeper.lent(REQUEST, lambda: True) as loan:
        loan.keep = True
        with pytest.raises(Fenced, match="before its Spark stage ran"):
            run(keeper, "m:f", wanted=lambda: False)
        waiting = threading.Thread(target=run, args=(keeper, "m:f"))
        waiting.start()
        pid = loan.child.pid
    waiting.join(60.0)
    assert not waiting.is_alive()
    assert pid_of_next(keeper) == pid


@pytest.mark.parametrize("message", [Run(1, REQUEST), Cancel(2), Ended(3, StageFailure("x", True))])
def test_a_message_is_a_line(message: Run | Cancel | Ended) -> None:
    stream = io.BytesIO()
    write_message(stream, message)
    write_message(stream, message)
    stream.seek(0)
    first, second = read_line(stream), read_line(stream)
    assert first == second
    assert protocol.msgspec.json.decode(first, type=Run | Cancel | Ended) == message
    assert read_line(stream) == b""


@pytest.mark.parametrize("data", [b'{"type":', b"x" * 200])
def test_a_line_that_is_cut_off_or_too_long_is_refused(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LINE_BYTES_MAX", 100)
    with pytest.raises(Unavailable, match="cut off, or longer than 100 bytes"):
        read_line(io.BytesIO(data))


STAGES = """
import os, time
SEEN = []

def remember(frame):
    session = frame.sparkSession
    frame.cache().createOrReplaceTempView("kept")
    session.conf.set("spark.sql.shuffle.partitions", "3")
    return frame

def recall(frame):
    from pyspark.sql import SparkSession
    session = SparkSession.builder.getOrCreate()
    views = [table.name for table in session.catalog.listTables()]
    number = session.conf.get("spark.sql.shuffle.partitions")
    cached = session.sparkContext._jsc.getPersistentRDDs().size()
    return session.createDataFrame([(str(views), number, cached)], "views STRING, n STRING, c INT")

def slow(frame):
    from pyspark.sql import functions as F
    def wait(n):
        open(os.environ["BEGAN"], "w").close()
        time.sleep(600)
    return frame.withColumn("n", F.udf(wait, "double")("n"))
"""


@pytest.fixture
def real(own_jvms: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildKeeper]:
    """Of children that run Spark."""
    (tmp_path / "warm_stages.py").write_text(STAGES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BEGAN", str(tmp_path / "began"))
    pq.write_table(pa.table({"n": [1.0, 2.0]}), tmp_path / "0.parquet")
    made = ChildKeeper()
    yield made
    made.end()


def of_spark(folder: Path, stage: str) -> StageRequest:
    return StageRequest(
        f"warm_stages:{stage}", (Frame(None, (str(folder / "0.parquet"),)),),
        str(folder / stage), master="local[1]",
    )  # fmt: skip


def kill_and_wait(pid: int) -> None:
    """Also for a process that its parent does not look after."""
    ended = select.poll()
    descriptor = os.pidfd_open(pid)
    ended.register(descriptor, select.POLLIN)
    os.kill(pid, signal.SIGKILL)
    assert ended.poll(20_000)
    os.close(descriptor)


@pytest.mark.slow
@pytest.mark.server
def test_a_warm_jvm_serves_runs_whose_sessions_are_their_own(
    real: ChildKeeper, tmp_path: Path
) -> None:
    """[remember, cancel in the middle, recall, kill of the JVM, recall, kill in the middle]"""
    seen: list[SealProgress] = []
    run_in_child(of_spark(tmp_path, "remember"), 300.0, Watch(seen=seen.append), real)
    assert seen[-1].tasks_done == seen[-1].tasks > 0
    assert (seen[-1].rows_read, seen[-1].rows_written) == (2, 2)
    pid = pid_of_next(real)
    began = tmp_path / "began"
    with pytest.raises(Fenced):
        run_in_child(of_spark(tmp_path, "slow"), 300.0, Watch(lambda: not began.exists()), real)
    run_in_child(of_spark(tmp_path, "recall"), 300.0, Watch(), real)
    assert pid_of_next(real) == pid
    (row,) = pq.read_table(tmp_path / "recall").to_pylist()
    assert row == {"views": "[]", "n": "8", "c": 0}
    java = [each for each in psutil.Process(pid).children() if "java" in each.name()]
    kill_and_wait(java[0].pid)
    (tmp_path / "recall").rename(tmp_path / "earlier")
    run_in_child(of_spark(tmp_path, "recall"), 300.0, Watch(), real)
    assert pid_of_next(real) != pid
    began.unlink()
    (java,) = [
        each for each in psutil.Process(pid_of_next(real)).children() if "java" in each.name()
    ]

    def killing() -> bool:
        if began.exists() and java.is_running():
            java.kill()
        return True

    (tmp_path / "slow").rename(tmp_path / "cancelled")
    with pytest.raises(
        Unavailable, match=r"the JVM of Spark was killed \(SIGKILL\).* while the stage ran"
    ):
        run_in_child(of_spark(tmp_path, "slow"), 300.0, Watch(killing), real)


def test_a_child_without_its_parent_does_not_begin() -> None:
    from onyx.base.parent import die_with

    with pytest.raises(SystemExit, match="is gone"):
        die_with(sys.maxsize)
