"""Collection of a state log beside its appends, which go on meanwhile.

To delete a thousand chunks takes seconds. A task that waited for it would answer nobody for as
long, whatever is waiting to become durable behind the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from onyx.state.log import StateLog


class Collector:
    """Not thread-safe. One collection at a time."""

    def __init__(
        self, log: StateLog, background: Callable[[Callable[[], None]], Future[None]]
    ) -> None:
        """`background` runs work on another thread."""
        self._log = log
        self._background = background
        self._running: Future[None] | None = None

    def begin(self) -> None:
        """Begin to delete what no reader needs since the last snapshot, unless that is being done.

        Raises:
            StateError: the collection before this one has found a damaged chunk.
        """
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()
        self._running = self._background(self._log.collect)
