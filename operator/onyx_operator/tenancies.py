"""Which OnyxCluster has a log. Two with one tenancy at one ZooKeeper would share it: the workers of
each would run the jobs of both, and the end of one would look like the end of the other's jobs.

So a log belongs to one cluster, and others that ask for it are refused until that one is gone. Who
has it, keeps it: its status says so, or this process has decided so a moment ago. Among those that
have nothing yet, the oldest is first. Whoever was refused names the holder in its status, and takes
over only when the API server knows that one no more: right after a start not all clusters may have
been seen yet.

Only clusters that this operator sees count; two Kubernetes clusters may share a log. One ZooKeeper
can be written in many ways: two addresses are the same if they have a server in common, a name of a
Service with its namespace or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from onyx.settings import Settings
from onyx_operator.connection import ZooKeeperHost, as_read_in, connection, tenancy_of
from onyx_operator.informers.informer import key_of
from onyx_operator.kube import Object
from onyx_operator.settings import OperatorSettings
from onyx_operator.work_queue import ObjectKey

Body = Mapping[str, Any]


class LogAddress(msgspec.Struct, frozen=True):
    """Where the log of a tenancy is; two are the same if they have a server in common."""

    tenancy: str
    servers: frozenset[ZooKeeperHost]

    def is_same(self, other: LogAddress | None) -> bool:
        """Whether both are one log."""
        if other is None or self.tenancy != other.tenancy:
            return False
        return not self.servers.isdisjoint(other.servers)


def log_address(tenancy: str, address: str, namespace: str) -> LogAddress:
    """The log of a tenancy at an address, as pods of a namespace read it."""
    return LogAddress(tenancy, frozenset(as_read_in(namespace, address)))


class Tenancies:
    """The tenancies of all clusters that one operator sees. Belongs to one event loop."""

    def __init__(
        self, settings: OperatorSettings, clusters: Callable[[], Iterable[Object]]
    ) -> None:
        """`settings`: with the defaults of clusters; `clusters`: all that are known."""
        self._settings = settings
        self._clusters = clusters
        self._decided: dict[str, LogAddress] = {}

    def holder(self, body: Body, *more: Body) -> ObjectKey | None:
        """The other cluster that has the log which this one asks for; None if there is none.

        Args:
            body: the cluster.
            more: others that there are beside those that are known.
        """
        wanted = self._wanted(body)
        if wanted is None:
            return None
        rivals = (
            self._rank(each, wanted)
            for each in (*self._clusters(), *more)
            if each["metadata"]["uid"] != body["metadata"]["uid"] and self._competes(each, wanted)
        )
        first = min(rivals, default=None)
        if first is None or self._rank(body, wanted) < first:
            return None
        _, _, namespace, name = first
        return ObjectKey(namespace, name)

    def is_refused(self, body: Body) -> bool:
        """Whether another cluster has its log, as far as is known or its own status says."""
        return refused_for(body) is not None or self.holder(body) is not None

    def claim(self, body: Body) -> None:
        """This cluster has the log that it asks for from now on."""
        if (wanted := self._wanted(body)) is not None:
            self._decided[body["metadata"]["uid"]] = wanted

    def forget(self, body: Body) -> list[ObjectKey]:
        """A cluster is gone: others that may have its log now."""
        self._decided.pop(body["metadata"]["uid"], None)
        had = [each for each in (self._held(body), self._wanted(body)) if each is not None]
        return [
            key_of(each)
            for each in self._clusters()
            if any(address.is_same(self._wanted(each)) for address in had)
        ]

    def _rank(self, body: Body, wanted: LogAddress) -> tuple[bool, str, str, str]:
        metadata, key = body["metadata"], key_of(body)
        uid = metadata["uid"]
        holds = wanted.is_same(self._held(body)) or wanted.is_same(self._decided.get(uid))
        return not holds, str(metadata.get("creationTimestamp", "")), key.namespace, key.name

    def _competes(self, body: Body, wanted: LogAddress) -> bool:
        """Whether another cluster has this log, or asks for it too."""
        status = body.get("status") or {}
        if wanted.tenancy not in (status.get("tenancyId"), tenancy_of(body)):
            return False
        return wanted.is_same(self._held(body)) or wanted.is_same(self._wanted(body))

    def _wanted(self, body: Body) -> LogAddress | None:
        """What it asks for; None if it may not."""
        found = connection(body, self._settings)
        if not isinstance(found, Settings):
            return None
        return log_address(found.tenancy_id, found.zookeeper.address, body["metadata"]["namespace"])

    def _held(self, body: Body) -> LogAddress | None:
        """What its status says that it has."""
        status = body.get("status") or {}
        tenancy, address = status.get("tenancyId"), status.get("zookeeperAddress")
        if not isinstance(tenancy, str) or not isinstance(address, str):
            return None
        return log_address(tenancy, address, body["metadata"]["namespace"])


def refused_for(body: Body) -> ObjectKey | None:
    """The holder that the status of a refused cluster names."""
    text = (body.get("status") or {}).get("tenancyHolder")
    namespace, slash, name = text.partition("/") if isinstance(text, str) else ("", "", "")
    return ObjectKey(namespace, name) if slash else None
