"""Everything that a plan for an OnyxCluster is made from, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onyx.log.tenancy import Usage
from onyx.reports.deaths import Death
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.spec import ClusterRefusal
from onyx_operator.kube import Resource
from onyx_operator.logs.state import Trouble


class ExistingObject(msgspec.Struct, frozen=True):
    """An object that there is, ours or not."""

    resource: Resource
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the object; unique in its kind."""
        return str(self.body["metadata"]["name"])

    def belongs_to(self, uid: str) -> bool:
        """Whether the OnyxCluster with this uid owns it."""
        owners = self.body["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") == uid for owner in owners)

    @property
    def goes(self) -> bool:
        """The object is being deleted already."""
        return "deletionTimestamp" in self.body["metadata"]


class ClusterObservation(msgspec.Struct, frozen=True):
    """An OnyxCluster and everything around it."""

    body: Mapping[str, Any]
    """The OnyxCluster object."""
    wanted: Pool | ClusterRefusal
    """The pool that its spec asks for."""
    now_s: float = 0.0
    """Seconds since the epoch."""
    found: Sequence[ExistingObject] = ()
    """All objects that are labelled as the pool's, and whatever else has a name that it needs."""
    workers: Mapping[str, Any] | None = None
    """The StatefulSet, if it is ours."""
    pods: Sequence[Mapping[str, Any]] = ()
    """The pods; read only when not all workers are ready."""
    spark_pods: Sequence[Mapping[str, Any]] = ()
    """The pods of the Spark server and its executors."""
    deaths: Sequence[Death] = ()
    """Worker processes that have died in the last minutes, as their supervisors report."""
    usage: Usage | None = None
    """What its tenancy holds in ZooKeeper; None: not known."""
    trouble: Trouble | None = None
    """Why its log cannot be used now."""
    said: Sequence[str] = ()
    """What pods that run and are not ready say of it."""
