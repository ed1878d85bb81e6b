"""Executors of a real Spark Connect server read and write a real object store. They are processes
with folders and an environment of their own; so what passes here passes in pods."""

from __future__ import annotations

import datetime
import resource
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.object_stores import Gateway, ObjectStore
from tests.support.servers.spark_servers import SparkServer, connect_server_with_executors
from tests.support.spark.outputs import output

from onyx.errors import UserFunctionError
from onyx.model.kinds import Native
from onyx.plugins.options import read_options
from onyx.plugins.protocol import START
from onyx.spark.child.request import FrameSource, StageRequest, Watch
from onyx.spark.child.runner import run_in_child
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.results import StageResults
from onyx.spark.middle.spool import StageSpool
from onyx.spark.objects.messages import ObjectTarget
from onyx.spark.objects.writing import write_objects
from onyx.spark.session.connect import open_connect
from onyx.spark.stage.output import SparkOutput
from onyx.spark.windows.plan import AGGREGATE, COUNT, EXTENT, KEY_TEXT, SHARD, Piece, Plan
from onyx.spark.windows.spool import Spool, new_part, new_result
from onyx.storage.opening import location_of

pytestmark = pytest.mark.server
ROWS = 200_000
PATIENCE_S = 240
FILE_BYTES_MAX = 65_536
STAGES = """
def twice(n):
    return 2.0 * n

def doubled(frame):
    from pyspark.sql import functions as F
    return frame.withColumn("twice", F.udf(twice, "double")("n")).orderBy("n")

def shifted(frame):
    return frame.selectExpr("n + 1 AS n")

def vanishing(frame):
    from onyx.storage.objects.bucket import Bucket
    bucket = Bucket(BUCKET)
    bucket.delete(next(found.key for found in bucket.list("out/parts/job-1/part-")))
    return frame
"""


