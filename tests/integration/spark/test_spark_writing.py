"""Spark writes into a job, on real workers: each row once, whatever Spark and workers do again."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.chaos_files import wait_until
from tests.support.jobs.yaml_jobs import manifest
from tests.support.servers.cluster import Cluster
from tests.support.spark.session import local_spark

from onyx import api
from onyx.ids import JobId, TaskName
from onyx.log.server.process import ZooKeeperServer
from onyx.spark.session.opening import open_session

pytestmark = pytest.mark.server
MODULES = Path(__file__).parents[2] / "chaos" / "chaos_job.py"
MASTER = "local[2,3]"
"""Spark runs a task three times."""
PEERS = 4
JOB = """
    guarantee: exactly-once
    workflow: [[in, out]]
    catalog:
      - {name: in, type: input, plugin: requests, minPeers: 2, maxPeers: 2,
         options: {partitions: 2, partitionKey: n}}
      - {name: out, type: output, plugin: files, options: {path: PATH, rollSegments: 500}}
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    with local_spark(folder, lambda: open_session(MASTER, "onyx tests", folder, {})) as session:
        from onyx.spark_source import OnyxDataSource

        session.dataSource.register(OnyxDataSource)
        yield session


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(zookeeper.address, folder, MODULES) as cluster:
        cluster.start_workers(2, PEERS)
        yield cluster


@pytest.fixture
def job(cluster: Cluster, tmp_path: Path) -> JobId:
    """A job that writes what it is given below `tmp_path/out`."""
    job = cluster.submit(manifest(JOB.replace("PATH", str(tmp_path / "out"))))
    cluster.await_ready(job)
    return job


def options(cluster: Cluster, job: str, **more: str) -> dict[str, str]:
    address = cluster.settings.zookeeper.address
    return {"zookeeper": address, "tenancy": cluster.settings.tenancy_id, "job": job, **more}


def written(cluster: Cluster, job: JobId, folder: Path) -> Counter[int]:
    """What the job has written when it has processed all that it was given."""
    api.drain_job(cluster.settings, job)
    cluster.await_completed(job)
    lines = [
        line
        for part in sorted((folder / "out").glob("part-*"))
        for line in part.read_text().splitlines()
    ]
    return Counter(json.loads(line)["n"] for line in lines)


