"""Which processes the tasks of a job are in: each has the whole way, where peers suffice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.log.invariants import violations
from tests.support.log.replica_log import ReplicaLog

from onyx.replica.commands import (
    AddVirtualPeer,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
)
from onyx.replica.scheduling.dealing import group_of


def processes(**sizes: int) -> ReplicaLog:
    log = ReplicaLog()
    for group, peers in sizes.items():
        log.join(group, peers=peers)
    return log


def tasks_in(log: ReplicaLog, job: str = "j") -> dict[str, str]:
    """The tasks of a job in each process, by their first letters: `rpw` is one of each."""
    assert violations(log.new) == []
    found: dict[str, Counter[str]] = {}
    for task, peers in log.new.run(job).allocation.items():  # type: ignore[call-overload]
        for peer in peers:
            found.setdefault(group_of(log.new, peer), Counter())[task[0]] += 1
    return {group: "".join(sorted(found[group].elements(), key="rpw".index)) for group in found}


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ({"a": 3, "b": 3, "c": 3}, {}, {"a": "rpw", "b": "rpw", "c": "rpw"}),
        ({"a": 4, "b": 4, "c": 4}, {}, {"a": "rrpw", "b": "rppw", "c": "rpww"}),
        ({"a": 6, "b": 3}, {}, {"a": "rrppww", "b": "rpw"}),
        ({"a": 3, "b": 3, "c": 3}, {"read": 1}, {"a": "rpw", "b": "ppw", "c": "pww"}),
        ({"a": 3, "b": 3}, {"read": 1, "parse": 1, "write": 1}, {"a": "rpw"}),
        ({"a": 1, "b": 3}, {"read": 1, "parse": 1, "write": 1}, {"b": "rpw"}),
        ({"a": 2, "b": 2}, {}, {"a": "rp", "b": "rw"}),
        ({"a": 1, "b": 1, "c": 1}, {}, {"a": "r", "b": "p", "c": "w"}),
    ],
)
def test_each_process_has_the_whole_way_where_peers_suffice(
    sizes: dict[str, int], limits: dict[str, int], expected: dict[str, str]
) -> None:
    log = processes(**sizes).submit(task_saturation=limits)
    assert tasks_in(log) == expected


def test_processes_that_come_and_go_leave_the_whole_way_to_the_others() -> None:
    log = processes(a=3).submit()
    log.join("b", "c", peers=3)
    assert tasks_in(log) == {"a": "rpw", "b": "rpw", "c": "rpw"}
    before = log.new.run("j").allocation
    log.tell(GroupLeaveCluster(id="b"))
    assert tasks_in(log) == {"a": "rpw", "c": "rpw"}
    log.join("d", peers=3)
    assert tasks_in(log) == {"a": "rpw", "c": "rpw", "d": "rpw"}
    assert all(before[task][0] in log.new.run("j").allocation[task] for task in before)


def test_a_peer_that_comes_again_closes_the_gap_in_its_process() -> None:
    log = processes(a=3, b=3).submit()
    for task in ("parse", "read"):
        peer = log.new.run("j").allocation[task][-1]
        log.tell(LeaveCluster(id=peer))
    log.tell(AddVirtualPeer(id="b-9", group_id="b"))
    log.tell(AddVirtualPeer(id="b-8", group_id="b"))
    assert tasks_in(log) == {"a": "rpw", "b": "rpw"}


def test_jobs_with_one_way_each_go_to_different_processes() -> None:
    one = dict.fromkeys(("read", "parse", "write"), 1)
    log = processes(a=9, b=9)
    log.submit("j", task_saturation=one).submit("k", task_saturation=one)
    assert (tasks_in(log), tasks_in(log, "k")) == ({"a": "rpw"}, {"b": "rpw"})


def test_a_job_that_gives_up_peers_keeps_a_whole_way() -> None:
    log = processes(a=3, b=3, c=3).submit("j")
    log.submit("k")
    assert tasks_in(log) == {"a": "rpw", "b": "rp"}
    assert tasks_in(log, "k")["c"] == "rpw"
    log.tell(KillJob(job="k"))
    assert tasks_in(log) == {"a": "rpw", "b": "rpw", "c": "rpw"}


@pytest.mark.parametrize("tagged", ["gpu", "cpu"])
def test_tags_leave_the_rest_of_the_way_whole(tagged: str) -> None:
    log = ReplicaLog()
    for group in "ab":
        log.join(group)
        for number, tags in enumerate(([], [tagged], [])):
            log.tell(AddVirtualPeer(id=f"{group}-{number}", group_id=group, tags=tags))
    log.submit(required_tags={"parse": [tagged]})
    assert tasks_in(log) == {"a": "rpw", "b": "rpw"}


def test_shares_of_a_job_are_those_of_its_tasks_in_each_process() -> None:
    shares: dict[str, Any] = {"read": 10, "parse": 80, "write": 10}
    log = processes(a=10, b=10, c=10)
    log.submit(task_scheduler="percentage", task_percentages=shares)
    assert tasks_in(log) == dict.fromkeys("abc", "r" + 8 * "p" + "w")
