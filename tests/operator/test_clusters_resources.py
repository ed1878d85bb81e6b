"""The objects of a worker pool are what Kubernetes takes, and what we have looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from msgspec.structs import replace
from tests.operator.clusters import CODE, SIDECAR, SMALL, SPARK, WHOLE, pool

from onyx.model.cluster import SET_BY_OPERATOR, SPARK_SET_BY_OPERATOR
from onyx.settings import Settings, from_environment, variables
from onyx_operator.clusters.pool import Pool, code_of
from onyx_operator.clusters.resources import children, trials
from onyx_operator.settings import OperatorSettings

GOLDEN = Path(__file__).parent / "golden"
POOLS = {"small": pool(), "whole": pool(WHOLE, CODE), "spark": pool(SPARK, CODE)}
EACH = pytest.mark.parametrize("name", POOLS)
KUBERNETES_VERSIONS = ("1.29", "1.37")


class Plain(yaml.SafeDumper):
    """Without anchors, to be read by people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def objects(of: Pool) -> list[dict[str, Any]]:
    return [
        {"apiVersion": each.resource.api_version, "kind": each.resource.kind, **each.body}
        for each in children(of)
    ]


def of_kind(of: Pool, kind: str) -> dict[str, Any]:
    return next(each for each in objects(of) if each["kind"] == kind)


def pod(of: Pool) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind(of, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def worker(of: Pool) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in pod(of)["containers"] if each["name"] == "worker")
    return found


def values(of: Pool) -> dict[str, str]:
    return {each["name"]: each["value"] for each in worker(of)["env"] if "value" in each}


@EACH
def test_the_objects_are_those_that_we_have_looked_at(name: str) -> None:
    """After a change on purpose: write the text to the file, and read the difference."""
    text = yaml.dump_all(objects(POOLS[name]), Dumper=Plain, sort_keys=False, width=100)

    assert text == (GOLDEN / f"cluster-{name}.yaml").read_text()


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@EACH
def test_kubernetes_takes_every_object(name: str, version: str) -> None:
    for each in objects(POOLS[name]):
        kubernetes_validate.validate(each, version, strict=True)


def test_pods_are_restricted() -> None:
    """What the Pod Security standard `restricted` asks for, and a read-only root."""
    spec, container = pod(pool()), worker(pool())

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert {kind for each in spec["volumes"] for kind in each} <= {
        "name", "emptyDir", "secret", "configMap", "persistentVolumeClaim",
    }  # fmt: skip


@EACH
def test_a_worker_understands_its_variables(name: str) -> None:
    of = POOLS[name]
    given = values(of)
    settings = from_environment(given)

    assert settings.tenancy_id == of.tenancy_id
    assert settings.zookeeper.address == of.zookeeper_address
    assert settings.modules == of.cluster.modules
    assert settings.transport.port == "7700-7763"
    assert settings.telemetry.metrics_port == 9600
    assert settings.leave_timeout_s < of.cluster.termination_grace_period_seconds
    assert {each for each in given if each.startswith("ONYX_")} <= set(variables())


def test_a_tenancy_with_an_account_has_it_in_a_secret_that_only_its_workers_mount() -> None:
    def of(**changes: Any) -> tuple[Pool, str]:
        found = replace(POOLS["spark"], draws_account=True, **changes)
        return found, found.account_secret

    owned, secret = of()
    drawn = next(each for each in objects(owned) if each["metadata"]["name"] == secret)
    assert (drawn["kind"], drawn["type"]) == ("Secret", "onyx.dev/zookeeper-account")
    assert "data" not in drawn, "a plan holds no password"
    assert {
        "name": "zookeeper-account",
        "secret": {"secretName": secret, "defaultMode": 0o440},
    } in (pod(owned)["volumes"])
    kinds = [json.dumps(each) for each in objects(owned) if each["kind"] == "Deployment"]
    assert not [each for each in kinds if secret in each], "Spark needs none"
    given = {each["name"]: each for each in worker(owned)["env"]}
    user = {"secretKeyRef": {"name": secret, "key": "user"}}
    assert given["ONYX_ZOOKEEPER_AUTH_USER"]["valueFrom"] == user
    assert given["ONYX_ZOOKEEPER_CLOSE_ROOT"]["value"] == "never"
    assert of(tenancy_id="team.other")[1] != secret, "what is there once is never changed"
    assert not POOLS["spark"].account_secret


