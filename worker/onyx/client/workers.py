"""The workers of a cluster, as their peers have announced them."""

from __future__ import annotations

from onyx.errors import Unavailable
from onyx.replica.state import Replica


def addresses_of(replica: Replica) -> list[str]:
    """Where the workers listen, `host:port`, each once, in the order of joining.

    Raises:
        Unavailable: there is no worker.
    """
    sites = [replica.peer_sites[peer] for peer in replica.peers if peer in replica.peer_sites]
    found = dict.fromkeys(str(site["address"]) for site in sites if site.get("address"))
    if not found:
        raise Unavailable("the cluster has no worker: start one with `onyx worker`")
    return list(found)
