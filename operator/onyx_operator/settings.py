"""Settings of the operator, from `ONYX_OPERATOR_*` variables by the mechanism of the engine.

How it talks to ZooKeeper (timeouts, certificates, account) comes from the engine's own `ONYX_*`
variables in `engine`; address and tenancy are then those of each OnyxCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onyx.settings import Settings, from_environment, read


@dataclass(frozen=True, slots=True)
class KubeSettings:
    threads_max: int = 8
    """Requests to the API server at the same time."""
    waiting_max: int = 5_000
    """Requests that wait for a thread; more are refused as Unavailable."""
    connect_timeout_s: float = 5.0
    """Longest wait for a connection to the API server."""
    read_timeout_s: float = 20.0
    """Longest wait for an answer."""
    page_items: int = 500
    """Objects a page when listing."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "0.0.0.0"  # noqa: S104 - a pod is reached by its address
    """Address of `/metrics`, `/livez` and `/readyz`."""
    port: int = 9601
    """Port of these pages; 0 takes a free one."""
    stalled_after_s: float = 60.0
    """`/livez` fails when the operator has not moved for so long."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How objects of one kind are reconciled; the defaults are those for clusters."""

    concurrent_max: int = 4
    """Objects of this kind that are reconciled at the same time."""
    resync_interval_s: float = 30.0
    """Every one is looked at again after this, whatever has happened."""
    retry_min_s: float = 1.0
    """First wait after a reconciliation that failed; doubles."""
    retry_max_s: float = 60.0
    """Longest wait after a reconciliation that failed."""


@dataclass(frozen=True, slots=True)
class JobSettings(Pace):
    concurrent_max: int = 16
    resync_interval_s: float = 60.0
    progress_interval_s: float = 15.0
    """Period at which it is looked how far the jobs are; 0 never looks."""
    release_timeout_s: float = 60.0
    """The job of a deleted OnyxJob whose log cannot be reached is given up after this, until it is
    followed again."""
    log_threads_max: int = 4
    """Threads that read and write beside the subscription to the log of one cluster."""
    logs_max: int = 100
    """Logs of clusters that are followed at the same time."""


@dataclass(frozen=True, slots=True)
class ClusterSettings(Pace):
    worker_image: str = ""
    """Image of workers for an OnyxCluster that names none."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    cert_file: str = ""
    """Certificate of the validating webhook, in PEM; empty means that there is no webhook."""
    key_file: str = ""
    """Its private key."""
    host: str = "0.0.0.0"  # noqa: S104 - the API server reaches a pod by its address
    """Address to listen on."""
    port: int = 9443
    """Port of the webhook; 0 takes a free one."""
    body_bytes_max: int = 8_388_608
    """Largest review that is read; it holds an object, and the one before it."""
    review_timeout_s: float = 8.0
    """Longest time for one answer; keep it below the API server's timeout for the webhook."""
    reload_interval_s: float = 10.0
    """Period at which the files are looked at for a new certificate."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """All settings of the operator."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to look after; with no labels either, all."""
    namespace_labels: str = ""
    """Label selector of more namespaces to look after, such as `onyx=on`; they may come and go."""
    namespaces_interval_s: float = 5.0
    """Period at which it is asked which namespaces have these labels."""
    kube: KubeSettings = field(default_factory=KubeSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    clusters: ClusterSettings = field(default_factory=ClusterSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    engine: Settings = field(default_factory=Settings)
    """From `ONYX_*`: defaults for clusters, and how to reach ZooKeeper."""


def operator_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Settings from variables: `ONYX_OPERATOR_KUBE_THREADS_MAX`, and `ONYX_*` for the engine.

    Raises:
        SettingsError: a variable does not have the type of its setting.
    """
    engine = from_environment(environment)
    return read(OperatorSettings, environment, "ONYX_OPERATOR", engine=engine)
