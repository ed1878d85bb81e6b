"""Settings of the operator, from `ONYX_OPERATOR_*` variables by the mechanism of the engine.

How it talks to ZooKeeper (timeouts, certificates, account) comes from the engine's own `ONYX_*`
variables in `engine`; address and tenancy are then those of each OnyxCluster.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import field

from onyx.base.variables import read
from onyx.settings import Settings, from_environment


class KubeSettings(msgspec.Struct, frozen=True):
    """Requests to the Kubernetes API server."""

    threads_max: int = 8
    """Most concurrent requests to the API server."""
    waiting_max: int = 5_000
    """Requests that wait for a thread, above which further ones fail as Unavailable."""
    connect_timeout_s: float = 5.0
    """Longest wait for a connection to the API server."""
    read_timeout_s: float = 20.0
    """Longest wait for a response."""
    page_items: int = 500
    """Objects in a page of a list."""


class ServerSettings(msgspec.Struct, frozen=True):
    """The server of metrics and probes."""

    host: str = "0.0.0.0"  # noqa: S104 - a pod is reached by its address
    """Address of `/metrics`, `/livez` and `/readyz`."""
    port: int = 9601
    """Port of these endpoints; 0 takes a free one."""
    stalled_after_s: float = 60.0
    """Time without progress of the operator after which `/livez` fails."""


class WorkPace(msgspec.Struct, frozen=True):
    """How objects of one kind are reconciled; the defaults are those for clusters."""

    concurrent_max: int = 4
    """Objects of one kind that are reconciled concurrently."""
    resync_interval_s: float = 30.0
    """Interval at which every object is reconciled, even without an event."""
    retry_min_s: float = 1.0
    """First delay after a failed reconciliation; it doubles each time."""
    retry_max_s: float = 60.0
    """Longest delay after a failed reconciliation."""


class JobSettings(WorkPace, frozen=True):
    """How OnyxJobs are reconciled."""

    concurrent_max: int = 16
    resync_interval_s: float = 60.0
    progress_interval_s: float = 4.0
    """Interval at which the progress of jobs is read, and workers are asked for their lag; 0
    disables both."""
    release_timeout_s: float = 60.0
    """Time after which the operator gives up killing the job of a deleted OnyxJob in a log that
    cannot be reached; it kills the job when it follows that log again."""
    logs_max: int = 100
    """Most logs of clusters that are followed concurrently."""


class ClusterSettings(WorkPace, frozen=True):
    """How OnyxClusters are reconciled."""

    worker_image: str = ""
    """Image of workers for each OnyxCluster that names none."""
    spark_image: str = ""
    """Image for each OnyxCluster that names none and runs Spark; empty: `worker_image`."""
    spark_role: str = ""
    """Role with which Spark servers make their executors, `Role/name` or `ClusterRole/name`; empty
    refuses OnyxClusters with `spec.spark`."""
    pod_rights: tuple[str, ...] = ()
    """What pods of OnyxClusters may have beyond the Pod Security standard `restricted`, by the name
    of the key, such as `hostPath`, `containers` or `serviceAccountName`; `team-a/hostPath` in one
    namespace."""


class WebhookSettings(msgspec.Struct, frozen=True):
    """The validating webhook."""

    cert_file: str = ""
    """Certificate of the validating webhook, in PEM format; empty disables the webhook. Each new
    connection reads changed files."""
    key_file: str = ""
    """Private key of the certificate."""
    client_ca_file: str = ""
    """Authorities of the certificate that the API server shows to webhooks; empty asks for none."""
    marks_authors: bool = False
    """Whether the API server asks the webhook for each change of an OnyxJob who has made it, and
    stores none without an answer. Only then the annotation `onyx.dev/changed-by` counts."""
    host: str = "0.0.0.0"  # noqa: S104 - the API server reaches a pod by its address
    """Address to listen on."""
    port: int = 9443
    """Port of the webhook; 0 takes a free one."""
    body_bytes_max: int = 8_388_608
    """Largest review; it holds an object and its previous version."""
    review_timeout_s: float = 8.0
    """Longest time for one review; keep it below the webhook's timeout in the API server."""
    bodies_bytes_max: int = 33_554_432
    """Bytes of reviews in memory, above which further ones are refused."""
    body_timeout_s: float = 8.0
    """Longest time to send a review."""
    connections_max: int = 64
    """Connections at once. For another one, one that is idle is closed."""
    idle_timeout_s: float = 100.0
    """Time without a review after which a connection is closed; longer than the API server keeps
    it."""


