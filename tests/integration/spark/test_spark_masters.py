"""A stage on Spark's own servers, all real: a Spark Connect server, a master and two workers, as
PySpark's scripts start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.spark_archive import jvm_options
from tests.support.servers.spark_servers import SparkServer, connect_server, master, worker
from tests.support.spark.outputs import output
from tests.support.spark.query import publish_all, request_of

import onyx.spark.session.connect
from onyx.errors import FailsAgain, Fenced, Unavailable, UserError, UserFunctionError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.child.environment import environment
from onyx.spark.child.request import Frame, StageRequest, Watch
from onyx.spark.child.runner import ChildKeeper, run_in_child
from onyx.spark.driver.request import QueryReply, lines
from onyx.spark.session.connect import doubt, open_connect
from onyx.spark.stage.output import SparkOutput

pytestmark = pytest.mark.server
TIMEOUT_S = 500.0
STANDALONE = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "500m", "spark.cores.max": "2",
    "spark.executor.extraJavaOptions": jvm_options(),
}  # fmt: skip
FEW_PLACES = {"spark.sql.shuffle.partitions": "2"}
STAGES = """
import os, time

def twice(n):
    return 2.0 * n

def doubled(frame):
    from pyspark.sql import functions as F
    return frame.withColumn("twice", F.udf(twice, "double")("n"))

def marked(segment):
    return {**segment, "marked": True}

def settings(frame):
    from pyspark.sql import functions as F
    names = ["spark.sql.shuffle.partitions", "spark.sql.session.timeZone"]
    conf = frame.sparkSession.conf
    return frame.select(*(F.lit(conf.get(name)).alias(name.rpartition(".")[2]) for name in names))

def raising(frame):
    raise ValueError("boom")

def failing(frame):
    from pyspark.sql import functions as F
    def fail(n):
        raise KeyError("inside")
    return frame.withColumn("twice", F.udf(fail, "double")("n"))

def slow(frame):
    from pyspark.sql import functions as F
    def wait(n):
        open(os.path.join(os.path.dirname(PATH), "began"), "w").close()
        time.sleep(600)
    return frame.withColumn("twice", F.udf(wait, "double")("n"))
"""


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    server = connect_server(tmp_path_factory.mktemp("connect"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    folder = tmp_path_factory.mktemp("standalone")
    leader = master(folder / "master")
    workers: list[SparkServer] = []
    try:
        workers += [worker(folder / f"worker-{number}", leader) for number in range(2)]
        yield leader
    finally:
        for each in (*workers, leader):
            each.kill()


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules of a user's, which only the worker has; a package is another one."""
    (tmp_path / "remote_stages.py").write_text(STAGES)
    (tmp_path / "packed_stages").mkdir()
    (tmp_path / "packed_stages" / "__init__.py").write_text("")
    (tmp_path / "packed_stages" / "inner.py").write_text(STAGES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def sink(
    folder: Path,
    server: str,
    stage: str,
    job: str = "job-1",
    wanted: Callable[[], bool] = lambda: True,
    **options: Any,
) -> SparkOutput:
    """An output that has written two parts."""
    given = {"path": str(folder / "out"), "stage": stage, "master": server,
             "stageTimeout": TIMEOUT_S, **options}  # fmt: skip
    context = plugin_context(given, functions={stage: lambda frame: frame})
    made = output(replace(context, job=JobId(job), wanted=wanted))
    made.upgrade(lambda: None)
    for numbers in ((1, 2), (3,)):
        made.write([{"n": n} for n in numbers])
        made.flush()
    return made


def rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "out" / "result").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def at(server: SparkServer) -> str:
    return f"sc://127.0.0.1:{server.port}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage",
    ["remote_stages:doubled", "packed_stages.inner:doubled"],
)
def test_a_stage_and_its_functions_run_on_a_connect_server(
    connect: SparkServer, stages: Path, stage: str
) -> None:
    sink(stages, at(connect), stage).seal()
    assert sorted((row["n"], row["twice"]) for row in rows(stages)) == [(1, 2), (2, 4), (3, 6)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "made"),
    [
        ("select sum(n) as n from segments where n >= :least", [{"n": 5}]),
        ("select * from parquet.`FOLDER`", None),
        ("drop view segments", None),
    ],
)
def test_a_query_runs_on_a_connect_server_and_reads_no_files(
    connect: SparkServer, tmp_path: Path, query: str, made: list[dict[str, Any]] | None
) -> None:
    part = tmp_path / "0.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), part)
    request = StageRequest(
        "sparkSql", (Frame(None, (str(part),)),), str(tmp_path / "result"), master=at(connect),
        query=query.replace("FOLDER", str(part)), params={"least": 2},
    )  # fmt: skip
    if made is not None:
        run_in_child(request, TIMEOUT_S, Watch(), ChildKeeper())
        assert pq.read_table(tmp_path / "result").to_pylist() == made
        return
    with pytest.raises((FailsAgain, UserFunctionError)):
        run_in_child(request, TIMEOUT_S, Watch(), ChildKeeper())


@pytest.mark.slow
def test_settings_of_a_session_reach_a_connect_server(connect: SparkServer, stages: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "3"}
    sink(stages, at(connect), "remote_stages:settings", sparkConf=conf).seal()
    assert rows(stages)[0] == {"partitions": "3", "timeZone": "UTC"}


