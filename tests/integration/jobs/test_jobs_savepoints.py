"""A job that begins with a savepoint of another: real workers of another cluster, with a tenancy
and a state of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.counting import (
    GROUPS,
    await_rows,
    counting_job,
    counting_module,
    counts,
    counts_of,
    numbers,
    numbers_of,
    rows,
)
from tests.support.jobs.yaml_jobs import channel, job_of, taken, until
from tests.support.log.logs import served
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.processes import onyx

from onyx.backup.savepoints import SavepointMaker
from onyx.client.appender import Appender
from onyx.client.appending import addresses_of
from onyx.ids import JobId
from onyx.plugins.channel import Channel
from onyx.settings import StateSettings
from onyx.state.savepoint import SavepointPlace
from onyx.testing import with_test_env

pytestmark = pytest.mark.server
PEERS, SEGMENTS = 7, 5_000
ALL = {"segments": SEGMENTS, "ratePerSecond": 1_000}
NUMBERS, COUNTS = numbers_of(SEGMENTS), counts_of(SEGMENTS)
job = partial(counting_job, columns=True)


def beginning_with(savepoint: str, manifest: dict[str, Any], **upgrade: Any) -> dict[str, Any]:
    spec = {**manifest["spec"], "upgrade": {"savepoint": savepoint, **upgrade}}
    return {**manifest, "spec": spec}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Cluster]]:
    """Opens a cluster with a log, a state and a tenancy of its own."""
    modules = counting_module(tmp_path)
    with ExitStack() as stack:

        def open_cluster(state: str) -> Cluster:
            where = tmp_path / f"log-{time.monotonic_ns()}"
            where.mkdir()
            stack.enter_context(served(where))
            cluster = Cluster(where, tmp_path, modules)
            cluster.settings = replace(cluster.settings, state=StateSettings(url=state))
            return cluster

        yield open_cluster


def begun(cluster: Cluster, folder: Path, count: int) -> JobId:
    """A job without an end that has written so many rows."""
    id = cluster.submit(job(folder, ratePerSecond=200))
    cluster.await_ready(id)
    await_rows(cluster, folder / "numbers", count)
    return id


def saved(cluster: Cluster, id: JobId, to: object) -> str:
    made = onyx(cluster.settings, "savepoint", id, "--to", to, "--name", "noon")
    assert made.returncode == 0, made.stderr
    return f"{to}/noon"


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_two_jobs_give_what_the_saved_one_gives_from_the_point_on(
    opened: Callable[[str], Cluster], tmp_path: Path, fake_store: ObjectStore, where: str
) -> None:
    root = str(tmp_path) if where == "folder" else fake_store.url
    first, to = tmp_path / "first", f"{root}/savepoints"
    with opened(f"{tmp_path}/state-1") as one:
        one.start_workers(1, PEERS)
        id = begun(one, first, 1)
        savepoint = saved(one, id, to)
        with opened(f"{root}/state-2") as other:
            copies = [tmp_path / "second", tmp_path / "third"]
            ids = [other.submit(beginning_with(savepoint, job(each, **ALL))) for each in copies]
            workers = other.start_workers(2, PEERS)
            other.await_ready(ids[0])
            workers[0].kill()
            for each in ids:
                other.await_completed(each)
        await_rows(one, first / "numbers", len(rows(first / "numbers")) + 100)
    assert set(numbers(first).values()) == {1}, "the saved job goes on as if nothing had been"
    assert all(seen == n // GROUPS + 1 for n, seen in numbers(first))
    for each in copies:
        found, windows = numbers(each), counts(each)
        assert 0 < len(found) < SEGMENTS, "it went on, and did not begin anew"
        assert found <= NUMBERS, "each once, with the state that it has in the first job"
        assert windows <= COUNTS
        assert (SEGMENTS - 1, SEGMENTS // GROUPS) in found
        assert found == numbers(copies[0])


def test_a_suspended_job_and_the_one_that_begins_with_its_savepoint_have_each_row_once(
    opened: Callable[[str], Cluster], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with opened(f"{tmp_path}/state") as cluster:
        cluster.start_workers(1, PEERS)
        id = begun(cluster, first, 300)
        cluster.client.suspend(id)
        savepoint = saved(cluster, id, tmp_path / "savepoints")
        cluster.client.kill(id)
        copy = cluster.submit(beginning_with(savepoint, job(second, **ALL)))
        cluster.await_completed(copy)
        again = onyx(cluster.settings, "savepoint", copy, "--to", tmp_path / "savepoints")
        assert "it has no state to save" in again.stderr
    assert numbers(first) + numbers(second) == NUMBERS
    assert counts(first) + counts(second) == COUNTS


def test_a_damaged_savepoint_ends_the_job_that_begins_with_it_and_reads_nothing(
    opened: Callable[[str], Cluster], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with opened(f"{tmp_path}/state") as cluster:
        cluster.start_workers(1, PEERS)
        id = begun(cluster, first, 300)
        savepoint = Path(saved(cluster, id, tmp_path / "savepoints"))
        cluster.client.kill(id)
        largest = max((savepoint / "blobs").iterdir(), key=lambda file: file.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-1])
        copy = cluster.submit(beginning_with(str(savepoint), job(second, **ALL)))
        cluster.until(lambda replica: copy in replica.killed_jobs, "it ends")
        failure = str(cluster.client.status(copy).exception)
        assert "is damaged: its digest is another one; use another savepoint" in failure
        assert not second.exists() or not rows(second / "numbers")


def on_spark(folder: Path, savepoint: str = "") -> dict[str, Any]:
    manifest = job(folder, ratePerSecond=300)
    spark = {"master": "local[1]", "sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    manifest["spec"] |= {"engine": "spark", "spark": spark}
    return beginning_with(savepoint, manifest) if savepoint else manifest


@pytest.mark.slow
def test_a_job_on_spark_begins_with_the_last_micro_batch_and_so_does_one_on_peers(
    opened: Callable[[str], Cluster], tmp_path: Path
) -> None:
    first, second, third = (tmp_path / each for each in ("first", "second", "third"))
    with opened(f"{tmp_path}/state-1") as one:
        one.start_workers(1, peers=2)
        id = one.submit(on_spark(first))
        await_rows(one, first / "numbers", 600)
        savepoint = saved(one, id, tmp_path / "savepoints")
        one.workers[0].kill()
    with opened(f"{tmp_path}/state-2") as other:
        other.start_workers(1, PEERS + 1)
        spark = other.submit(on_spark(second, savepoint))
        await_rows(other, second / "numbers", 600)
        other.client.kill(spark)
        other.await_completed(other.submit(beginning_with(savepoint, job(third, **ALL))))
    assert min(n for n, _ in numbers(second)) == min(n for n, _ in numbers(third)) > 0
    assert all(seen == n // GROUPS + 1 for n, seen in numbers(second))
    assert numbers(third) <= NUMBERS
    assert len(numbers(third)) == SEGMENTS - min(n for n, _ in numbers(third))
    assert counts(third) <= COUNTS


def test_what_is_in_a_journal_and_not_processed_is_processed_by_whoever_begins_with_it(
    tmp_path: Path,
) -> None:
    targets = channel(), channel()

    def taking(name: str, target: Channel, **more: Any) -> dict[str, Any]:
        return job_of(name, {
            "workflow": [["in", "out"]],
            "catalog": [
                {"name": "in", "type": "input", "plugin": "requests",
                 "options": {"partitions": 2, "partitionKey": "n"}, **more},
                {"name": "out", "type": "output", "plugin": "channel",
                 "options": {"channel": target.name}},
            ],
        })  # fmt: skip

    rows_in = [{"n": n} for n in range(60)]
    with with_test_env(4) as env:
        first = env.submit(taking("kept", targets[0], segmentsPerSecondMax=5, batchSize=1))
        until(env, lambda replica: replica.run(first).is_ready)
        (address, *_) = addresses_of(env.client.replica())
        with Appender(address, "kept", "in") as appender:
            appender.append(rows_in, ack="journal", id="march")
        place = SavepointPlace(str(tmp_path / "savepoints"))
        SavepointMaker(env.client, env.settings, place, print, lambda: 0).make(first, "noon")
        env.client.kill(first)
        again = beginning_with(f"{place.path}/noon", taking("again", targets[1]))
        second = env.submit(again)
        until(env, lambda replica: replica.run(second).is_ready)
        with Appender(address, "again", "in") as appender:
            appender.append(rows_in, id="march")
        env.client.drain(second)
        assert env.client.wait(second, WAIT_S)
    before, after = (sorted(row["n"] for row in taken(each)) for each in targets)
    assert sorted({*before, *after}) == list(range(60))
    assert len(after) == len({*after}), "the request is known by its id"
