"""The operator keeps worker pools as their clusters say: the whole operator, a fake API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.operator.declaring import condition, phase, started
from tests.operator.fake_api.doors import Failpoint
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import (
    Logs,
    Operator,
    chart_rights,
    cluster,
    job,
    settings,
    with_account,
)
from tests.operator.workers import Workers
from tests.support.patience import WAIT_S

from onyx.client.deaths import report_death
from onyx.reports.deaths import Death, DeathCause
from onyx_operator.clusters.resources import WORKER_KINDS

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("leftovers_collected"),
]
"""A process that is killed closes nothing; here it leaves open connections to the collector."""

CHILDREN = {resource.plural for resource in WORKER_KINDS}
QUICK = settings(CLUSTERS_RESYNC_INTERVAL_S="0.1")


@pytest.fixture
def operator(api: FakeApi) -> Iterator[Operator]:
    with Operator(api, Logs().connect, QUICK) as running:
        yield running


def says(name: str, status: str, reason: str = "") -> Callable[[Any], bool]:
    """Whether an object has such a condition."""

    def holds(found: Any) -> bool:
        each = next(each for each in found["status"]["conditions"] if each["type"] == name)
        current = each["observedGeneration"] == found["metadata"]["generation"]
        return current and each["status"] == status and reason in ("", each["reason"])

    return holds


def message(found: Any, name: str) -> str:
    text: str = next(
        each["message"] for each in found["status"]["conditions"] if each["type"] == name
    )
    return text


def reconciled(api: FakeApi, **spec: Any) -> Any:
    """A cluster is made, and all that belongs to it."""
    api.create(cluster(**spec))
    return api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))


def run_workers(api: FakeApi, count: int) -> None:
    """What the controller of StatefulSets does."""
    generation = api.get("statefulsets", "onyx-worker")["metadata"]["generation"]  # type: ignore[index]
    reported = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), count)
    status = {"observedGeneration": generation, **reported}
    api.patch("statefulsets", "onyx-worker", {"status": status}, subresource="status")


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what no object shows."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not come true")


def events(api: FakeApi, name: str = "onyx") -> set[str]:
    return {each["reason"] for each in api.list("events") if each["involvedObject"]["name"] == name}


def test_a_cluster_gets_its_workers_and_says_when_they_are_ready(
    api: FakeApi, operator: Operator
) -> None:
    made = reconciled(api, replicas=3, peersPerWorker=2)
    for plural in CHILDREN:
        (found,) = api.list(plural)
        (owner,) = found["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]
        assert owner["controller"] is True
    run_workers(api, 3)

    ready = api.wait_for("onyxclusters", "onyx", says("Ready", "True"))
    assert ready["status"]["peers"] == 6
    assert ready["status"]["readyReplicas"] == 3
    assert "onyx.dev/cluster=onyx" in ready["status"]["selector"]
    eventually(lambda: {"Created", "WorkersReady"} <= events(api))


def test_scaling_the_cluster_scales_the_workers(api: FakeApi, operator: Operator) -> None:
    reconciled(api, replicas=2)
    api.patch("onyxclusters", "onyx", {"spec": {"replicas": 4}}, subresource="scale")

    api.wait_for("statefulsets", "onyx-worker", lambda found: found["spec"]["replicas"] == 4)


DRIFT: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "statefulsets": ({"spec": {"replicas": 9}}, lambda found: found["spec"]["replicas"] == 2),
    "services": (
        {"spec": {"publishNotReadyAddresses": False}},
        lambda found: found["spec"]["publishNotReadyAddresses"] is True,
    ),
    "networkpolicies": (
        {"spec": {"ingress": []}},
        lambda found: len(found["spec"]["ingress"]) == 2,
    ),
    "poddisruptionbudgets": (
        {"spec": {"maxUnavailable": 2}},
        lambda found: found["spec"]["maxUnavailable"] == 1,
    ),
    "serviceaccounts": (
        {"automountServiceAccountToken": True},
        lambda found: found["automountServiceAccountToken"] is False,
    ),
}


def test_drift_is_put_right(api: FakeApi, operator: Operator) -> None:
    reconciled(api)
    assert DRIFT.keys() == CHILDREN
    for plural, (change, _) in DRIFT.items():
        api.patch(plural, "onyx-worker", change)

    for plural, (_, mended) in DRIFT.items():
        api.wait_for(plural, "onyx-worker", mended)


def test_what_was_deleted_is_made_again(api: FakeApi, operator: Operator) -> None:
    reconciled(api)
    uids = {plural: api.list(plural)[0]["metadata"]["uid"] for plural in CHILDREN}
    for plural in CHILDREN:
        api.delete(plural, "onyx-worker")

    for plural, uid in uids.items():
        api.wait_for(plural, "onyx-worker", lambda found, uid=uid: found["metadata"]["uid"] != uid)


def test_what_is_switched_off_goes(api: FakeApi, operator: Operator) -> None:
    reconciled(api)
    off = {"enabled": False}
    spec = {"networkPolicy": off, "podDisruptionBudget": off, "serviceAccount": {"create": False}}
    api.patch("onyxclusters", "onyx", {"spec": spec})

    for plural in ("networkpolicies", "poddisruptionbudgets", "serviceaccounts"):
        api.wait_for(plural, "onyx-worker", lambda found: found is None)
    eventually(lambda: "Deleted" in events(api))


def test_a_field_that_the_spec_names_no_more_goes(api: FakeApi, operator: Operator) -> None:
    def selector(found: Any) -> Any:
        return found["spec"]["template"]["spec"].get("nodeSelector")

    reconciled(api, podTemplate={"spec": {"nodeSelector": {"disk": "ssd"}}})
    assert selector(api.get("statefulsets", "onyx-worker")) == {"disk": "ssd"}
    api.patch("onyxclusters", "onyx", {"spec": {"podTemplate": None}})

    api.wait_for("statefulsets", "onyx-worker", lambda found: not selector(found))


def looked(api: FakeApi, times: int = 2) -> None:
    """Wait until the operator has looked at its clusters so often."""
    begun = len(api.requests)

    def looks() -> int:
        return sum(
            (each.target.resource, each.target.verb) == ("statefulsets", "list")
            for each in api.requests[begun:]
        )

    eventually(lambda: looks() >= times)


def test_once_all_is_right_nothing_is_written_any_more(api: FakeApi, operator: Operator) -> None:
    spec = {"resources": {"limits": {"memory": "1024Mi"}}, "env": [{"name": "EMPTY"}]}
    reconciled(api, **spec)
    run_workers(api, 2)
    api.wait_for("onyxclusters", "onyx", says("Ready", "True"))
    looked(api)
    begun = len(api.requests)
    looked(api)

    verbs = {each.target.verb for each in api.requests[begun:]}
    assert verbs <= {"get", "list", "watch"}


MISSING = [
    pytest.param(
        {"zookeeper": {}}, "ZooKeeperAddressMissing", "spec.zookeeper.address is missing", id="zk"
    ),
    pytest.param({"code": {"configMap": "code"}}, "CodeMissing", "ConfigMap code", id="code"),
    pytest.param(
        {"settings": {"ONYX_LEGDER_ACK_INTERVAL_S": "1"}},
        "InvalidSpec",
        "spec.settings.ONYX_LEGDER_ACK_INTERVAL_S: is not a setting of a worker "
        "(did you mean ONYX_LEDGER_ACK_INTERVAL_S?)",
        id="settings",
    ),
]


@pytest.mark.parametrize(("spec", "reason", "reported"), MISSING)
def test_a_cluster_that_cannot_be_made_says_what_to_do(
    api: FakeApi, operator: Operator, spec: dict[str, Any], reason: str, reported: str
) -> None:
    api.create(cluster(**spec))
    found = api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", reason))

    assert reported in message(found, "Reconciled")
    assert reported in message(found, "Ready")
    assert api.list("statefulsets") == []
    eventually(lambda: reason in events(api))


def test_a_bad_edit_leaves_the_workers_running(api: FakeApi, operator: Operator) -> None:
    reconciled(api)
    run_workers(api, 2)
    api.wait_for("onyxclusters", "onyx", says("Ready", "True"))
    before = api.get("statefulsets", "onyx-worker")
    env = [{"name": "ONYX_MODULES", "value": "mine"}]
    api.patch("onyxclusters", "onyx", {"spec": {"env": env, "replicas": 9}})

    found = api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", "InvalidSpec"))
    assert "use spec.modules" in message(found, "Reconciled")
    assert says("Ready", "False", "InvalidSpec")(found), "they are of another spec"
    assert api.get("statefulsets", "onyx-worker") == before


def code(text: str) -> dict[str, Any]:
    metadata = {"name": "code", "namespace": "default"}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a.b.py": text}}


def test_new_code_in_a_config_map_rolls_the_workers(api: FakeApi, operator: Operator) -> None:
    def stamp(found: Any) -> str:
        annotations = found["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["onyx.dev/code"])

    api.create(cluster(code={"configMap": "code"}))
    api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", "CodeMissing"))
    api.create(code("x = 1"))
    first = stamp(api.wait_for("statefulsets", "onyx-worker", stamp))
    api.patch("configmaps", "code", {"data": {"a.b.py": "x = 2"}})

    api.wait_for("statefulsets", "onyx-worker", lambda found: stamp(found) != first)


def test_an_object_of_somebody_else_is_left_alone_and_named(
    api: FakeApi, operator: Operator
) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "onyx-worker", "namespace": "default"},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    }
    api.create(theirs)
    api.create(cluster())
    found = api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", "NameTaken"))
    assert "Service onyx-worker belongs to somebody else" in message(found, "Reconciled")
    assert len(api.list("statefulsets")) == 1
    api.delete("services", "onyx-worker")

    api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))


def test_what_the_api_server_refuses_is_told_and_the_rest_is_made(api: FakeApi) -> None:
    api.faults.add(Fault(verb="patch", resource="networkpolicies", code=403, times=0))
    with Operator(api, Logs().connect, QUICK):
        api.create(cluster())
        found = api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", "ApplyFailed"))
        assert message(found, "Reconciled").startswith("NetworkPolicy onyx-worker: 403 Forbidden")
        assert "/apis/" not in message(found, "Reconciled")
        api.wait_for("statefulsets", "onyx-worker", bool)
        api.faults.clear()

        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))


def test_deaths_of_worker_processes_are_told_of_the_job_and_of_the_cluster(api: FakeApi) -> None:
    logs = Logs()
    quick = settings(CLUSTERS_RESYNC_INTERVAL_S="0.1", JOBS_PROGRESS_INTERVAL_S="0.05")
    with Workers(logs.log()), Operator(api, logs.connect, quick):
        reconciled(api)
        job_id = started(api)
        api.wait_for("onyxclusters", "onyx", says("Stable", "True", "NoDeaths"))
        client = logs.log().client()
        for number in range(2):
            at_ms = time.time_ns() // 1_000_000 + number
            death = Death("onyx-worker-0", 1, at_ms, DeathCause.MEMORY, "SIGKILL", jobs=(job_id,))
            report_death(client, death)
        client.close()
        found = api.wait_for("onyxjobs", "job", phase("Running", "OutOfMemory"))
        assert "2 for want of memory" in found["status"]["message"]
        api.wait_for("onyxjobs", "job", condition("Advancing", "False", "OutOfMemory"))
        api.wait_for("onyxclusters", "onyx", says("Stable", "False", "OutOfMemory"))
        eventually(lambda: "OutOfMemory" in events(api, "job") & events(api))


def test_an_api_server_with_a_bad_day_delays_and_stops_nothing(api: FakeApi) -> None:
    for verb, code_ in (("list", 503), ("patch", 429), ("create", 500), ("get", 503)):
        api.faults.add(Fault(verb=verb, code=code_, skip=1, times=3))
    with Operator(api, Logs().connect, QUICK):
        reconciled(api)

    assert {plural: len(api.list(plural)) for plural in CHILDREN} == dict.fromkeys(CHILDREN, 1)


def test_all_goes_with_the_cluster_and_jobs_that_lose_it_are_told(
    api: FakeApi, operator: Operator
) -> None:
    reconciled(api)
    api.create(job("left"))
    api.create(job("elsewhere", clusterRef="other"))
    api.wait_for("onyxjobs", "left", lambda found: found["status"]["phase"])
    api.delete("onyxclusters", "onyx")

    for plural in CHILDREN:
        api.wait_for(plural, "onyx-worker", lambda found: found is None)
    eventually(lambda: "ClusterDeleted" in events(api, "left"))
    assert "ClusterDeleted" not in events(api, "elsewhere")


def test_a_cluster_that_waits_to_be_deleted_gets_nothing_made_again(
    api: FakeApi, operator: Operator
) -> None:
    reconciled(api)
    api.create(job("left"))
    api.patch("onyxclusters", "onyx", {"metadata": {"finalizers": ["test/hold"]}})
    api.delete("onyxclusters", "onyx")
    found = api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", "Deleting"))
    assert "jobs that lose their workers: left" in message(found, "Ready")
    api.delete("statefulsets", "onyx-worker")
    begun = len(api.requests)

    eventually(lambda: any(each.target.resource == "onyxjobs" for each in api.requests[begun:]))
    assert api.get("statefulsets", "onyx-worker") is None


STEPS = range(1, 12)
"""Five objects, an event about each, the status."""
FAILPOINTS = [
    *(Failpoint(step) for step in STEPS[::3]),
    *(pytest.param(Failpoint(step), marks=pytest.mark.slow) for step in STEPS if step % 3 != 1),
    Failpoint(1, True),
    Failpoint(11, True),
]
"""Before a step is as good as after the one before it."""


@pytest.mark.short(3)
@pytest.mark.parametrize("failpoint", FAILPOINTS, ids=str)
def test_an_operator_killed_at_any_write_is_followed_by_another(
    api: FakeApi, failpoint: Failpoint
) -> None:
    with Operator(api, Logs().connect, QUICK, failpoint) as operator:
        reconciled(api)
        eventually(lambda: len(operator.doors) == 2)

    assert {plural: len(api.list(plural)) for plural in CHILDREN} == dict.fromkeys(CHILDREN, 1)


def test_workers_start_when_the_operator_has_made_their_tenancy(
    api: FakeApi, tmp_path: Path
) -> None:
    """They may not make it, and who comes first owns a ZooKeeper that is open."""
    logs = Logs()
    logs.away.set()
    with Operator(api, logs.connect, with_account(QUICK, tmp_path)):
        api.create(cluster())
        said = says("Ready", "False", "LogUnreachable")
        waits = api.wait_for("onyxclusters", "onyx", said)
        assert "workers start when their tenancy is there" in message(waits, "Ready")
        (secret,) = api.list("secrets")
        assert secret["metadata"]["ownerReferences"][0]["uid"] == waits["metadata"]["uid"]
        assert api.get("services", "onyx-worker") is not None
        assert api.get("statefulsets", "onyx-worker") is None
        logs.away.clear()
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
        volumes = api.get("statefulsets", "onyx-worker")["spec"]["template"]["spec"]["volumes"]  # type: ignore[index]
        assert secret["metadata"]["name"] in str(volumes)


def test_an_account_that_is_lost_comes_again_as_it_was(api: FakeApi, tmp_path: Path) -> None:
    with Operator(api, Logs().connect, with_account(QUICK, tmp_path)):
        reconciled(api)
        (secret,) = api.list("secrets")
        api.delete("secrets", secret["metadata"]["name"])
        again = api.wait_for("secrets", secret["metadata"]["name"], bool)
        assert again["data"] == secret["data"]
    requests = {each.target.verb for each in api.requests if each.target.resource == "secrets"}
    assert requests == {"create"}, "it reads no Secret of a tenant"


def test_workers_that_have_their_account_follow_the_spec_while_the_log_is_away(
    api: FakeApi, tmp_path: Path
) -> None:
    logs = Logs()
    with Operator(api, logs.connect, with_account(QUICK, tmp_path)) as first:
        reconciled(api)
        logs.away.set()
        first.kill()
        api.patch("onyxclusters", "onyx", {"spec": {"peersPerWorker": 7}})
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
        assert "'7'" in str(api.get("statefulsets", "onyx-worker"))


def test_a_spark_server_gets_a_token_that_the_operator_never_reads(api: FakeApi) -> None:
    quick = settings(CLUSTERS_RESYNC_INTERVAL_S="0.1", CLUSTERS_SPARK_ROLE="Role/onyx-spark")
    with Operator(api, Logs().connect, quick, rights=chart_rights(spark=True)):
        made = reconciled(api, spark={})
        (secret,) = api.list("secrets")
        assert secret["metadata"]["name"] == "onyx-spark"
        assert secret["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert len(secret["data"]["token"]) > 40
        eventually(lambda: "Created" in events(api))

        api.delete("secrets", "onyx-spark")
        again = api.wait_for("secrets", "onyx-spark", lambda found: found is not None)
        assert again["data"] != secret["data"]
        kept = again["metadata"]["resourceVersion"]
        api.patch("onyxclusters", "onyx", {"spec": {"spark": {"memory": "2g"}}})
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "True"))
    (last,) = api.list("secrets")
    assert last["metadata"]["resourceVersion"] == kept
    requests = {each.target.verb for each in api.requests if each.target.resource == "secrets"}
    assert requests == {"create"}
