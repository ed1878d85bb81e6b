"""Cases of `scheduler_reconfigure.json`: a replica is scheduled.

A site of a colocated job is a process here, so those of the case are groups.

What binds is what the README of the cases says: counts, peers of tasks that did not shrink stay,
tags, small distinct slots that are stable, the number of ackers. Not which of equal peers it is.
"""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec.structs import replace
from tests.conformance import replicas
from tests.support.log.invariants import slots_are_unique, tags_are_kept

from onyx.ids import GroupId, Position
from onyx.replica.derived import settle
from onyx.replica.state import Replica


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says."""
    old = replicas.replica(case["replica"])
    schedulers = (case["replica"].get("task-schedulers") or {}).values()
    if "colocated" in map(replicas.short, schedulers):
        old = _with_groups_of_sites(old)
    # As if all peers had come with this entry: settling looks for changes.
    new = settle(Replica(), old, Position(0))
    expected = case["expected"]
    counts, wanted = replicas.counts(new), replicas.counts_of(expected["counts"])
    if counts != wanted:
        return f"counts: got {counts}, not {wanted}"
    problems = [
        *_moved(old, new),
        *tags_are_kept(new),
        *slots_are_unique(new),
        *_ackers(expected["ackers"] or {}, new),
        *_sites(case["replica"], new),
    ]
    return "; ".join(problems) or None


def _with_groups_of_sites(replica: Replica) -> Replica:
    sites = {peer: GroupId(str(replica.peer_sites[peer]["address"])) for peer in replica.peers}
    groups = tuple(dict.fromkeys(sites.values()))
    index = {
        group: tuple(peer for peer in replica.peers if sites[peer] == group) for group in groups
    }
    return replace(replica, groups=groups, groups_index=Map(index), groups_reverse_index=Map(sites))


def _moved(old: Replica, new: Replica) -> list[str]:
    return [
        f"{peer} was moved from {job}/{task}"
        for job in sorted(old.records)
        for task, before in sorted(old.run(job).allocation.items())
        for after in (new.run(job).allocation.get(task, ()),)
        if len(after) >= len(before)
        for peer in before
        if peer not in after
    ]


def _ackers(expected: dict[str, list[str]], new: Replica) -> list[str]:
    return [
        f"{len(new.run(job).ackers)} ackers of {job}, not {len(wanted)}"
        for job, wanted in sorted(expected.items())
        if len(new.run(job).ackers) != len(wanted)
    ]


def _sites(case: dict[str, Any], new: Replica) -> list[str]:
    """With the colocated task scheduler each site that is used has every task of the job."""
    found = []
    for job, scheduler in sorted((case.get("task-schedulers") or {}).items()):
        if replicas.short(scheduler) != "colocated":
            continue
        sites = [
            {str(new.peer_sites.get(peer)) for peer in peers}
            for peers in new.run(job).allocation.values()
        ]
        if any(each != sites[0] for each in sites):
            found.append(f"tasks of {job} are on sites {sites}")
    return found
