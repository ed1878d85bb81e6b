"""Who works on what: counts, places, tags, flux policies, and what stays where it is."""

from __future__ import annotations

import pytest
from immutables import Map
from tests.support.log import invariants
from tests.support.log.runs import altered, by_job
from tests.support.log.submissions import submit_job

from onyx.ids import GroupId, JobId, PeerId, Position
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    PrepareJoinCluster,
)
from onyx.replica.scheduling.allocation import reconfigure
from onyx.replica.scheduling.demand import demand
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import Replica


def play(replica: Replica, *commands: Command) -> Replica:
    """The replica after some commands; every step must keep every invariant."""
    for command in commands:
        new = machine.apply(replica, Entry(Position(replica.version + 1), command))
        problems = invariants.violations(new) + invariants.transition_violations(replica, new)
        assert not problems, (command, problems)
        replica = new
    return replica


def cluster(*tags_of_peers: list[str], scheduler: str = "balanced") -> Replica:
    """One group with a peer `p<n>` for each list of tags."""
    join = PrepareJoinCluster(joiner="g")
    return play(Replica(job_scheduler=scheduler), join, *added(0, *tags_of_peers))


def added(first: int, *tags_of_peers: list[str]) -> list[Command]:
    return [
        AddVirtualPeer(id=f"p{first + n}", group_id="g", tags=tuple(tags))
        for n, tags in enumerate(tags_of_peers)
    ]


def job(name: str, *tasks: str, **more: object) -> Command:
    return submit_job(name, tasks, inputs=tasks[:1], outputs=tasks[-1:], **more)


def leave(*peers: str) -> list[Command]:
    return [LeaveCluster(id=peer, group_id="g") for peer in peers]


def counts(replica: Replica, name: str = "j") -> dict[str, int]:
    tasks = replica.run(JobId(name)).allocation
    return {task: len(tasks[task]) for task in sorted(tasks)}


def test_peers_are_split_evenly_and_the_first_task_gets_the_odd_one() -> None:
    assert counts(play(cluster(*[[]] * 7), job("j", "a", "b", "c"))) == {"a": 3, "b": 2, "c": 2}


def test_a_job_waits_until_all_its_tasks_can_have_their_minimum() -> None:
    replica = play(cluster([], []), job("j", "a", "b", min_required_peers={"b": 2}))
    assert counts(replica) == {}
    reported = "needs 3 peers (a 1, b 2); the cluster has 2, 2 of them free"
    assert why_waiting(replica, JobId("j")) == reported
    assert counts(play(replica, *added(2, []))) == {"a": 1, "b": 2}


def test_peers_that_are_not_needed_elsewhere_stay() -> None:
    replica = play(cluster(*[[]] * 6), job("j", "a", "b"))
    before = replica.run(JobId("j")).allocation
    after = play(replica, *added(6, [], [])).run(JobId("j")).allocation
    assert all(set(before[task]) < set(after[task]) for task in before)


def test_a_second_job_takes_only_its_share() -> None:
    replica = play(cluster(*[[]] * 6), job("j", "a", "b", "c"), job("k", "d", "e"))
    assert (counts(replica), counts(replica, "k")) == (
        {"a": 1, "b": 1, "c": 1},
        {"d": 2, "e": 1},
    )


def test_greedy_gives_everything_to_the_first_job_and_the_next_one_is_told() -> None:
    replica = play(cluster([], [], [], scheduler="greedy"), job("j", "a"), job("k", "b"))
    assert (counts(replica), counts(replica, "k")) == ({"a": 3}, {})
    assert why_waiting(replica, JobId("k")) is not None
    assert counts(play(replica, KillJob(job="j")), "k") == {"b": 3}


def test_a_tagged_task_gets_no_more_peers_than_have_its_tags() -> None:
    peers = [["gpu"], [], [], [], [], []]
    replica = play(cluster(*peers), job("j", "a", "b", required_tags={"a": ["gpu"]}))
    assert counts(replica) == {"a": 1, "b": 5}
    assert replica.run(JobId("j")).allocation["a"] == ("p0",)  # type: ignore[index]


