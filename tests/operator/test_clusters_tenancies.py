"""Two OnyxClusters that ask for one log: the whole operator, a fake API server, logs in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.operator.declaring import FAST, condition, phase, started
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.test_clusters_operator import eventually, message, says
from tests.operator.workers import Workers

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("leftovers_collected"),
]
SHARED = {"tenancyId": "shared"}


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def operator(api: FakeApi, logs: Logs) -> Iterator[Operator]:
    with Operator(api, logs.connect, FAST) as running:
        yield running


@pytest.fixture
def workers(logs: Logs) -> Iterator[Workers]:
    with Workers(logs.log("shared")) as running:
        yield running


def refused(api: FakeApi, name: str = "second") -> Any:
    return api.wait_for("onyxclusters", name, says("Ready", "False", "TenancyTaken"))


def two(api: FakeApi) -> None:
    """The first has the log, the second is refused."""
    api.create(cluster(**SHARED))
    api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
    api.create(cluster("second", **SHARED))
    refused(api)


def test_the_second_is_refused_and_takes_over_when_the_first_is_gone(
    api: FakeApi, operator: Operator
) -> None:
    two(api)
    found = refused(api)
    assert says("Reconciled", "False", "TenancyTaken")(found)
    assert "belongs to OnyxCluster default/onyx" in message(found, "Reconciled")
    assert found["status"]["tenancyHolder"] == "default/onyx"
    assert api.get("statefulsets", "second-worker") is None
    eventually(lambda: any(each["reason"] == "TenancyTaken" for each in api.list("events")))
    operator.kill()
    eventually(lambda: len(operator.doors) == 2)
    api.patch("onyxclusters", "second", {"metadata": {"labels": {"looked": "again"}}})
    refused(api)
    assert api.get("statefulsets", "second-worker") is None
    api.delete("onyxclusters", "onyx")

    taken = api.wait_for("onyxclusters", "second", says("Reconciled", "True"))
    assert "tenancyHolder" not in taken["status"]
    assert api.get("statefulsets", "second-worker") is not None


def test_the_end_of_the_refused_one_changes_nothing_for_the_first(
    api: FakeApi, logs: Logs, operator: Operator, workers: Workers
) -> None:
    two(api)
    job_id = started(api)
    api.create(job("other", clusterRef="second"))
    waiting = api.wait_for("onyxjobs", "other", phase("Pending", "ClusterRefused"))
    assert "kubectl describe oc/second" in waiting["status"]["message"]
    before = api.get("onyxjobs", "job")
    written = len(logs.commands(tenancy="shared"))
    api.delete("onyxclusters", "second")
    api.wait_for("onyxjobs", "other", phase("Pending", "ClusterNotFound"))
    api.delete("onyxjobs", "other")
    api.patch("onyxclusters", "onyx", {"metadata": {"labels": {"looked": "again"}}})

    workers.finish(job_id)
    done = api.wait_for("onyxjobs", "job", phase("Completed"))
    assert before is not None
    assert done["status"]["jobId"] == before["status"]["jobId"] == job_id
    assert [each.NAME for each in logs.commands(tenancy="shared")[written:]].count("kill-job") == 0


def test_jobs_of_the_first_go_on_under_the_second_and_say_so(
    api: FakeApi, logs: Logs, operator: Operator, workers: Workers
) -> None:
    two(api)
    job_id = started(api)
    api.delete("onyxclusters", "onyx")
    found = api.wait_for("onyxjobs", "job", condition("ClusterReady", "True", "TakenOver"))
    assert (found["status"]["phase"], found["status"]["peers"]["allocated"] > 0) == (
        "Running",
        True,
    )
    api.patch("onyxjobs", "job", {"spec": {"restartNonce": 1}})
    api.wait_for("onyxjobs", "job", lambda each: "nothing new" in each["status"]["message"])
    assert len(logs.commands("submit-job", "shared")) == 1, "it is not the cluster that it names"
    assert logs.commands("drain-job", "shared") == []
    api.delete("onyxjobs", "job")

    eventually(lambda: [each.job for each in logs.commands("kill-job", "shared")] == [job_id])
