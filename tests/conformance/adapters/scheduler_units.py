"""Cases of `scheduler_units.json`: the arithmetic of scheduling, function by function."""

from __future__ import annotations

from typing import Any

from tests.conformance import replicas

from onyx.ids import JobId, PeerId, Position
from onyx.replica.derived import elected_sealer
from onyx.replica.scheduling.allocation import JOB_SCHEDULERS, choose_ackers, split_by_share
from onyx.replica.scheduling.demand import demand
from onyx.replica.scheduling.task_schedulers import split
from onyx.replica.state import Replica

JOB = JobId("j1")


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says."""
    function = _FUNCTIONS.get(case["fn"])
    if function is None:
        return f"there is no {case['fn']}"
    got = function(case["input"])
    return None if got == case["expected"] else f"got {got}, not {case['expected']}"


def _offer(given: dict[str, Any]) -> Any:
    scheduler = JOB_SCHEDULERS[replicas.short(given["job-scheduler"])]
    of_jobs = {"tasks": {job: ["t"] for job in given["jobs"]}}
    replica = replicas.replica({**given, **of_jobs, "peers": _peers(given["n-peers"])})
    demands = [demand(replica, job) for job in replica.jobs]
    return scheduler.offer(demands, given["n-peers"])


def _peers(number: int) -> list[str]:
    return [f"p{each}" for each in range(number)]


def _distribute(given: dict[str, Any]) -> Any:
    rest = {"n", "task-scheduler", "peers", "peer-sites", "peer-tags"}
    of_job = {key: {JOB: value} for key, value in given.items() if key not in rest}
    of_job["task-schedulers"] = {JOB: given["task-scheduler"]}
    peers = given.get("peers") or _peers(given["n"])
    about = {key: given[key] for key in ("peer-sites", "peer-tags") if key in given}
    replica = replicas.replica({"jobs": [JOB], "peers": peers, **about, **of_job})
    return split(demand(replica, JOB), given["n"])


def _qualified(given: dict[str, Any]) -> Any:
    of_job = {key: {JOB: given[key]} for key in ("tasks", "required-tags")}
    given = {"jobs": [JOB], "peers": given["peers"], "peer-tags": given["peer-tags"], **of_job}
    replica: Replica = replicas.replica(given)
    return demand(replica, JOB).qualified


def _shares(given: dict[str, Any]) -> Any:
    shares = {each["job"]: each["pct"] for each in given["jobs"]}
    return [
        {"job": job, "capacity": number, "pct": shares[job]}
        for job, number in split_by_share(list(shares.items()), given["n-peers"])
    ]


def _ackers(given: dict[str, Any]) -> Any:
    of_job = {key: {JOB: given[key]} for key in given if key != "allocations"}
    of_job["tasks"] = {JOB: sorted(given["allocations"][JOB])}
    replica = replicas.replica({"jobs": [JOB], "allocations": given["allocations"], **of_job})
    return list(choose_ackers(replica, JOB, replica.run(JOB).allocation))


def _sealer(given: dict[str, Any]) -> Any:
    peers = [PeerId(peer) for peer in given["peers-on-task"]]
    return elected_sealer(peers, Position(given["message-id"]))


_FUNCTIONS = {
    "job_offer_n_peers": _offer,
    "task_distribute_peer_count": _distribute,
    "n_qualified_peers": _qualified,
    "percentage_min_allocations": _shares,
    "choose_ackers": _ackers,
    "elected_sealer": _sealer,
}
