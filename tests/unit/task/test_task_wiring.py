"""Who sends to whom: everybody, or in a colocated job the peers of the same process."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from tests.support.log.replica_log import ReplicaLog

from onyx.ids import JobId, PeerId, TaskName
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.replica.commands import AddVirtualPeer
from onyx.replica.state import Replica
from onyx.task.channels.wiring import Wiring, wire

TASKS = ("read", "parse", "write")
GROUPED = {"groupByKey": "k", "fluxPolicy": "continue"}


def allocated(scheduler: str) -> Replica:
    log = ReplicaLog().join("a", "b")
    for group in "ab":
        for number in range(3):
            site = {"address": "host:1"}
            log.tell(AddVirtualPeer(id=f"{group}{number}", group_id=group, peer_site=site))
    log.submit("j", " ".join(TASKS), task_scheduler=scheduler, acker_percentage=100)
    return log.new


def job(scheduler: str, spec: dict[str, Any], **parse: Any) -> Job:
    catalog = [
        {"name": "read", "type": "input", "plugin": "generator", "options": {"segments": 1}},
        {"name": "parse", "type": "function", "fn": "m:f", **parse},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ]
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "j"},
            "spec": {
                "taskScheduler": scheduler,
                **spec,
                "workflow": [["read", "parse"], ["parse", "write"]],
                "catalog": [{"batchSize": 1, **entry} for entry in catalog],
            },
        }
    )


def wired(
    scheduler: str, parse: Mapping[str, str] = MappingProxyType({}), **spec: Any
) -> dict[tuple[str, str], Wiring]:
    """The wiring of each peer by task and process."""
    replica = allocated(scheduler)
    return {
        (task, peer): wire(
            replica, JobId("j"), job(scheduler, spec, **parse), PeerId(peer), TaskName(task)
        )
        for task in TASKS
        for peer in replica.run(JobId("j")).allocation[TaskName(task)]
    }


def neighbours(found: dict[tuple[str, str], Wiring]) -> dict[str, set[str]]:
    """For each edge, which processes send to which."""
    edges: dict[str, set[str]] = {"read>parse": set(), "parse>write": set()}
    for (task, peer), wiring in found.items():
        for child in wiring.children:
            for site in child.sites:
                edges[f"{task}>{child.task}"].add(peer[0] + site.peer[0])
    return edges


@pytest.mark.parametrize("scheduler", ["balanced", "colocated"])
def test_who_sends_is_who_is_waited_for(scheduler: str) -> None:
    found = wired(scheduler, GROUPED)
    for (task, peer), wiring in found.items():
        senders = {
            sender
            for (_, sender), other in found.items()
            for child in other.children
            if child.task == task and peer in {site.peer for site in child.sites}
        }
        assert wiring.upstream.keys() == senders


def test_segments_of_a_colocated_job_stay_in_their_process_unless_it_says_otherwise() -> None:
    assert neighbours(wired("balanced"))["read>parse"] & {"ab", "ba"}
    assert neighbours(wired("colocated")) == {
        "read>parse": {"aa", "bb"},
        "parse>write": {"aa", "bb"},
    }
    anywhere = wired("colocated", localOnly=False)
    assert neighbours(anywhere)["read>parse"] == {"aa", "ab", "ba", "bb"}
    assert {each.prefers_near for each in anywhere.values()} == {False}


def test_groups_decide_where_segments_go_in_a_colocated_job_too() -> None:
    found = wired("colocated", GROUPED)
    assert neighbours(found) == {
        "read>parse": {"aa", "ab", "ba", "bb"},
        "parse>write": {"aa", "bb"},
    }
