"""Step 2 for an OnyxCluster: what has to be done to its worker pool. Pure and total.

A plan compares and does not remember: the same observation makes the same plan, and once all is as
wanted, it has no actions. Its actions are values, which `act` carries out; all may be repeated. An
object in the way that belongs to somebody else is left alone, and pods do not run as an account
that does.

Workers with an account of their tenancy start when the operator has made the tenancy in ZooKeeper:
they may not, and where everybody still may, the first of them would own all tenancies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onyx_operator.clusters.observed import ClusterObservation, ExistingObject
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.readiness import spark_is_ready
from onyx_operator.clusters.resources import (
    ACCOUNTS,
    APPLIED_ANNOTATION,
    STATEFUL_SETS,
    ChildObject,
    children,
)
from onyx_operator.clusters.spec import ClusterRefusal
from onyx_operator.clusters.trees import contains
from onyx_operator.kube import SECRETS, Resource

SPARK_LOOK_INTERVAL_S = 5.0
"""Between looks at a Spark server that starts."""
LOG_LOOK_INTERVAL_S = 1.0
"""Between looks whether a new tenancy is there."""


class Apply(msgspec.Struct, frozen=True):
    """Create an object, or correct it."""

    child: ChildObject
    version: str = ""
    """Resource version of what there is; empty when there is none."""


class Draw(msgspec.Struct, frozen=True):
    """Create a Secret with what the operator draws; one that is there stays as it is."""

    child: ChildObject


class Delete(msgspec.Struct, frozen=True):
    """Delete an object that is not wanted any more."""

    resource: Resource
    name: str
    uid: str


Action = Apply | Draw | Delete


class ClusterPlan(msgspec.Struct, frozen=True):
    """What to do now, and why the cluster cannot be as its spec says."""

    actions: tuple[Action, ...] = ()
    trouble: ClusterRefusal | None = None
    again_in_s: float | None = None
    error: Exception | None = None
    """What an action failed with."""


def plan(seen: ClusterObservation) -> ClusterPlan:
    """Everything that is to be done to a cluster now."""
    pool = seen.wanted
    if isinstance(pool, ClusterRefusal):
        return ClusterPlan(trouble=pool)
    there = {(each.resource, each.name): each for each in seen.found}
    needed = {(child.resource, child.name): child for child in children(pool)}
    blocked = {key: why for key in needed if (why := _blocked(there.get(key), pool.uid))}
    waits = _waits(seen, pool)
    applied = (
        Draw(child) if child.resource == SECRETS else Apply(child, _version(there.get(key)))
        for key, child in needed.items()
        if not {key, (ACCOUNTS, child.account)} & blocked.keys()
        and not (waits and child.resource == STATEFUL_SETS)
        and not _right(child, there.get(key))
    )
    unwanted = (
        Delete(each.resource, each.name, str(each.body["metadata"]["uid"]))
        for key, each in there.items()
        if key not in needed and each.belongs_to(pool.uid) and not each.goes
    )
    trouble = "; ".join(f"{kind.kind} {name} {why}" for (kind, name), why in blocked.items())
    refusal = ClusterRefusal("NameTaken", trouble) if trouble else waits
    return ClusterPlan((*applied, *unwanted), refusal, _look_again_in_s(seen, pool, waits))


def _waits(seen: ClusterObservation, pool: Pool) -> ClusterRefusal | None:
    """Why workers cannot have the account of their tenancy yet."""
    if seen.trouble is None or not pool.draws_account or _have(seen.workers, pool.account_secret):
        return None
    said = f"workers start when their tenancy is there in ZooKeeper: {seen.trouble.message}"
    return ClusterRefusal(seen.trouble.reason, said)


def _have(workers: Mapping[str, Any] | None, secret: str) -> bool:
    """Whether workers mount a Secret."""
    pod = {} if workers is None else workers["spec"]["template"]["spec"]
    named = ((each.get("secret") or {}).get("secretName") for each in pod.get("volumes") or ())
    return secret in named


def _look_again_in_s(
    seen: ClusterObservation, pool: Pool, waits: ClusterRefusal | None
) -> float | None:
    """Nobody watches the pods of Spark: they are few, and change little once they run."""
    if waits is not None:
        return LOG_LOOK_INTERVAL_S
    return None if spark_is_ready(seen, pool) else SPARK_LOOK_INTERVAL_S


def _blocked(there: ExistingObject | None, uid: str) -> str:
    """Why an object of a name that the pool needs can be neither made nor changed."""
    if there is None:
        return ""
    if not there.belongs_to(uid):
        return "belongs to somebody else: rename one of the two"
    return "is being deleted, and is made again after that" if there.goes else ""


def _version(there: ExistingObject | None) -> str:
    return "" if there is None else str(there.body["metadata"]["resourceVersion"])


def _right(child: ChildObject, there: ExistingObject | None) -> bool:
    """Whether it has all that we apply now, and nothing that we applied once and no longer do."""
    if there is None:
        return False
    stamp = (there.body["metadata"].get("annotations") or {}).get(APPLIED_ANNOTATION)
    same = stamp == child.body["metadata"]["annotations"][APPLIED_ANNOTATION]
    return same and contains(there.body, child.body)
