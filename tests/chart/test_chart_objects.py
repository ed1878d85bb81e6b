"""The objects that the chart makes: valid for Kubernetes and for our own kinds, restricted, and
with no more rights than are used."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import celpy
import kubernetes_validate
import pytest
import yaml
from tests.support.generated.chart import (
    NAMESPACE,
    SETS,
    Object,
    named,
    objects,
    outside,
    pod_specs,
    value_set,
)

from onyx.base.structs import fields, is_struct
from onyx.cli.commands.console import console
from onyx.cli.commands.zookeeper import PORT
from onyx.model.parsing.cluster import parse_cluster
from onyx.model.parsing.job import parse_manifest
from onyx.settings import ZooKeeperServerSettings, variables
from onyx_operator.admission.server import MARK_PATH, PATHS
from onyx_operator.clusters.environment import TRANSPORT_PORT, TRANSPORT_PORT_LAST
from onyx_operator.clusters.environment import environment as worker_environment
from onyx_operator.clusters.pool import Pool, selector
from onyx_operator.clusters.spec import ClusterRefusal, read_spec
from onyx_operator.entrances import pool_name
from onyx_operator.settings import OperatorSettings, operator_settings

KUBERNETES = ("1.29", "1.37")
OF_OTHERS = {
    "cert-manager.io/v1",
    "gateway.networking.k8s.io/v1",
    "monitoring.coreos.com/v1",
    "onyx.dev/v1beta1",
}
"""Kinds that have no schema of Kubernetes."""
VOLUMES = {"configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected"}
HEALTH = "ONYX_TELEMETRY_METRICS_PORT"
EACH_SET = pytest.mark.parametrize("name", SETS)


@EACH_SET
@pytest.mark.parametrize("version", KUBERNETES)
def test_objects_are_what_kubernetes_takes(name: str, version: str) -> None:
    checked = 0
    for each in objects(value_set(name)):
        if each["apiVersion"] not in OF_OTHERS:
            kubernetes_validate.validate(each, version, strict=True)
            checked += 1

    assert checked > 10


@EACH_SET
def test_no_two_objects_have_one_name(name: str) -> None:
    found = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in objects(value_set(name))
    ]

    assert len(found) == len(set(found))


@EACH_SET
def test_the_cluster_is_one_that_the_operator_takes(name: str) -> None:
    cluster = parse_cluster(named("OnyxCluster", "onyx", value_set(name)))

    assert cluster.zookeeper.address
    assert cluster.image


def test_values_of_the_cluster_arrive_in_its_spec() -> None:
    cluster = parse_cluster(named("OnyxCluster", "onyx", value_set("shared")))

    assert cluster.replicas == 1
    assert cluster.modules == ("tasks",)
    assert cluster.code is not None
    assert cluster.code.config_map == "onyx-code"
    assert cluster.tls is not None
    assert (cluster.tls.secret_name, cluster.tls.zookeeper) == ("onyx-certificates", False)
    assert {each.name: each.value for each in cluster.env} == {
        "AWS_ENDPOINT_URL": "https://s3.example:9000",
        "AWS_REGION": "eu-central-1",
    }
    assert [each.secret_ref["name"] for each in cluster.env_from] == ["s3-credentials"]


def test_other_files_are_another_generation_of_the_cluster() -> None:
    def template(text: str) -> Object:
        values = {"cluster": {"code": {"files": {"a.py": text}}, "nodeSelector": {"gpu": "yes"}}}
        found: Object = named("OnyxCluster", "onyx", values)["spec"]["podTemplate"]
        return found

    assert template("x = 1") == template("x = 1") != template("x = 2")
    assert template("x = 1")["spec"] == {"nodeSelector": {"gpu": "yes"}}


def test_an_autoscaler_has_the_number_of_workers_to_itself() -> None:
    cluster = named("OnyxCluster", "onyx", {"cluster": {"replicas": None}})

    assert "replicas" not in cluster["spec"]


def test_the_job_of_the_test_is_valid() -> None:
    config_map = named("ConfigMap", "onyx-test")

    job = parse_manifest(config_map["data"]["job.yaml"], "job.yaml")

    assert job.name == "onyx-test"
    assert config_map["data"]["test_job.py"].startswith('"""Run small jobs')


