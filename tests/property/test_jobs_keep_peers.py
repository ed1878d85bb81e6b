"""Under the balanced scheduler no job stops for one that has no higher priority."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.log.replica_log import ReplicaLog

from onyx.ids import JobId
from onyx.replica.commands import KillJob, ResumeJob, SuspendJob
from onyx.replica.scheduling.allocation import reconfigure
from onyx.replica.scheduling.demand import demand
from onyx.replica.state import Replica

JOBS = [f"job-{number}" for number in range(5)]
steps = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.sampled_from(["kill", "suspend", "resume"]), st.sampled_from(JOBS)),
)


def take(log: ReplicaLog, step: tuple[Any, ...]) -> None:
    match step:
        case ("submit", tasks, least, priority):
            name = f"job-{len(log.new.records)}"
            names = " ".join(f"t{number}" for number in range(tasks))
            log.submit(name, names, min_required_peers={"t0": least}, priority=priority)
        case ("kill", job):
            log.tell(KillJob(job=job))
        case ("suspend", job):
            log.tell(SuspendJob(job=job))
        case ("resume", job):
            log.tell(ResumeJob(job=job))


def running(replica: Replica) -> set[JobId]:
    return {job for job in replica.jobs if replica.run(job).allocation}


@given(st.integers(1, 9), st.lists(steps, max_size=12))
@settings(max_examples=examples(150), deadline=None)
def test_only_a_higher_priority_takes_the_last_peers_of_a_job(
    peers: int, taken: list[tuple[Any, ...]]
) -> None:
    log = ReplicaLog("balanced").join("g", peers=peers)
    for step in taken:
        before = running(log.new)
        take(log, step)
        new, after = log.new, running(log.new)
        came = [new.spec(job).priority for job in after - before]
        for job in before - after:
            if job in new.jobs and not new.run(job).suspended:
                assert max(came, default=-1) > new.spec(job).priority, (step, job)
        for job in set(new.jobs) - after:
            free = new.peers_free >= demand(new, job).lower
            assert new.run(job).suspended or not free, (job, "could run")
        assert reconfigure(new) == new, "nothing moves without a reason"
