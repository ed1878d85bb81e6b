"""`format("onyx")` on a real Spark, over what real jobs write: batches, streams, states, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, manifest, until
from tests.support.patience import WAIT_S
from tests.support.spark.session import local_spark

from onyx import api
from onyx.ids import JobId
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
PEERS, PARTITIONS = 6, 2
TOO_SLOW = "failed to connect back"
"""Spark waits ten seconds for a Python process, whatever the machine does."""
JOB = """
    guarantee: exactly-once
    workflow: [[read, write], [read, count], [count, nowhere]]
    catalog:
      - {name: read, type: input, plugin: generator, maxPeers: 1,
         options: {ratePerSecond: 40, partitions: 2}}
      - {name: write, type: output, plugin: files, minPeers: 2, maxPeers: 2,
         options: {path: PATH, format: FORMAT, rollSegments: 200, rollSeconds: 1}}
      - {name: count, type: reduce, maxPeers: 1}
      - {name: nowhere, type: output, plugin: blackhole, maxPeers: 1}
    windows: [{id: counts, task: count, type: global, aggregation: count}]
    triggers:
      - {windowId: counts, id: never, type: segment, threshold: [1000000000, elements],
         refinement: accumulating, emit: "f:nothing"}
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        from onyx.spark_source import OnyxDataSource

        session.dataSource.register(OnyxDataSource)
        yield session


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(PEERS, modules=[FUNCTIONS]) as env:
        yield env


def options(env: TestEnv, job: JobId, **more: str) -> dict[str, str]:
    """Those by which a user names an output."""
    address = env.settings.zookeeper.address
    return {"zookeeper": address, "tenancy": env.settings.tenancy_id, "job": job, **more}


def start(env: TestEnv, folder: Path, form: str) -> JobId:
    spec = JOB.replace("PATH", str(folder)).replace("FORMAT", form)
    job = env.submit(manifest(spec))
    until(env, lambda replica: bool(replica.run(job).allocation))
    return job