def test_the_test_of_an_installation_with_spark_runs_a_job_there_too() -> None:
    values = {"spark": {"enabled": True}}
    jobs = named("ConfigMap", "onyx-test", values)["data"]["job.yaml"].split("\n---\n")
    engines = {job.name: job.engine for job in (parse_manifest(each, "job.yaml") for each in jobs)}
    assert engines == {"onyx-test": "peers", "onyx-test-spark": "spark"}


@EACH_SET
def test_pods_are_restricted(name: str) -> None:
    pods = pod_specs(value_set(name))

    assert {"Deployment/onyx-operator", "Pod/onyx-test"} <= pods.keys()
    for pod in pods.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 10_000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(VOLUMES & volume.keys() for volume in pod["volumes"])
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}


@EACH_SET
def test_every_pod_says_how_much_disk_it_takes(name: str) -> None:
    """What a limit does not bound a node runs out of, and evicts others. Data of a ZooKeeper
    without a volume has a limit of its own."""
    pods = dict(pod_specs(value_set(name)))
    amounts = named("OnyxCluster", "onyx", value_set(name))["spec"]["resources"]
    pods["worker"] = {"containers": [{"resources": amounts}]}
    pods |= pod_specs({"crds": {"upgrade": True}, "backup": {"enabled": True, "to": "backups"}})
    for spec in pods.values():
        for container in spec["containers"]:
            for each in ("requests", "limits"):
                assert "ephemeral-storage" in container["resources"][each], container
        scratch = [each["emptyDir"] for each in spec.get("volumes", ()) if "emptyDir" in each]
        assert all("sizeLimit" in each for each in scratch)
    bare = pod_specs({"zookeeper": {"persistence": {"enabled": False}}})
    (server,) = bare["StatefulSet/onyx-zookeeper"]["containers"]
    assert "ephemeral-storage" not in server["resources"]["limits"]


@EACH_SET
def test_no_variable_is_named_after_a_service(name: str) -> None:
    """`onyx-operator-webhook` would become ONYX_OPERATOR_WEBHOOK_PORT, which is a setting."""
    assert not any(pod["enableServiceLinks"] for pod in pod_specs(value_set(name)).values())


def test_zookeeper_has_no_access_to_the_api_server() -> None:
    assert pod_specs()["StatefulSet/onyx-zookeeper"]["automountServiceAccountToken"] is False


@EACH_SET
def test_mounts_and_volumes_fit(name: str) -> None:
    for pod in pod_specs(value_set(name)).values():
        volumes = {volume["name"] for volume in pod["volumes"]}
        mounted = {each["name"] for box in pod["containers"] for each in box["volumeMounts"]}
        assert mounted - {"data"} == volumes - {"data"}


@EACH_SET
def test_variables_of_our_pods_are_settings_that_exist(name: str) -> None:
    known = {*variables(), *settings_of(OperatorSettings(), "ONYX_OPERATOR")}
    for pod in pod_specs(value_set(name)).values():
        for each in pod["containers"][0].get("env", ()):
            assert each["name"] in known


def test_the_operator_may_do_nothing_by_wildcard() -> None:
    for name in SETS:
        rules = list(rules_of(objects(value_set(name))))
        assert rules
        for rule in rules:
            granted = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert "*" not in granted
            assert not {"pods/exec", "escalate", "bind", "impersonate"} & granted


def test_the_operator_reads_no_secret_but_those_that_it_draws() -> None:
    def of(values: Object) -> dict[str, list[str]]:
        rules = [each for each in rules_of(objects(values)) if "secrets" in each["resources"]]
        return {verb: each.get("resourceNames", []) for each in rules for verb in each["verbs"]}

    own = ["onyx-authority", "onyx-tls"]
    assert of({}) == {"create": [], "get": [*own, "onyx-zookeeper-account"], "patch": own}
    drawn = {"create": [], "get": ["onyx-console"]}
    assert of(value_set("production")) == drawn, "and accounts of tenancies"
    given = {"webhook": {"enabled": False}, "tls": {"existingSecret": "mine"}}
    assert of(given) == {"create": [], "get": ["onyx-zookeeper-account"]}
    assert of({**given, "zookeeper": {"account": False}}) == {}


