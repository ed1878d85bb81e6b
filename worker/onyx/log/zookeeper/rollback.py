"""Whether ZooKeeper has gone back behind what a client has seen: wiped, or restored from a backup.

A server refuses a client that has seen a later transaction than it has itself, and says so by
closing the connection: no different from a server that is starting. A client of a ZooKeeper that
has lost its data would knock for ever, suspended. So one that has been refused for a while asks as
somebody new how far the servers are. It asks behind a `sync`, since a single server of an ensemble
may lag; after that, no server knows less than what anybody has ever been told.
"""

from __future__ import annotations

from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException


def has_gone_back(seen: int, new_client: Callable[[], KazooClient], timeout_s: float) -> bool:
    """Whether the servers' last transaction is before `seen`; False when none answers.

    Args:
        seen: number of the last transaction that a client was told of.
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
