"""What kinds of objects the fake serves: a table of the built-in ones, and those read from CRDs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ScalePaths:
    """Where the scale subresource finds its numbers, as JSON paths such as `.spec.replicas`."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ".status.selector"


@dataclass(frozen=True)
class Kind:
    """One kind of object, as the discovery pages describe it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    scale: ScalePaths | None = None
    generation: bool = False
    """Does the server count the changes of the spec?"""
    custom: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    columns: tuple[Mapping[str, Any], ...] = field(default=(), hash=False, compare=False)
    fields: tuple[str, ...] = ()
    """Paths that field selectors may name, besides name and namespace."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.group, self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def subresources(self) -> tuple[str, ...]:
        return ("status",) * self.status + ("scale",) * (self.scale is not None)


def _core(plural: str, kind: str, **more: Any) -> Kind:
    return Kind("", "v1", plural, kind, **more)


def _workload(plural: str, kind: str, short: str) -> Kind:
    return Kind(
        "apps",
        "v1",
        plural,
        kind,
        short_names=(short,),
        categories=("all",),
        status=True,
        scale=ScalePaths(selector=""),
        generation=True,
    )


_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

BUILT_IN: tuple[Kind, ...] = (
    _core("namespaces", "Namespace", namespaced=False, short_names=("ns",), status=True),
    _core("nodes", "Node", namespaced=False, short_names=("no",), status=True),
    _core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        status=True,
        fields=("spec.nodeName", "status.phase", "status.podIP"),
    ),
    _core("services", "Service", short_names=("svc",), categories=("all",), status=True),
    _core("configmaps", "ConfigMap", short_names=("cm",)),
    _core("secrets", "Secret", fields=("type",)),
    _core("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), status=True),
    _core("endpoints", "Endpoints", short_names=("ep",)),
    _core(
        "events",
        "Event",
        short_names=("ev",),
        fields=(
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "reason",
            "type",
        ),
    ),
    _workload("statefulsets", "StatefulSet", "sts"),
    _workload("deployments", "Deployment", "deploy"),
    _workload("replicasets", "ReplicaSet", "rs"),
    Kind("batch", "v1", "jobs", "Job", status=True, generation=True),
    Kind(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        status=True,
        generation=True,
    ),
    Kind(
        "networking.k8s.io",
        "v1",
        "networkpolicies",
        "NetworkPolicy",
        short_names=("netpol",),
        generation=True,
    ),
    Kind(_RBAC, "v1", "roles", "Role"),
    Kind(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Kind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind(
        _ADMISSION,
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
        generation=True,
    ),
    Kind(
        _ADMISSION,
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        namespaced=False,
        generation=True,
    ),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        status=True,
        generation=True,
    ),
)


def kind_of_crd(crd: Mapping[str, Any]) -> Kind:
    """The kind that a CRD describes, by its stored version."""
    spec = crd["spec"]
    version = next(each for each in spec["versions"] if each["storage"])
    subresources = version.get("subresources", {})
    scale = subresources.get("scale")
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=spec["names"]["plural"],
        kind=spec["names"]["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(spec["names"].get("shortNames", ())),
        categories=tuple(spec["names"].get("categories", ())),
        status="status" in subresources,
        scale=scale
        and ScalePaths(
            scale["specReplicasPath"],
            scale["statusReplicasPath"],
            scale.get("labelSelectorPath", ""),
        ),
        generation=True,
        custom=True,
        schema=version["schema"]["openAPIV3Schema"],
        columns=tuple(version.get("additionalPrinterColumns", ())),
        fields=tuple(each["jsonPath"].lstrip(".") for each in version.get("selectableFields", ())),
    )