def test_the_operator_tells_the_api_server_about_its_own_webhook_alone() -> None:
    hooks = "validatingwebhookconfigurations"
    rules = [each for each in rules_of(objects()) if hooks in each["resources"]]
    assert [(each["resourceNames"], each["verbs"]) for each in rules] == [
        (["onyx-onyx"], ["get", "patch", "delete"])
    ]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"clusterWide": True, "spark": {"enabled": True}},
        {"watchNamespaces": ["onyx", "team"], "spark": {"enabled": True}},
        {"webhook": {"enabled": False}, "watchNamespaces": ["onyx", "team"]},
        {"webhook": {"enabled": False}, "rbac": {"aggregate": True}},
        {"webhook": {"enabled": False}},
        {"rbac": {"create": False}},
    ],
)
def test_the_operator_knows_all_that_is_to_end_with_the_namespace(values: Object) -> None:
    listed = environment(pod_specs(values)["Deployment/onyx-operator"]).get(
        "ONYX_OPERATOR_INSTALLATION_OUTSIDE", ""
    )
    found = {
        "/".join([each["kind"], *([where] if where else []), each["metadata"]["name"]])
        for each in outside(objects(values))
        for where in [each["metadata"].get("namespace")]
    }
    if not values.get("rbac", {}).get("create", True):
        assert listed == "", "it has no right to change them"
        return
    assert set(filter(None, listed.split(","))) == found


def test_as_installed_every_wire_is_closed() -> None:
    """Without a value: TLS to and between all, accounts in ZooKeeper, and the webhook."""
    cluster = parse_cluster(named("OnyxCluster", "onyx"))
    operator = environment(pod_specs()["Deployment/onyx-operator"])
    zookeeper = environment(pod_specs()["StatefulSet/onyx-zookeeper"])

    assert cluster.tls is not None
    assert (cluster.tls.secret_name, cluster.tls.zookeeper) == ("onyx-tls", True)
    assert cluster.zookeeper.auth_secret is None, "workers have an account of their own"
    assert "ONYX_ZOOKEEPER_SERVER_TLS_KEY_FILE" in zookeeper
    assert {
        "ONYX_OPERATOR_WEBHOOK_KEY_FILE",
        "ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE",
        "ONYX_ZOOKEEPER_TLS_KEY_FILE",
    } <= operator.keys()
    assert named("ValidatingWebhookConfiguration", "onyx-onyx")


def test_the_webhook_asks_for_a_certificate_where_the_values_name_its_authorities() -> None:
    variable = "ONYX_OPERATOR_WEBHOOK_CLIENT_CA_FILE"
    pod = pod_specs({"webhook": {"clientCaConfigMap": "api-server"}})["Deployment/onyx-operator"]
    (volume,) = [each for each in pod["volumes"] if "configMap" in each]

    assert volume["configMap"]["name"] == "api-server"
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert environment(pod)[variable] == f"{mounts[volume['name']]}/ca.crt"
    assert variable not in environment(pod_specs()["Deployment/onyx-operator"])


def test_a_zookeeper_of_somebody_else_is_not_asked_for_a_certificate_of_ours() -> None:
    elsewhere = {"zookeeper": {"address": "zookeeper.shared:2181"}}
    cluster = parse_cluster(named("OnyxCluster", "onyx", elsewhere))

    assert cluster.tls is not None
    assert cluster.tls.zookeeper is False
    operator = environment(pod_specs(elsewhere)["Deployment/onyx-operator"])
    assert "ONYX_ZOOKEEPER_TLS_CA_FILE" not in operator
    given = {**elsewhere, "tls": {"existingSecret": "certificates"}}
    cluster = parse_cluster(named("OnyxCluster", "onyx", given))
    assert cluster.tls is not None
    assert cluster.tls.zookeeper is True