def other_rows_again(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fails in the middle of its first runs, and has other rows in the next one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt, part = context.attemptNumber(), context.partitionId()
    for number, batch in enumerate(batches):
        if attempt < 2 and part == 1 and number == 3:
            raise RuntimeError("this run of the part fails")
        values = pa.compute.add(batch.column(0), pa.scalar(1_000_000 * attempt, pa.int64()))
        yield pa.RecordBatch.from_arrays([values], names=["n"])


@pytest.mark.slow
def test_only_the_run_of_a_part_that_ended_well_counts(
    cluster: Cluster, spark: Any, job: JobId, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = spark.range(2_000).repartition(2).mapInArrow(other_rows_again, "n BIGINT")
    given = options(cluster, job, batchRows="150", ack="ack", id="nightly-1")
    frame.write.format("onyx").options(**given).mode("append").save()
    frame.write.format("onyx").options(**given).mode("append").save()  # the same write again
    found = written(cluster, job, tmp_path)
    assert set(found.values()) == {1}
    assert sorted(n % 1_000_000 for n in found) == list(range(2_000))
    assert any(n >= 2_000_000 for n in found), "the rows of the third run"


def forget_last_commit(checkpoint: Path) -> None:
    """As if Spark had died before it wrote that the last batch is done."""
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


class Stream:
    """A query that writes what is put into a folder, in batches that it may cut anew."""

    def __init__(self, cluster: Cluster, spark: Any, job: JobId, folder: Path) -> None:
        self.cluster = cluster
        self.spark = spark
        self.job = job
        self.source, self.checkpoint = folder / "source", folder / "checkpoint"
        self.source.mkdir()

    def give(self, first: int) -> None:
        """Five hundred numbers, each of them twice."""
        lines = [json.dumps({"n": n}) for n in range(first, first + 500) for _ in range(2)]
        (self.source / f"{first}.json").write_text("\n".join(lines))

    def run(self, parts: int) -> None:
        """All that there is, cut into so many parts."""
        rows = self.spark.readStream.schema("n BIGINT").json(str(self.source)).repartition(parts)
        writer = rows.writeStream.format("onyx").trigger(availableNow=True)
        given = options(self.cluster, self.job, batchRows="20")
        query = writer.options(**given, checkpointLocation=str(self.checkpoint)).start()
        assert query.awaitTermination(120)

    def held(self) -> list[Path]:
        """The requests that are held back."""
        state = Path(self.cluster.settings.state.url) / self.job
        return [each for each in state.glob("journal.held/*/*/*/*/*") if each.is_file()]

    def kill_owner(self) -> None:
        """The worker that owns a partition of the input, once some rows are held."""
        wait_until(lambda: len(self.held()) > 3, "rows are held")
        peers = self.cluster.until(
            lambda replica: replica.run(self.job).allocation.get(TaskName("in")), "in has peers"
        )
        self.cluster.worker_of(peers[0]).kill()


@pytest.mark.slow
def test_a_stream_writes_each_row_once_when_batches_are_repeated_and_workers_die(
    cluster: Cluster, spark: Any, job: JobId, tmp_path: Path
) -> None:
    stream = Stream(cluster, spark, job, tmp_path)
    stream.give(0)
    stream.run(parts=4)
    forget_last_commit(stream.checkpoint)
    stream.give(500)
    killer = threading.Thread(target=stream.kill_owner)
    killer.start()
    stream.run(parts=1)
    killer.join()
    cluster.start_workers(1, PEERS)
    forget_last_commit(stream.checkpoint)
    stream.give(1_000)
    stream.run(parts=3)
    assert written(cluster, job, tmp_path) == Counter(dict.fromkeys(range(1_500), 2))
    assert not stream.held()


@pytest.mark.slow
def test_a_job_that_takes_nothing_is_named(cluster: Cluster, spark: Any, job: JobId) -> None:
    frame = spark.range(3).withColumnRenamed("id", "n")
    refused = [
        (options(cluster, job, task="out"), "has no input 'out' that takes requests"),
        (options(cluster, "no-such"), "there is no job 'no-such'"),
        (options(cluster, job, tasks="in"), "option 'tasks' is not known"),
        ({"workers": "nowhere:1"}, "option 'job' is missing"),
        (options(cluster, job), f"job {job} was killed"),
    ]
    for given, message in refused:
        if "was killed" in message:
            cluster.client.kill(job)
        with pytest.raises(Exception, match=message) as caught:
            frame.write.format("onyx").options(**given).mode("append").save()
        assert "Traceback" not in str(caught.value)
    with pytest.raises(Exception, match='use mode\\("append"\\)'):
        frame.write.format("onyx").options(**options(cluster, job)).mode("overwrite").save()


@pytest.mark.slow
def test_a_suspended_job_is_waited_for_and_then_named(
    cluster: Cluster, spark: Any, job: JobId, tmp_path: Path
) -> None:
    frame = spark.range(3).withColumnRenamed("id", "n")
    cluster.client.suspend(job)
    cluster.until(lambda replica: replica.run(job).suspended, "the job is suspended")
    given = options(cluster, job, timeout="2")
    with pytest.raises(Exception, match="is suspended"):
        frame.write.format("onyx").options(**given).mode("append").save()
    cluster.client.resume(job)
    cluster.await_ready(job)
    given["timeout"] = "60"
    frame.write.format("onyx").options(**given).mode("append").save()
    assert written(cluster, job, tmp_path) == Counter(range(3))
