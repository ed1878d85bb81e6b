"""The webhook refuses what Kubernetes would refuse, and warns of what a job's cluster lacks.

Without it, conditions and events report the same.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from tests.operator.declaring import FAST, condition, declare, phase, started, submitted
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, chart_rights, cluster, job, settings
from tests.operator.test_admission_server import NAME, PATHS, Files
from tests.operator.test_watches import eventually
from tests.operator.workers import Workers
from tests.support.servers.ports import free_port

from onyx_operator.jobs.check import check

TYPO = {"podTemplate": {"spec": {"nodeSelektor": {"disk": "ssd"}}}, "image": "onyx-worker:1"}
UNKNOWN = "nodeSelektor"
"""Whoever allows even this leaves it to Kubernetes."""
GOOD = {"podTemplate": {"spec": {"nodeSelector": {"disk": "ssd"}}}, "image": "onyx-worker:1"}


class Guarded:
    """An operator with the webhook on; `review` sends it a review as the API server does."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self._port, self._trust = port, trust

    def review(self, body: dict[str, Any]) -> Any:
        return asyncio.run(self._post(body))["response"]

    async def _post(self, body: dict[str, Any]) -> Any:
        request = {"uid": "1", "operation": "CREATE", "object": body, "namespace": "default"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        url = f"https://127.0.0.1:{self._port}{PATHS[0]}"
        async with aiohttp.ClientSession() as client:
            for _ in range(500):
                try:
                    async with client.post(
                        url,
                        json={**review, "request": request},
                        ssl=self._trust,
                        server_hostname=NAME,
                    ) as response:
                        return await response.json()
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.02)
        raise AssertionError("no webhook listens")


@contextmanager
def guarded(api: FakeApi, folder: Path, **more: str) -> Iterator[Guarded]:
    files = Files(folder)
    port = free_port()
    found = settings(
        WEBHOOK_CERT_FILE=str(files.cert),
        WEBHOOK_KEY_FILE=str(files.key),
        WEBHOOK_HOST="127.0.0.1",
        WEBHOOK_PORT=str(port),
        **more,
    )
    trust = ssl.create_default_context()
    files.authority.configure_trust(trust)
    rights = chart_rights(spark="CLUSTERS_SPARK_ROLE" in more)
    with Operator(api, Logs().connect, found, rights=rights):
        yield Guarded(port, trust)


def test_the_operator_serves_the_webhook_when_it_has_a_certificate(
    api: FakeApi, tmp_path: Path
) -> None:
    with guarded(api, tmp_path) as webhook:
        assert webhook.review(job())["allowed"]


def test_a_typo_in_a_pod_template_is_refused_with_its_path(api: FakeApi, tmp_path: Path) -> None:
    with guarded(api, tmp_path) as webhook:
        refused = webhook.review(cluster(**TYPO))
        assert "did you mean nodeSelector?" in refused["status"]["message"]


def test_what_kubernetes_refuses_in_a_pod_template_is_refused_with_its_path(
    api: FakeApi, tmp_path: Path
) -> None:
    with guarded(api, tmp_path, CLUSTERS_POD_RIGHTS=UNKNOWN) as webhook:
        refused = webhook.review(cluster(**TYPO))
        assert not refused["allowed"]
        reported = refused["status"]["message"]
        assert "spec.podTemplate.spec.nodeSelektor: field not declared in schema" in reported
        assert webhook.review(cluster(**GOOD)) == {"uid": "1", "allowed": True}
    assert api.list("statefulsets") == []


