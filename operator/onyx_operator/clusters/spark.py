"""Spark on Kubernetes: a Connect server for the jobs of a cluster, and the executors it starts.

The server is a Deployment of one pod, because only one driver may hold the executors. Spark makes
the pods of executors itself, from a template in a ConfigMap, and the server's pod owns them. All
run the image of the workers with the same code and data volume, so that a module or a file that a
worker finds is found there too. Client mode, with a driver in each worker, was rejected: every
worker would need an account that may make pods, and two ports that executors reach.

A client shows a token, which the operator has drawn and put into a Secret, and which it cannot read
again: it may create Secrets and nothing else. Server and workers mount it. Executors do not.

What the server may do in Kubernetes is a role of the chart, which the operator may bind and not
change: an operator that could write rules would have to have all that they give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.model.canonical import canonical_json
from onyx.model.cluster import PullSecret, SparkServer
from onyx.model.keys.fields import section_of
from onyx.model.keys.key import EMPTY
from onyx_operator.clusters.egress import limited, to
from onyx_operator.clusters.environment import CONNECT_PORT, TOKEN_VARIABLE, of_owner
from onyx_operator.clusters.mounts import (
    CODE_PATH,
    SPARK_TOKEN_FILE,
    Mount,
    shared_mounts,
    spark_token_mount,
)
from onyx_operator.clusters.pods import (
    CODE_ANNOTATION,
    CONTAINER_SECURITY,
    POD_SECURITY,
    sources,
    with_template,
)
from onyx_operator.clusters.pool import Pool, digest_of

DRIVER_PORT = 7_078
BLOCKS_PORT = 7_079
UI_PORT = 4_040
PARTITIONS_PER_CORE = 4
PARTITIONS_MIN = 16
FILES_PATH = "/etc/onyx/spark"
_PROPERTIES, _TEMPLATE = "spark.properties", "executor.json"
_PYTHON = "/opt/onyx/bin/python"
_CONTAINER = "spark"
_PROMETHEUS = "org.apache.spark.metrics.sink.PrometheusServlet"
_FILES_ANNOTATION = "onyx.dev/spark-files"

Body = dict[str, Any]


def account(pool: Pool, metadata: Body) -> Body:
    """The identity with which the server makes pods. What workers may do outside Kubernetes, by
    annotations of theirs, executors may too: they read and write the same object store."""
    metadata["annotations"].update(pool.cluster.service_account.annotations)
    return {"metadata": metadata, "automountServiceAccountToken": False}


def role_binding(pool: Pool, metadata: Body) -> Body:
    """Lets that identity make pods in the namespace of the cluster."""
    name, group = pool.spark_name, "rbac.authorization.k8s.io"
    kind, _, role = pool.spark_role.partition("/")
    return {
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": pool.namespace}],
    }


def service(pool: Pool, metadata: Body) -> Body:
    """The address of the server: for workers, and of the driver for executors."""
    ports = {"connect": CONNECT_PORT, "driver": DRIVER_PORT, "blocks": BLOCKS_PORT, "ui": UI_PORT}
    return {
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": pool.spark_selector("server"),
            # Executors register before the server answers its clients.
            "publishNotReadyAddresses": True,
            "ports": [
                {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
                for name, port in ports.items()
            ],
        },
    }


def policy(pool: Pool, metadata: Body) -> Body:
    """Workers reach the server, server and executors reach each other, and all see metrics."""
    spark = {"podSelector": {"matchLabels": pool.spark_selector()}}
    workers = {"podSelector": {"matchLabels": pool.selector}}
    among = [_port(DRIVER_PORT), _port(BLOCKS_PORT)]
    spec = {
        **spark,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [workers], "ports": [_port(CONNECT_PORT)]},
            {"from": [spark], "ports": among},
            {"ports": [_port(UI_PORT)]},
        ],
    }
    return {"metadata": metadata, "spec": limited(spec, pool, to(pool.spark_selector(), *among))}


def files(pool: Pool, metadata: Body, spark: SparkServer) -> Body:
    """Spark's settings, and the template of its executors."""
    return {"metadata": metadata, "data": _files(pool, spark)}


