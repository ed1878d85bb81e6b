"""Whose job it is: the name of an OnyxJob as it stands with each of its jobs in the log. Pure.

With it whoever reads the log finds the jobs whose objects are gone, without having seen them: there
is no finalizer that a deletion would wait for. The mark of the API server is part of it, so that of
two Kubernetes clusters that share a log neither takes the jobs of the other for abandoned.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Self

from onyx_operator.named import Named
from onyx_operator.work_queue import Key


class Owner(Named, frozen=True):
    """One OnyxJob object."""

    KIND = "OnyxJob"
    uid: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The owner that a log names; None when it is no OnyxJob."""
        found = super().read(text)
        return found if found is not None and _is_uid(found.uid) else None

    @property
    def key(self) -> Key:
        """Namespace and name, without the uid."""
        return Key(self.namespace, self.name)


def owner_of(body: Mapping[str, Any], server: str) -> Owner:
    """An OnyxJob as the owner of its jobs."""
    metadata = body["metadata"]
    return Owner(server, metadata["namespace"], metadata["name"], metadata["uid"])


def _is_uid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
