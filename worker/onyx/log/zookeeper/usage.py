"""How many bytes a tenancy has in ZooKeeper, as the server counts them.

The server keeps a sum for each node that has a *quota*, of all nodes below it, and gives it in one
read. The quota that is set here limits nothing: a server that refused a write would break what
runs. Its nodes are below `/zookeeper/quota`, which is the server's own, so requests go past kazoo's
prefix for a connect string that ends with a path. Where this process may not make them the sum is
unknown.

Rejected: to add up the nodes, a request for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create, GetData
from kazoo.security import OPEN_ACL_UNSAFE

from onyx.log.paths import Paths
from onyx.log.zookeeper.access import Access
from onyx.log.zookeeper.session import Denied, ZooKeeperSession

QUOTA = "/zookeeper/quota"
LIMITS, SUMS = "zookeeper_limits", "zookeeper_stats"
_WITHOUT_LIMITS, _NO_SUMS = b"count=-1,bytes=-1", b"count=0,bytes=0"
_BYTES = re.compile(rb"bytes=(\d+)")


class Counted:
    """The bytes of one tenancy."""

    def __init__(self, session: ZooKeeperSession, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def held(self) -> int | None:
        """How many there are; None when the server does not count them for this process.

        Raises:
            Fenced, Unavailable: as `ZooKeeperSession.perform`.
        """
        try:
            try:
                return self._read()
            except NoNodeError:
                self.begin(self._session.access)
                return self._read()
        except (NoNodeError, Denied):
            return None

    def begin(self, access: Access) -> None:
        """Let the server count.

        Args:
            access: of this process, and of the tenancy, which may read the sum.

        Raises:
            Denied: this process may not.
            NoNodeError: the server does not know quotas.
            Fenced, Unavailable: as `ZooKeeperSession.perform`.
        """
        top = self._top()
        for node in (*self._above(), top):
            self._create(node, b"", access.closed)
        self._create(f"{top}/{LIMITS}", _WITHOUT_LIMITS, access.owners)
        self._create(f"{top}/{SUMS}", _NO_SUMS, access.shown)

    def _read(self) -> int | None:
        path = f"{self._top()}/{SUMS}"
        data, _ = self._session.perform(lambda client: _sent(client, GetData(path, None)))
        found = _BYTES.search(bytes(data))
        return int(found[1]) if found else None

    def _create(self, path: str, data: bytes, acl: tuple[Any, ...] | None) -> None:
        request = Create(path, data, acl or OPEN_ACL_UNSAFE, 0)
        try:
            self._session.perform(lambda client: _sent(client, request))
        except NodeExistsError:
            return

    def _top(self) -> str:
        return f"{QUOTA}{self._session.chroot}{self._paths.root}"

    def _above(self) -> Iterator[str]:
        names = self._top().removeprefix(f"{QUOTA}/").split("/")
        for end in range(1, len(names)):
            yield "/".join([QUOTA, *names[:end]])


def _sent(client: KazooClient, request: Any) -> Any:
    result = client.handler.async_result()
    client._call(request, result)
    return result
