"""The status of a cluster says what is, and why it is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from tests.operator.clusters import CODE, OPERATOR, SMALL, SPARK, WHOLE, cluster, pool

from onyx.log.tenancy import Usage
from onyx.model.crd import cluster as crd_cluster
from onyx.reports.deaths import Death, DeathCause
from onyx.settings import Settings, ZooKeeperSettings
from onyx_operator.clusters.observed import ClusterObservation, ExistingObject
from onyx_operator.clusters.plan import ClusterPlan, plan
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.spec import ClusterRefusal, deleting, read_spec, taken
from onyx_operator.clusters.status import news, status
from onyx_operator.kube import DEPLOYMENTS
from onyx_operator.logs.state import Trouble
from onyx_operator.settings import ClusterSettings, OperatorSettings
from onyx_operator.work_queue import ObjectKey

NOW_S = 1_795_262_400.0
NOW, LATER = "2026-11-21T12:00:00Z", "2026-11-21T12:05:00Z"


def workers(count: int = 2, seen: bool = True, **reported: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "fleet-worker", "generation": 4},
        "spec": {"replicas": count},
        "status": {"observedGeneration": 4 if seen else 3, **reported},
    }


def all_ready(count: int) -> dict[str, int]:
    return {"replicas": count, "readyReplicas": count, "updatedReplicas": count}


def pod(name: str, **reported: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": reported}


def reported(
    wanted: Pool | ClusterRefusal,
    workers: Mapping[str, Any] | None,
    pods: Sequence[Mapping[str, Any]] = (),
    of: Mapping[str, Any] | None = None,
    now_s: float = NOW_S,
) -> dict[str, Any]:
    seen = ClusterObservation(of or cluster(), wanted, now_s, (), workers, pods)
    return status(seen, ClusterPlan(trouble=wanted if isinstance(wanted, ClusterRefusal) else None))


def condition(found: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    each = next(each for each in found["conditions"] if each["type"] == name)
    return each["status"], each["reason"], each["message"]


def test_a_cluster_whose_workers_are_all_ready() -> None:
    found = reported(pool(), workers(**all_ready(2)))

    assert found == {
        "observedGeneration": 1,
        "tenancyId": "team.fleet",
        "zookeeperAddress": "zk:2181",
        "peers": 8,
        "replicas": 2,
        "readyReplicas": 2,
        "updatedReplicas": 2,
        "selector": "app.kubernetes.io/component=worker,app.kubernetes.io/name=onyx,"
        "onyx.dev/cluster=fleet",
        "conditions": found["conditions"],
    }
    assert condition(found, "Reconciled")[:2] == ("True", "Applied")
    assert condition(found, "Ready") == ("True", "WorkersReady", "2 of 2 workers are ready")


def test_the_schema_has_every_key_and_condition_that_is_written() -> None:
    found = reported(pool(), workers(**all_ready(2)))
    refused = reported(taken(pool(), ObjectKey("team", "first")), None)
    version = crd_cluster.definition()["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["status"]

    assert found.keys() | refused.keys() == schema["properties"].keys()
    shown = yaml.safe_dump(schema["properties"]["conditions"])
    assert all(each["type"] in shown for each in found["conditions"])


@pytest.mark.parametrize(
    ("of", "reason", "message"),
    [
        (None, "NoWorkers", "StatefulSet is not there yet"),
        (workers(seen=False, **all_ready(2)), "Updating", "has not seen the last change"),
        (workers(replicas=2), "WorkersStarting", "0 of 2 workers are ready"),
        (workers(replicas=1), "WorkersStarting", "kubectl describe statefulset fleet-worker"),
        (
            workers(2, **all_ready(2) | {"updatedReplicas": 1}),
            "Updating",
            "2 of 2 workers are ready, 1 are up to date",
        ),
    ],
)
def test_why_a_cluster_is_not_ready(of: Any, reason: str, message: str) -> None:
    found = condition(reported(pool(), of), "Ready")

    assert found[:2] == ("False", reason)
    assert message in found[2]


def test_a_cluster_without_workers_names_what_keeps_them_away() -> None:
    failed = ClusterRefusal("ApplyFailed", "StatefulSet fleet-worker: 422 Invalid: no such field")
    found = status(ClusterObservation(cluster(), pool(), NOW_S), ClusterPlan(trouble=failed))

    assert condition(found, "Ready") == ("False", failed.reason, failed.message)
    assert [each.reason for each in news({}, found)] == ["ApplyFailed"]


@pytest.mark.parametrize(
    ("held", "expected"),
    [(0, ("True", "Room")), (799, ("True", "Room")), (800, ("False", "TenancyFull"))],
)
def test_a_tenancy_that_is_nearly_full_is_reported(held: int, expected: tuple[str, str]) -> None:
    seen = ClusterObservation(cluster(), pool(), NOW_S, usage=Usage(held, 1_000, 10))
    unknown = ClusterObservation(cluster(), pool(), NOW_S, usage=Usage(None, 1_000, 10))

    assert condition(status(seen, ClusterPlan()), "HasRoom")[:2] == expected
    names = {each["type"] for each in status(unknown, ClusterPlan())["conditions"]}
    assert "HasRoom" not in names


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (None, ("True", "Connected", "its log is followed")),
        (
            Trouble("LogUnreachable", "no answer; zk-0 says: disk full: 0 bytes", "DiskFull"),
            (
                "False",
                "DiskFull",
                "no answer; zk-0 says: disk full: 0 bytes; jobs go on when it is there again",
            ),
        ),
        (
            Trouble("TooManyClusters", "100 logs are followed already"),
            ("Unknown", "TooManyClusters", "100 logs are followed already"),
        ),
    ],
)
def test_whether_zookeeper_is_reached_is_a_condition(
    trouble: Trouble | None, expected: tuple[str, str, str]
) -> None:
    seen = ClusterObservation(cluster(), pool(), NOW_S, trouble=trouble)

    assert condition(status(seen, ClusterPlan()), "ZooKeeperReachable") == expected


def test_what_workers_say_that_are_not_ready_is_told() -> None:
    seen = ClusterObservation(
        cluster(), pool(), NOW_S, (), workers(2), said=["fleet-worker-0 says: joining the cluster"]
    )

    found = condition(status(seen, ClusterPlan()), "Ready")
    assert found[1] == "WorkersStarting"
    assert "0 of 2 workers are ready; fleet-worker-0 says: joining the cluster; if" in found[2]


def test_a_worker_that_runs_again_says_how_it_ended_before() -> None:
    """Else the reason comes and goes with the back-off."""
    ended = {"terminated": {"exitCode": 2, "message": "no module named flihgts"}}
    again = {"state": {"running": {}}, "lastState": ended, "ready": False}
    pods = [pod("fleet-worker-0", containerStatuses=[again])]

    found = condition(reported(pool(), workers(2), pods), "Ready")
    assert found[1] == "WorkersFailing"
    assert "fleet-worker-0: it ended with 2: no module named flihgts" in found[2]
    recovered = [pod("fleet-worker-0", containerStatuses=[{**again, "ready": True}])]
    assert condition(reported(pool(), workers(2), recovered), "Ready")[1] == "WorkersStarting"


def test_processes_that_die_in_pods_that_go_on_are_told() -> None:
    death = Death("fleet-worker-0", 1, int(NOW_S * 1000), DeathCause.MEMORY, "SIGKILL", 9 << 20)
    seen = ClusterObservation(
        cluster(), pool(), NOW_S, (), workers(**all_ready(2)), deaths=(death,)
    )
    calm, found = reported(pool(), workers(**all_ready(2))), status(seen, ClusterPlan())

    assert condition(calm, "Stable")[:2] == ("True", "NoDeaths")
    assert condition(found, "Stable")[:2] == ("False", "OutOfMemory")
    assert "process 1 of fleet-worker-0" in condition(found, "Stable")[2]
    assert condition(found, "Ready")[0] == "True"
    (event,) = news(calm, found)
    assert (event.reason, event.warning) == ("OutOfMemory", True)


def test_a_pod_that_was_out_of_memory_says_so() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "the end"}}
    crashing = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    pods = [pod("fleet-worker-0", containerStatuses=[{"state": crashing, "lastState": ended}])]
    message = condition(reported(pool(), workers(), pods), "Ready")[2]
    assert "it ended with 137 (OOMKilled): the end" in message


def test_a_cluster_scaled_to_nothing_is_ready() -> None:
    found = reported(pool({**SMALL, "replicas": 0}), workers(0, **all_ready(0)))

    assert condition(found, "Ready")[:2] == ("True", "NoWorkersWanted")
    assert found["peers"] == 0


def test_what_keeps_pods_from_starting_is_told() -> None:
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    crashing = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    usual = {"waiting": {"reason": "ContainerCreating"}}
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    ended = {"terminated": {"exitCode": 2}}
    pods = [
        pod("fleet-worker-1", containerStatuses=[{"state": crashing, "lastState": ended}]),
        pod("fleet-worker-0", containerStatuses=[{"state": pulling}]),
        pod("fleet-worker-2", conditions=[full]),
        pod("fleet-worker-3", containerStatuses=[{"state": usual}]),
        pod("fleet-worker-4"),
        pod("fleet-worker-5", conditions=[full]),
    ]

    assert condition(reported(pool(), workers(), pods), "Ready") == (
        "False",
        "WorkersFailing",
        "0 of 2 workers are ready; fleet-worker-0: ImagePullBackOff: no such image; "
        "fleet-worker-1: CrashLoopBackOff: back-off 10s (it ended with 2); "
        "fleet-worker-2 and 1 more: Unschedulable: full",
    )


def test_what_keeps_a_container_before_the_worker_from_ending_is_said() -> None:
    waits = {"waiting": {"reason": "PodInitializing"}}
    refused = {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}
    found = pod("fleet-worker-0", initContainerStatuses=[{"state": refused}])
    found["status"]["containerStatuses"] = [{"state": waits}]

    message = condition(reported(pool(), workers(), [found]), "Ready")[2]
    assert message.endswith("fleet-worker-0: CreateContainerConfigError: no secret")


def test_what_a_worker_printed_before_it_failed_is_told() -> None:
    lines = [
        "INFO starting",
        "",
        "reading settings",
        "module flights:",
        "  error: no module 'pandas'",
    ]
    ended = {"terminated": {"exitCode": 2, "message": "\n".join(lines)}}
    crashing = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    pods = [
        pod("fleet-worker-0", containerStatuses=[{"state": crashing, "lastState": ended}]),
        pod("fleet-worker-1", containerStatuses=[{"state": ended}]),
        pod("fleet-worker-2", containerStatuses=[{"state": {"terminated": {"exitCode": 0}}}]),
    ]
    why = "it ended with 2: reading settings / module flights: / error: no module 'pandas'"

    message = condition(reported(pool(), workers(), pods), "Ready")[2]
    assert message == (
        f"0 of 2 workers are ready; fleet-worker-0: CrashLoopBackOff: back-off 10s ({why}); "
        f"fleet-worker-1: {why}"
    )


def test_of_what_a_worker_printed_the_end_is_told() -> None:
    ended = {"terminated": {"exitCode": 1, "message": f"{'x' * 2_000}the end"}}
    pods = [pod("fleet-worker-0", containerStatuses=[{"state": ended}])]

    message = condition(reported(pool(), workers(), pods), "Ready")[2]
    assert message.endswith("xxthe end")
    assert len(message) < 500


def test_a_pod_that_waits_for_what_only_events_tell_is_named() -> None:
    ready = {"type": "Ready", "status": "True"}
    pods = [pod("fleet-worker-1"), pod("fleet-worker-0", conditions=[ready])]

    verdict = condition(reported(pool(), workers(replicas=2), pods), "Ready")
    assert verdict[1] == "WorkersStarting"
    assert "kubectl describe pod fleet-worker-1 says why" in verdict[2]


def test_a_bad_edit_leaves_the_workers_as_they_are_and_says_so() -> None:
    before = reported(pool(), workers(**all_ready(2)))
    refused = read_spec(cluster({"replica": 3}), None, OperatorSettings())
    assert isinstance(refused, ClusterRefusal)
    found = reported(
        refused,
        workers(**all_ready(2)),
        of={**cluster({"replica": 3}, generation=2), "status": before},
    )

    verdict = condition(found, "Reconciled")
    assert verdict[:2] == ("False", "InvalidSpec")
    assert "spec.replica: is not a key of a cluster (did you mean replicas?)" in verdict[2]
    assert condition(found, "Ready")[:2] == ("False", "InvalidSpec"), "they are of another spec"
    assert condition(found, "Ready")[2].startswith("2 of 2 workers are ready, as an earlier spec")
    assert (found["observedGeneration"], found["peers"], found["tenancyId"]) == (
        2,
        8,
        "team.fleet",
    )


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    first = reported(pool(), workers())
    of = {**cluster(), "status": first}
    second = reported(pool(), workers(**all_ready(2)), of=of, now_s=NOW_S + 300)

    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert times.pop("Ready") == LATER
    assert set(times.values()) == {NOW}


def test_a_cluster_that_is_deleted_names_the_jobs_that_lose_their_workers() -> None:
    found = reported(deleting(["flights", "rides"]), workers(**all_ready(2)))

    for name in ("Reconciled", "Ready"):
        verdict = condition(found, name)
        assert verdict[:2] == ("False", "Deleting")
        assert "flights, rides" in verdict[2]


@pytest.mark.parametrize(
    ("spec", "code", "reason", "message"),
    [
        ({"image": "i"}, None, "ZooKeeperAddressMissing", "spec.zookeeper.address is missing"),
        ({"zookeeper": {"address": "zk:1"}}, None, "ImageMissing", "spec.image is missing"),
        ({"image": "i", "zookeeper": {"address": "away:1"}}, None, "ZooKeeperNotAllowed", "away:1"),
        (WHOLE, None, "CodeMissing", "ConfigMap flights-code of spec.code is not there"),
        ({"replicas": "2"}, None, "InvalidSpec", "spec.replicas"),
        ({"settings": {"ONYX_MODULES": "x"}}, None, "InvalidSpec", "use spec.modules"),
        ({**SMALL, "spark": {}}, None, "SparkRoleMissing", "spark.enabled=true"),
        (
            {**SMALL, "spark": {"conf": {"spark.executor.memory": "2g"}}},
            None,
            "InvalidSpec",
            "is set by the operator (use spec.spark.executors.memory)",
        ),
    ],
)
def test_what_is_missing_is_asked_for(
    spec: Mapping[str, Any], code: Any, reason: str, message: str
) -> None:
    rights = OPERATOR.clusters.pod_rights
    defaults = replace(OPERATOR, clusters=ClusterSettings(pod_rights=rights))
    refused = read_spec(cluster(spec), code, defaults)

    assert isinstance(refused, ClusterRefusal)
    assert refused.reason == reason
    assert message in refused.message


WITH_DEFAULTS = OperatorSettings(
    zookeeper_addresses=("zk-0:2181", "zk-1:2181"),
    tenancies=("team/flights",),
    clusters=ClusterSettings(
        worker_image="onyx-worker:2", spark_image="onyx-worker:2-spark", pod_rights=("containers",)
    ),
    engine=Settings(zookeeper=ZooKeeperSettings(address="onyx-zookeeper:2181")),
)


def test_the_operators_own_address_and_image_are_the_defaults() -> None:
    found = read_spec(cluster({}), None, WITH_DEFAULTS)

    assert not isinstance(found, ClusterRefusal)
    assert (found.zookeeper_address, found.image) == ("onyx-zookeeper:2181", "onyx-worker:2")


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        ({}, "onyx-worker:2"),
        ({"sparkMemory": "0"}, "onyx-worker:2"),
        ({"sparkMemory": "1Gi"}, "onyx-worker:2-spark"),
        ({"settings": {"ONYX_SPARK": "true"}}, "onyx-worker:2-spark"),
        ({"sparkMemory": "1Gi", "image": "mine:1"}, "mine:1"),
    ],
)
def test_a_cluster_that_runs_spark_has_the_image_with_it(spec: dict[str, Any], image: str) -> None:
    found = read_spec(cluster(spec), None, WITH_DEFAULTS)

    assert not isinstance(found, ClusterRefusal)
    assert found.image == image


def test_the_clusters_own_address_and_image_win() -> None:
    found = read_spec(cluster(WHOLE), CODE, WITH_DEFAULTS)

    assert not isinstance(found, ClusterRefusal)
    assert found.zookeeper_address == "zk-0:2181,zk-1:2181"
    assert found.image == "registry.example/onyx-worker:1.0"


SERVER = ExistingObject(DEPLOYMENTS, {"metadata": {"name": "fleet-spark"}})
ANSWERS = ExistingObject(DEPLOYMENTS, {**SERVER.body, "status": {"availableReplicas": 1}})
REFUSED = ExistingObject(
    DEPLOYMENTS,
    {**SERVER.body, "status": {"conditions": [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
         "message": "exceeded quota: pods"}]}},
)  # fmt: skip
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": "0/3 nodes are available: 3 Insufficient cpu."}  # fmt: skip


def of_spark(role: str, phase: str, name: str = "", **reported: Any) -> dict[str, Any]:
    made = pod(name or f"fleet-spark-{role}", phase=phase, **reported)
    made["metadata"]["labels"] = {"onyx.dev/spark": role}
    return made


RUN = [of_spark("executor", "Running", f"fleet-spark-exec-{n}") for n in range(3)]
WAITS = of_spark("executor", "Pending", "fleet-spark-exec-9", conditions=[UNSCHEDULABLE])
CRASHES = of_spark("server", "Running", containerStatuses=[
    {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}])  # fmt: skip
GOES = {**RUN[0], "metadata": {**RUN[0]["metadata"], "deletionTimestamp": NOW}}


@pytest.mark.parametrize(
    ("found", "pods", "verdict", "said"),
    [
        ((), [], "ServerStarting", "does not answer yet"),
        ((SERVER,), [], "ServerStarting", "kubectl describe deployment fleet-spark"),
        ((SERVER,), [CRASHES], "ServerFailing", "fleet-spark-server: CrashLoopBackOff: back-off"),
        ((REFUSED,), [], "ServerFailing", "FailedCreate: exceeded quota: pods"),
        ((ANSWERS,), [], "ExecutorsStarting", "0 of 3 executors run; if that stays so, kubectl lo"),
        ((ANSWERS,), [*RUN[1:], GOES], "ExecutorsStarting", "2 of 3 executors run"),
        ((ANSWERS,), [*RUN[1:], WAITS], "ExecutorsPending", "2 of 3 executors run, 1 Pending; fleet"
         "-spark-exec-9: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
        ((ANSWERS,), [of_spark("executor", "Pending", "e-1")], "ExecutorsStarting", "pod e-1 says"),
        ((ANSWERS,), RUN, "ServerReady", "executors: 3"),
    ],
)  # fmt: skip
def test_a_spark_server_has_a_condition_that_sees_its_pods(
    found: Any, pods: Any, verdict: str, said: str
) -> None:
    ready = workers(**all_ready(2))
    seen = ClusterObservation(cluster(SPARK), pool(SPARK, CODE), NOW_S, found, ready, (), pods)
    status_, reason, message = condition(status(seen, ClusterPlan()), "SparkReady")
    assert (reason, status_) == (verdict, "True" if verdict == "ServerReady" else "False")
    assert said in message
    assert (plan(seen).again_in_s is None) == (status_ == "True")


def test_executors_that_come_and_go_by_themselves_are_not_waited_for() -> None:
    given = {"conf": {"spark.dynamicAllocation.enabled": "true"}}
    wanted = pool({**SPARK, "spark": given}, CODE)
    for pods, expected in (((), "True"), ((WAITS,), "False")):
        seen = ClusterObservation(cluster(SPARK), wanted, NOW_S, (ANSWERS,), None, (), pods)
        assert condition(status(seen, ClusterPlan()), "SparkReady")[0] == expected


def test_a_cluster_without_spark_says_nothing_of_it() -> None:
    names = {each["type"] for each in reported(pool(), workers(**all_ready(2)))["conditions"]}
    assert names == {"Reconciled", "Ready", "Stable", "ZooKeeperReachable"}


def test_events_are_about_what_is_new() -> None:
    starting = reported(pool(), workers())
    ready = reported(pool(), workers(**all_ready(2)))
    more = reported(pool(), workers(3, **all_ready(3)))
    broken = reported(ClusterRefusal("InvalidSpec", "spec.x"), workers(**all_ready(2)))
    worse = reported(ClusterRefusal("InvalidSpec", "spec.y"), workers(**all_ready(2)))

    assert list(news({}, starting)) == []
    assert [each[0] for each in news(starting, ready)] == ["WorkersReady"]
    assert list(news(ready, more)) == []
    assert list(news(ready, broken)) == [("InvalidSpec", "spec.x", True)]
    assert list(news(broken, broken)) == []
    assert list(news(broken, worse)) == [("InvalidSpec", "spec.y", True)]


def test_a_crash_that_goes_on_is_one_event() -> None:
    def crashing(back_off: str) -> dict[str, Any]:
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}}
        pods = [pod("fleet-worker-0", containerStatuses=[{"state": state}])]
        return reported(pool(), workers(), pods)

    assert [each[0] for each in news({}, crashing("10s"))] == ["WorkersFailing"]
    assert list(news(crashing("10s"), crashing("20s"))) == []