def token(pool: Pool, metadata: Body) -> Body:
    """The Secret with what a client must show to the server; who creates it adds the token."""
    return {"metadata": metadata, "type": "Opaque"}


def deployment(pool: Pool, metadata: Body, spark: SparkServer) -> Body:
    """The server. A new one starts when the old one has gone: two would have executors each."""
    selector = pool.spark_selector("server")
    digest = digest_of(_files(pool, spark))
    code = {CODE_ANNOTATION: pool.code.digest} if pool.code else {}
    mounts = (*shared_mounts(pool), _files_mount(pool), spark_token_mount(pool))
    ours = {
        "metadata": {
            "labels": {**pool.labels, **selector},
            "annotations": {_FILES_ANNOTATION: digest, **code},
        },
        "spec": {
            **_pod(pool, mounts),
            "containers": [_server(pool, spark, mounts)],
            "serviceAccountName": pool.spark_name,
            "automountServiceAccountToken": True,
        },
    }
    return _deployment(metadata, with_template(ours, spark.pod_template, selector), selector)


def executors_trial(pool: Pool, metadata: Body, spark: SparkServer) -> Body:
    """A Deployment with the pods of executors, to ask whether Kubernetes takes them: Spark makes
    them when it is too late to say so."""
    return _deployment(metadata, _executor(pool, spark), pool.spark_selector("executor"))


def _deployment(metadata: Body, template: Body, selector: dict[str, str]) -> Body:
    return {
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": template,
        },
    }