@pytest.mark.slow
def test_a_setting_of_the_server_is_refused_with_its_key(
    connect: SparkServer, stages: Path
) -> None:
    conf = {"spark.sql.warehouse.dir": "/elsewhere"}
    with pytest.raises(UserFunctionError, match=r"sparkConf\.spark\.sql\.warehouse\.dir: Spark 4"):
        sink(stages, at(connect), "remote_stages:doubled", sparkConf=conf).seal()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "reported"), [("raising", "boom"), ("failing", "KeyError: 'inside'")]
)
def test_what_a_stage_raises_on_a_connect_server_is_its_own(
    connect: SparkServer, stages: Path, stage: str, reported: str
) -> None:
    with pytest.raises(UserFunctionError, match=reported):
        sink(stages, at(connect), f"remote_stages:{stage}").seal()


@pytest.mark.slow
def test_no_server_there_is_said_at_once_and_may_be_tried_again(stages: Path) -> None:
    with pytest.raises(Unavailable, match=r"no Spark Connect server answers at 127\.0\.0\.1:1:"):
        sink(stages, "sc://127.0.0.1:1", "remote_stages:doubled").seal()


def test_what_is_no_connect_server_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onyx.spark.session.connect, "SESSION_TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Unavailable, match=r"is no Spark Connect server.*nothing was said"):
            open_connect(f"sc://127.0.0.1:{port}", {})


def with_a_middle(folder: Path) -> Job:
    spec = {
        "guarantee": "exactly-once",
        "engine": "spark",
        "workflow": [["read", "stage"], ["stage", "copy"], ["copy", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence",
             "options": {"segments": [{"n": n} for n in range(20)], "partitions": 2}},
            {"name": "stage", "type": "function", "sparkStage": "remote_stages:doubled",
             "options": {"path": str(folder / "bundles")}},
            {"name": "copy", "type": "function", "fn": "packed_stages.inner:marked"},
            {"name": "write", "type": "output", "plugin": "files",
             "options": {"path": str(folder / "out"), "format": "jsonl"}},
        ],
    }  # fmt: skip
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "middle"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("standalone", marks=pytest.mark.slow), "connect"])
def test_a_stage_in_the_middle_of_a_whole_job_runs_where_the_job_does(
    kind: str, stages: Path, request: pytest.FixtureRequest
) -> None:
    """Modules of the user are sent along: only the worker has them."""
    server: SparkServer = request.getfixturevalue(kind)
    place = f"spark://127.0.0.1:{server.port}" if kind == "standalone" else at(server)
    conf = FEW_PLACES | (STANDALONE if kind == "standalone" else {})
    asked = request_of(
        with_a_middle(stages), stages, ("remote_stages", "packed_stages.inner"), master=place,
        spark_conf=conf, parent_pid=os.getpid(),
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "onyx.spark_query"],
        input=msgspec.json.encode(asked),
        stdout=subprocess.PIPE,
        env=environment(place, str(stages)),
        timeout=TIMEOUT_S,
        check=True,
    )
    reply = lines.decode(done.stdout.splitlines()[-1])
    assert isinstance(reply, QueryReply)
    assert reply.failure is None, reply.failure
    publish_all(asked, reply)
    texts = [path.read_text() for path in (stages / "out").glob("part-*")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    expected = [(n, 2.0 * n, True) for n in range(20)]
    assert sorted((each["n"], each["twice"], each["marked"]) for each in found) == expected


@pytest.mark.slow
def test_a_stage_and_its_functions_run_on_a_master_and_its_workers(
    standalone: SparkServer, stages: Path
) -> None:
    server = f"spark://127.0.0.1:{standalone.port}"
    sink(stages, server, "packed_stages.inner:doubled", sparkConf=STANDALONE).seal()
    assert sorted((row["n"], row["twice"]) for row in rows(stages)) == [(1, 2), (2, 4), (3, 6)]


@pytest.mark.slow
def test_a_stage_that_is_not_wanted_ends_at_the_connect_server(
    connect: SparkServer, stages: Path
) -> None:
    """The child has obeyed, so it is kept: the server has ended the query."""
    (stages / "remote_stages.py").write_text(STAGES.replace("PATH", repr(str(stages / "x"))))
    pq.write_table(pa.table({"n": [1]}), stages / "0.parquet")
    keeper = ChildKeeper()
    request = StageRequest(
        "remote_stages:slow", (Frame(None, (str(stages / "0.parquet"),)),),
        str(stages / "result"), master=at(connect),
    )  # fmt: skip
    until_it_began = Watch(lambda: not (stages / "began").exists())
    with pytest.raises(Fenced):
        run_in_child(request, TIMEOUT_S, until_it_began, keeper)
    with keeper.lent(request, lambda: True) as loan:
        assert not loan.child.fresh


@pytest.mark.slow
def test_a_server_that_dies_under_a_stage_is_named_and_the_stage_runs_again(
    connect: SparkServer, stages: Path
) -> None:
    """Last, because the server is another one then."""
    (stages / "remote_stages.py").write_text(STAGES.replace("PATH", repr(str(stages / "x"))))
    killed = []

    def wanted() -> bool:
        if (stages / "began").exists() and not killed:
            killed.append(connect.kill())
        return True

    made = sink(stages, at(connect), "remote_stages:slow", wanted=wanted)
    with pytest.raises(Unavailable, match=r"Spark Connect server at sc://\S+ was lost while"):
        made.seal()
    connect.start()
    sink(stages, at(connect), "remote_stages:doubled", job="job-2").seal()
    assert len(rows(stages)) == 3


def test_a_connect_server_of_another_version_is_in_the_message() -> None:
    class Session:
        version = "3.5.1"

    assert "the server is Spark 3.5.1, the worker has PySpark 4.3" in doubt(Session())


def test_settings_that_no_session_may_have_are_refused_before(stages: Path) -> None:
    with pytest.raises(UserError, match=r"spark\.driver\.memory"):
        sink(stages, "sc://h", "remote_stages:doubled", sparkConf={"spark.driver.memory": "4g"})