def test_every_variable_occurs_once_and_the_owners_override_what_follows_from_other_keys() -> None:
    names = [each["name"] for each in worker(POOLS["whole"])["env"]]

    assert len(names) == len(set(names))
    assert values(POOLS["whole"])["ONYX_TELEMETRY_LOG_FORMAT"] == "text"
    assert values(POOLS["whole"])["ONYX_LEAVE_TIMEOUT_S"] == "30"


def test_what_the_operator_sets_is_what_validation_refuses_to_others() -> None:
    whole = {each["name"] for each in worker(POOLS["whole"])["env"]}
    small = {each["name"] for each in worker(POOLS["small"])["env"]}

    assert SET_BY_OPERATOR.keys() - {"ONYX_PEERS", "ONYX_PROCESSES"} <= whole
    follow = {
        "ONYX_LEAVE_TIMEOUT_S",
        "ONYX_SPARK",
        "ONYX_SUPERVISOR_RECORDER_FOLDER",
        "ONYX_TASK_REPORT_VALUES",
        "ONYX_TELEMETRY_LOG_FORMAT",
    }
    assert follow == small - SET_BY_OPERATOR.keys()


GIVEN = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}


def amounts(**spec: Any) -> tuple[str | None, str | None]:
    """Memory that the worker's container requests, and its limit."""
    found = worker(pool({**SMALL, **spec})).get("resources", {})
    return tuple(found.get(each, {}).get("memory") for each in ("requests", "limits"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (GIVEN, ("1Gi", "2Gi")),
        ({**GIVEN, "sparkMemory": "4Gi"}, ("5120Mi", "6144Mi")),
        ({**GIVEN, "spark": {}}, ("1536Mi", "2560Mi")),
        ({**GIVEN, "spark": {}, "sparkMemory": "1Gi"}, ("2048Mi", "3072Mi")),
        ({**GIVEN, "sparkMemory": "0"}, ("1Gi", "2Gi")),
        ({**GIVEN, "settings": {"ONYX_SPARK": "false"}}, ("1Gi", "2Gi")),
        ({**GIVEN, "env": [{"name": "ONYX_SPARK", "value": "false"}]}, ("1Gi", "2Gi")),
        ({**GIVEN, "settings": {"ONYX_SPARK": "true"}}, ("2560Mi", "3584Mi")),
        ({"resources": {"limits": {"memory": "1G"}}, "sparkMemory": "1Gi"}, (None, "2073741824")),
        ({"resources": {"requests": {"memory": 1_000}}, "sparkMemory": 24}, ("1024", None)),
        ({"resources": {"requests": {"cpu": "1"}}}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_memory_of_a_worker_counts_what_spark_takes_beside_it(
    spec: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    assert amounts(**spec) == expected


def test_workers_without_memory_for_spark_run_none() -> None:
    assert values(pool(SMALL))["ONYX_SPARK"] == "false"
    assert values(pool({**SMALL, "sparkMemory": "0"}))["ONYX_SPARK"] == "false"
    assert "ONYX_SPARK" not in values(pool({**SMALL, "spark": {}}))
    assert "ONYX_SPARK" not in values(pool({**SMALL, "sparkMemory": "1Gi"}))
    wanted = {**SMALL, "sparkMemory": "0", "settings": {"ONYX_SPARK": "true"}}
    assert values(pool(wanted))["ONYX_SPARK"] == "true"


def test_scratch_space_has_the_limit_of_the_disk_that_a_worker_may_use() -> None:
    def scratch(**spec: Any) -> Any:
        volumes = pod(pool({**SMALL, **spec}))["volumes"]
        return next(each["emptyDir"] for each in volumes if each["name"] == "tmp")

    assert scratch() == {}
    assert scratch(resources={"limits": {"ephemeral-storage": "4Gi"}}) == {"sizeLimit": "4Gi"}


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        ({}, ["--peers", "4"]),
        ({"peersPerWorker": 8, "processesPerWorker": 2}, ["--peers", "8", "--processes", "2"]),
        ({"resources": {"requests": {"cpu": "2500m"}}}, ["--peers", "8", "--processes", "2"]),
        ({"resources": {"requests": {"cpu": "100m"}}}, ["--peers", "4"]),
        ({"resources": {"requests": {"cpu": 2}}, "processesPerWorker": 1}, ["--peers", "4"]),
        ({"resources": {"requests": {"cpu": 8}}, "peersPerWorker": 1}, ["--peers", "1"]),
        ({"resources": {"requests": {"cpu": 900}}}, ["--peers", "256", "--processes", "64"]),
    ],
)
def test_peers_and_processes_follow_the_cores_that_a_worker_requests(
    spec: dict[str, Any], given: list[str]
) -> None:
    assert worker(pool({**SMALL, **spec}))["command"] == ["onyx", "worker", *given]


CLIENTS = [{"podSelector": {}}]
HTTP, GRPC = {"port": 7780}, {"port": 7700, "endPort": 7763}


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        ({}, []),
        ({"http": {}}, [{"ports": [HTTP]}]),
        ({"http": {}, "networkPolicy": {"clientsFrom": CLIENTS}},
         [{"from": CLIENTS, "ports": [HTTP]}]),
        ({"http": {}, "grpc": {}, "networkPolicy": {"clientsFrom": CLIENTS}},
         [{"from": CLIENTS, "ports": [HTTP, GRPC]}]),
        ({"grpc": {}, "networkPolicy": {"clientsFrom": CLIENTS}},
         [{"from": CLIENTS, "ports": [GRPC]}]),
        ({"http": {}, "networkPolicy": {"clientsFrom": []}}, []),
    ],
)  # fmt: skip
def test_clients_come_from_where_the_cluster_says(spec: dict[str, Any], rules: list[Any]) -> None:
    ingress = of_kind(pool({**SMALL, **spec}), "NetworkPolicy")["spec"]["ingress"]

    _, metrics, *ours = ingress
    assert metrics["ports"] == [{"port": 9600, "protocol": "TCP"}]
    for rule in ours:
        for port in rule["ports"]:
            assert port.pop("protocol") == "TCP"
    assert ours == rules


