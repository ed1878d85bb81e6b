"""Secrets that are made once, and renewed when they are due: whoever else does the same agrees.

A Secret is made if it is absent, and changed only as the version that was read. Who loses a race
reads what the winner has written. A Secret without the operator's label is its owner's: it is used
as it is. Nothing owns these Secrets, so that an uninstallation leaves them beside the data that
they protect.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
from collections.abc import Callable, Mapping

import msgspec

from onyx.errors import Unavailable
from onyx_operator.kube import MANAGER, SECRETS, Conflict, Kube, NotFound, Object

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 10
"""Races that are lost in a row before something is wrong."""
_OWNER_LABEL = "app.kubernetes.io/managed-by"

Data = Mapping[str, bytes]


class Kept(msgspec.Struct, frozen=True):
    """What a Secret of the installation is to have."""

    name: str
    type: str
    due: Callable[[Data | None], Data | None]
    """New content in the place of this (None: of none), or None when nothing is due."""


async def keep(kube: Kube, namespace: str, wanted: Kept) -> Data:
    """The content of a Secret, after it was made or renewed if that was due.

    Raises:
        KubeError, Unavailable: the API server refuses, or cannot be reached.
    """
    for _ in range(ATTEMPTS_MAX):
        found = await kube.get(SECRETS, namespace, wanted.name)
        if found is not None and not _is_ours(found):
            return _decoded(found)
        before = None if found is None else _decoded(found)
        new = wanted.due(before)
        if new is None:
            assert before is not None
            return before
        with contextlib.suppress(Conflict, NotFound):  # somebody was first
            await _write(kube, namespace, wanted, found, new)
            logger.info("Secret %s is %s", wanted.name, "renewed" if found else "made")
            return new
    raise Unavailable(f"Secret {wanted.name} changes whenever it is to be changed")


async def _write(kube: Kube, namespace: str, wanted: Kept, found: Object | None, new: Data) -> None:
    data = {key: base64.b64encode(value).decode() for key, value in new.items()}
    if found is None:
        labels = {_OWNER_LABEL: MANAGER, "app.kubernetes.io/part-of": "onyx"}
        metadata = {"name": wanted.name, "namespace": namespace, "labels": labels}
        await kube.create(SECRETS, {"metadata": metadata, "type": wanted.type, "data": data})
        return
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    await kube.patch(SECRETS, namespace, wanted.name, {"metadata": version, "data": data})


def _is_ours(secret: Object) -> bool:
    return (secret["metadata"].get("labels") or {}).get(_OWNER_LABEL) == MANAGER


def _decoded(secret: Object) -> Data:
    found = {}
    for key, value in (secret.get("data") or {}).items():
        with contextlib.suppress(binascii.Error):
            found[key] = base64.b64decode(value)
    return found
