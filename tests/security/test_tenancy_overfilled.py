"""Attacked: the memory of ZooKeeper, by whoever may submit jobs, edit them and end them again."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operator.declaring import FAST, condition, phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.test_clusters_operator import says
from tests.support.jobs.bench import Bench
from tests.support.log.logs import settings_for
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.history.collection import HistoryCollector
from onyx.history.replicas import Replicas
from onyx.ids import JobId
from onyx.log.tenancy import NoRoom
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.model.parsing.job import parse_mapping
from onyx.replica.state import Replica
from onyx.settings import HistorySettings, LogSettings

LIMITS = LogSettings(tenancy_bytes_max=2_000_000, tenancy_jobs_max=40)
LARGE = 400_000


def noise(number: int, size: int = LARGE) -> str:
    """A text of which half remains when it is compressed."""
    return random.Random(number).randbytes(size // 2).hex()


def large(number: int, size: int = LARGE, tasks: int = 0, **spec: Any) -> Any:
    found = job(str(number), version=noise(number, size), **spec)  # type: ignore[arg-type]
    for each in range(tasks):
        name = f"task-{each}-{noise(each, 40)}"
        found["spec"]["workflow"] += [["read", name], [name, "write"]]
        found["spec"]["catalog"].append({"name": name, "type": "function", "fn": "m:f"})
    return parse_mapping(found)


def submitted(client: Client, make: Callable[[int], Any] = large) -> list[JobId]:
    """As many jobs as are taken."""
    jobs: list[JobId] = []
    while len(jobs) < 1_000:
        try:
            jobs.append(client.submit(make(len(jobs))).job)
        except NoRoom:
            return jobs
    raise AssertionError("nothing is refused")


def client_of(memory: MemoryLog) -> Client:
    return Client(memory.client(), "balanced")


def collect(memory: MemoryLog, rounds: int) -> None:
    """What the oldest worker does by itself, with all times too short for anything to be old."""
    log = memory.client()
    settings = HistorySettings(chunk_age_s=3_600.0)
    for _ in range(rounds):
        HistoryCollector(
            log,
            Replicas(log, "balanced"),
            settings,
            log.append,
            lambda job: None,
            lambda path, name: None,
            lambda: 1_000,
        ).round(Replica())


def test_jobs_that_only_wait_for_peers_are_refused_when_they_do_not_fit() -> None:
    memory = MemoryLog(LIMITS)
    client = client_of(memory)

    jobs = submitted(client)

    assert 6 <= len(jobs) <= 12
    held = client.log.usage().bytes
    assert held is not None
    assert held <= LIMITS.tenancy_bytes_max
    for number in range(100, 110):  # a refusal leaves nothing there, nor does an examination
        for attempt in (client.submit, client.examine):
            with pytest.raises(NoRoom):
                attempt(large(number))
    assert client.log.usage().bytes == held


def test_many_small_jobs_are_refused_and_none_that_takes_the_place_of_another() -> None:
    memory = MemoryLog(LIMITS)
    client = client_of(memory)

    jobs = submitted(client, lambda number: large(number, size=10))

    assert len(jobs) == LIMITS.tenancy_jobs_max
    with pytest.raises(NoRoom, match=r"40 jobs of the tenancy run or wait.* 40"):
        client.submit_all([large(100, size=10), large(101, size=10)])
    same = replace(large(0, size=10), metadata={"jobId": jobs[0]})
    client.hand_in(jobs[0], same, "", client.replica())
    client.kill(jobs[1])
    client.submit(large(102, size=10))


def test_a_job_that_ended_makes_room_without_anybody_asking() -> None:
    memory = MemoryLog(LIMITS)
    client = client_of(memory)
    for each in submitted(client):
        client.kill(each)
    collect(memory, rounds=1)
    memory._store.touched_s.update(dict.fromkeys(memory._store.touched_s, 0.0))
    collect(memory, rounds=6)

    assert len(submitted(client, lambda number: large(number + 100))) >= 6


def test_jobs_that_are_submitted_and_killed_in_turn_do_not_fill_the_log() -> None:
    """Their entries are as large as they can be, and the log keeps entries for a day."""
    memory = MemoryLog(LogSettings(tenancy_bytes_max=600_000))
    client = client_of(memory)
    for number in range(12):
        client.kill(client.submit(large(number, size=10, tasks=200)).job)
        held = client.log.usage().bytes
        assert held is not None
        assert held < 600_000
        memory._store.touched_s.update(dict.fromkeys(memory._store.touched_s, 0.0))
        collect(memory, rounds=1)


def test_a_small_job_with_a_list_of_partitions_that_does_not_fit_ends_with_the_reason() -> None:
    """The list is made when the job runs, long after it was submitted."""
    spec = job()["spec"]
    spec["catalog"][0]["options"] = {"segments": [{"n": 1}] * 1_000, "partitions": 1_000}
    bench = Bench(spec)
    held = bench.log.usage().bytes
    assert held is not None
    bench.log._store.settings = LogSettings(tenancy_bytes_max=held + 1_000)

    for _ in range(5):
        bench.settle()

    (report,) = bench.exceptions
    assert "task read: its 1,000 partitions: the tenancy holds" in report["message"]
    assert bench.log.usage().bytes == held


def test_an_onyx_job_that_does_not_fit_says_so_and_is_taken_when_there_is_room(
    api: FakeApi, logs: Logs
) -> None:
    logs._logs["default.onyx"] = MemoryLog(LogSettings(tenancy_bytes_max=600_000))
    texts = {name: noise(at) for at, name in enumerate(("a", "b", "c"))}
    with Operator(api, logs.connect, FAST):
        api.create(cluster())
        api.wait_for("onyxclusters", "onyx", says("HasRoom", "True", "Room"))
        for name in ("a", "b"):
            api.create(job(name, version=texts[name]))  # type: ignore[arg-type]
            api.wait_for("onyxjobs", name, condition("Submitted", "True"))
        api.create(job("c", version=texts["c"]))  # type: ignore[arg-type]
        refused = api.wait_for("onyxjobs", "c", phase("Invalid", "Refused"))
        assert "ONYX_LOG_TENANCY_BYTES_MAX" in refused["status"]["message"]
        assert len(logs.commands("submit-job")) == 2


@pytest.mark.server
def test_a_server_counts_what_a_tenancy_holds_and_forgets(zookeeper: Any) -> None:
    settings = settings_for(zookeeper.address, log=LIMITS)
    with closing(ZooKeeperClientLog(settings)) as log:
        client = Client(log, "balanced")
        jobs = submitted(client)
        assert 6 <= len(jobs) <= 12
        full = log.usage().bytes
        assert full is not None
        for each in jobs:
            client.kill(each)
        client.gc()
        log.sweep_chunks(tuple, age_s=-60)
        empty = log.usage().bytes
        assert empty is not None
        assert empty < 20_000 < 1_200_000 < full
        assert len(submitted(client, lambda number: large(number + 100))) == len(jobs)