@pytest.mark.parametrize(
    ("spec", "pause", "leave_s"),
    [
        ({}, None, 45),
        ({"http": {}}, "5", 41),
        ({"grpc": {}, "networkPolicy": {"clientsFrom": CLIENTS}}, "5", 41),
        ({"http": {}, "terminationGracePeriodSeconds": 8}, "2", 4),
        ({"http": {}, "terminationGracePeriodSeconds": 2}, None, 1),
    ],
)
def test_a_worker_waits_for_the_nodes_to_hear_of_its_end(
    spec: dict[str, Any], pause: str | None, leave_s: int
) -> None:
    of = pool({**SMALL, **spec})

    hook = worker(of).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
    assert hook == (None if pause is None else ["sleep", pause])
    assert values(of)["ONYX_LEAVE_TIMEOUT_S"] == str(leave_s)


def test_workers_dial_each_other_by_a_name_that_a_certificate_can_carry() -> None:
    assert values(POOLS["whole"])["ONYX_TLS_SERVER_NAME"] == "fleet-worker.team.svc"


def test_files_of_code_are_modules_by_their_dots() -> None:
    assert code_of(CODE).paths == {
        "a-b.py": "a-b.py",
        "app.py": "app.py",
        "data.csv": "data.csv",
        "flights.tasks.py": "flights/tasks.py",
    }


def test_other_code_replaces_the_pods_and_the_same_code_does_not() -> None:
    def template(text: str) -> Any:
        code = {"metadata": CODE["metadata"], "data": {"flights.py": text}}
        return of_kind(pool(WHOLE, code), "StatefulSet")["spec"]["template"]

    assert template("a = 1") == template("a = 1")
    assert template("a = 1") != template("a = 2")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("networkPolicy", "NetworkPolicy"),
        ("podDisruptionBudget", "PodDisruptionBudget"),
    ],
)
def test_what_is_switched_off_is_not_made(key: str, kind: str) -> None:
    kinds = {each["kind"] for each in objects(pool({**SMALL, key: {"enabled": False}}))}

    assert kinds == {
        "ServiceAccount", "Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet",
    } - {kind}  # fmt: skip


@pytest.mark.parametrize(
    ("account", "used", "made"),
    [
        ({}, "fleet-worker", ["fleet-worker"]),
        ({"name": "mine"}, "mine", ["mine"]),
        ({"create": False, "name": "mine"}, "mine", []),
        ({"create": False}, "default", []),
    ],
)
def test_the_account_is_the_one_that_was_asked_for(
    account: dict[str, Any], used: str, made: list[str]
) -> None:
    of = pool({**SMALL, "serviceAccount": account})

    assert pod(of)["serviceAccountName"] == used
    accounts = [each for each in objects(of) if each["kind"] == "ServiceAccount"]
    assert [each["metadata"]["name"] for each in accounts] == made


