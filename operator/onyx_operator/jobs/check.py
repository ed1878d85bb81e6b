"""Checks an OnyxJob against the cluster that it names, before it is stored. Pure.

It finds warnings, never problems: a cluster may be made or changed after its jobs, and an image may
contain modules that the cluster does not list. Spark that the workers do not run, and what Spark
would not find in the pods of the cluster, hold the job back until then, and so does a way in that
the cluster does not have, or what the job asks for beyond its quotas (`unfit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from onyx.errors import ManifestError, Problem
from onyx.model.cluster import Cluster
from onyx.model.functions import function_names
from onyx.model.job import Job
from onyx.model.parsing.cluster import parse_cluster
from onyx.model.parsing.job import parse_declared
from onyx.settings import LogSettings
from onyx.submission.quotas import over_quota
from onyx.submission.spark_pods import spark_pods, unseen, without_spark
from onyx_operator.conditions import problem_lines
from onyx_operator.connection import limits_of
from onyx_operator.entrances import closed, entrances

CLUSTERS_KEPT = 256
"""Clusters that are not parsed again: each job looks at its own at every turn."""


def check(body: Mapping[str, Any], cluster: Mapping[str, Any] | None) -> list[Problem]:
    """Warnings about an OnyxJob that is valid by itself.

    Args:
        cluster: the OnyxCluster that it names, None if there is none.
    """
    try:
        declared, job = parse_declared(body)
    except ManifestError:
        return []
    if cluster is None:
        where, name = body["metadata"].get("namespace"), declared.cluster_ref
        message = (
            f"there is no OnyxCluster {name} in namespace {where} yet, and the job waits for it"
        )
        return [Problem("spec.clusterRef", message)]
    if job is None:
        return []
    return [*_unknown(job, declared.cluster_ref, _modules(cluster)), *unfit(job, cluster)]


def unfit(job: Job, cluster: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Why the pods of an OnyxCluster could not run a job, or its owner lets none have so much;
    empty if nothing is known against it."""
    parsed = _cluster(cluster)
    if parsed is None:
        return ()
    lacking, pods = without_spark(job, parsed), spark_pods(parsed)
    limits = limits_of(cluster, LogSettings())
    executors = () if pods is None else unseen(job, pods)
    spark = executors if lacking is None else (lacking,)
    return (*closed(job, parsed), *over_quota(job, limits), *spark)


def why_unfit(job: Job, cluster: Mapping[str, Any]) -> str:
    """What `unfit` finds, in words for a person; empty if nothing is known against it."""
    return problem_lines(unfit(job, cluster))


def ways_in(job: Job, cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where clients of a job find it on an OnyxCluster; empty if it takes no requests."""
    parsed = _cluster(cluster)
    if parsed is None:
        return []
    tenancy = str((cluster.get("status") or {}).get("tenancyId", ""))
    return entrances(job, parsed, cluster["metadata"]["namespace"], tenancy)


def _cluster(body: Mapping[str, Any]) -> Cluster | None:
    """An OnyxCluster as a value; None if it is none, which its own conditions say."""
    named = {"name": body["metadata"]["name"]}
    return _parsed(msgspec.json.encode({**body, "metadata": named, "status": {}}))


@lru_cache(CLUSTERS_KEPT)
def _parsed(body: bytes) -> Cluster | None:
    try:
        return parse_cluster(msgspec.json.decode(body))
    except ManifestError:
        return None


def _modules(cluster: Mapping[str, Any]) -> Sequence[str]:
    listed = (cluster.get("spec") or {}).get("modules")
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []


def _unknown(job: Job, cluster: str, modules: Sequence[str]) -> Iterator[Problem]:
    """One warning for each module that the cluster does not offer."""
    reported: set[str] = set()
    for path, name in function_names(job):
        module = name.partition(":")[0]
        offered = any(module == each or module.startswith(f"{each}.") for each in modules)
        if not offered and module not in reported:
            reported.add(module)
            listed = ", ".join(modules) or "none"
            message = f"OnyxCluster {cluster} offers no functions of {module} (it has {listed})"
            yield Problem(path, message, f"add {module} to its spec.modules")