@pytest.mark.parametrize("of", ["server", "executors"])
def test_what_kubernetes_refuses_in_a_template_of_spark_is_refused_with_its_path(
    api: FakeApi, tmp_path: Path, of: str
) -> None:
    spark_role = {"CLUSTERS_SPARK_ROLE": "Role/onyx-spark"}
    with guarded(api, tmp_path, **spark_role, CLUSTERS_POD_RIGHTS=UNKNOWN) as webhook:
        wanted = TYPO | {"podTemplate": {}}
        spark: Any = {"podTemplate": TYPO["podTemplate"]}
        path = "spec.spark.podTemplate"
        if of == "executors":
            spark, path = {"executors": spark}, "spec.spark.executors.podTemplate"
        refused = webhook.review(cluster(**wanted, spark=spark))
        assert not refused["allowed"]
        reported = refused["status"]["message"]
        assert f"{path}.spec.nodeSelektor: field not declared in schema" in reported
        assert webhook.review(cluster(**wanted, spark={})) == {"uid": "1", "allowed": True}
    assert api.list("deployments") == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(verb="patch", resource="statefulsets", code=403, times=0),
        Fault(verb="patch", resource="statefulsets", code=503, times=0),
        Fault(verb="patch", resource="statefulsets", delay_s=2.0, times=0),
    ],
    ids=["refused", "away", "slow"],
)
def test_an_api_server_that_does_not_say_is_a_warning(
    api: FakeApi, tmp_path: Path, fault: Fault
) -> None:
    api.faults.add(fault)
    more = {"KUBE_READ_TIMEOUT_S": "0.5", "CLUSTERS_POD_RIGHTS": UNKNOWN}
    with guarded(api, tmp_path, **more) as webhook:
        answer = webhook.review(cluster(**TYPO))
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert warning.startswith("spec.podTemplate: could not be tried")


def test_a_job_is_warned_of_what_its_cluster_has_not(api: FakeApi, tmp_path: Path) -> None:
    with guarded(api, tmp_path) as webhook:
        eventually(lambda: "no OnyxCluster onyx" in str(webhook.review(job())))
        api.create(cluster(modules=["flights"]))
        eventually(lambda: "warnings" not in webhook.review(job()))
        one = {"name": "one", "type": "function", "fn": "flight.tasks:parse", "batchSize": 10}
        spec = job()["spec"]
        catalog = [*spec["catalog"], one]
        edges = [["read", "one"], ["one", "write"]]
        (warning,) = webhook.review(job(catalog=catalog, workflow=edges))["warnings"]
    assert "spec.catalog[2].fn: OnyxCluster onyx offers no functions of flight.tasks" in warning
    assert "(it has flights)" in warning


def test_a_cluster_is_warned_of_another_one_that_has_its_tenancy(
    api: FakeApi, tmp_path: Path
) -> None:
    api.create(cluster(tenancyId="shared"))
    with guarded(api, tmp_path) as webhook:
        api.wait_for("onyxclusters", "onyx", lambda found: found["status"]["tenancyId"])
        found = webhook.review(cluster("second", tenancyId="shared"))
        other = webhook.review(cluster("third", tenancyId="other"))
    (warning,) = found["warnings"]
    assert found["allowed"]
    assert "spec.tenancyId" in warning
    assert "belongs to OnyxCluster default/onyx" in warning
    assert "belongs to" not in str(other)


def test_a_module_in_a_listed_package_is_offered() -> None:
    one = {"name": "one", "type": "function", "fn": "flights.tasks:parse", "batchSize": 10}
    body = job(
        catalog=[*job()["spec"]["catalog"], one], workflow=[["read", "one"], ["one", "write"]]
    )
    assert check(body, cluster(modules=["flights"])) == []
    assert check(body, cluster(modules=["flights.tasks"])) == []
    assert len(check(body, cluster(modules=["flight"]))) == 1
    assert len(check(body, cluster())) == 1


STAGE = {"name": "sums", "type": "output", "plugin": "spark",
         "options": {"path": "out/sums", "stage": "sums:sums"}}  # fmt: skip
DATA = {"claimName": "shared"}


def staged() -> dict[str, Any]:
    """A job with a stage at its output."""
    read = job()["spec"]["catalog"][0]
    return job(catalog=[read, STAGE], workflow=[["read", "sums"]])


