"""Commands that tests of the log write: distinguished by a name, as large as a test wants."""

from __future__ import annotations

from onyx.replica.commands import AddVirtualPeer


def marker(name: str, **values: str | int) -> AddVirtualPeer:
    """One command; its name is read as `.id` and its values as `.peer_site`."""
    return AddVirtualPeer(id=name, group_id="g", peer_site=values or None)
