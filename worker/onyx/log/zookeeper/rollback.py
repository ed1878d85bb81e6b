"""Detects a ZooKeeper whose data was wiped or restored from an old backup.

A server refuses a client that has seen a later transaction than the server has, by closing the
connection: it looks like a server that is starting. The client would dial for ever, suspended. So a
client that has been refused for a while opens a new session, which the servers accept, and compares
their last transaction with its own. It asks behind a `sync`, since a single server of an ensemble
may lag; after that, every transaction that any client has seen is known to that
server.
"""

from __future__ import annotations

from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException


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
