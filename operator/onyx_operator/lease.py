"""Which of several operators works: the one that holds a Lease; others wait, watch, answer reviews.

The Lease saves work, and is no fence: each write has its own (see `reconciler`), so two that work
for a moment do no harm. So whoever holds it goes on while the API server does not answer, and ends
only when it sees that another one has the Lease.

The Lease goes with the Deployment of its name, whose pods the operators are. It is free when its
holder has given it back, or has not renewed it while we looked on for its whole duration, by our
own clock: clocks of other machines decide nothing. Rejected: kopf's peering, which is a kind of its
own to install and pauses the streams that an operator in waiting needs to answer reviews and to
take over at once; a Lease that is lost with the API server, which would start all operators again
when it comes back.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from onyx.errors import OnyxError, Unavailable
from onyx_operator.kube import DEPLOYMENTS, Conflict, Kube, Object, Resource
from onyx_operator.settings import LeaseSettings

logger = logging.getLogger(__name__)

LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")
LOOKS_PER_DURATION = 5
"""How often a Lease is looked at, and renewed, while it holds."""


class OperatorLease:
    """The Lease as one operator sees it. Belongs to one event loop. Without a name there is none,
    and each operator works."""

    def __init__(
        self,
        kube: Kube,
        settings: LeaseSettings,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._settings, self._monotonic_s = kube, settings, monotonic_s
        self.holder = settings.holder or socket.gethostname()
        self._seen: tuple[str, float] = ("", 0.0)
        """The version that was seen last, and since when."""

    async def taken(self) -> None:
        """Wait until it is ours."""
        while not await self._tried():
            await self._pause()

    async def lost(self) -> str:
        """Renew it, until another operator has it: the name of that one."""
        while True:
            found = await self._answer()
            if found is not None and _holder(found) != self.holder:
                return _holder(found)
            await self._pause()

    async def give_back(self) -> None:
        """Let the next one begin at once."""
        if not self._settings.name:
            return
        try:
            found = await self._read()
            if found is not None and _holder(found) == self.holder:
                await self._write(found, "")
        except OnyxError as error:
            logger.warning("%s is not given back, and is free a moment later: %s", self, error)

    async def look(self) -> Object:
        """The Lease after we have asked for it: ours, if it was free.

        Raises:
            KubeError, Unavailable: the API server refuses, or cannot be reached.
        """
        found = await self._read()
        if found is None:
            return await self._create()
        if _holder(found) in ("", self.holder) or self._is_stale(found):
            return await self._write(found, self.holder)
        return found

    async def _tried(self) -> bool:
        if not self._settings.name:
            return True
        found = await self._answer()
        return found is not None and _holder(found) == self.holder

    async def _answer(self) -> Object | None:
        """The Lease; None when somebody was quicker, or nobody answers."""
        if not self._settings.name:
            return None
        try:
            return await self.look()
        except Conflict:
            return None
        except OnyxError as error:
            logger.warning("%s cannot be looked at: %s", self, error)
            return None

    def _is_stale(self, found: Object) -> bool:
        """Whether it has not changed while we looked on, as long as its holder may be silent."""
        version, now_s = str(found["metadata"].get("resourceVersion")), self._monotonic_s()
        if version != self._seen[0]:
            self._seen = version, now_s
        return now_s - self._seen[1] >= self._settings.duration_s

    async def _read(self) -> Object | None:
        return await self._kube.get(LEASES, self._settings.namespace, self._settings.name)

    async def _create(self) -> Object:
        where = {"namespace": self._settings.namespace, "name": self._settings.name}
        owner = await self._kube.get(DEPLOYMENTS, **where)
        if owner is None:
            raise Unavailable("its Deployment is not there; that is so while it is uninstalled")
        kind = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind}
        reference = {**kind, "name": where["name"], "uid": owner["metadata"]["uid"]}
        metadata = {**where, "ownerReferences": [reference]}
        spec = {**self._spec(self.holder), "acquireTime": _now(), "leaseTransitions": 0}
        return await self._kube.create(LEASES, {"metadata": metadata, "spec": spec})

    async def _write(self, found: Object, holder: str) -> Object:
        spec = self._spec(holder)
        if _holder(found) != holder:
            changes = (found.get("spec") or {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": _now(), "leaseTransitions": changes + bool(holder)}
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        change = {"metadata": version, "spec": spec}
        where = self._settings
        return await self._kube.patch(LEASES, where.namespace, where.name, change)

    def _spec(self, holder: str) -> dict[str, Any]:
        seconds = max(1, round(self._settings.duration_s))
        return {"holderIdentity": holder, "renewTime": _now(), "leaseDurationSeconds": seconds}

    async def _pause(self) -> None:
        await asyncio.sleep(self._settings.duration_s / LOOKS_PER_DURATION)

    def __str__(self) -> str:
        return f"Lease {self._settings.namespace}/{self._settings.name}"


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _now() -> str:
    """The time as a Lease has it, with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