def test_the_account_that_the_values_name_is_one_that_the_operator_takes() -> None:
    values = {"cluster": {"serviceAccount": {"create": False, "name": "mine"}}}
    right = "ONYX_OPERATOR_CLUSTERS_POD_RIGHTS"
    variables = environment(pod_specs(values)["Deployment/onyx-operator"])
    body = named("OnyxCluster", "onyx", values)
    body["metadata"]["uid"] = "uid"

    address = {"ONYX_ZOOKEEPER_ADDRESS": variables["ONYX_ZOOKEEPER_ADDRESS"]}
    pool = read_spec(body, None, operator_settings({right: variables[right], **address}))
    assert not isinstance(pool, ClusterRefusal)
    refused = read_spec(body, None, operator_settings(address))
    assert isinstance(refused, ClusterRefusal)
    assert refused.reason == "PodsNotAllowed"
    assert right not in environment(pod_specs()["Deployment/onyx-operator"])


@EACH_SET
def test_every_file_that_the_operator_is_told_of_is_one_that_it_has(name: str) -> None:
    pod = pod_specs(value_set(name))["Deployment/onyx-operator"]
    mounts = tuple(each["mountPath"] for each in pod["containers"][0]["volumeMounts"])
    files = [path for key, path in environment(pod).items() if key.endswith("_FILE")]

    assert all(path.startswith(mounts) for path in files)


def test_rights_are_in_the_namespaces_that_are_watched() -> None:
    bindings = [each for each in objects(value_set("shared")) if each["kind"] == "RoleBinding"]
    operators = [each for each in bindings if each["metadata"]["name"].endswith("-operator")]
    deployment = pod_specs(value_set("shared"))["Deployment/onyx-operator"]

    assert {each["metadata"]["namespace"] for each in operators} == {"onyx", "team-a"}
    assert {each["subjects"][0]["namespace"] for each in operators} == {NAMESPACE}
    assert environment(deployment)["ONYX_OPERATOR_NAMESPACES"] == "onyx,team-a"


def test_cluster_wide_there_is_a_cluster_role_and_no_namespace() -> None:
    values = value_set("production")
    deployment = pod_specs(values)["Deployment/onyx-operator"]

    assert named("ClusterRole", "onyx-onyx-operator", values)["rules"]
    assert "ONYX_OPERATOR_NAMESPACES" not in environment(deployment)


def test_helm_needs_no_webhook_to_apply_the_cluster_of_the_chart() -> None:
    """It would fail while the operator is being installed or replaced."""
    webhooks = named("ValidatingWebhookConfiguration", "onyx-onyx", value_set("production"))
    conditions = {
        each["name"]: [condition["name"] for condition in each["matchConditions"]]
        for each in webhooks["webhooks"]
    }

    assert conditions == {
        "onyxjobs.onyx.dev": ["spec-is-new", "stays"],
        "onyxclusters.onyx.dev": ["spec-is-new", "stays", "not-of-this-release"],
    }


def test_marks_of_who_changed_a_job_count_only_where_none_is_stored_without_the_webhook() -> None:
    marks = "ONYX_OPERATOR_WEBHOOK_MARKS_AUTHORS"
    closed, open_ = value_set("production"), {"webhook": {"failurePolicy": "Ignore"}}
    for values, counts in ((closed, True), ({}, True), (open_, False)):
        found = named("MutatingWebhookConfiguration", "onyx-onyx", values)["webhooks"]
        policies = {each["name"].partition(".")[0]: each["failurePolicy"] for each in found}
        assert policies == {"changes": "Fail" if counts else "Ignore", "deletions": "Ignore"}
        assert (marks in environment(pod_specs(values)["Deployment/onyx-operator"])) is counts


