"""The Services of a cluster, and where clients of a job that takes requests find it. Pure.

A job cannot say so itself: it is the same on a laptop. Without a Service for what an input asks for
the job would run and be reached by nobody, so it is held back (`closed`). An input with plugin
`requests` is reached from the pods of workers in any case, and is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.errors import Problem
from onyx.model.cluster import Cluster
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import takes_requests
from onyx.model.report import at

TRANSPORT_PORT = 7700
_OVER_HTTP = "http"


def entrances(job: Job, cluster: Cluster, namespace: str, tenancy: str) -> list[dict[str, Any]]:
    """Each input that takes requests, with its addresses.

    Args:
        namespace: of both.
        tenancy: of the cluster, which a client names beside an address of gRPC.
    """
    return [
        {
            "task": entry.name,
            "tenancy": tenancy,
            **_http(job, entry, cluster, namespace),
            **_grpc(cluster, namespace),
        }
        for _, entry in _inputs(job)
    ]


def closed(job: Job, cluster: Cluster) -> tuple[Problem, ...]:
    """Inputs that take requests over HTTP, on a cluster that takes none."""
    if cluster.http is not None:
        return ()
    return tuple(
        Problem(
            at(at("spec.catalog", index), "plugin"),
            f"of task {entry.name} takes requests over HTTP, and OnyxCluster {cluster.name} none",
            "set spec.http: {} of the cluster (cluster.http.enabled=true of the chart)",
        )
        for index, entry in _inputs(job)
        if entry.plugin == _OVER_HTTP
    )


def pool_name(cluster: str) -> str:
    """Name of the StatefulSet of the cluster called so, and of its headless Service."""
    return f"{cluster}-worker"


def http_name(cluster: str) -> str:
    """Name of the Service for requests over HTTP of the cluster called so."""
    return f"{pool_name(cluster)}-http"


def grpc_name(cluster: str) -> str:
    """Name of the Service for requests over gRPC of the cluster called so."""
    return f"{pool_name(cluster)}-grpc"


def _inputs(job: Job) -> Iterator[tuple[int, CatalogEntry]]:
    for index, entry in enumerate(job.catalog):
        if takes_requests(entry.type, entry.plugin):
            yield index, entry


def _http(job: Job, entry: CatalogEntry, cluster: Cluster, namespace: str) -> dict[str, str]:
    if cluster.http is None or entry.plugin != _OVER_HTTP:
        return {}
    scheme = "http" if cluster.http.tls_secret_name is None else "https"
    host = f"{http_name(cluster.name)}.{namespace}.svc"
    return {"http": f"{scheme}://{host}/jobs/{job.name}/{entry.name}"}


def _grpc(cluster: Cluster, namespace: str) -> dict[str, str]:
    if cluster.grpc is None:
        return {}
    return {"grpc": f"{grpc_name(cluster.name)}.{namespace}.svc:{TRANSPORT_PORT}"}
