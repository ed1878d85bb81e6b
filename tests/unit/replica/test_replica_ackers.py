"""How many peers of a job are ackers, and which."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.log.replica_log import ReplicaLog

from onyx.ids import JobId, TaskName
from onyx.replica.commands import AddVirtualPeer

JOB = JobId("j")


def ackers(**spec: Any) -> list[str]:
    log = ReplicaLog().join("g")
    for number in range(6):
        log.tell(AddVirtualPeer(id=f"p{number}", group_id="g", peer_site={"address": "a:1"}))
    log.submit("j", "read work write", inputs=["read"], outputs=["write"], **spec)
    return list(log.new.run(JOB).ackers)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (3, 3), (6, 6), (100, 6)])
def test_there_are_as_many_as_the_job_says_or_all_peers(count: int, expected: int) -> None:
    assert len(ackers(ackers=count)) == expected


def test_a_number_comes_before_a_percentage() -> None:
    assert len(ackers(ackers=2, acker_percentage=100)) == 2
    assert len(ackers(acker_percentage=50)) == 3


def test_peers_of_exempt_tasks_are_none_however_many_are_asked_for() -> None:
    everybody = set(ackers(ackers=6))
    some = set(ackers(ackers=6, acker_exclude_inputs=True, acker_exclude_outputs=True))
    assert some < everybody
    assert len(some) == 2


def test_peers_of_a_process_that_reads_come_first() -> None:
    log = ReplicaLog()
    for group, peer in (("g0", "p2"), ("g1", "p1"), ("g2", "p0")):
        log.join(group)
        log.tell(AddVirtualPeer(id=peer, group_id=group, peer_site={"address": f"{group}:1"}))
    log.submit("j", "read work write", inputs=["read"], outputs=["write"], ackers=1)
    run = log.new.run(JOB)
    assert list(run.ackers) == list(run.allocation[TaskName("read")])
