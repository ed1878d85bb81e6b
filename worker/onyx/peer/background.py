"""Work of one incarnation that may block: a small pool of threads, and threads aside for hours.

Each piece logs with the fields (job, task) of the thread that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Thread
from typing import Any, TypeVar

from onyx.telemetry.logs import locate, location

THREADS = 4
T = TypeVar("T")
Pending = Future[None]
Run = Callable[[Callable[[], None]], Pending]
"""Runs something that may block, on a thread of its own."""


class Background:
    """Any thread may call."""

    def __init__(self, name: str) -> None:
        """`name` is in the names of the threads."""
        self._pool = ThreadPoolExecutor(THREADS, f"onyx-background-{name}")
        self._running: set[Future[Any]] = set()

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` soon. The future has its result or what it raised."""
        where = location()

        def located() -> T:
            locate(where)
            return work()

        future = self._pool.submit(located)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def aside(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on a thread of its own, which does not keep the process from ending. The
        future has its result or what it raised."""
        where, future = location(), Future[T]()

        def located() -> None:
            locate(where)
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        Thread(target=located, name="onyx-aside", daemon=True).start()
        return future

    def wait(self, timeout_s: float) -> None:
        """Wait until what runs or is queued now has ended, at most `timeout_s`."""
        wait(tuple(self._running), timeout_s)

    def stop(self) -> None:
        """Begin nothing more. Does not wait."""
        self._pool.shutdown(wait=False, cancel_futures=True)