class Batches:
    """What a stream gave, by batch id: a batch that is repeated has to be the same."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.rows: dict[int, list[int]] = {}
        self.repeated = 0
        self.taken = 0

    def take(self, frame: Any, batch: int) -> None:
        rows = sorted(row["n"] for row in frame.collect())
        self.repeated += batch in self.rows
        assert self.rows.setdefault(batch, rows) == rows
        self.taken += 1

    def follow(self, frame: Any, until: int | None = None) -> None:
        """Read so many more batches and stop, or all that there is now."""
        trigger = (
            {"availableNow": True} if until is None else {"processingTime": "100 milliseconds"}
        )
        wanted = None if until is None else self.taken + until
        while True:
            writer = frame.writeStream.foreachBatch(self.take).trigger(**trigger)
            query = writer.option("checkpointLocation", str(self.checkpoint)).start()
            try:
                while not query.awaitTermination(0.5) and (wanted is None or self.taken < wanted):
                    pass
            except Exception as error:
                if TOO_SLOW not in str(error):
                    raise
                continue  # on a machine that is busy; to be started again is what is tested
            query.stop()
            return

    def forget_last_commit(self) -> None:
        """As if Spark had died before it wrote that the last batch is done."""
        last = max(self.rows)
        for folder, kept in [("commits", last), ("offsets", last + 1)]:
            for path in (self.checkpoint / folder).iterdir():
                if path.name.isdigit() and int(path.name) >= kept:
                    path.unlink()
                    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    @property
    def numbers(self) -> list[int]:
        return sorted(n for rows in self.rows.values() for n in rows)


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param("parquet", marks=pytest.mark.slow), "jsonl"])
def test_a_stream_that_is_started_again_gives_each_row_of_a_running_job_once(
    env: TestEnv, spark: Any, tmp_path: Path, form: str
) -> None:
    job = start(env, tmp_path / "out", form)
    given = options(env, job, task="write")
    reader = spark.readStream.schema("n BIGINT").format("onyx").options(**given)
    found = Batches(tmp_path / "checkpoint")
    found.follow(reader.option("maxRowsPerTrigger", 70).load(), 3)
    found.forget_last_commit()
    assert max(map(len, found.rows.values())) <= 70
    api.drain_job(env.settings, job)
    assert env.client.wait(job, WAIT_S)
    rest = spark.readStream.schema("n BIGINT").format("onyx").options(**given).load()
    found.follow(rest)
    assert found.repeated
    for first in range(PARTITIONS):  # one of them may have been read a little further
        mine = [n for n in found.numbers if n % PARTITIONS == first]
        assert mine == list(range(first, first + PARTITIONS * len(mine), PARTITIONS))
    batch = spark.read.format("onyx").load(str(tmp_path / "out"))
    assert sorted(row["n"] for row in batch.collect()) == found.numbers
    assert batch.rdd.getNumPartitions() == len(list((tmp_path / "out").glob("part-*")))


@pytest.mark.slow
def test_the_state_of_a_window_of_a_running_job_is_read(
    env: TestEnv, spark: Any, tmp_path: Path
) -> None:
    job = start(env, tmp_path / "out", "jsonl")
    try:
        given = options(env, job, window="counts")
        rows = spark.read.format("onyx").options(**given).load().collect()
        assert [(row["job"], row["task"], row["window"]) for row in rows] == [
            (job, "count", "counts")
        ]
        typed = spark.read.schema("state BIGINT, upper DOUBLE").format("onyx").options(**given)
        later = typed.load().collect()[0]
        assert later["state"] >= int(rows[0]["state"])
        assert later["upper"] is None
    finally:
        env.client.kill(job)


@pytest.mark.slow
def test_what_cannot_be_read_is_named(env: TestEnv, spark: Any, tmp_path: Path) -> None:
    job = start(env, tmp_path / "out", "jsonl")
    env.client.kill(job)
    for given, message in [
        (options(env, JobId("no-such"), task="write"), "there is no job no-such"),
        (options(env, job, task="wrote"), "has no output 'wrote': did you mean write"),
        (options(env, job, task="nowhere"), "is an output 'blackhole'"),
        (options(env, job, window="count"), "has no window 'count'"),
        ({"path": str(tmp_path / "away")}, "away is not there"),
        ({"path": "x", "tasks": "y"}, "option 'tasks' is not known; did you mean task"),
    ]:
        with pytest.raises(Exception, match=message) as caught:
            spark.read.format("onyx").options(**given).load().collect()
        assert message in str(caught.value).splitlines()[0]
        assert "Traceback" not in str(caught.value)


@pytest.mark.slow
def test_what_cannot_be_followed_is_named(spark: Any, tmp_path: Path) -> None:
    """Also by a query that goes on from a checkpoint, which asks for no first offset."""
    given = {"path": str(tmp_path / "out")}
    reader = spark.readStream.schema("n BIGINT").format("onyx")
    found = Batches(tmp_path / "checkpoint")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-bad--j-1--0-0123456789ab-000000.jsonl").write_text('{"n": 1}\n')
    found.follow(reader.options(**given).load())
    for checkpoint, wrong, message in [
        ("checkpoint", {"tasks": "y"}, "option 'tasks' is not known; did you mean task"),
        ("another", {"as": "text"}, "option as: text gives one column of text"),
    ]:
        frame = reader.options(**given, **wrong).load()
        with pytest.raises(Exception, match=message) as caught:
            Batches(tmp_path / checkpoint).follow(frame)
        assert "UnboundLocalError" not in str(caught.value)
        reader = spark.readStream.schema("n BIGINT").format("onyx")


def test_dead_letters_of_any_shape_are_read(spark: Any, tmp_path: Path) -> None:
    letters = ['{"segment":{"n":1,"who":{"a":[1]}}}', '{"segment":{"n":"x","_error":"no"}}']
    (tmp_path / "part-bad--j-1--0-0123456789ab-000000.jsonl").write_text("\n".join(letters))
    found = spark.read.format("onyx").load(str(tmp_path)).select("segment.*").collect()
    assert [(row["n"], row["who"], row["_error"]) for row in found] == [
        ("1", ([1],), None), ("x", None, "no"),
    ]  # fmt: skip
