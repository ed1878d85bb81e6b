"""What has to be done to a worker pool: pure, total, from what is wanted and what there is.

It compares and does not remember: the same plan comes out however often it is made, and none once
all is as wanted. An object in the way that belongs to somebody else is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onyx_operator.clusters.compare import contains
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.resources import APPLIED_ANNOTATION, Child, children
from onyx_operator.kube import Resource

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """An object that there is, ours or not."""

    resource: Resource
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    def belongs_to(self, uid: str) -> bool:
        owners = self.body["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") == uid for owner in owners)

    @property
    def goes(self) -> bool:
        """It is being deleted already."""
        return "deletionTimestamp" in self.body["metadata"]


@dataclass(frozen=True, slots=True)
class Apply:
    """Create an object, or put it right."""

    child: Child
    version: str = ""
    """Resource version of what there is; empty when there is none."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that is not wanted any more."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Leave:
    """An object of a name that we need is somebody else's, or is going away."""

    resource: Resource
    name: str
    why: str


Action = Apply | Delete | Leave


def plan(pool: Pool, found: Sequence[Found]) -> tuple[Action, ...]:
    """Everything that is to be done now.

    Args:
        found: all objects that are labelled as this pool's, and whatever else has a name that the
            pool needs.
    """
    there = {(each.resource, each.name): each for each in found}
    needed = {(child.resource, child.name): child for child in children(pool)}
    steps = (_step(child, there.get(key), pool.uid) for key, child in needed.items())
    unwanted = (
        Delete(each.resource, each.name, str(each.body["metadata"]["uid"]))
        for key, each in there.items()
        if key not in needed and each.belongs_to(pool.uid) and not each.goes
    )
    return (*(step for step in steps if step is not None), *unwanted)


def _step(child: Child, there: Found | None, uid: str) -> Action | None:
    if there is None:
        return Apply(child)
    if not there.belongs_to(uid):
        return Leave(child.resource, child.name, "belongs to somebody else: rename one of the two")
    if there.goes:
        return Leave(child.resource, child.name, "is being deleted, and is made again after that")
    if _right(child, there.body):
        return None
    return Apply(child, str(there.body["metadata"]["resourceVersion"]))


def _right(child: Child, body: Object) -> bool:
    """Whether it has all that we say, and nothing that we said once and say no more."""
    said = (body["metadata"].get("annotations") or {}).get(APPLIED_ANNOTATION)
    same = said == child.body["metadata"]["annotations"][APPLIED_ANNOTATION]
    return same and contains(body, child.body)
