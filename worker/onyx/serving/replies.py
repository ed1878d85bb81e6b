"""What is said over HTTP, and what is not taken; pure."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class Reply(msgspec.Struct, frozen=True):
    """What goes to the client."""

    code: int
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    content_type: str = "application/json"

    async def to(self, send: Send) -> None:
        """Send it, as ASGI has it."""
        headers = [
            (b"content-type", self.content_type.encode()),
            (b"content-length", b"%d" % len(self.body)),
            *((name.encode(), value.encode("latin-1")) for name, value in self.headers.items()),
        ]
        await send({"type": "http.response.start", "status": self.code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Rejected(Exception):
    """A request is not taken, for a reason that HTTP has a status for."""

    def __init__(self, code: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.headers = dict(headers or {})


def after(seconds: float) -> dict[str, str]:
    """The header that says when to come again, in whole seconds."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