def test_a_template_cannot_take_the_labels_by_which_pods_are_found() -> None:
    labels = {"onyx.dev/cluster": "other", "app.kubernetes.io/component": "spy", "team": "data"}
    of = pool({**SMALL, "podTemplate": {"metadata": {"labels": labels}}})

    found = of_kind(of, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert found["team"] == "data"
    assert of.selector.items() <= found.items()


def test_names_and_labels_fit_even_for_the_longest_name() -> None:
    of = pool(name="a" * 45)

    assert len(of.name) <= 63 - len("-0123456789")  # pods are labelled with name and revision
    assert all(len(value) <= 63 for value in of.labels.values())


def test_operator_settings_have_room_for_a_default_image() -> None:
    assert OperatorSettings().clusters.worker_image == ""
    assert OperatorSettings().engine == Settings()


def spark_files(of: Pool = POOLS["spark"]) -> tuple[dict[str, str], dict[str, Any]]:
    """Spark's settings, and the template of its executors."""
    data = next(each["data"] for each in objects(of) if each["kind"] == "ConfigMap")
    lines = (line.split(" ", 1) for line in data["spark.properties"].splitlines())
    return dict(lines), json.loads(data["executor.json"])


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_takes_the_template_of_executors(version: str) -> None:
    _, executor = spark_files()
    kubernetes_validate.validate(executor, version, strict=True)


def test_what_spark_needs_is_what_validation_refuses_to_others() -> None:
    found, _ = spark_files()
    of_its_own = {
        "spark.kubernetes.executor.deleteOnTermination",
        "spark.metrics.conf.*.sink.prometheusServlet.class",
        "spark.metrics.conf.*.sink.prometheusServlet.path",
        "spark.metrics.namespace",
        "spark.sql.execution.arrow.pyspark.enabled",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        "spark.ui.killEnabled",
        "spark.ui.prometheus.enabled",
    }
    at_start = {
        "spark.kubernetes.driver.pod.name",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.connect.authenticate.token",
    }
    with_policy = {"spark.kubernetes.container.image.pullPolicy"}
    assert found.keys() - of_its_own == SPARK_SET_BY_OPERATOR.keys() - at_start - with_policy
    assert found["spark.sql.shuffle.partitions"] == "64"
    assert found["spark.ui.killEnabled"] == "false"
    assert (found["spark.executor.memory"], found["spark.executor.instances"]) == ("4g", "3")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("64", "64"),
        (r"(?i)secret|pw\d+", r"(?i)secret|pw\\d+"),
        ("1\nspark.master local\r2", r"1\nspark.master local\r2"),
        (" indented", r"\ indented"),
        ("=1", r"\=1"),
        ("a = b # c", "a = b # c"),
        ("", ""),
    ],
)
def test_a_setting_of_spark_is_written_as_java_reads_it(value: str, written: str) -> None:
    spark = {**SPARK["spark"], "conf": {"spark.redaction.regex": value}}
    found, _ = spark_files(pool({**SPARK, "spark": spark}, CODE))
    assert found["spark.redaction.regex"] == written
    assert found.keys() == spark_files()[0].keys() | {"spark.redaction.regex"}


def test_server_and_executors_see_what_workers_see() -> None:
    _, executor = spark_files()
    server = of_kind(POOLS["spark"], "Deployment")["spec"]["template"]["spec"]
    ours = {"name", "mountPath"}
    mounted = worker(POOLS["spark"])["volumeMounts"]
    shared = [{key: each[key] for key in ours} for each in mounted if each["name"] != "spark-token"]
    for each in (server, executor["spec"]):
        found = [{key: m[key] for key in ours} for m in each["containers"][0]["volumeMounts"]]
        assert all(mount in found for mount in shared)
        assert each["containers"][0]["image"] == worker(POOLS["spark"])["image"]
        assert each["securityContext"] == pod(POOLS["spark"])["securityContext"]
    address = values(POOLS["spark"])["ONYX_SPARK_MASTER"]
    assert address == "sc://fleet-spark.team.svc:15002"