def _server(pool: Pool, spark: SparkServer, mounts: tuple[Mount, ...]) -> Body:
    wanted = spark.resources
    resources = {"requests": dict(wanted.requests), "limits": dict(wanted.limits)}
    found = {key: amounts for key, amounts in resources.items() if amounts}
    return {
        **_container(pool, mounts),
        "command": [_PYTHON, "-m", "onyx.spark.pods", "server", f"{FILES_PATH}/{_PROPERTIES}"],
        "env": _variables(pool, {TOKEN_VARIABLE: SPARK_TOKEN_FILE}),
        **sources(pool),
        **({"resources": found} if found else {}),
        "ports": [
            {"name": "connect", "containerPort": CONNECT_PORT, "protocol": "TCP"},
            {"name": "ui", "containerPort": UI_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe(period_s=3, failures=80),
        "readinessProbe": _probe(period_s=10, failures=2),
        "livenessProbe": _probe(period_s=20, failures=6),
    }


def _files(pool: Pool, spark: SparkServer) -> dict[str, str]:
    settings = {**_defaults(spark), **spark.conf, **_needed(pool, spark)}
    lines = [f"{key} {_escaped(value)}\n" for key, value in sorted(settings.items())]
    template = {"apiVersion": "v1", "kind": "Pod", **_executor(pool, spark)}
    return {_PROPERTIES: "".join(lines), _TEMPLATE: canonical_json(template).decode()}


def _escaped(value: str) -> str:
    """The text as a file of Java's properties has it: there a line break would begin another
    setting."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text.startswith((" ", "\t", "\f", "=", ":")) else text


def _defaults(spark: SparkServer) -> dict[str, str]:
    """What `conf` may change. Spark's own 200 partitions of a shuffle cost a small pool more than
    the work in them. Whoever reads metrics reaches the user interface too, and must not end jobs
    there."""
    slots = spark.executors.instances * spark.executors.cores
    return {
        "spark.sql.shuffle.partitions": str(max(PARTITIONS_MIN, PARTITIONS_PER_CORE * slots)),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.prometheus.enabled": "true",
        "spark.metrics.conf.*.sink.prometheusServlet.class": _PROMETHEUS,
        "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
        # Else the names of metrics begin with an id that is new with each start.
        "spark.metrics.namespace": "onyx",
        "spark.ui.killEnabled": "false",
        "spark.kubernetes.executor.deleteOnTermination": "true",
    }


def _needed(pool: Pool, spark: SparkServer) -> dict[str, str]:
    """What other keys of the cluster say, and what the objects made here need."""
    executors = spark.executors
    policy = pool.cluster.image_pull_policy
    return {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.app.name": pool.spark_name,
        "spark.driver.memory": spark.memory,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        "spark.ui.port": str(UI_PORT),
        "spark.connect.grpc.binding.port": str(CONNECT_PORT),
        "spark.connect.grpc.binding.address": "0.0.0.0",  # noqa: S104 - by its address
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": executors.memory,
        "spark.kubernetes.authenticate.executor.serviceAccountName": pool.spark_name,
        "spark.kubernetes.namespace": pool.namespace,
        "spark.kubernetes.executor.podNamePrefix": pool.spark_name,
        "spark.kubernetes.executor.podTemplateFile": f"{FILES_PATH}/{_TEMPLATE}",
        "spark.kubernetes.executor.podTemplateContainerName": _CONTAINER,
        "spark.kubernetes.container.image": pool.image,
        **({"spark.kubernetes.container.image.pullPolicy": policy} if policy else {}),
    }


def _executor(pool: Pool, spark: SparkServer) -> Body:
    """What Spark adds to: names, variables, amounts and the argument `executor` are its own."""
    mounts = tuple(shared_mounts(pool))
    selector = pool.spark_selector("executor")
    pod = {
        **_pod(pool, mounts),
        "containers": [
            {
                **_container(pool, mounts),
                "command": [_PYTHON, "-m", "onyx.spark.pods"],
                "env": _variables(pool),
                **sources(pool),
            }
        ],
        "serviceAccountName": pool.spark_name,
        "automountServiceAccountToken": False,
    }
    ours = {"metadata": {"labels": {**pool.labels, **selector}}, "spec": pod}
    return with_template(ours, spark.executors.pod_template, selector)


def _pod(pool: Pool, mounts: tuple[Mount, ...]) -> Body:
    secrets = [section_of(PullSecret).write(each) for each in pool.cluster.image_pull_secrets]
    return {
        "volumes": [mount.volume() for mount in mounts],
        "securityContext": dict(POD_SECURITY),
        **({"imagePullSecrets": secrets} if secrets else {}),
        "enableServiceLinks": False,
    }


def _container(pool: Pool, mounts: tuple[Mount, ...]) -> Body:
    policy = pool.cluster.image_pull_policy
    return {
        "name": _CONTAINER,
        "image": pool.image,
        **({"imagePullPolicy": policy} if policy else {}),
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [mount.volume_mount() for mount in mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _variables(pool: Pool, given: Mapping[str, str] = EMPTY) -> list[Body]:
    """Variables of both: Spark's Python workers must find the code of the user, and need what that
    reads and the credentials of object stores.

    Args:
        given: what its owner cannot change.
    """
    fields = {"ONYX_POD_NAME": "metadata.name", "ONYX_POD_IP": "status.podIP"}
    own = {each["name"]: each for each in of_owner(pool)}
    if pool.code:
        own.setdefault("PYTHONPATH", {"name": "PYTHONPATH", "value": CODE_PATH})
    return [
        *({"name": n, "valueFrom": {"fieldRef": {"fieldPath": p}}} for n, p in fields.items()),
        *({"name": name, "value": value} for name, value in given.items()),
        *(each for name, each in own.items() if name not in {*fields, *given}),
    ]


def _files_mount(pool: Pool) -> Mount:
    return Mount("spark", FILES_PATH, {"configMap": {"name": pool.spark_name}})


def _port(number: int) -> Body:
    return {"port": number, "protocol": "TCP"}


def _probe(period_s: int, failures: int) -> Body:
    return {
        "tcpSocket": {"port": "connect"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
