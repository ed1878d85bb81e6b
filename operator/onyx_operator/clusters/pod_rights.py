"""What the pods of a cluster may have beyond the Pod Security standard `restricted` and their own
identity: nothing that the operator's owner has not allowed. Pure.

The operator makes pods for whoever may write an OnyxCluster, who need not have the right to make
pods. So what its pods ask for beyond those that the operator makes by itself is a right that the
operator would lend. Judged are the pods as they would be made, against those without templates:
what a template adds counts as well as what it takes away (`securityContext: null`).

The tables name what is harmless, and all else needs to be allowed, by its key: Kubernetes gets new
fields. Rejected: to leave this to Pod Security admission, which is off unless a namespace turns it
on, and knows nothing of identities and other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.errors import Problem
from onyx.model.cluster import PodTemplate
from onyx.model.report import nearest
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.resources import trials

PROBLEMS_MAX = 20
"""Problems of one cluster that are reported."""
SETTING = "ONYX_OPERATOR_CLUSTERS_POD_RIGHTS"
Object = Mapping[str, Any]
Rule = Callable[[Any], bool]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE_OF_POD = _names(
    "affinity dnsConfig dnsPolicy enableServiceLinks hostAliases hostname hostnameOverride "
    "hostUsers imagePullSecrets nodeSelector os preemptionPolicy readinessGates restartPolicy "
    "schedulerName schedulingGates setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints"
)
_FREE_OF_CONTAINER = _names(
    "args command env envFrom image imagePullPolicy name resizePolicy resources restartPolicy "
    "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeMounts workingDir"
)
_FREE_VOLUMES = _names(
    "configMap downwardAPI emptyDir ephemeral persistentVolumeClaim projected secret"
)
_FREE_PROJECTIONS = _names("clusterTrustBundle configMap downwardAPI secret")
_GATED_OF_POD = _names(
    "activeDeadlineSeconds automountServiceAccountToken ephemeralContainers hostIPC hostNetwork "
    "hostPID nodeName overhead priority priorityClassName resourceClaims resources "
    "runtimeClassName serviceAccount serviceAccountName"
)
"""Fields of a pod that are no typo, though they are not free."""
_CONFINED = ("RuntimeDefault", "Localhost")
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_ALIASES = {"serviceAccount": "serviceAccountName"}
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_HOOKS = ("postStart", "preStop")
_SPARK_VOLUMES = "spark.kubernetes.executor.volumes."

_POD: Mapping[str, Rule] = {
    "automountServiceAccountToken": lambda value: value is False,
    "hostNetwork": lambda value: not value,
    "hostPID": lambda value: not value,
    "hostIPC": lambda value: not value,
    "priorityClassName": lambda value: not str(value or "").startswith("system-"),
}
"""When a field of a pod that differs from ours is harmless; None where it is not there."""
_SECURITY: Mapping[str, Rule] = {
    "allowPrivilegeEscalation": lambda value: value is False,
    "appArmorProfile": lambda value: value is None or _table(value).get("type") in _CONFINED,
    "capabilities": lambda value: (
        "ALL" in _list(_table(value).get("drop")) and not _table(value).get("add")
    ),
    "fsGroup": lambda value: True,
    "fsGroupChangePolicy": lambda value: True,
    "privileged": lambda value: not value,
    "procMount": lambda value: value in (None, "Default"),
    "readOnlyRootFilesystem": lambda value: True,
    "runAsGroup": lambda value: True,
    "runAsNonRoot": lambda value: value is True,
    "runAsUser": lambda value: value != 0,
    "seccompProfile": lambda value: _table(value).get("type") in _CONFINED,
    "supplementalGroups": lambda value: True,
    "supplementalGroupsPolicy": lambda value: True,
}
"""When a field of a security context is harmless, as the standard `restricted` has it."""


class Excess(msgspec.Struct, frozen=True):
    """Something that needs to be allowed."""

    path: str
    """Where it is asked for: `spec.podTemplate.spec.hostNetwork`."""
    right: str
    """Its name in the setting."""
    known: Collection[str] = ()
    """What its author may have meant instead."""


def not_allowed(pool: Pool, allowed: Sequence[str]) -> tuple[Problem, ...]:
    """What the pods of a pool would have and may not.

    Args:
        pool: what the OnyxCluster asks for.
        allowed: names of rights, each for all namespaces or as `namespace/right` for one.
    """
    lacking = (
        excess
        for excess in _asked(pool)
        if not {excess.right, f"{pool.namespace}/{excess.right}"} & set(allowed)
    )
    return tuple(_problem(each, pool.namespace) for each in islice(lacking, PROBLEMS_MAX))


def _problem(excess: Excess, namespace: str) -> Problem:
    guess = nearest(excess.right, excess.known)
    return Problem(
        excess.path,
        f"needs the right {excess.right}, which pods of OnyxClusters do not have here",
        f"{guess}{' Else ' if guess else ''}take it out, or let whoever installs the operator add "
        f"{namespace}/{excess.right} to {SETTING}",
    )


def _asked(pool: Pool) -> Iterator[Excess]:
    account = pool.cluster.service_account
    if not account.create and account.name not in (None, "default"):
        yield Excess("spec.serviceAccount.name", "serviceAccountName")
    conf = {} if pool.cluster.spark is None else pool.cluster.spark.conf
    for name in conf:
        kind = name.removeprefix(_SPARK_VOLUMES).partition(".")[0]
        if name.startswith(_SPARK_VOLUMES) and kind not in _FREE_VOLUMES:
            yield Excess(f"spec.spark.conf.{name}", kind)
    for theirs, ours in zip(trials(pool), trials(_without_templates(pool)), strict=True):
        if not theirs.pods_key:
            continue
        template = theirs.body["spec"]["template"]
        yield from _metadata(template["metadata"], f"{theirs.pods_key}.metadata")
        own = ours.body["spec"]["template"]["spec"]
        yield from _pod(template["spec"], own, f"{theirs.pods_key}.spec")


def _without_templates(pool: Pool) -> Pool:
    none, spark = PodTemplate(), pool.cluster.spark
    if spark is not None:
        executors = replace(spark.executors, pod_template=none)
        spark = replace(spark, pod_template=none, executors=executors)
    return replace(pool, cluster=replace(pool.cluster, pod_template=none, spark=spark))


def _metadata(metadata: Object, path: str) -> Iterator[Excess]:
    for name, value in metadata["annotations"].items():
        confined = value == "runtime/default" or value.startswith("localhost/")
        if name.startswith(_APP_ARMOR) and not confined:
            yield Excess(f"{path}.annotations.{name}", "appArmorProfile")


def _pod(pod: Object, own: Object, path: str) -> Iterator[Excess]:
    looked_into = ("containers", "initContainers", "securityContext", "volumes")
    free = {*_FREE_OF_POD, *looked_into}
    yield from _fields(pod, own, path, free, _POD)
    yield from _security(pod, own, path)
    (container,) = own["containers"]
    for each, where in _items(pod, "containers", path):
        if each.get("name") != container["name"]:
            yield Excess(where, "containers")
        yield from _container(each, container, where)
    for each, where in _items(pod, "initContainers", path):
        yield Excess(where, "initContainers")
        yield from _container(each, container, where)
    volumes = {each["name"]: each for each in own["volumes"]}
    for each, where in _items(pod, "volumes", path):
        yield from _volume(each, volumes.get(each.get("name"), {}), where)


def _container(container: Object, own: Object, path: str) -> Iterator[Excess]:
    looked_into = ("lifecycle", "ports", "securityContext", *_PROBES)
    free = {*_FREE_OF_CONTAINER, *looked_into}
    yield from _fields(container, own, path, free, {})
    yield from _security(container, own, path)
    for port, where in _items(container, "ports", path):
        if port.get("hostPort") or port.get("hostIP"):
            yield Excess(f"{where}.hostPort", "hostPort")
    hooks = _table(container.get("lifecycle"))
    asked = {each: container.get(each) for each in _PROBES}
    asked |= {f"lifecycle.{each}": hooks.get(each) for each in _HOOKS}
    for name, probe in asked.items():
        for how in ("httpGet", "tcpSocket"):
            # The kubelet asks, from the network of the node.
            if _table(_table(probe).get(how)).get("host"):
                yield Excess(f"{path}.{name}.{how}.host", "host")


def _volume(volume: Object, own: Object, path: str) -> Iterator[Excess]:
    yield from _fields(volume, own, path, {"name", *_FREE_VOLUMES}, {})
    for source, where in _items(_table(volume.get("projected")), "sources", f"{path}.projected"):
        yield from _fields(source, {}, where, _FREE_PROJECTIONS, {})


def _security(of: Object, own: Object, path: str) -> Iterator[Excess]:
    key = "securityContext"
    yield from _fields(_table(of.get(key)), _table(own.get(key)), f"{path}.{key}", (), _SECURITY)


def _fields(
    theirs: Object,
    own: Object,
    path: str,
    free: Collection[str],
    rules: Mapping[str, Rule],
) -> Iterator[Excess]:
    """The fields, ours that are gone among them, that are neither ours, nor free, nor harmless by
    their rule."""
    for key in {**own, **theirs}:
        value, rule = theirs.get(key), rules.get(key)
        harmless = key in free or value == own.get(key) or (rule is not None and rule(value))
        if not harmless:
            known = () if key in {*_GATED_OF_POD, *_SECURITY} else free
            yield Excess(f"{path}.{key}", _ALIASES.get(key, key), known)


def _items(of: Object, key: str, path: str) -> Iterator[tuple[Object, str]]:
    """The mappings in a list, each with its path; by name where it has one."""
    for index, each in enumerate(_list(of.get(key))):
        if isinstance(each, Mapping):
            yield each, f"{path}.{key}[{each.get('name', index)}]"


def _table(value: Any) -> Object:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
