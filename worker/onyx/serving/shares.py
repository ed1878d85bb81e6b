"""Shares of what a process has only so much of: places for requests, bytes of their bodies.

Whoever holds much gets more only while much is free, so that there is always some for who comes
next: with `favour` 4 one holder gets four fifths, two get four ninths each, and so on. Rejected: a
fixed part for each, which leaves most of it unused where there is one; taking back from who holds
the most, which breaks off what has been begun.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Any

OWNER_FAVOUR = 4
"""For those for whom requests are."""
ADDRESS_FAVOUR = 16
"""For addresses: sixteen seventeenths for one, because behind a gateway all clients have the same.
"""


class Shares:
    """Something of which there is `size`. On one thread."""

    def __init__(self, size: int, favour: int) -> None:
        """
        Args:
            favour: how many times of what is free one holder may have.
        """
        self._size = size
        self._favour = favour
        self._by_holder: dict[str, int] = {}
        self.held = 0
        """By all together."""

    def room(self, holder: str, count: int = 1) -> bool:
        """Whether a holder may have so much more. Who comes first gets what it asks for."""
        free = self._size - self.held
        mine = self._by_holder.get(holder, 0) + count
        return not self.held or (count <= free and mine <= self._favour * free)

    def _take(self, holder: str, count: int) -> None:
        self._by_holder[holder] = self._by_holder.get(holder, 0) + count
        self.held += count

    def _give_back(self, holder: str, count: int) -> None:
        self.held -= count
        self._by_holder[holder] -= count
        if not self._by_holder[holder]:
            del self._by_holder[holder]


class HeldShares:
    """What one request holds; a context, at whose end it holds nothing."""

    def __init__(self) -> None:
        self._parts: dict[tuple[Shares, str], int] = {}

    def take(self, shares: Shares, holder: str, count: int = 1) -> bool:
        """Hold so much more; false if the holder has its share already."""
        if not shares.room(holder, count):
            return False
        shares._take(holder, count)
        part = (shares, holder)
        self._parts[part] = self._parts.get(part, 0) + count
        return True

    def __enter__(self) -> HeldShares:
        return self

    def __exit__(self, *_: object) -> None:
        for (shares, holder), count in self._parts.items():
            shares._give_back(holder, count)


def address_of(client: tuple[Any, ...] | None) -> str:
    """Who holds what a client is given: its address; of IPv6 the network, in which each client has
    as many as it likes. Empty for sockets without any."""
    return _network(client[0]) if client else ""


@lru_cache(1_024)
def _network(host: str) -> str:
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)
