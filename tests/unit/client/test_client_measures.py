"""All workers are asked at once, and those that do not answer are named."""

import threading

import msgspec
import pytest
from immutables import Map
from tests.support.log.memory_log import MemoryLog
from tests.support.log.runs import altered
from tests.support.patience import WAIT_S

from onyx.client.client import Client
from onyx.client.measures import ASKED_AT_ONCE, MeasureReader, groups_of, with_measures
from onyx.client.statuses import JobStatus
from onyx.errors import Unavailable
from onyx.ids import GroupId, JobId, PeerId, Position, TaskName
from onyx.replica.state import Replica
from onyx.reports.measures import (
    InputMeasures,
    JobMeasures,
    Measures,
    TaskMeasures,
    WorkerMeasures,
)
from onyx.transport.state_queries import MEASURES, StateAnswer

JOB = JobId("job-1")
PEERS = [PeerId(f"p{n}") for n in range(4)]
REPLICA = altered(
    Replica(
        groups_reverse_index=Map({peer: GroupId(f"g-{peer}") for peer in PEERS}),
        peer_sites=Map({peer: Map({"address": f"{peer}:1"}) for peer in PEERS}),
    ),
    JOB,
    allocation=Map({TaskName("read"): tuple(PEERS[:2])}),
)


def says(address, query, timeout_s):
    task = TaskMeasures(query.job or "any", "read", 1)
    return StateAnswer(msgspec.json.encode(WorkerMeasures(query.group, 0, (task,))), False)


def read(ask, job=JOB, timeout_s=WAIT_S):
    client = Client(MemoryLog().client(), "balanced")
    return MeasureReader(client, "tenancy", ask).read(job, timeout_s, REPLICA)


def test_those_are_asked_that_work_on_the_job_each_as_itself():
    asked = []

    def ask(address, query, timeout_s):
        asked.append((address, query.group, query.tenancy, query.state, query.job))
        return says(address, query, timeout_s)

    found = read(ask)
    assert sorted(asked) == [
        ("p0:1", "g-p0", "tenancy", MEASURES, JOB), ("p1:1", "g-p1", "tenancy", MEASURES, JOB),
    ]  # fmt: skip
    assert [(each.task, each.peers) for each in found.tasks] == [("read", 2)]
    assert found.silent == {}


def test_without_a_job_all_are_asked():
    assert len(read(says, None).workers) == len(PEERS)
    assert list(groups_of(REPLICA, JobId("unknown"))) == []


def test_who_refuses_or_says_something_else_is_named_and_the_others_count():
    def ask(address, query, timeout_s):
        if address == "p0:1":
            raise Unavailable("the worker at p0:1 does not answer: it is busy")
        if address == "p1:1":
            return StateAnswer(b'{"of": "another version"}', False)
        return says(address, query, timeout_s)

    found = read(ask, None)
    assert len(found.workers) == 2
    assert found.silent["g-p0"].endswith("it is busy")
    assert "same version of Onyx" in found.silent["g-p1"]


def test_who_hangs_is_named_when_the_time_is_over():
    over = threading.Event()

    def ask(address, query, timeout_s):
        if address == "p0:1":
            over.wait(WAIT_S)
        return says(address, query, timeout_s)

    try:
        found = read(ask, timeout_s=0.2)
    finally:
        over.set()
    assert list(found.silent) == ["g-p0"]
    assert "0.2 s" in found.silent["g-p0"]


def test_any_number_that_hang_keep_the_others_from_nothing():
    over, hang = threading.Event(), 3 * ASKED_AT_ONCE
    peers = [PeerId(f"p{n:04}") for n in range(hang + 50)]
    replica = Replica(
        groups_reverse_index=Map({peer: GroupId(f"g-{peer}") for peer in peers}),
        peer_sites=Map({peer: Map({"address": f"{peer}:1"}) for peer in peers}),
    )

    def ask(address, query, timeout_s):
        if address < peers[hang]:
            over.wait(WAIT_S)
        return says(address, query, timeout_s)

    client = Client(MemoryLog().client(), "balanced")
    try:
        found = MeasureReader(client, "tenancy", ask).read(timeout_s=2.0, replica=replica)
    finally:
        over.set()
    assert {each.group for each in found.workers} == {f"g-{peer}" for peer in peers[hang:]}
    assert len(found.silent) == hang


def test_a_bug_is_raised():
    def ask(address, query, timeout_s):
        raise KeyError("bug")

    with pytest.raises(KeyError):
        read(ask)


def test_a_worker_with_an_address_that_is_none_hides_no_other():
    def ask(address, query, timeout_s):
        if address == "p0:1":
            raise ValueError("invalid literal for int()")
        return says(address, query, timeout_s)

    found = read(ask)
    assert found.silent == {"g-p0": "cannot be asked at 'p0:1': invalid literal for int()"}
    assert [each.group for each in found.workers] == ["g-p1"]


def test_each_job_has_what_its_own_workers_measure_and_who_of_them_is_silent():
    def status(job, peers=1):
        return JobStatus(job, "name", "running", Position(0), peers)

    read = TaskMeasures(JOB, "read", 1, in_per_s=3.0, input=InputMeasures(1, 5))
    measured = Measures(
        (WorkerMeasures("g-p0", 0, (read, TaskMeasures("another", "t", 1))),),
        {"g-p1": "no answer", "g-p3": "no answer"},
    )
    mine, other, gone = with_measures(
        [status(JOB), status(JobId("another")), status(JOB, 0)], measured, REPLICA
    )
    assert mine.measured == JobMeasures(3.0, 5, silent={"g-p1": "no answer"})
    assert mine.tasks == (read,)
    assert (other.measured, [each.task for each in other.tasks]) == (None, ["t"])
    assert (gone.measured, gone.tasks) == (None, ())
