"""A cluster as a value: the pool of workers that the operator keeps running on Kubernetes.

Frozen, typed and valid by construction, like a job: `parse_cluster` is the way to make one. What
the keys mean is said in `information_cluster`, from which the CRD and the reference are derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from onyx.model.job import EMPTY


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Where the log is, and who we are there."""

    address: str | None = None
    auth_secret: str | None = None


@dataclass(frozen=True, slots=True)
class CodeSource:
    """Python files that are mounted rather than built into an image."""

    config_map: str


@dataclass(frozen=True, slots=True)
class TlsSource:
    """The Secret with `ca.crt`, `tls.crt` and `tls.key`, as cert-manager makes it."""

    secret_name: str
    zookeeper: bool = False


@dataclass(frozen=True, slots=True)
class DataVolume:
    """A volume that all workers share."""

    claim_name: str
    mount_path: str = "/data"


@dataclass(frozen=True, slots=True)
class EnvVar:
    """A variable of the worker's container; `value_from` is as Kubernetes takes it."""

    name: str
    value: str = ""
    value_from: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class EnvSource:
    """A ConfigMap or Secret whose keys become variables."""

    prefix: str = ""
    config_map_ref: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    secret_ref: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class PullSecret:
    """A Secret with the credentials of a registry."""

    name: str


@dataclass(frozen=True, slots=True)
class Resources:
    """What the worker's container asks for, and gets at most."""

    requests: Mapping[str, int | str] = field(default_factory=lambda: EMPTY)
    limits: Mapping[str, int | str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class PodMetadata:
    """Labels and annotations that pods get besides the operator's own."""

    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What is merged into the pods that the operator makes; `spec` is as Kubernetes takes it."""

    metadata: PodMetadata = PodMetadata()
    spec: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many workers a drain of nodes may take at once."""

    enabled: bool = True
    max_unavailable: int | str = 1


@dataclass(frozen=True, slots=True)
class NetworkRules:
    """Whether only workers may reach the workers' transport."""

    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount of the workers."""

    create: bool = True
    name: str | None = None
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A pool of workers."""

    name: str
    tenancy_id: str | None = None
    job_scheduler: str = "balanced"
    replicas: int = 2
    peers_per_worker: int = 4
    image: str | None = None
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[PullSecret, ...] = ()
    modules: tuple[str, ...] = ()
    code: CodeSource | None = None
    zookeeper: ZooKeeperAccess = ZooKeeperAccess()
    tls: TlsSource | None = None
    data: DataVolume | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvSource, ...] = ()
    resources: Resources = Resources()
    pod_template: PodTemplate = PodTemplate()
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
    network_policy: NetworkRules = NetworkRules()
    service_account: Account = Account()
    termination_grace_period_seconds: int = 60


SET_BY_OPERATOR: Mapping[str, str] = MappingProxyType(
    {
        "ONYX_TENANCY_ID": "tenancyId",
        "ONYX_JOB_SCHEDULER": "jobScheduler",
        "ONYX_MODULES": "modules",
        "ONYX_PEERS": "peersPerWorker",
        "ONYX_ZOOKEEPER_ADDRESS": "zookeeper.address",
        "ONYX_TRANSPORT_BIND_HOST": "",
        "ONYX_TRANSPORT_ADVERTISE_HOST": "",
        "ONYX_TRANSPORT_PORT": "",
        "ONYX_TELEMETRY_METRICS_HOST": "",
        "ONYX_TELEMETRY_METRICS_PORT": "",
    }
)
"""Variables of a worker that the operator sets, with the key of the spec that they come from."""
