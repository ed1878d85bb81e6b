"""The process of a query, as the driver holds it: what it says, how it ends, what it leaves."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from tests.support.patience import WAIT_S
from tests.support.spark import fake_query

from onyx.base.path_names import staged_name
from onyx.errors import Blocked, Unavailable
from onyx.rights import EVERYTHING
from onyx.spark.driver import process as module
from onyx.spark.driver.outputs import read_spool
from onyx.spark.driver.process import QueryProcess
from onyx.spark.driver.request import QueryReply, QueryRequest, TaskCounts
from onyx.spark.processes import spark_scratch
from onyx.state.local.scratch import temporary_folder

pytestmark = pytest.mark.server

USER_CODE = """
import os, pathlib, signal, time

def greet(person):
    print("what a function prints must not spoil the reply")
    return {"greeting": "Hello, " + person["name"]}

def raising(person):
    raise ValueError("boom")

def dying(person):
    import sys
    sys.stderr.write("the last words\\n")
    sys.stderr.flush()
    os._exit(3)

def stubborn(person):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hanging(person)

def hanging(person):
    note = pathlib.Path(os.environ["PID_FILE"])
    note.with_suffix(".new").write_text(str(os.getpid()))
    note.with_suffix(".new").rename(note)
    time.sleep(600)
"""
PEOPLE = '{"name": "Ada"}\n{"name": "Grace"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "people_of_a_user.py").write_text(USER_CODE)
    (tmp_path / "people.jsonl").write_text(PEOPLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def scratches() -> list[Path]:
    """Folders for what a query leaves."""
    return [each for each in temporary_folder().iterdir() if each.is_dir()]


def request_for(folder: Path, fn: str, output: str = "files") -> QueryRequest:
    options = {"path": "out", "format": "jsonl"} if output == "files" else {}
    return QueryRequest(
        manifest={
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "hello"},
            "spec": {
                "engine": "spark",
                "workflow": [["people", "greet"], ["greet", "out"]],
                "catalog": [
                    {
                        "name": "people",
                        "type": "input",
                        "plugin": "files",
                        "options": {"path": "people.jsonl"},
                    },
                    {"name": "greet", "type": "function", "fn": f"people_of_a_user:{fn}"},
                    {"name": "out", "type": "output", "plugin": output, "options": options},
                ],
            },
        },
        job_id="job-1",
        modules=("people_of_a_user",),
        incarnation="group-1",
        attempt="a1",
        scratch="",
        data_dir=str(folder),
        rights=EVERYTHING,
    )


class Started:
    """A query, and how often the task was woken."""

    def __init__(self, request: QueryRequest, command: tuple[str, ...]) -> None:
        self.woken = threading.Semaphore(0)
        self.query = QueryProcess(request, self.woken.release, command)

    def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            assert self.woken.acquire(timeout=WAIT_S), "nothing happened"

    def reply(self) -> QueryReply:
        self.until(lambda: self.query.reply() is not None)
        found = self.query.reply()
        assert found is not None
        return found


Start = Callable[[QueryRequest], Started]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts queries without Spark, and ends them."""
    started: list[Started] = []

    def begin(request: QueryRequest) -> Started:
        started.append(Started(request, fake_query.COMMAND))
        return started[-1]

    yield begin
    for each in started:
        each.query.end()


def test_a_query_reports_and_replies(folder: Path, start: Start) -> None:
    running = start(request_for(folder, "greet"))
    reply = running.reply()
    assert reply.failure is None
    assert reply.tasks["greet"] == TaskCounts(2, 2)
    (token,) = reply.outputs["out"].tokens
    staged = folder / "out/.staging/job-1.out" / token["writer"] / staged_name(token["name"])
    assert staged.read_text().splitlines() == [
        '{"greeting": "Hello, Ada"}',
        '{"greeting": "Hello, Grace"}',
    ]
    said = running.query.progress
    assert said is not None
    assert said.tasks["people"].written == 2


def test_what_cannot_be_staged_is_spooled(folder: Path, start: Start) -> None:
    reply = start(request_for(folder, "greet", "stdout")).reply()
    (spool,) = reply.outputs["out"].spools
    assert [row for rows in read_spool(Path(spool)) for row in rows] == [
        {"greeting": "Hello, Ada"},
        {"greeting": "Hello, Grace"},
    ]


def test_a_function_that_raises_is_a_failure_of_its_task(folder: Path, start: Start) -> None:
    failure = start(request_for(folder, "raising")).reply().failure
    assert failure is not None
    assert (failure.by_user, failure.task) == (True, "greet")
    assert "ValueError: boom" in failure.message


def test_a_process_that_dies_is_reported_with_its_last_words(folder: Path, start: Start) -> None:
    running = start(request_for(folder, "dying"))
    with pytest.raises(Unavailable, match=r"(?s)code 3 and no reply.*the last words"):
        running.until(lambda: running.query.reply() is not None)


def noted(folder: Path) -> psutil.Process:
    """The process that hangs in a function of the user's, once it does."""
    note = folder / "pid"
    for _ in range(int(WAIT_S * 100)):
        if note.exists():
            return psutil.Process(int(note.read_text()))
        threading.Event().wait(0.01)
    raise AssertionError("it never came so far")


@pytest.mark.parametrize("fn", ["hanging", "stubborn"])
def test_a_query_that_is_ended_is_gone_and_its_scratch_with_it(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch, fn: str
) -> None:
    monkeypatch.setattr(module, "CANCEL_TIMEOUT_S", 0.2)
    running = start(request_for(folder, fn))
    child = noted(folder)
    assert len(scratches()) == 1
    running.query.end()
    child.wait(WAIT_S)
    for _ in range(int(WAIT_S * 100)):
        if not scratches():
            return
        threading.Event().wait(0.01)
    raise AssertionError("its scratch folder is still there")


def test_a_query_begins_only_where_there_is_room(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    running = start(request_for(folder, "greet"))
    with pytest.raises(Blocked, match="No space left on device"):
        running.until(lambda: running.query.reply() is not None)


WORKER = """
import sys, threading
sys.path[:0] = sys.argv[2:]
from tests.support.spark import fake_query
from onyx.spark.driver.process import QueryProcess
from onyx.spark.driver.request import QueryRequest
import msgspec
request = msgspec.json.decode(sys.argv[1], type=QueryRequest)
query = QueryProcess(request, lambda: None, fake_query.COMMAND)
threading.Event().wait()
"""


def test_a_killed_worker_takes_its_query_along(folder: Path) -> None:
    request = msgspec.json.encode(request_for(folder, "hanging")).decode()
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, request, *filter(None, sys.path)],
        env={**os.environ, "TMPDIR": str(folder)},
    )
    child = noted(folder)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    child.wait(WAIT_S)
    (left,) = scratches()
    with spark_scratch() as next_one:
        assert scratches() == [next_one]
    assert not left.exists()
