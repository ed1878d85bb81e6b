"""Bodies of requests, read as they come and given up as soon as they are too much."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onyx.front.replies import Rejected, after
from onyx.settings import HttpSettings

FULL_RETRY_S = 1.0

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Vanished(Exception):
    """The client has closed the connection."""


class Bodies:
    """The bodies in memory, from their first byte to the answer of their request."""

    def __init__(self, settings: HttpSettings) -> None:
        self._max = settings.body_bytes_max
        self._all_max = settings.bodies_bytes_max
        self._timeout_s = settings.body_timeout_s
        self.held_bytes = 0

    async def read(self, receive: Receive, length: int | None, held: Held) -> bytes:
        """A whole body.

        Args:
            length: bytes that the client has announced.
            held: counts what is read, until it is released.

        Raises:
            Rejected: it is too large or too slow, or there is no room.
            Vanished: the client has gone.
        """
        if length is not None:
            self._check(length, length)
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self._timeout_s):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Vanished
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    self._check(size, len(part))
                    held.hold(len(part))
                    parts.append(part)
        except TimeoutError as error:
            what = f"the body has not come within {self._timeout_s:g} s"
            raise Rejected(408, what, {"Connection": "close"}) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check(self, size: int, more: int) -> None:
        if size > self._max:
            raise Rejected(413, f"a body has at most {self._max:,} bytes: send several requests")
        if self.held_bytes + more > self._all_max and self.held_bytes:
            raise Rejected(
                429, "other requests need the memory of this worker", after(FULL_RETRY_S)
            )


class Held:
    """What one request holds; a context."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._bytes = 0

    def hold(self, count: int) -> None:
        """So many bytes more."""
        self._bytes += count
        self._bodies.held_bytes += count

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.held_bytes -= self._bytes
