"""OnyxClusters as the owners of tenancies: who stands in the root of a log. Pure.

The name of an OnyxCluster is its identity, with the mark of its API server: one that is deleted and
made again goes on with its jobs. Its tenancy passes to another one of the same namespace only when
it is gone, or asks for another tenancy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_KIND = "OnyxCluster"
_PARTS = 4


class Tenant(msgspec.Struct, frozen=True):
    """One OnyxCluster."""

    server: str
    """Mark of the API server that has it."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join((_KIND, self.server, self.namespace, self.name))

    def may_follow(self, former: Tenant) -> bool:
        """Whether its tenancy may pass to this one, once that one is gone."""
        return (self.server, self.namespace) == (former.server, former.namespace)

    def is_same(self, former: Tenant) -> bool:
        """Whether it is that one, of an API server that has another mark by now."""
        return (self.namespace, self.name) == (former.namespace, former.name)


def tenant_of(cluster: Mapping[str, Any], server: str) -> Tenant:
    """An OnyxCluster as the owner of its tenancy."""
    metadata = cluster["metadata"]
    return Tenant(server, metadata["namespace"], metadata["name"])


def read_tenant(text: str) -> Tenant | None:
    """The owner that a log names; None when it is no OnyxCluster."""
    kind, *parts = text.split("/")
    return Tenant(*parts) if kind == _KIND and len(parts) == _PARTS - 1 else None