@pytest.fixture(scope="module")
def server(s3_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    folder = tmp_path_factory.mktemp("connect")
    made = connect_server_with_executors(folder, **s3_gateway.environment)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def session(server: SparkServer) -> Iterator[Any]:
    made = open_connect(at(server), {})
    yield made
    made.stop()


@pytest.fixture
def real_store(s3_gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in s3_gateway.environment.items():
        monkeypatch.setenv(name, value)
    return ObjectStore(s3_gateway)


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_store: ObjectStore) -> None:
    """A module of a user's, which only the worker has."""
    (tmp_path / "object_stages.py").write_text(f"BUCKET = {real_store.name!r}\n{STAGES}")
    monkeypatch.syspath_prepend(str(tmp_path))


def at(server: SparkServer) -> str:
    return f"sc://127.0.0.1:{server.port}"


def sink(store: ObjectStore, master: str, stage: str, **options: Any) -> SparkOutput:
    given = {"path": f"{store.url}/out", "stage": f"object_stages:{stage}", "master": master,
             "stageTimeout": 300.0, **options}  # fmt: skip
    context = plugin_context(given, functions={given["stage"]: lambda frame: frame})
    made = output(replace(context, wanted=lambda: True))
    made.upgrade(lambda: None)
    return made


def write(made: SparkOutput, *segments: dict[str, Any]) -> None:
    made.write(list(segments))
    made.flush()


def result(store: ObjectStore, folder: str = "out/result/") -> pa.Table:
    found = [key for key in store.keys(folder) if key.endswith(".parquet")]
    return pa.concat_tables(pq.read_table(pa.BufferReader(store.get(key))) for key in found)


@pytest.mark.slow
@pytest.mark.usefixtures("stages")
def test_executors_elsewhere_read_parts_of_several_schemas_and_write_a_result(
    server: SparkServer, real_store: ObjectStore
) -> None:
    made = sink(real_store, at(server), "doubled")
    noon = datetime.datetime(2026, 5, 17, 12, tzinfo=datetime.UTC)
    write(made, {"n": 2, "at": noon, "from": {"code": "AA"}}, {"n": 1, "at": noon, "from": None})
    write(made, {"n": 3.5, "tags": ["a", "b"]})
    made.seal()
    made.close()
    found = result(real_store).to_pylist()
    assert found == [
        {"n": 1.0, "at": noon, "from": None, "tags": None, "twice": 2.0},
        {"n": 2.0, "at": noon, "from": {"code": "AA"}, "tags": None, "twice": 4.0},
        {"n": 3.5, "at": None, "from": None, "tags": ["a", "b"], "twice": 7.0},
    ]
    assert real_store.keys("out/.staging/") == []


@pytest.mark.slow
@pytest.mark.usefixtures("stages")
def test_no_process_of_the_worker_writes_the_rows_to_a_disk(
    server: SparkServer, real_store: ObjectStore
) -> None:
    """Worker and Spark child may not write a file of a fraction of the rows."""
    made = sink(real_store, at(server), "shifted")
    write(made, *({"n": n * 7_919_993 % 1_000_003} for n in range(ROWS)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
    try:
        made.seal()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result(real_store).num_rows == ROWS
    sizes = [found.size_bytes for found in real_store.bucket.list("out/result/part-")]
    assert sum(sizes) > 4 * FILE_BYTES_MAX


@pytest.mark.slow
@pytest.mark.usefixtures("stages")
def test_an_object_that_vanishes_is_named_with_job_and_task(
    server: SparkServer, real_store: ObjectStore
) -> None:
    made = sink(real_store, at(server), "vanishing")
    write(made, {"n": 1})
    (key,) = real_store.keys("out/parts/job-1/part-")
    with pytest.raises(UserFunctionError) as raised:
        made.seal()
    said = str(raised.value)
    assert said.startswith("job 'flights', task 'work': stage object_stages:vanishing: ")
    assert f"in an executor of Spark: {real_store.url}/{key} is gone" in said
    assert (real_store.keys("out/result/"), "Traceback" in said) == ([], False)


@pytest.mark.slow
@pytest.mark.usefixtures("stages")
def test_a_stage_in_the_middle_gets_its_bundle_from_there(
    server: SparkServer, real_store: ObjectStore
) -> None:
    given = {"path": f"{real_store.url}/bundles", "master": at(server), "rollSegments": 2}
    clock = ManualClock()
    context = replace(
        plugin_context(
            given, functions={"object_stages:shifted": lambda frame: frame}, clock=clock
        ),
        upstream=("read",),
        spark_stage="object_stages:shifted",
    )
    options = read_options(context, MiddleOptions)
    spool, results = StageSpool(context, options), StageResults(context, options)
    spool.lead(True)
    spool.write([{"n": 1}, {"n": 2}, {"n": 3}])
    spool.flush()
    spool.seal()
    readers, found, pause = (
        [results.open(each, START) for each in results.partitions()],
        [],
        Event(),
    )
    for _ in range(PATIENCE_S * 10):
        clock.advance(10.0)
        spool.tick()
        found += [row["n"] for reader in readers for row in reader.read(10)]
        if all(reader.exhausted() for reader in readers):
            break
        pause.wait(0.1)
    assert sorted(found) == [2, 3, 4]


@pytest.mark.slow
def test_a_firing_of_a_window_aggregates_parts_and_the_result_of_the_one_before(
    server: SparkServer, real_store: ObjectStore
) -> None:
    spool, before = Spool(location_of(f"{real_store.url}/state")), list[Piece]()
    result = ""
    for words in (["a", "b", "a"], ["b", "c"]):
        part, result = new_part(), new_result()
        extents, shards = pa.array([1] * len(words), pa.int64()), pa.array([7] * len(words))
        spool.write(part, pa.table({SHARD: shards, EXTENT: extents, KEY_TEXT: words}))
        plan = Plan(
            "count", Native(counts=True), (KEY_TEXT,), (Piece((spool.path(part),)), *before)
        )
        request = StageRequest(
            AGGREGATE, source=FrameSource(), params=plan.params(), master=at(server)
        )
        with spool.target(result) as target:
            run_in_child(target.asked(request), 300.0, Watch())
            spool.settle(target, request.master)
        before = [Piece((spool.path(result),), partial=True)]
    found: dict[str, int] = {}
    for file in spool.files(result):
        with spool.opened(file) as opened:
            found |= {row[KEY_TEXT]: row[COUNT] for row in opened.read().to_pylist()}
    assert found == {"a": 2, "b": 2, "c": 1}


@pytest.mark.slow
@pytest.mark.usefixtures("stages")
def test_a_local_master_reads_and_writes_them_too(real_store: ObjectStore) -> None:
    made = sink(real_store, "local[1]", "doubled")
    write(made, {"n": 1})
    made.seal()
    assert result(real_store).to_pylist() == [{"n": 1, "twice": 2.0}]


ROW = "SELECT 1 AS n, 'a,b' AS text, CAST(NULL AS STRING) AS nothing"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "options", "ending", "contents"),
    [
        ("json", {"ignoreNullFields": "false"}, ".json",
         b'{"n":1,"text":"a,b","nothing":null}\n'),
        ("csv", {"header": True, "sep": ";"}, ".csv", b"n;text;nothing\n1;a,b;\n"),
        ("csv", {}, ".csv", b'1,"a,b",\n'),
        ("orc", {}, ".orc", None),
    ],
)  # fmt: skip
def test_formats_are_those_that_spark_writes_to_files(
    session: Any, real_store: ObjectStore, tmp_path: Path,
    form: str, options: dict[str, Any], ending: str, contents: bytes | None,
) -> None:  # fmt: skip
    frame = session.sql(ROW)
    (staged,) = write_objects(frame, ObjectTarget(f"{real_store.url}/to", "run"), form, options)
    assert staged.name.startswith("run-00000-")
    assert staged.name.endswith(ending)
    data = real_store.get(f"to/{staged.name}")
    assert (staged.rows, staged.size_bytes) == (1, len(data))
    if contents is None:
        found = pyarrow.orc.read_table(pa.BufferReader(data)).to_pylist()
        assert found == [{"n": 1, "text": "a,b", "nothing": None}]
        return
    assert data == contents
    frame.write.options(**options).format(form).save(str(tmp_path / "files"))
    assert [path.read_bytes() for path in (tmp_path / "files").glob("part-*")] == [contents]


@pytest.mark.slow
def test_partitions_are_folders_as_spark_names_them(session: Any, real_store: ObjectStore) -> None:
    rows = "VALUES (1, 'a/b', 2026), (2, NULL, 2026), (3, 'a/b', 2026), (4, 'c', 2025)"
    frame = session.sql(f"SELECT * FROM {rows} AS t(n, kind, year)").coalesce(1)
    target = ObjectTarget(f"{real_store.url}/to", "run")
    staged = write_objects(frame, target, partition_by=("year", "kind"))
    found = {each.name.rpartition("/")[0]: each.rows for each in staged}
    assert found == {
        "year=2025/kind=c": 1,
        "year=2026/kind=__HIVE_DEFAULT_PARTITION__": 1,
        "year=2026/kind=a%2Fb": 2,
    }
    assert result(real_store, "to/").column_names == ["n"]


@pytest.mark.slow
def test_a_result_without_rows_has_its_columns(session: Any, real_store: ObjectStore) -> None:
    target = ObjectTarget(f"{real_store.url}/to", "run")
    (staged,) = write_objects(session.sql(f"{ROW} WHERE 1 = 0"), target)
    assert (staged.rows, result(real_store, "to/").column_names) == (0, ["n", "text", "nothing"])
