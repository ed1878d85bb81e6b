"""Deleted objects go at once, alone or with their namespace, and their jobs are killed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.operator.declaring import phase, reported, started
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, chart_rights, cluster, job, settings
from tests.operator.job_world import UID
from tests.operator.test_watches import eventually, namespace
from tests.operator.workers import Workers

from onyx.client.submissions import submission
from onyx.ids import JobId
from onyx.model.parsing.job import parse_declared
from onyx_operator.owners import JobOwner, owner_of

QUICK = settings(JOBS_RESYNC_INTERVAL_S="0.2", JOBS_RELEASE_TIMEOUT_S="2")
BOTH = settings(NAMESPACES="default,team", JOBS_RESYNC_INTERVAL_S="0.2")
EVERYWHERE = settings(NAMESPACES="", JOBS_RESYNC_INTERVAL_S="0.2")


def killed(logs: Logs, job_id: str, tenancy: str = "default.onyx") -> None:
    """Wait until a job has been killed."""
    eventually(lambda: job_id in logs.replica(tenancy).killed_jobs)


def watched(api: FakeApi, where: str) -> bool:
    """Are all watches open? One that is refused ends those that are open beside it."""
    watches = {
        each.resource for each in (one.target for one in api.requests)
        if (each.verb, each.namespace) == ("watch", where)
    }  # fmt: skip
    return watches >= {"onyxclusters", "onyxjobs", "statefulsets"}


def running(api: FakeApi, where: str) -> str:
    """A job in the log, of a namespace with a cluster of its own; its id."""
    api.create(cluster(namespace=where))
    api.create(job(namespace=where))
    found = api.wait_for("onyxjobs", "job", phase("Waiting"), where)
    return str(found["status"]["jobId"])


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = JobOwner("abc", "team", "job", UID)
    assert JobOwner.read(str(owner)) == owner
    for other in ("", "someone", "OnyxJob/a/b/c", "OnyxJob/a/b/c/no-uid", f"OnyxJob/a/b/c/{UID}/e"):
        assert JobOwner.read(other) is None


def test_a_deleted_job_goes_at_once_and_is_killed(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    api.delete("onyxjobs", "job")
    assert api.get("onyxjobs", "job") is None, "nothing holds it"
    killed(logs, job_id)


def test_a_job_that_is_deleted_while_no_operator_runs_is_killed_by_the_next_one(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, QUICK):
        job_id = started(api)
        kept = running_beside(api)
    api.delete("onyxjobs", "job")
    with Operator(api, logs.connect, QUICK):
        killed(logs, job_id)
        assert kept in logs.replica().jobs


def left(api: FakeApi, logs: Logs) -> str:
    """A job that goes on when its operator has ended; its id."""
    api.create(cluster())
    with Operator(api, logs.connect, QUICK):
        return started(api)


def running_beside(api: FakeApi) -> str:
    api.create(job("beside"))
    found = api.wait_for("onyxjobs", "beside", lambda each: each["status"]["submittedAt"])
    return str(found["status"]["jobId"])


def test_an_object_of_the_same_name_starts_when_the_former_job_has_been_killed(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    first = left(api, logs)
    api.delete("onyxjobs", "job")
    api.create(job())
    with Operator(api, logs.connect, QUICK):
        found = api.wait_for("onyxjobs", "job", phase("Running", "Running"))
    second = found["status"]["jobId"]
    order = [
        (each.NAME, getattr(each, "job", getattr(each, "id", None))) for each in logs.commands()
    ]
    assert order.index(("kill-job", first)) < order.index(("submit-job", second))


@pytest.mark.parametrize("everywhere", [False, True], ids=["by name", "all namespaces"])
def test_a_namespace_that_is_deleted_ends_at_once_and_its_jobs_are_killed(
    api: FakeApi, logs: Logs, everywhere: bool
) -> None:
    namespace(api, "team")
    rights = chart_rights("default", "team", everywhere=everywhere)
    found = EVERYWHERE if everywhere else BOTH
    with Operator(api, logs.connect, found, rights=rights) as operator:
        job_id = running(api, "team")
        eventually(lambda: watched(api, "" if everywhere else "team"))
        if not everywhere:
            operator.revoke("team")  # its Role is deleted before its objects
        api.delete("namespaces", "team")
        assert api.get("namespaces", "team", "") is None
        killed(logs, job_id, "team.onyx")


def test_a_job_that_is_deleted_with_its_cluster_is_killed(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, QUICK):
        job_id = started(api)
        api.delete("onyxclusters", "onyx")
        api.delete("onyxjobs", "job")
        killed(logs, job_id)


def test_a_job_whose_log_is_away_is_left_in_time_with_a_warning_and_killed_when_it_is_back(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    job_id = left(api, logs)
    logs.away.set()
    with Operator(api, logs.connect, QUICK):
        api.wait_for("onyxjobs", "job", lambda found: found["status"]["reason"] == "LogUnreachable")
        api.delete("onyxjobs", "job")
        assert api.get("onyxjobs", "job") is None
        reported(api, "LeftRunning")
        assert [each["type"] for each in events(api, "LeftRunning")] == ["Warning"]
        assert job_id in logs.replica().jobs
        logs.away.clear()
        killed(logs, job_id)


def events(api: FakeApi, reason: str) -> list[Any]:
    return [each for each in api.list("events") if each["reason"] == reason]


def test_nobody_is_killed_of_whom_it_is_not_known_that_he_is_gone(
    api: FakeApi, logs: Logs, operator: Operator
) -> None:
    log = logs.log().client()
    _, parsed = parse_declared(job())
    assert parsed is not None
    body = {"metadata": {"namespace": "default", "name": "job", "uid": UID}}
    owners = {
        "of-another-server": str(owner_of(body, "elsewhere")),
        "of-a-namespace-not-looked-after": str(JobOwner("", "other", "job", UID)),
        "of-no-object": "",
    }
    for name, owner in owners.items():
        log.append(submission(JobId(name), parsed, "", "balanced", owner))
    log.append(submission(JobId("of-nobody"), parsed, "", "balanced", str(owner_of(body, ""))))
    killed(logs, "of-nobody")
    assert set(logs.replica().jobs) == owners.keys()


def test_a_list_that_is_refused_kills_nobody(api: FakeApi, logs: Logs, workers: Workers) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, QUICK) as operator:
        job_id = started(api)
        operator.revoke("default")
        api.faults.add(Fault(verb="watch", resource="onyxjobs", drop=True))
        api.cut()
        eventually(lambda: len(operator.doors[0].denied) > 3)
        assert job_id in logs.replica().jobs
        operator.revoke()
        with contextlib.suppress(Exception):
            api.delete("onyxjobs", "job")
        killed(logs, job_id)
