"""Whose job it is: the name of an OnyxJob as it stands with each of its jobs in the log. Pure.

With it whoever reads the log finds the jobs whose objects are gone, without having seen them: there
is no finalizer that a deletion would wait for. The mark of the API server is part of it, so that of
two Kubernetes clusters that share a log neither takes the jobs of the other for abandoned.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from onyx_operator.work_queue import Key

_KIND = "OnyxJob"
_PARTS = 5


class Owner(msgspec.Struct, frozen=True):
    """One OnyxJob object."""

    server: str
    """Mark of the API server that has it."""
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return "/".join((_KIND, self.server, self.namespace, self.name, self.uid))

    @property
    def key(self) -> Key:
        """Namespace and name, without the uid."""
        return Key(self.namespace, self.name)


def owner_of(body: Mapping[str, Any], server: str) -> Owner:
    """An OnyxJob as the owner of its jobs."""
    metadata = body["metadata"]
    return Owner(server, metadata["namespace"], metadata["name"], metadata["uid"])


def read_owner(text: str) -> Owner | None:
    """The owner that a log names; None when it is no OnyxJob."""
    kind, *parts = text.split("/")
    if kind != _KIND or len(parts) != _PARTS - 1 or not _is_uid(parts[-1]):
        return None
    return Owner(*parts)


def _is_uid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