def test_a_peer_with_rare_tags_gives_up_a_seat_that_anybody_can_take() -> None:
    replica = play(cluster(["gpu"], []), job("j", "a", saturation=1, task_saturation={"a": 1}))
    replica = altered(replica, JobId("j"), allocation=Map({"a": (PeerId("p0"),)}))
    replica = play(replica, job("k", "b", required_tags={"b": ["gpu"]}))
    assert replica.run(JobId("j")).allocation["a"] == ("p1",)  # type: ignore[index]
    assert replica.run(JobId("k")).allocation["b"] == ("p0",)  # type: ignore[index]


def test_peers_without_tags_are_spared_when_nobody_asks_for_tags() -> None:
    replica = play(cluster(["gpu"], [], []), job("j", "a", saturation=2, task_saturation={"a": 2}))
    assert replica.run(JobId("j")).allocation["a"] == ("p1", "p2")  # type: ignore[index]


def test_a_job_whose_tags_nobody_has_does_not_stop_the_others() -> None:
    replica = play(
        cluster([], [], []),
        job("j", "a", required_tags={"a": ["gpu"]}),
        job("k", "b", "c"),
    )
    assert (counts(replica), counts(replica, "k")) == ({}, {"b": 2, "c": 1})
    assert why_waiting(replica, JobId("j")) == (
        "task a needs a peer with tags [gpu]; no peer has them"
    )


def test_jobs_that_want_the_same_few_tags_do_not_stop_those_that_want_none() -> None:
    peers = [["gpu"], [], [], []]
    wants = {"required_tags": {"a": ["gpu"], "b": ["gpu"]}}
    replica = play(cluster(*peers), job("j", "a", "b", **wants), job("k", "c"))
    assert counts(replica) == {}
    assert counts(replica, "k") == {"c": 4}


def test_a_kill_task_neither_grows_nor_shrinks() -> None:
    replica = play(cluster(*[[]] * 4), job("j", "a", "b", flux_policies={"b": "kill"}))
    assert counts(play(replica, *added(4, [], []))) == {"a": 4, "b": 2}


RECOVER = {"flux_policies": {"b": "recover"}, "min_required_peers": {"b": 2}}


def lost_from(replica: Replica, task: str) -> Replica:
    """One peer of the task leaves."""
    return play(replica, *leave(replica.run(JobId("j")).allocation[task][0]))  # type: ignore[index]


@pytest.mark.parametrize("fixed", [True, False])
def test_a_recover_task_is_filled_again_and_goes_on_with_those_left(fixed: bool) -> None:
    limits = {**RECOVER, **({"task_saturation": {"b": 2}} if fixed else {})}
    replica = play(cluster(*[[]] * 4), job("j", "a", "b", **limits))
    assert counts(replica) == {"a": 2, "b": 2}
    replica = lost_from(replica, "b")
    assert counts(replica) == {"a": 1, "b": 2}, "there was one to spare"
    replica = lost_from(replica, "b")
    assert counts(replica) == {"a": 1, "b": 1}, "the job goes on"
    assert replica.run(JobId("j")).allocation_version == replica.version, "and is wired anew"
    replica = play(replica, *added(4, []))
    assert counts(replica) == {"a": 1, "b": 2}, "who comes is for the task that lacks one"
    replica = play(replica, *added(5, [], []))
    assert counts(replica) == {"a": 3, "b": 2}, "no more than it began with"


def test_a_recover_task_begins_with_all_that_it_asks_for() -> None:
    replica = play(cluster([], []), job("j", "a", "b", **RECOVER))
    assert counts(replica) == {}
    assert why_waiting(replica, JobId("j")) == (
        "needs 3 peers (a 1, b 2); the cluster has 2, 2 of them free"
    )
    assert counts(play(replica, *added(2, []))) == {"a": 1, "b": 2}


def test_a_job_that_lost_all_peers_of_a_recover_task_begins_again_with_those_that_come() -> None:
    replica = play(cluster(*[[]] * 3), job("j", "a", "b", **RECOVER))
    replica = play(replica, *leave("p0", "p1", "p2"))
    assert counts(replica) == {}
    replica = play(replica, *added(3, [], []))
    assert counts(replica) == {"a": 1, "b": 1}
    assert counts(play(replica, *added(5, []))) == {"a": 1, "b": 2}


