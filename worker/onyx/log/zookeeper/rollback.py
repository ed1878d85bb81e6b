"""Detects a ZooKeeper whose data was wiped or restored from an old backup.

A server refuses a client that has seen a later transaction than the server has, by closing the
connection: it looks like a server that is starting. The client would dial for ever, suspended. So a
client that has been refused for a while opens a new session, which the servers accept, and compares
their last transaction with its own. It asks behind a `sync`, since a single server of an ensemble
may lag; after that, every transaction that any client has seen is known to that
server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from onyx.settings import ZooKeeperSettings

logger = logging.getLogger("onyx.log")


def has_gone_back(seen: int, new_client: Callable[[], KazooClient], timeout_s: float) -> bool:
    """Whether the servers' last transaction is before `seen`; False when none answers.

    Args:
        seen: number of the last transaction that a client has seen.
        new_client: makes a client of the same servers that has seen nothing.
        timeout_s: longest wait for an answer.
    """
    client = new_client()
    try:
        client.start(timeout=timeout_s)
        client.sync_async("/").get(timeout=timeout_s)
        return bool(client.last_zxid < seen)
    except (KazooException, client.handler.timeout_exception):
        return False
    finally:
        client.stop()
        client.close()


class Comparison:
    """Compares, on a thread of its own, one at a time."""

    def __init__(
        self, client: KazooClient, new: Callable[[], KazooClient], settings: ZooKeeperSettings
    ) -> None:
        """`client` may be refused; `new` makes others, which have seen nothing."""
        self._client = client
        self._new = new
        self._settings = settings
        self._under_way = False

    def start(self) -> None:
        """Begin, unless one is under way. Only on the thread of the loop."""
        if not self._under_way:
            self._under_way = True
            threading.Thread(target=self._compare, name="onyx-log-compare", daemon=True).start()

    def _compare(self) -> None:
        """When the servers have gone back, let them tell that they do not know the session."""
        client = self._client
        try:
            if has_gone_back(client.last_zxid, self._new, self._settings.connect_timeout_s):
                logger.error(
                    "ZooKeeper at %s has lost transactions that it had confirmed: its data was "
                    "wiped, or restored from a backup",
                    self._settings.address,
                )
                # A client that says that it has seen nothing is let in again, and then learns from
                # the server that its session is not known there: it ends as one that has expired.
                client.last_zxid = 0
        finally:
            self._under_way = False