def test_a_job_is_warned_of_executors_that_would_not_see_its_files() -> None:
    modules: dict[str, Any] = {"modules": ["sums"], "spark": {}}
    (warning,) = check(staged(), cluster(**modules))
    assert warning.path == "spec.catalog[1].options.path"
    assert "executors of OnyxCluster onyx do not see" in warning.message
    assert check(staged(), cluster(**modules, data=DATA)) == []
    assert check(staged(), cluster(modules=["sums"], sparkMemory="1Gi")) == []


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (staged()["spec"], "spec.catalog[1]"),
        ({"engine": "spark"}, "spec.engine"),
    ],
)
def test_a_job_that_needs_spark_is_told_of_workers_without(spec: Any, path: str) -> None:
    (warning,) = check(job(**spec), cluster(modules=["sums"]))
    assert (warning.path, warning.message) == (path, "needs Spark, and OnyxCluster onyx runs none")
    assert "spec.sparkMemory, 1536Mi" in warning.hint
    assert "onyx-worker:VERSION-spark" in warning.hint
    assert check(job(**spec), cluster(modules=["sums"], settings={"ONYX_SPARK": "true"})) == []


def test_a_job_that_needs_spark_waits_until_the_workers_run_it(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster(modules=["sums"]))
    with Operator(api, logs.connect, FAST):
        api.create(staged())
        api.wait_for("onyxjobs", "job", phase("Pending", "ClusterUnfit"))
        assert submitted(logs) == []
        api.patch("onyxclusters", "onyx", {"spec": {"sparkMemory": "1Gi"}})
        api.wait_for("onyxjobs", "job", condition("Submitted", "True"))


def test_such_a_job_is_submitted_when_its_cluster_has_a_volume(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster(modules=["sums"], spark={"memory": "1g"}))
    with Operator(api, logs.connect, FAST):
        api.create(staged())
        found = api.wait_for("onyxjobs", "job", phase("Pending", "ClusterUnfit"))
        assert (
            "spec.catalog[1].options.path: of task sums is out/sums" in found["status"]["message"]
        )
        assert condition("Validated", "False", "ClusterUnfit")(found)
        assert submitted(logs) == []
        api.patch("onyxclusters", "onyx", {"spec": {"data": DATA}})
        api.wait_for("onyxjobs", "job", condition("Submitted", "True"))
    assert len(submitted(logs)) == 1


def test_an_edit_to_such_a_job_does_not_stop_the_one_that_runs(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster(modules=["sums"], spark={"memory": "1g"}))
    with Operator(api, logs.connect, FAST):
        job_id = started(api)
        declare(api, **{key: staged()["spec"][key] for key in ("catalog", "workflow")})
        found = api.wait_for("onyxjobs", "job", phase("Running", "ClusterUnfit"))
        assert "the job of the previous spec goes on" in found["status"]["message"]
        assert submitted(logs) == [job_id]
        assert logs.commands("drain-job") == logs.commands("kill-job") == []


def test_a_job_beyond_the_quotas_of_its_cluster_waits_for_more(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    asks = {**job(), "spec": {**job()["spec"], "priority": 5}}
    (warning,) = check(asks, cluster(quotas={"priority": 4}, modules=["tasks"]))
    assert warning.path == "spec.priority"
    api.create(cluster(quotas={"priority": 4}))
    with Operator(api, logs.connect, FAST):
        api.create(asks)
        found = api.wait_for("onyxjobs", "job", phase("Pending", "ClusterUnfit"))
        assert "spec.priority: is 5" in found["status"]["message"]
        assert submitted(logs) == []
        api.patch("onyxclusters", "onyx", {"spec": {"quotas": {"priority": 5}}})
        api.wait_for("onyxjobs", "job", condition("Submitted", "True"))


def test_what_kubernetes_refuses_is_told_in_conditions_and_in_one_warning(
    api: FakeApi, logs: Logs
) -> None:
    api.create(cluster(**TYPO))
    chosen = replace(FAST, clusters=replace(FAST.clusters, pod_rights=(UNKNOWN,)))
    with Operator(api, logs.connect, chosen):
        found = api.wait_for("onyxclusters", "onyx", lambda each: each["status"]["conditions"])
        eventually(lambda: len(warnings(api)) > 0)
    conditions = {each["type"]: each for each in found["status"]["conditions"]}
    for each in (conditions["Reconciled"], conditions["Ready"]):
        assert each["status"] == "False"
        assert "spec.podTemplate.spec.nodeSelektor: field not decl" in each["message"]
    (event,) = warnings(api)
    assert event["reason"] == "ApplyFailed"


def warnings(api: FakeApi) -> list[Any]:
    return [each for each in api.list("events") if each["type"] == "Warning"]
