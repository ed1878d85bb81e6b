"""Faults on demand: what an API server does on a bad day.

A `Fault` says which requests it meets and what happens to them; it is used up after `times` of
them. Faults are plain data, so that a test reads as a table. A server that is down is a switch of
its own (`FakeApi.down`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tests.operator.fake_api.errors import ApiError
from tests.operator.fake_api.paths import Target

REASONS = {
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True)
class Fault:
    """One fault. Empty words meet every request.

    Exactly what happens: with `delay_s` the request waits first; with `code` it is refused; with
    `drop` the connection is cut, before the request has an effect or, with `after_effect`, when
    it has had it and only the reply is lost. On a watch, `code` 410 is sent within the stream, as
    the real server does, and `drop` cuts the stream after `after_events` events.
    """

    verb: str = ""
    resource: str = ""
    subresource: str | None = None
    name: str = ""
    code: int = 0
    drop: bool = False
    delay_s: float = 0.0
    after_effect: bool = False
    after_events: int = 0
    retry_after_s: int = 0
    """With code 429: the pause that the server asks for; 0 asks for none."""
    skip: int = 0
    """Requests that are let through first."""
    times: int = 1
    """Requests that are met; 0: all, until the fault is cleared."""

    def meets(self, target: Target) -> bool:
        return (
            self.verb in ("", target.verb)
            and self.resource in ("", target.resource)
            and self.subresource in (None, target.subresource)
            and self.name in ("", target.name)
        )

    def error(self) -> ApiError:
        details = {"retryAfterSeconds": self.retry_after_s} if self.retry_after_s else {}
        reason = REASONS.get(self.code, "Unknown")
        return ApiError(self.code, reason, f"injected fault: {reason}", details)


class Faults:
    """The faults that are waiting, first come first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Fault, int]] = []
        self.met = 0
        """Requests that a fault has met so far."""

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._waiting += [(fault, 0) for fault in faults]

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def take(self, target: Target) -> Fault | None:
        """The fault that this request meets, counted; None if it meets none."""
        with self._lock:
            for index, (fault, seen) in enumerate(self._waiting):
                if not fault.meets(target):
                    continue
                seen += 1
                if fault.times and seen >= fault.skip + fault.times:
                    del self._waiting[index]
                else:
                    self._waiting[index] = (fault, seen)
                if seen > fault.skip:
                    self.met += 1
                    return fault
        return None
