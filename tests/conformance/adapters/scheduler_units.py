"""Cases of `scheduler_units.json`: the arithmetic of scheduling, function by function."""

from __future__ import annotations

from typing import Any

from tests.conformance import replicas

from onyx.ids import JobId, PeerId, Position
from onyx.replica.consequences import elected_sealer
from onyx.replica.scheduling.ackers import choose_ackers
from onyx.replica.scheduling.bounds import qualified_peers, task_bounds
from onyx.replica.scheduling.offers import JOB_SCHEDULERS, Demand
from onyx.replica.scheduling.tasks import TASK_SCHEDULERS

JOB = JobId("j1")


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says."""
    function = _FUNCTIONS.get(case["fn"])
    if function is None:
        return f"there is no {case['fn']}"
    got = function(case["input"])
    return None if got == case["expected"] else f"got {got}, not {case['expected']}"


def _offer(given: dict[str, Any]) -> Any:
    offer = JOB_SCHEDULERS[replicas.short(given["job-scheduler"])]
    jobs = tuple(Demand(JobId(job), 0, float("inf"), given["n-peers"]) for job in given["jobs"])
    return offer(given["n-peers"], jobs)


def _distribute(given: dict[str, Any]) -> Any:
    of_job = {
        key: {JOB: given.get(key)}
        for key in ("tasks", "min-required-peers", "task-saturation", "task-percentages")
    }
    replica = replicas.replica({"jobs": [JOB], **of_job})
    scheduler = TASK_SCHEDULERS[replicas.short(given["task-scheduler"])]
    return scheduler(given["n"], task_bounds(replica, JOB))


def _qualified(given: dict[str, Any]) -> Any:
    of_job = {key: {JOB: given[key]} for key in ("tasks", "required-tags")}
    given = {"jobs": [JOB], "peers": given["peers"], "peer-tags": given["peer-tags"], **of_job}
    return qualified_peers(replicas.replica(given), JOB)


def _ackers(given: dict[str, Any]) -> Any:
    of_job = {key: {JOB: given[key]} for key in given if key != "allocations"}
    replica = replicas.replica({"jobs": [JOB], "allocations": given["allocations"], **of_job})
    return list(choose_ackers(replica, JOB, replica.allocations[JOB]))


def _sealer(given: dict[str, Any]) -> Any:
    peers = [PeerId(peer) for peer in given["peers-on-task"]]
    return elected_sealer(peers, Position(given["message-id"]))


_FUNCTIONS = {
    "job_offer_n_peers": _offer,
    "task_distribute_peer_count": _distribute,
    "n_qualified_peers": _qualified,
    "choose_ackers": _ackers,
    "elected_sealer": _sealer,
}
