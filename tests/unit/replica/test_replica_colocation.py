"""Colocated jobs: whole batches of tasks in processes, and who has to move for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.log.invariants import tasks_on, transition_violations, violations
from tests.support.log.replica_log import ReplicaLog

from onyx.replica.commands import AddVirtualPeer, KillJob, LeaveCluster, ResumeJob, SuspendJob
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import Replica


def processes(scheduler: str = "greedy", **sizes: int) -> ReplicaLog:
    """Processes a, b and c on one machine, with peers `a-0`, `a-1`, ... and so on."""
    log = ReplicaLog(scheduler).join(*sizes, *(each for each in "abc" if each not in sizes))
    for group, size in sizes.items():
        for number in range(size):
            add(log, group, number)
    return log


def add(log: ReplicaLog, group: str, number: int, **more: Any) -> Replica:
    site = {"address": "host:7700"}
    return log.tell(AddVirtualPeer(id=f"{group}-{number}", group_id=group, peer_site=site, **more))


def colocated(log: ReplicaLog, job: str = "j", **more: Any) -> ReplicaLog:
    return log.submit(job, task_scheduler="colocated", **more)


def batches(log: ReplicaLog, job: str = "j") -> dict[str, int]:
    """Batches of a job by process; every process has all of its tasks equally often."""
    assert violations(log.new) == []
    found = tasks_on(log.new, job)
    assert all(len(set(counts.values())) == 1 for counts in found.values())
    return {group: counts["read"] for group, counts in sorted(found.items())}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"a": 3}, {"a": 1}),
        ({"a": 3, "b": 3}, {"a": 1, "b": 1}),
        ({"a": 5, "b": 4}, {"a": 1, "b": 1}),
        ({"a": 7, "b": 2, "c": 3}, {"a": 2, "c": 1}),
        ({"a": 2, "b": 2, "c": 2}, {}),
    ],
)
def test_each_process_takes_as_many_batches_as_it_has_room_for(
    sizes: dict[str, int], expected: dict[str, int]
) -> None:
    assert batches(colocated(processes(**sizes))) == expected


def test_the_narrowest_limits_of_its_tasks_are_those_of_the_job() -> None:
    log = processes(a=6, b=6)
    assert sum(batches(colocated(log, task_saturation={"parse": 3})).values()) == 3
    waiting = colocated(processes(a=6), min_required_peers={"parse": 3})
    assert batches(waiting) == {}


def test_a_job_without_a_process_that_is_large_enough_says_so() -> None:
    log = colocated(processes(a=2, b=2))
    assert why_waiting(log.new, "j") == (
        "is colocated and needs 3 peers in one process, one for each task; 2 at most are"
    )


def test_other_jobs_get_what_it_cannot_use() -> None:
    log = colocated(processes("balanced", a=3, b=2, c=1)).submit("other", tasks="in out")
    assert batches(log) == {"a": 1}
    assert sum(map(len, log.new.run("other").allocation.values())) == 3


def test_peers_of_another_job_move_for_it() -> None:
    log = processes("balanced", a=3, b=3).submit("other", tasks="in out")
    assert sum(map(len, log.new.run("other").allocation.values())) == 6
    colocated(log)
    assert sum(batches(log).values()) == 1
    assert sum(map(len, log.new.run("other").allocation.values())) == 3


@pytest.mark.parametrize("policy", ["kill", "recover"])
def test_peers_of_a_grouped_task_that_may_not_move_stay(policy: str) -> None:
    log = processes("balanced", a=3, b=3)
    log.submit("other", tasks="in out", flux_policies={"out": policy},
               min_required_peers={"out": 1}, task_saturation={"out": 1, "in": 1})  # fmt: skip
    (stays,) = log.new.run("other").allocation["out"]
    colocated(log)
    assert log.new.run("other").allocation["out"] == (stays,)
    assert sum(batches(log).values()) == 1
    assert stays not in {p for peers in log.new.run("j").allocation.values() for p in peers}


def test_it_stays_where_it_is_when_peers_come_and_go() -> None:
    log = colocated(processes(b=3))
    before = log.new.run("j").allocation
    for number in range(3):
        add(log, "a", number)
    assert batches(log) == {"a": 1, "b": 1}
    assert all(set(before[task]) <= set(log.new.run("j").allocation[task]) for task in before)
    log.tell(LeaveCluster(id="a-0"))
    assert batches(log) == {"b": 1}
    assert log.new.run("j").allocation == before


def test_two_colocated_jobs_do_not_share_peers() -> None:
    log = colocated(colocated(processes("balanced", a=3, b=3), "j"), "k")
    assert [sum(batches(log, job).values()) for job in "jk"] == [1, 1]


def test_tags_are_kept_within_a_process() -> None:
    log = processes(a=2, b=2)
    add(log, "a", 2, tags=["gpu"])
    add(log, "b", 2)
    colocated(log, required_tags={"parse": ["gpu"]})
    assert not log.new.run("j").allocation or log.new.run("j").allocation["parse"] == ("a-2",)


steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abc")),
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.tuples(st.just("submit"), st.sampled_from(["colocated", "colocated", "balanced"])),
    st.tuples(st.sampled_from([SuspendJob, ResumeJob, KillJob]), st.integers(0, 3)),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(["greedy", "balanced"]), st.lists(steps, max_size=40))
def test_batches_stay_whole_whatever_happens(scheduler: str, plan: list[tuple[str, Any]]) -> None:
    log, added, jobs = processes(scheduler, a=3), 10, 0
    for what, value in plan:
        if what == "add":
            added += 1
            add(log, value, added)
        elif what == "leave":
            log.tell(
                LeaveCluster(id=log.new.peers[value % len(log.new.peers)])
            ) if log.new.peers else None
        elif what == "submit":
            jobs += 1
            policies = {"parse": "recover"} if jobs % 3 == 2 else {}
            log.submit(f"j{jobs}", task_scheduler=value, flux_policies=policies,
                       task_saturation={"parse": 2})  # fmt: skip
        else:
            log.tell(what(job=f"j{value}"))
        assert violations(log.new) == []
        assert transition_violations(log.old, log.new) == []
