"""Cases of `scheduler_end_states.json`: whatever the order of entries, the counts in the end."""

from __future__ import annotations

import random
from typing import Any

from tests.conformance import replicas

from onyx.ids import Position
from onyx.replica import machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AcceptJoinCluster,
    AddVirtualPeer,
    KillJob,
    LeaveCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
)
from onyx.replica.state import Replica

ORDERS = 12
GROUPS = ("g1", "g2")


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when every order ends as the case says."""
    for seed in range(ORDERS):
        replica = Replica(job_scheduler=replicas.short(case["job_scheduler"]))
        for command in _log(case, random.Random(seed)):
            entry = Entry(Position(replica.version + 1), command)
            replica = machine.apply(replica, entry)
        if replica.rejected:
            return f"order {seed}: an entry is refused"
        wrong = _difference(case, replica)
        if wrong:
            return f"order {seed}: {wrong}"
    return None


def _log(case: dict[str, Any], order: random.Random) -> list[Command]:
    """Groups first; then peers and jobs in any order, a job's end after it; then peers leave."""
    groups = [
        PrepareJoinCluster(joiner="g1"),
        PrepareJoinCluster(joiner="g2"),
        NotifyJoinCluster(observer="g2"),
        AcceptJoinCluster(
            observer="g2", subject="g1", accepted_observer="g1", accepted_joiner="g2"
        ),
    ]
    number = case["n_peers_joining"]
    rows = [[_joins(case, peer)] for peer in range(number)] + [_job(job) for job in case["jobs"]]
    turns = [index for index, row in enumerate(rows) for _ in row]
    order.shuffle(turns)
    mixed = [rows[index].pop(0) for index in turns]
    leaving = order.sample(range(number), case["peers_leaving_after_joining"])
    return [*groups, *mixed, *(LeaveCluster(id=f"p{peer}") for peer in leaving)]


def _joins(case: dict[str, Any], peer: int) -> Command:
    """The first half is of the first group; there peers have the tags that any job requires."""
    group = GROUPS[peer * 2 // case["n_peers_joining"]]
    required = (job["submit_entry"]["args"]["required-tags"] for job in case["jobs"])
    tags = sorted({tag for tasks in required for each in tasks.values() for tag in each})
    return AddVirtualPeer(id=f"p{peer}", group_id=group, tags=tuple(tags) if group == "g1" else ())


def _job(job: dict[str, Any]) -> list[Command]:
    submitted = replicas.command(job["submit_entry"], Replica())
    ended = [KillJob(job=job["job_id"])] if job["killed_after_submit"] else []
    return [submitted, *ended]


def _difference(case: dict[str, Any], replica: Replica) -> str | None:
    """What is asserted; where that is in words, the end that was observed has to come out."""
    try:
        return _unlike(case["expected"], replica)
    except LookupError:
        counts = replicas.counts(replica)
        observed = case["observed_final_counts_over_6_random_interleavings"]
        seen = [replicas.counts_of(each) for each in observed]
        return None if counts in seen else f"counts: got {counts}, observed were {seen}"


def _unlike(expected: Any, replica: Replica) -> str | None:
    counts = replicas.counts(replica)
    if not isinstance(expected, dict):
        raise LookupError(expected)
    if "one-of" in expected:
        if any(_unlike(each, replica) is None for each in expected["one-of"]):
            return None
        return f"counts: got {counts}, not one of {expected['one-of']}"
    for what, wanted in expected.items():
        got = _observed(what, wanted, replica, counts)
        if got != wanted:
            return f"{what}: got {got}, not {wanted} ({counts})"
    return None


def _observed(what: str, wanted: Any, replica: Replica, counts: dict[str, Any]) -> Any:
    """What we have of what a case asserts, in the form in which it asserts it."""
    totals = {job: sum(tasks.values()) for job, tasks in counts.items()}
    match what:
        case "counts":
            return {job: counts.get(job, {}) for job in wanted}
        case "total":
            return {job: totals.get(job, 0) for job in wanted}
        case "idle-peers":
            return len(replica.peers) - sum(totals.values())
        case "sorted-counts-set":
            found = sorted(sorted(tasks.values()) for tasks in counts.values())
            return wanted if found == sorted(wanted) else found
        case "task-at-least":
            number = {task: n for tasks in counts.values() for task, n in tasks.items()}
            return {task: min(least, number.get(task, 0)) for task, least in wanted.items()}
    raise LookupError(what)
