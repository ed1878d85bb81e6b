"""What a plan for an OnyxCluster may ask for, as values. All actions may be repeated."""

from __future__ import annotations

from dataclasses import dataclass

from onyx_operator.clusters.resources import Child
from onyx_operator.kube import Resource


@dataclass(frozen=True, slots=True)
class Apply:
    """Create an object, or correct it."""

    child: Child
    version: str = ""
    """Resource version of what there is; empty when there is none."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Create a Secret with a new token; one that is there stays as it is."""

    child: Child


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that is not wanted any more."""

    resource: Resource
    name: str
    uid: str


Action = Apply | Draw | Delete
