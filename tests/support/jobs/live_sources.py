"""Sources that jobs of the integration tests name: they share this process with the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from tests.support.jobs.memory_queue import MemoryQueue

from onyx.errors import Unavailable

queues: dict[str, MemoryQueue] = {}
cursors: list[Any] = []
"""What `counted` was called with; clear it before a job."""
more = threading.Event()
"""`counted` goes on beyond 100 while this is set."""
away = threading.Event()
"""`counted` cannot be read while this is set."""


def queue(context: Any, partition: int, cursor: Any) -> Any:
    return queues[context.options["settings"]["name"]].open()


def counted(cursor: Any) -> Iterator[Any]:
    """Numbers, of which ten have a cursor; after 100 it waits, and ends at 200."""
    cursors.append(cursor)
    for first in range(cursor["next"] if cursor else 0, 200, 10):
        if away.is_set():
            raise Unavailable("the numbers have gone out for lunch")
        if first >= 100 and not more.wait(30.0):
            return
        yield [{"n": n} for n in range(first, first + 10)], {"next": first + 10}
