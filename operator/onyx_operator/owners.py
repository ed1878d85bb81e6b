"""Who owns what in a log: the OnyxJob of a job, the OnyxCluster of a tenancy, as logs name them.
Pure.

The name of an OnyxJob stands with each of its jobs: whoever reads the log finds the jobs whose
objects are gone, without having seen them, and there is no finalizer that a deletion would wait
for. The name of an OnyxCluster stands in the root of its log. The mark of the API server is part of
both, so that of two Kubernetes clusters that share a log neither takes what is the other's for
abandoned. Parts are joined by `/`, which is in none of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec
from msgspec.structs import astuple

from onyx_operator.work_queue import ObjectKey


class LogName(msgspec.Struct, frozen=True):
    """The name of an object of an API server, as it stands in a log."""

    KIND: ClassVar[str]
    server: str
    """Mark of the API server that has it."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join((self.KIND, *astuple(self)))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The object that a log names; None when it is none of this kind."""
        kind, *parts = text.split("/")
        if kind != cls.KIND or len(parts) != len(cls.__struct_fields__):
            return None
        return cls(*parts)


class JobOwner(LogName, frozen=True):
    """One OnyxJob, as the owner of its jobs."""

    KIND = "OnyxJob"
    uid: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The owner that a log names; None when it is no OnyxJob."""
        found = super().read(text)
        return found if found is not None and _is_uid(found.uid) else None

    @property
    def key(self) -> ObjectKey:
        """Namespace and name, without the uid."""
        return ObjectKey(self.namespace, self.name)


class Tenant(LogName, frozen=True):
    """One OnyxCluster, as the owner of its tenancy."""

    KIND = "OnyxCluster"

    def may_follow(self, former: Tenant) -> bool:
        """Whether its tenancy may pass to this one, once that one is gone."""
        return (self.server, self.namespace) == (former.server, former.namespace)

    def is_same(self, former: Tenant) -> bool:
        """Whether it is that one, of an API server that has another mark by now."""
        return (self.namespace, self.name) == (former.namespace, former.name)


def owner_of(body: Mapping[str, Any], server: str) -> JobOwner:
    """An OnyxJob as the owner of its jobs."""
    metadata = body["metadata"]
    return JobOwner(server, metadata["namespace"], metadata["name"], metadata["uid"])


def _is_uid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
