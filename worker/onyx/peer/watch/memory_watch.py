"""Batches shrink while the container of a worker has little memory left, before the kernel kills.

From `memory.high` on the kernel slows a container down to take memory from it, and at its limit it
kills. Whoever sets either says how much there is. So once a second the watch looks at what the
container holds, without files that the kernel may drop. Beyond the share that a setting names each
look halves what the tasks of this process take at once and have in flight, and returns to the
system what is free; well below it each look doubles it again. Halves and not a size in bytes:
nobody knows which of the tasks, or which user's function, takes the memory. What is kept for ever,
as state is, does not shrink: that takes `ONYX_STATE_MEMORY_EXTENTS_MAX`.

What is free goes back too when the last task of a process has gone.

Rejected: events of the kernel (`memory.pressure` and `memory.events` come when it is slow already,
and not in the first version of cgroups), and to hold up inputs alone: batches on their way keep
what they take until they are through.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Collection

from onyx.base.seams import Clock
from onyx.task.batching import BatchSizing
from onyx.telemetry.container import ContainerMemory

logger = logging.getLogger("onyx.peer")
LOOK_S = 1.0
HALVINGS_MAX = 4
"""So that a container which others fill, as a JVM of Spark may, only makes a worker slower."""
EASED_SHARE = 0.75
"""Batches grow again below this part of the share at which they shrink."""


class MemoryWatch:
    """The watch of one process. On the thread of the group."""

    def __init__(
        self,
        cgroup: ContainerMemory,
        clock: Clock,
        share_max: float,
        give_back: Callable[[], object],
    ) -> None:
        """
        Args:
            cgroup: in which this process is.
            share_max: of the memory that the cgroup may hold, beyond which batches shrink.
            give_back: returns to the system what is free; not on this thread.
        """
        self._cgroup = cgroup
        self._clock = clock
        self._share_max = share_max
        self._give_back = give_back
        self._next_s = 0.0
        self._worked = False
        self._halvings = 0

    def look(self, sizings: Collection[BatchSizing]) -> None:
        """Look, if it is time, and have these tasks take more or less."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        if self._worked and not sizings:
            self._give_back()
        self._worked = bool(sizings)
        self._follow(self._cgroup.held_share() or 0.0)
        for each in sizings:
            each.halve(self._halvings)

    def _follow(self, share: float) -> None:
        before = self._halvings
        if share > self._share_max and self._share_max < 1.0:
            self._halvings = min(HALVINGS_MAX, before + 1)
            self._give_back()
        elif share < self._share_max * EASED_SHARE:
            self._halvings = max(0, before - 1)
        if bool(before) != bool(self._halvings):
            logger.warning(
                "the container holds %.0f %% of the memory that it may have: tasks of this worker "
                "take %s",
                100 * share,
                "smaller batches until it holds less; if that lasts, give it more memory, or keep "
                "state on disk (ONYX_STATE_MEMORY_EXTENTS_MAX)"
                if self._halvings
                else "whole batches again",
            )


def return_memory() -> None:
    """Give what the allocator has free back to the system; nothing where it is not glibc's."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
