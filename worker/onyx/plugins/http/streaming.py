"""Requests at least once: each is sent as soon as it is full, or old enough."""

from __future__ import annotations

from onyx.flow.batch import Segments
from onyx.plugins.http.bodies import Body
from onyx.plugins.http.dispatch import Dispatch
from onyx.plugins.roll_limits import ROLL_LIMITS
from onyx.plugins.rolling import RollingWriter


class StreamingWriter(RollingWriter):
    """The writer of a job that is not exactly-once."""

    def __init__(self, dispatch: Dispatch) -> None:
        super().__init__(dispatch.context, ROLL_LIMITS)
        self._dispatch = dispatch
        self._bodies = dispatch.bodies
        self._deliveries = dispatch.deliveries(first=0, raises=not dispatch.context.answers)
        self._opened_s = 0.0
        """Since when segments wait for their body to be full."""

    def take(self, segments: Segments) -> None:
        """Add segments. Raises like `Output.write`."""
        with self._guarded():
            self._settle()
            self._dispatch.require_room(len(self._deliveries))
        was_empty = not self._bodies.waiting
        full = self._bodies.add(segments)  # what it refuses is not taken, and breaks nothing
        with self._guarded():
            if was_empty or full:
                self._opened_s = self._context.clock.monotonic_s()
            self._send(full)

    def tick(self) -> None:
        """Send what has waited long enough, and look what is settled."""
        with self._guarded():
            age_s = self._context.clock.monotonic_s() - self._opened_s
            is_due = age_s >= self._dispatch.options.request_seconds
            if self._bodies.waiting and (self._flushing or is_due):
                self._send(self._bodies.finish())
            self._dispatch.tick()
            self._settle()
            self._flushing = self._flushing and bool(len(self._deliveries))

    def flush(self) -> None:
        """Send what there is, and wait a limited time for the answers."""
        super().flush()
        self._dispatch.await_answers(self._is_done)

    def _is_done(self) -> bool:
        """Whether all that was sent is settled."""
        if self._deliveries:
            with self._guarded():
                self._dispatch.flush()
                self._settle()
        return not self._deliveries

    def _send(self, bodies: list[Body]) -> None:
        for request in self._dispatch.requests(bodies):
            self._deliveries.add(request)

    def _settle(self) -> None:
        self._durable += self._deliveries.settle()
