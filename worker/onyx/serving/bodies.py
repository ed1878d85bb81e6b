"""Bodies of requests, read as they come and given up as soon as they are too much."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from onyx.serving.replies import Rejected, after
from onyx.serving.shares import ADDRESS_FAVOUR, OWNER_FAVOUR, HeldShares, Shares

FULL_RETRY_S = 1.0

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class BodyLimits(Protocol):
    """Settings of a server."""

    @property
    def body_bytes_max(self) -> int:
        """Largest body of a request."""

    @property
    def bodies_bytes_max(self) -> int:
        """Bytes of bodies in memory."""

    @property
    def body_timeout_s(self) -> float:
        """Longest time to send a body."""


class Vanished(Exception):
    """The client has closed the connection."""


class Bodies:
    """The bodies in memory, from their first byte to the answer of their request."""

    def __init__(self, limits: BodyLimits) -> None:
        self._max = limits.body_bytes_max
        self._timeout_s = limits.body_timeout_s
        self._by_address = Shares(limits.bodies_bytes_max, ADDRESS_FAVOUR)
        self._by_owner = Shares(limits.bodies_bytes_max, OWNER_FAVOUR)

    async def read(
        self, receive: Receive, length: int | None, held: HeldShares, address: str, owner: str
    ) -> bytes:
        """A whole body.

        Args:
            length: bytes that the client has announced.
            held: what is read belongs to it.
            address: of the client.
            owner: for whom it is.

        Raises:
            Rejected: it is too large or too slow, or there is no room.
            Vanished: the client has gone.
        """
        if length is not None:
            self._check(length)
            if not self._by_address.room(address, length) or not self._by_owner.room(owner, length):
                raise _no_room()
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._timeout_s):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Vanished
                    part: bytes = message.get("body", b"")
                    more = message.get("more_body", False)
                    self._check(len(body) + len(part))
                    self._hold(held, len(part), address, owner)
                    if not more and not body:
                        return part  # as it came, without a copy
                    body += part
                    del message, part  # it is there twice while the next one is waited for
        except TimeoutError as error:
            what = f"the body has not come within {self._timeout_s:g} s"
            raise Rejected(408, what, {"Connection": "close"}) from error
        return bytes(body)

    def _check(self, size: int) -> None:
        if size > self._max:
            raise Rejected(413, f"a body has at most {self._max:,} bytes: send several requests")

    def _hold(self, held: HeldShares, count: int, address: str, owner: str) -> None:
        by_address = held.take(self._by_address, address, count)
        if not by_address or not held.take(self._by_owner, owner, count):
            raise _no_room()


def _no_room() -> Rejected:
    return Rejected(429, "other requests need the memory of this worker", after(FULL_RETRY_S))