def test_server_and_executors_have_the_credentials_that_workers_have() -> None:
    secret = {"secretRef": {"name": "onyx-s3"}}
    given = {
        "env": [
            {"name": "AWS_ENDPOINT_URL", "value": "https://minio:9000"},
            {"name": "PYTHONPATH", "value": "/own"},
        ],
        "envFrom": [secret],
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:onyx"}},
    }
    of = pool({**SPARK, **given}, CODE)
    _, executor = spark_files(of)
    for template in (of_kind(of, "Deployment")["spec"]["template"], executor):
        (container,) = template["spec"]["containers"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        variables.pop("ONYX_SPARK_TOKEN_FILE", None)
        assert variables == {
            "ONYX_POD_NAME": None,
            "ONYX_POD_IP": None,
            "AWS_ENDPOINT_URL": "https://minio:9000",
            "PYTHONPATH": "/own",
        }
        assert container["envFrom"] == [secret]
    accounts = [each["metadata"] for each in objects(of) if each["kind"] == "ServiceAccount"]
    assert {each["name"] for each in accounts} == {"fleet-worker", "fleet-spark"}
    assert {each["annotations"]["eks.amazonaws.com/role-arn"] for each in accounts} == {"arn:onyx"}


def test_server_and_workers_have_the_token_of_the_server_and_executors_have_not() -> None:
    of = pool({**SPARK, "env": [{"name": "ONYX_SPARK_TOKEN_FILE", "value": "/own"}]}, CODE)
    _, executor = spark_files(of)
    server = of_kind(of, "Deployment")["spec"]["template"]["spec"]
    (secret,) = (each for each in objects(of) if each["kind"] == "Secret")
    assert "data" not in secret, "it is drawn when the Secret is made"
    for each in (server, pod(POOLS["spark"])):
        volumes = {volume["name"]: volume for volume in each["volumes"]}
        assert volumes["spark-token"]["secret"]["secretName"] == secret["metadata"]["name"]
    named = [each for each in server["containers"][0]["env"] if "TOKEN" in each["name"]]
    assert named == [{"name": "ONYX_SPARK_TOKEN_FILE", "value": "/etc/onyx/spark-token/token"}]
    assert values(POOLS["spark"])["ONYX_SPARK_TOKEN_FILE"] == "/etc/onyx/spark-token/token"
    assert "spark-token" not in str(executor)
    elsewhere = {"settings": {"ONYX_SPARK_MASTER": "sc://spark.elsewhere:15002"}}
    assert "ONYX_SPARK_TOKEN_FILE" not in values(pool({**SPARK, **elsewhere}, CODE))


PLACED = {
    "metadata": {"labels": {"team": "data"}, "annotations": {"note": "seen"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "containers": [
            {"name": "spark", "volumeMounts": [{"name": "extra", "mountPath": "/extra"}]},
            SIDECAR,
        ],
        "volumes": [{"name": "extra", "emptyDir": {}}],
    },
}


@pytest.mark.parametrize("place", ["server", "executor"])
def test_pods_of_spark_go_where_their_template_says(place: str) -> None:
    given = {"podTemplate": PLACED} if place == "server" else {"executors": {"podTemplate": PLACED}}
    of = pool({**SPARK, "spark": given}, CODE)
    found = {
        "server": of_kind(of, "Deployment")["spec"]["template"],
        "executor": spark_files(of)[1],
    }
    chosen, other = found.pop(place), found.popitem()[1]
    for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert chosen["spec"][key] == PLACED["spec"][key]  # type: ignore[index]
        assert key not in other["spec"]
    assert [each["name"] for each in chosen["spec"]["containers"]] == ["spark", "logs"]
    assert "/extra" in [
        each["mountPath"] for each in chosen["spec"]["containers"][0]["volumeMounts"]
    ]
    assert "/tmp" in [each["mountPath"] for each in chosen["spec"]["containers"][0]["volumeMounts"]]
    assert chosen["metadata"]["labels"].items() >= {"team": "data", "onyx.dev/spark": place}.items()
    stubborn = {"metadata": {"labels": {"onyx.dev/spark": "none"}}}
    again = pool({**SPARK, "spark": {"podTemplate": stubborn}}, CODE)
    template = of_kind(again, "Deployment")["spec"]
    assert template["template"]["metadata"]["labels"].items() >= (
        template["selector"]["matchLabels"].items()
    )


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_is_asked_about_all_pods(version: str) -> None:
    asked = {each.pods_key: each for each in trials(POOLS["spark"])}
    assert [*asked] == ["spec.spark.podTemplate", "spec.podTemplate",
                        "spec.spark.executors.podTemplate"]  # fmt: skip
    for each in asked.values():
        body = {"apiVersion": "apps/v1", "kind": each.resource.kind, **each.body}
        kubernetes_validate.validate(body, version, strict=True)


def test_nothing_of_spark_is_taken_for_a_worker() -> None:
    of = POOLS["spark"]
    _, executor = spark_files()
    server = of_kind(of, "Deployment")["spec"]["template"]
    for each in (server, executor):
        assert not of.selector.items() <= each["metadata"]["labels"].items()
        assert of.spark_selector().items() <= each["metadata"]["labels"].items()


def test_other_settings_of_spark_replace_its_server() -> None:
    def template(conf: dict[str, str]) -> Any:
        spark = {**SPARK["spark"], "conf": conf}
        return of_kind(pool({**SPARK, "spark": spark}, CODE), "Deployment")["spec"]["template"]

    assert template({}) == template({})
    assert template({}) != template({"spark.sql.shuffle.partitions": "2"})
