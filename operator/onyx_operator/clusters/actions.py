"""What a plan for an OnyxCluster may ask for, as values. All actions may be repeated."""

from __future__ import annotations

import msgspec

from onyx_operator.clusters.resources import Child
from onyx_operator.kube import Resource


class Apply(msgspec.Struct, frozen=True):
    """Create an object, or correct it."""

    child: Child
    version: str = ""
    """Resource version of what there is; empty when there is none."""


class Draw(msgspec.Struct, frozen=True):
    """Create a Secret with what the operator draws; one that is there stays as it is."""

    child: Child


class Delete(msgspec.Struct, frozen=True):
    """Delete an object that is not wanted any more."""

    resource: Resource
    name: str
    uid: str


Action = Apply | Draw | Delete