class InstallationSettings(msgspec.Struct, frozen=True):
    """What belongs to the installation: Secrets, which the operator draws once and renews (one of
    such a name that somebody else has made stays as it is), and objects of other places."""

    namespace: str = ""
    """Namespace of the installation; empty: the operator draws no Secrets."""
    outside: tuple[str, ...] = ()
    """Objects outside of this namespace that end with it, each as `Kind/name` or
    `Kind/namespace/name`: roles, their bindings and configurations of webhooks."""
    account_secret: str = ""
    """Secret for `user` and `password` of ZooKeeper; empty: none is drawn."""
    console_secret: str = ""
    """Secret for the `token` of the console; empty: none is drawn."""
    authority_secret: str = ""
    """Secret for the authority that signs the certificates; empty: none are drawn."""
    tls_secret: str = ""
    """Secret for the certificate of workers, ZooKeeper and operator; empty: none is drawn."""
    tls_names: tuple[str, ...] = ()
    """DNS names in that certificate."""
    webhook_name: str = ""
    """DNS name of the webhook, for which the operator signs a certificate; empty: none."""
    webhook_configuration: str = ""
    """ValidatingWebhookConfiguration and MutatingWebhookConfiguration of this name are given the
    authority to trust."""
    folder: str = "/run/onyx"
    """Folder where the operator puts what it reads itself: `zookeeper/password`, and `ca.crt`,
    `tls.crt` and `tls.key` in `tls` and in `webhook`."""
    certificate_days: float = 90.0
    """Life of a certificate, which is renewed after two thirds of it."""
    interval_s: float = 60.0
    """Interval at which Secrets and configuration are looked at."""


class LeaseSettings(msgspec.Struct, frozen=True):
    """The Lease that says which of several operators works."""

    namespace: str = ""
    """Namespace of the Lease."""
    name: str = ""
    """Its name; empty: there is none, and each operator works."""
    holder: str = ""
    """Name of this operator there; empty: that of its host, which is its pod's."""
    duration_s: float = 15.0
    """Silence of its holder after which another operator takes it."""


class OperatorSettings(msgspec.Struct, frozen=True):
    """All settings of the operator."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; without these and without labels, all."""
    namespace_labels: str = ""
    """Label selector of further namespaces to watch, such as `onyx=on`."""
    zookeeper_addresses: tuple[str, ...] = ()
    """Servers of ZooKeeper that OnyxClusters may name besides those of `ONYX_ZOOKEEPER_ADDRESS`,
    each as `host:port`, with `/path` where the log is below one. The operator goes to no others,
    and shows its account and certificates to these."""
    zookeeper_pages: tuple[str, ...] = ()
    """Pages of the servers of `ONYX_ZOOKEEPER_ADDRESS`, each as `host:port`, which are asked for
    `/readyz` while nobody reaches them."""
    tenancies: tuple[str, ...] = ()
    """Tenancies that do not begin with the name of the namespace whose OnyxClusters may have them,
    each as `namespace/tenancy`."""
    kube: KubeSettings = field(default_factory=KubeSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    clusters: ClusterSettings = field(default_factory=ClusterSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    installation: InstallationSettings = field(default_factory=InstallationSettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    engine: Settings = field(default_factory=Settings)
    """From `ONYX_*`: defaults for clusters, and how to reach ZooKeeper."""


def operator_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Settings from variables: `ONYX_OPERATOR_KUBE_THREADS_MAX`, and `ONYX_*` for the engine.

    Raises:
        SettingsError: a variable does not have the type of its setting.
    """
    engine = from_environment(environment)
    return read(OperatorSettings, environment, "ONYX_OPERATOR", engine=engine)