@pytest.mark.parametrize(
    ("operation", "before", "after", "asked"),
    [
        ("CREATE", None, {}, True),
        ("UPDATE", {}, {"spec": {"a": 2}}, True),
        ("UPDATE", {}, {"metadata": {"annotations": {"onyx.dev/changed-by": "boss"}}}, True),
        ("UPDATE", {"metadata": {"annotations": {"onyx.dev/changed-by": "x"}}}, {}, True),
        ("UPDATE", {}, {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}, False),
        ("UPDATE", {"metadata": {"finalizers": ["a"]}}, {}, False),
    ],
)
def test_only_what_changes_spec_or_mark_waits_for_the_operator(
    operation: str, before: Object | None, after: Object, asked: bool
) -> None:
    found = named("MutatingWebhookConfiguration", "onyx-onyx")["webhooks"]
    (condition,) = found[0]["matchConditions"]
    usual: Object = {"metadata": {"name": "job"}, "spec": {"a": 1}}
    values = {
        "request": {"operation": operation},
        "object": {**usual, **after},
        "oldObject": None if before is None else {**usual, **before},
    }
    environment = celpy.Environment()
    program = environment.program(environment.compile(condition["expression"]))
    assert program.evaluate({key: celpy.json_to_cel(each) for key, each in values.items()}) == asked


CONSOLE: Object = {"console": {"enabled": True}}


@pytest.mark.parametrize(
    "cluster", [{}, {"name": "flights"}, {"tenancyId": "a"}, {"tenancyId": "onyx.b"}], ids=str
)
def test_the_console_has_the_account_and_the_names_that_workers_have(cluster: Object) -> None:
    values = {**CONSOLE, "cluster": cluster}
    body = named("OnyxCluster", cluster.get("name", "onyx"), values)
    body["metadata"]["uid"] = "uid"
    operator = environment(pod_specs(values)["Deployment/onyx-operator"])
    pool = read_spec(body, None, operator_settings(operator))
    assert not isinstance(pool, ClusterRefusal), pool
    pod = pod_specs(values)["Deployment/onyx-console"]
    found, workers = environment(pod), variables_of(pool)
    mounted = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"][1:]}

    assert pool.draws_account
    assert mounted == {"token": "onyx-console", "tls": "onyx-tls", "zookeeper": pool.account_secret}
    same = found.keys() & workers.keys()
    assert {name: found[name] for name in same} == {name: workers[name] for name in same}
    assert found.keys() == same
    policy = named("NetworkPolicy", "onyx-console-asks-workers", values)["spec"]
    assert policy["podSelector"]["matchLabels"] == pool.selector
    ports = {"port": TRANSPORT_PORT, "endPort": TRANSPORT_PORT_LAST}
    assert policy["ingress"][0]["ports"] == [ports]


def variables_of(pool: Pool) -> Object:
    return {each["name"]: each.get("value", "") for each in worker_environment(pool)}


def test_the_console_has_no_access_to_the_api_server_and_takes_a_token() -> None:
    pod = pod_specs(CONSOLE)["Deployment/onyx-console"]
    account = named("ServiceAccount", "onyx-console", CONSOLE)
    subjects = [s for each in objects(CONSOLE) for s in each.get("subjects", ())]

    assert not pod["automountServiceAccountToken"]
    assert not account["automountServiceAccountToken"]
    assert "onyx-console" not in {each["name"] for each in subjects}
    assert "--token-file=/etc/onyx/console/token" in pod["containers"][0]["args"]
    assert ports(pod) == {"http": 8484}
    operator = environment(pod_specs(CONSOLE)["Deployment/onyx-operator"])
    assert operator["ONYX_OPERATOR_INSTALLATION_CONSOLE_SECRET"] == "onyx-console"
    own = {"console": {"enabled": True, "existingSecret": "mine"}}
    assert pod_specs(own)["Deployment/onyx-console"]["volumes"][1]["secret"] == {
        "secretName": "mine"
    }
    drawing = environment(pod_specs(own)["Deployment/onyx-operator"])
    assert "ONYX_OPERATOR_INSTALLATION_CONSOLE_SECRET" not in drawing


def test_the_console_only_shows_unless_values_say_otherwise() -> None:
    args = pod_specs(CONSOLE)["Deployment/onyx-console"]["containers"][0]["args"]
    assert not {each for each in args if each.startswith(("--actions", "--user-header"))}
    acts = {"console": {**CONSOLE["console"], "actions": True, "userHeader": "X-Forwarded-User"}}
    args = pod_specs(acts)["Deployment/onyx-console"]["containers"][0]["args"]
    assert args[-2:] == ["--user-header=X-Forwarded-User", "--actions"]


