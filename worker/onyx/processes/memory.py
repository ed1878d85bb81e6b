"""What a worker does with memory that it has freed: it keeps some, for the next batch.

Batches of columns and frames are some hundred kB each and live for milliseconds. The allocator of
glibc returns what is free at the end of its heap to the system as soon as that is twice the largest
block that was freed. The system clears each page before it gives it again: 400 us for two frames of
490 kB on the machine where this was measured, where copying them takes 20 us.

Rejected: environment variables of glibc, set by the supervisor. They would be inherited by whatever
user code starts. What the user has set by these variables holds.
"""

from __future__ import annotations

import ctypes
import gc
import os

KEPT_BYTES_MAX = 16_777_216
"""The bytes of free memory at the end of a heap; several threads share one."""
SYSTEM_FROM_BYTES = 8_388_608
"""Larger blocks are asked from the system one by one, and returned when they are freed."""
_OPTIONS = (
    ("MALLOC_TRIM_THRESHOLD_", -1, KEPT_BYTES_MAX),
    ("MALLOC_MMAP_THRESHOLD_", -3, SYSTEM_FROM_BYTES),
)
"""Variable of the user, and number of the option in `malloc.h`."""

COLLECTOR_THRESHOLDS = (50_000, 20, 100)
"""Thresholds of the garbage collector: at Python's own 700 each batch is walked several times while
it is young, though segments are trees and freed by reference counts (about a tenth of all CPU)."""


def keep_freed_memory() -> None:
    """From now on, in this process. Without effect where the allocator is not that of glibc."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    for variable, option, size in _OPTIONS:
        if variable not in os.environ:
            library.mallopt(option, size)


def tune_collector() -> None:
    """What exists now lives as long as the process; segments need few collections."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
