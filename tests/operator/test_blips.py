"""A ZooKeeper that is away for a while is no news of jobs that have ended, and a warning of others;
and objects that strain the API server are taken as they come."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.declaring import FAST, phase, started
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.test_watches import eventually
from tests.operator.workers import Workers


def test_a_job_that_has_ended_stays_as_it_is_while_the_log_is_away(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, FAST):
        workers.finish(started(api))
        ended = api.wait_for("onyxjobs", "job", phase("Completed", "Completed"))
    logs.away.set()
    with Operator(api, logs.connect, FAST):
        api.create(job("going"))
        api.wait_for("onyxjobs", "going", phase("Pending", "LogUnreachable"))
        assert api.get("onyxjobs", "job") == ended
        eventually(lambda: ("LogUnreachable", "Warning") in reported(api))


def reported(api: FakeApi) -> set[tuple[str, str]]:
    return {(each["reason"], each["type"]) for each in api.list("events")}


def test_an_edit_of_a_job_that_has_ended_waits_for_the_log(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, FAST):
        workers.finish(first := started(api))
        api.wait_for("onyxjobs", "job", phase("Completed"))
    logs.away.set()
    with Operator(api, logs.connect, FAST):
        api.patch("onyxjobs", "job", {"spec": {"catalog": job(version=20)["spec"]["catalog"]}})
        api.wait_for("onyxjobs", "job", lambda each: each["status"]["reason"] == "LogUnreachable")
        logs.away.clear()
        api.wait_for("onyxjobs", "job", lambda each: each["status"]["jobId"] != first)


def test_a_hundred_jobs_at_once_are_all_looked_after_and_all_killed(
    api: FakeApi, logs: Logs
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, FAST):
        for number in range(100):
            api.create(job(f"job-{number}"))
        for number in range(100):
            api.wait_for("onyxjobs", f"job-{number}", phase("Waiting"))
        for number in range(100):
            api.delete("onyxjobs", f"job-{number}")
        eventually(lambda: not logs.replica().jobs)
    assert len(logs.replica().killed_jobs) == 100


def test_a_job_of_900_kb_is_taken_or_told_what_is_wrong_with_it(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    def large(words: int) -> dict[str, Any]:
        catalog = job()["spec"]["catalog"]
        segments = [{"text": "x" * 60_000} for _ in range(words)]
        return job(catalog=[{**catalog[0], "options": {"segments": segments}}, catalog[1]])

    api.create(cluster())
    with Operator(api, logs.connect, FAST):
        api.create(large(15))
        found = api.wait_for("onyxjobs", "job", lambda each: each["status"]["phase"] != "Pending")
        assert found["status"]["phase"] in ("Running", "Waiting", "Submitted")


@pytest.mark.parametrize("bad", [False, True])
def test_an_object_that_is_edited_while_it_is_deleted_starts_nothing(
    api: FakeApi, logs: Logs, workers: Workers, bad: bool
) -> None:
    api.create(cluster())
    held = job()
    held["metadata"]["finalizers"] = ["test/hold"]
    with Operator(api, logs.connect, FAST):
        api.create(held)
        found = api.wait_for("onyxjobs", "job", phase("Running", "Running"))
        api.delete("onyxjobs", "job")
        catalog = [] if bad else job(version=20)["spec"]["catalog"]
        api.patch("onyxjobs", "job", {"spec": {"catalog": catalog}})
        eventually(lambda: found["status"]["jobId"] in logs.replica().killed_jobs)
        api.wait_for("onyxjobs", "job", phase("Killed", "Deleted"))
        api.patch("onyxjobs", "job", {"metadata": {"finalizers": None}})
        api.wait_for("onyxjobs", "job", lambda each: each is None)
    assert len(logs.commands("submit-job")) == 1