def test_the_options_of_the_console_are_those_of_the_command() -> None:
    everything = {"console": {**CONSOLE["console"], "actions": True, "userHeader": "X-User"}}
    options = pod_specs(everything)["Deployment/onyx-console"]["containers"][0]["args"]
    given = {each.partition("=")[0].removeprefix("--").replace("-", "_") for each in options}

    assert given - {"console"} <= inspect.signature(console).parameters.keys()


def test_three_servers_know_each_other_by_name() -> None:
    zookeeper = pod_specs(value_set("production"))["StatefulSet/onyx-zookeeper"]
    service = named("Service", "onyx-zookeeper-servers", value_set("production"))

    assert environment(zookeeper)["ONYX_ZOOKEEPER_SERVER_SERVERS"] == ",".join(
        f"onyx-zookeeper-{number}.onyx-zookeeper-servers.onyx.svc" for number in range(3)
    )
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_workers_of_all_namespaces_that_are_watched_reach_zookeeper() -> None:
    def workers(values: Object) -> Object:
        policy = named("NetworkPolicy", "onyx-zookeeper", values)["spec"]
        found: Object = policy["ingress"][0]["from"][0]
        return found

    (only,) = workers({"watchNamespaces": ["onyx", "a"]})["namespaceSelector"]["matchExpressions"]
    assert (only["operator"], only["values"]) == ("In", ["a", "onyx"])
    assert workers({"clusterWide": True})["namespaceSelector"] == {}
    assert workers({"watchNamespaceLabels": {"onyx": "on"}})["namespaceSelector"] == {}
    labels = workers({})["podSelector"]["matchLabels"]
    assert labels.items() <= selector("onyx").items(), "labels that the operator gives its pods"


def test_a_given_zookeeper_is_used_and_none_is_made() -> None:
    values = value_set("shared")
    cluster = named("OnyxCluster", "onyx", values)

    assert cluster["spec"]["zookeeper"]["address"] == value_set("shared")["zookeeper"]["address"]
    assert not any("zookeeper" in each["metadata"]["name"] for each in objects(values))


def test_the_certificate_names_all_that_is_dialled() -> None:
    values = value_set("production")
    names = named("Certificate", "onyx-tls", values)["spec"]["dnsNames"]

    assert names[0] == f"{pool_name('onyx')}.{NAMESPACE}.svc", "what workers ask each other for"
    assert names == [
        "onyx-worker.onyx.svc",
        "onyx-zookeeper.onyx.svc",
        "*.onyx-zookeeper-servers.onyx.svc",
    ]


def test_ports_and_paths_are_those_of_the_code() -> None:
    values = value_set("production")
    operator, zookeeper = OperatorSettings(), ZooKeeperServerSettings()
    webhooks = named("ValidatingWebhookConfiguration", "onyx-onyx", values)["webhooks"]

    assert ports(pod_specs(values)["Deployment/onyx-operator"]) == {
        "metrics": operator.server.port,
        "webhook": operator.webhook.port,
    }
    assert ports(pod_specs(values)["StatefulSet/onyx-zookeeper"]) == {
        "client": PORT,
        "quorum": zookeeper.quorum_port,
        "election": zookeeper.election_port,
        "formation": zookeeper.formation_port,
        "health": 9600,
    }
    assert tuple(each["clientConfig"]["service"]["path"] for each in webhooks) == PATHS
    marking = named("MutatingWebhookConfiguration", "onyx-onyx", values)["webhooks"]
    assert {each["clientConfig"]["service"]["path"] for each in marking} == {MARK_PATH}
    assert int(environment(pod_specs(values)["StatefulSet/onyx-zookeeper"])[HEALTH]) == 9600


