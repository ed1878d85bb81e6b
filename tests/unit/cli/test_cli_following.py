"""`onyx run` says how to hand segments to a job when they are taken."""

from __future__ import annotations

from tests.support.log.replica_log import ReplicaLog

from onyx.cli.following import is_ready
from onyx.ids import JobId

JOB = JobId("j")


def test_a_job_is_ready_when_all_workers_have_joined_and_its_peers_can_receive() -> None:
    log = ReplicaLog().join("a", peers=1)
    assert not is_ready(log.new, JOB, peers=2), "it is not there"
    log.submit(tasks="read write")
    assert not is_ready(log.new, JOB, peers=2), "a worker is missing"
    log.join("b", peers=1)
    assert not is_ready(log.new, JOB, peers=2), "nobody is ready"
    log.ready()
    assert is_ready(log.new, JOB, peers=2)
    assert not is_ready(log.new, JOB, peers=3), "another worker has just started"
