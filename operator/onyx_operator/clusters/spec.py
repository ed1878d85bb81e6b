"""What an OnyxCluster asks for, as a value: its worker pool, or why there can be none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onyx.errors import ManifestError, Problem
from onyx.model.cluster import Cluster
from onyx.model.parsing.cluster import parse_cluster
from onyx.settings import Settings
from onyx.submission.spark_pods import workers_run_spark
from onyx_operator.clusters.pod_rights import not_allowed
from onyx_operator.clusters.pool import Pool, code_of
from onyx_operator.connection import NoLog, connection, has_account_of_its_own
from onyx_operator.settings import ClusterSettings, OperatorSettings
from onyx_operator.work_queue import ObjectKey

DELETING = "Deleting"
"""Reason of a refusal: the cluster is being deleted."""


class ClusterRefusal(msgspec.Struct, frozen=True):
    """Why nothing is made or changed; what runs is left as it is."""

    reason: str
    """One word, for conditions and events."""
    message: str
    holder: ObjectKey | None = None
    """The cluster that has the log which this one asks for."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the spec, for whoever is about to store it; empty when its author cannot
    know."""


def read_spec(
    cluster: Mapping[str, Any],
    config_map: Mapping[str, Any] | None,
    operator: OperatorSettings,
) -> Pool | ClusterRefusal:
    """The pool that a cluster asks for, or why there is none.

    Args:
        cluster: the OnyxCluster object.
        config_map: the ConfigMap that `spec.code` names; None when it is not there.
        operator: defaults for clusters, and what they may ask for.
    """
    try:
        parsed = parse_cluster(cluster)
    except ManifestError as error:
        return ClusterRefusal("InvalidSpec", str(error))
    defaults, found = operator.clusters, connection(cluster, operator)
    known = found if isinstance(found, Settings) else None
    pool = Pool(
        cluster=parsed,
        namespace=cluster["metadata"]["namespace"],
        uid=cluster["metadata"]["uid"],
        tenancy_id=known.tenancy_id if known else "",
        tenancy_owner=known.tenancy_owner if known else "",
        zookeeper_address=known.zookeeper.address if known else "",
        draws_account=known is not None and has_account_of_its_own(known),
        image=parsed.image or _image(parsed, defaults),
        code=code_of(config_map) if config_map is not None else None,
        spark_role=defaults.spark_role,
    )
    # First, because it is the author's, whatever else is missing here now.
    problems = not_allowed(pool, defaults.pod_rights)
    if problems:
        said = "; ".join(map(str, problems))
        return ClusterRefusal("PodsNotAllowed", said, problems=problems)
    if not pool.image:
        return ClusterRefusal("ImageMissing", "spec.image is missing: name an image of workers")
    if isinstance(found, NoLog):
        return ClusterRefusal(found.reason, found.message)
    return _lacking(parsed, config_map, defaults) or pool


def _image(cluster: Cluster, defaults: ClusterSettings) -> str:
    return (workers_run_spark(cluster) and defaults.spark_image) or defaults.worker_image


def _lacking(
    parsed: Cluster, config_map: Mapping[str, Any] | None, defaults: ClusterSettings
) -> ClusterRefusal | None:
    """Why there can be no pool yet: something around it is missing."""
    if parsed.code is not None and config_map is None:
        return ClusterRefusal(
            "CodeMissing",
            f"ConfigMap {parsed.code.config_map} of spec.code is not there: make it",
        )
    if parsed.spark is not None and not defaults.spark_role:
        return ClusterRefusal(
            "SparkRoleMissing",
            "spec.spark asks for a Spark server, but the operator has no role for it "
            "(ONYX_OPERATOR_CLUSTERS_SPARK_ROLE): install the chart with spark.enabled=true, or "
            "remove spec.spark",
        )
    return None


def deleting(jobs: Sequence[str]) -> ClusterRefusal:
    """Why nothing is made for a cluster that is being deleted: it names the jobs that lose their
    workers."""
    losers = f"; jobs that lose their workers: {', '.join(jobs)}" if jobs else ""
    return ClusterRefusal(DELETING, f"the cluster is being deleted{losers}")


def taken(pool: Pool, holder: ObjectKey) -> ClusterRefusal:
    """Why there can be no pool: another cluster has its log."""
    tenancy, address = pool.tenancy_id, pool.zookeeper_address
    return ClusterRefusal(
        "TenancyTaken",
        f"tenancy {tenancy} at ZooKeeper {address} belongs to OnyxCluster {holder}, and two "
        "clusters would share all jobs: make this one anew with another spec.tenancyId, or delete "
        "the other one, whose jobs this one then takes over",
        holder,
    )


def as_declared(message: str, pods_key: str) -> str:
    """The API server's message about an object, with the paths that the cluster's owner wrote:
    `pods_key`, such as `spec.podTemplate`, for its template of pods."""
    text = message.replace(" .spec.", " spec.")
    return text.replace("spec.template.", f"{pods_key}.") if pods_key else text