@EACH_SET
def test_what_is_selected_is_there(name: str) -> None:
    """Services, budgets and policies select pods that the chart makes, or its workers."""
    values = value_set(name)
    made = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in objects(values)
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    made.append(selector("onyx"))
    for each in objects(values):
        selects = each.get("spec", {}).get("selector", each.get("spec", {}).get("podSelector"))
        if each["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            labels = selects.get("matchLabels", selects)
            assert any(labels.items() <= pod.items() for pod in made), each["metadata"]["name"]


def test_two_releases_share_no_name() -> None:
    def of(release: str) -> set[tuple[str, str]]:
        values = {"cluster": {"name": release}, "metrics": {"podMonitor": {"create": True}}}
        return {(each["kind"], each["metadata"]["name"]) for each in objects(values, release)}

    assert of("one") & of("two") == set()


def settings_of(settings: Any, prefix: str) -> Iterator[str]:
    for each in fields(type(settings)):
        inner = getattr(settings, each.name)
        variable = f"{prefix}_{each.name.upper()}"
        if is_struct(type(inner)):
            yield from settings_of(inner, variable)
        else:
            yield variable


def environment(pod: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}


def ports(pod: Object) -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in pod["containers"][0]["ports"]}


def rules_of(found: list[Object]) -> Iterator[Object]:
    for each in found:
        if each["kind"] in ("Role", "ClusterRole"):
            yield from each["rules"]


def test_documents_of_one_template_are_separate() -> None:
    """A missing `---` would make one object of two."""
    for name in SETS:
        text = (yaml.safe_dump(each) for each in objects(value_set(name)))
        assert all(each.count("\nkind: ") == 1 for each in text)


@pytest.mark.parametrize(
    ("values", "image", "operators"),
    [
        ({}, "onyx-worker:0.1.0", "onyx-worker:0.1.0-spark"),
        ({"cluster": {"sparkMemory": "0"}}, "onyx-worker:0.1.0", "onyx-worker:0.1.0-spark"),
        ({"cluster": {"sparkMemory": "0Mi"}}, "onyx-worker:0.1.0", "onyx-worker:0.1.0-spark"),
        (
            {"cluster": {"sparkMemory": "1536Mi"}},
            "onyx-worker:0.1.0-spark",
            "onyx-worker:0.1.0-spark",
        ),
        (
            {"spark": {"enabled": True}, "image": {"registry": "r.example", "tag": "2"}},
            "r.example/onyx-worker:2-spark",
            "r.example/onyx-worker:2-spark",
        ),
        (
            {"spark": {"image": {"registry": "other.example", "repository": "mine", "tag": "s"}}},
            "onyx-worker:0.1.0",
            "other.example/mine:s",
        ),
        (
            {"cluster": {"sparkMemory": "1Gi", "image": "flights:1"}},
            "flights:1",
            "onyx-worker:0.1.0-spark",
        ),
    ],
)
def test_workers_have_the_image_with_spark_only_where_they_run_it(
    values: Object, image: str, operators: str
) -> None:
    assert named("OnyxCluster", "onyx", values)["spec"]["image"] == image
    container = pod_specs(values)["Deployment/onyx-operator"]["containers"][0]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["ONYX_OPERATOR_CLUSTERS_SPARK_IMAGE"] == operators


def test_zookeeper_has_an_image_of_its_own() -> None:
    def image(**values: Object) -> str:
        return str(pod_specs(values)["StatefulSet/onyx-zookeeper"]["containers"][0]["image"])

    assert image() == "onyx-zookeeper:0.1.0"
    assert image(image={"registry": "r.example", "tag": "2"}) == "r.example/onyx-zookeeper:2"
    assert image(zookeeper={"image": {"tag": "3"}}) == "onyx-zookeeper:3"


def test_the_smallest_installation_takes_512_mib_in_all() -> None:
    values = value_set("small")
    cluster = parse_cluster(named("OnyxCluster", "onyx", values))
    (worker,) = [cluster.resources] * cluster.replicas
    pods = pod_specs(values)
    pods = {name: pod for name, pod in pods.items() if not name.startswith("Pod/")}
    given = [each["resources"] for pod in pods.values() for each in pod["containers"]]

    assert len(given) == 2
    for kind, own in (("requests", worker.requests), ("limits", worker.limits)):
        memory = [str(each[kind]["memory"]) for each in given] + [str(own["memory"])]
        assert sum(int(each.removesuffix("Mi")) for each in memory) == 512