@pytest.mark.parametrize("scheduler", ["balanced", "percentage"])
def test_a_recover_task_that_lost_peers_comes_before_tasks_that_could_have_more(
    scheduler: str,
) -> None:
    shares = {"task_percentages": {"a": 80, "b": 20}, "task_scheduler": scheduler}
    replica = play(cluster(*[[]] * 6), job("j", "a", "b", **{**RECOVER, **shares}))
    while len(replica.peers) > 3:
        replica = lost_from(replica, "b")
    assert counts(replica) == {"a": 1, "b": 2}
    assert counts(lost_from(replica, "b")) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((70, 30), (7, 3)),
        ((50, 50), (5, 5)),
        ((60,), (10,)),
        ((70, 20), (8, 2)),
        ((20, 70), (2, 8)),
        ((30, 30), (7, 3)),
        ((60, 60), (10, 0)),
        ((70, 30, 20), (7, 3, 0)),
        ((70, 30, 80), (7, 3, 0)),
        ((70, 40, 30), (10, 0, 0)),
    ],
)
def test_percentage_jobs(shares: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """What is left over goes to the highest, above 100 the earliest keep theirs."""
    replica = cluster(*[[]] * 10, scheduler="percentage")
    replica = play(replica, *(job(f"j{n}", f"t{n}", percentage=s) for n, s in enumerate(shares)))
    got = tuple(sum(counts(replica, f"j{n}").values()) for n in range(len(shares)))
    assert got == expected


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((50, 20, 20), (6, 2, 2)), ((10, 30, 30), (1, 6, 3)), ((70, 20, 10), (7, 2, 1))],
)
def test_what_the_percentages_of_tasks_leave_over_is_for_the_highest(
    shares: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    given = dict(zip("abc", shares, strict=True))
    replica = play(
        cluster(*[[]] * 10),
        job("j", "a", "b", "c", task_scheduler="percentage", task_percentages=given),
    )
    assert counts(replica) == dict(zip("abc", expected, strict=True))


def test_a_later_job_takes_nothing_from_those_that_run_until_one_of_them_ends() -> None:
    replica = cluster(*[[]] * 12, scheduler="percentage")
    replica = play(replica, job("j", "a", percentage=70), job("k", "b", percentage=30))
    before = by_job(replica, "allocation")
    replica = play(replica, job("m", "c", percentage=80))
    assert by_job(replica, "allocation") == before
    replica = play(replica, KillJob(job="j"))
    assert (counts(replica, "k"), counts(replica, "m")) == ({"b": 12}, {}), "30 and 80 are too many"
    replica = play(replica, KillJob(job="k"))
    assert counts(replica, "m") == {"c": 12}


def test_what_the_highest_job_cannot_use_goes_to_the_next() -> None:
    replica = cluster(*[[]] * 10, scheduler="percentage")
    few = {"saturation": 2, "task_saturation": {"a": 2}}
    replica = play(replica, job("j", "a", percentage=60, **few), job("k", "b", percentage=20))
    assert (counts(replica), counts(replica, "k")) == ({"a": 2}, {"b": 8})


def test_an_unknown_scheduler_runs_nothing_and_says_so() -> None:
    replica = play(cluster([], []), job("j", "a", task_scheduler="of-tomorrow"), job("k", "b"))
    assert counts(replica) == {}
    assert why_waiting(replica, JobId("j")) == (
        "it names of-tomorrow as its task scheduler, and there are only balanced, percentage, "
        "colocated"
    )
    assert counts(replica, "k") == {"b": 2}


def test_scheduling_a_scheduled_cluster_changes_nothing() -> None:
    replica = play(cluster(*[[]] * 5), job("j", "a", "b"), job("k", "c"))
    assert reconfigure(replica) is replica


def test_an_unrelated_job_is_not_touched_when_a_group_without_peers_leaves() -> None:
    replica = play(
        cluster([], []),
        job("j", "a"),
        PrepareJoinCluster(joiner="h"),
        GroupLeaveCluster(id=GroupId("h")),
    )
    assert replica.run(JobId("j")).allocation_version == 3


def test_what_a_waiting_job_demands_is_found_once_for_the_peers_that_there_are() -> None:
    replica = play(cluster([], []), job("first", "a", "b"), job("waits", "a", "b"))
    before = demand(replica, JobId("waits"))
    replica = play(replica, job("third", "a", "b"), KillJob(job=JobId("third")))
    assert demand(replica, JobId("waits")) is before
    replica = play(replica, *added(2, ["gpu"]))
    assert demand(replica, JobId("waits")).qualified == 3


def three(name: str, **more: object) -> Command:
    return job(name, "a", "b", "c", **more)


@pytest.mark.parametrize(
    ("peers", "jobs", "expected"),
    [
        (3, [three("j"), job("k", "d", "e")], {"j": 3, "k": 0}),
        (3, [three("j"), job("k", "d", "e", priority=1)], {"j": 0, "k": 3}),
        (3, [three("j", priority=1), job("k", "d", "e", priority=1)], {"j": 3, "k": 0}),
        (4, [three("j"), job("k", "d", "e"), job("l", "f")], {"j": 3, "k": 0, "l": 1}),
        (5, [three("j"), job("k", "d", "e")], {"j": 3, "k": 2}),
        (7, [job("j", *"abcde"), job("k", "f"), job("l", "g")], {"j": 5, "k": 1, "l": 1}),
        (5, [three("j"), job("k", "d"), job("l", *"efgh", priority=9)], {"j": 0, "k": 1, "l": 4}),
        (4, [three("j"), job("k", *"efgh", priority=9), KillJob(job="k")], {"j": 4, "k": 0}),
    ],
    ids=[
        "who runs keeps what it needs", "unless a higher priority asks", "an equal one is none",
        "a small one finds room", "what is more than needed is given up",
        "all have their least where it fits", "only who must gives way", "and comes back",
    ],
)  # fmt: skip
def test_a_job_displaces_none_that_runs_unless_its_priority_is_higher(
    peers: int, jobs: list[Command], expected: dict[str, int]
) -> None:
    replica = play(cluster(*[[]] * peers), *jobs)
    assert {name: sum(counts(replica, name).values()) for name in expected} == expected
    assert reconfigure(replica) == replica


def test_who_waits_for_others_is_told_so() -> None:
    replica = play(cluster(*[[]] * 3), three("j"), job("k", "d", "e"))
    assert why_waiting(replica, JobId("k")) == (
        "needs 2 peers (d 1, e 1); the cluster has 3, 0 of them free; jobs of its priority or a "
        "higher one have the others"
    )


def test_an_upgrade_takes_the_place_of_the_old_job_before_others_that_wait() -> None:
    jobs = [three("j"), job("k", "d", "e"), three("new", upgrades="j")]
    replica = play(cluster(*[[]] * 3), *jobs)
    assert (sum(counts(replica, "new").values()), counts(replica, "k")) == (3, {})


@pytest.mark.parametrize("scheduler", ["greedy", "percentage"])
def test_other_job_schedulers_serve_higher_priorities_first(scheduler: str) -> None:
    late = job("k", "b", priority=1, percentage=60)
    replica = play(cluster([], [], scheduler=scheduler), job("j", "a", percentage=60), late)
    assert (counts(replica), counts(replica, "k")) == ({}, {"b": 2})


def test_of_jobs_for_the_same_tags_the_one_that_runs_stays() -> None:
    first = job("k", "b", "c", required_tags={"b": ["gpu"]}, min_required_peers={"c": 2})
    then = job("j", "a", required_tags={"a": ["gpu"]})
    replica = play(cluster(["gpu"], []), first, then)
    assert (counts(replica), counts(replica, "k")) == ({"a": 1}, {})
    replica = play(replica, *added(2, [], []))
    assert (counts(replica), counts(replica, "k")) == ({"a": 1}, {})
