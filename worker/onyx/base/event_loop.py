"""An event loop on a thread of its own, for a process that is none of coroutines.

It starts when it is first needed, and whoever asks for it when it has been closed gets none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from onyx.errors import Unavailable

T = TypeVar("T")
STOP_TIMEOUT_S = 2.0
LOOK_S = 0.2


class EventLoop:
    """Safe from any thread."""

    def __init__(self, name: str) -> None:
        """`name` is that of the thread."""
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def running(self) -> asyncio.AbstractEventLoop | None:
        """The loop; None: it is closed."""
        with self._lock:
            if self._closed:
                return None
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    def call(
        self,
        work: Coroutine[Any, Any, T],
        timeout_s: float,
        alive: Callable[[], bool] = lambda: True,
    ) -> T:
        """The result of a coroutine, which the calling thread waits for.

        Args:
            alive: whether an answer may still come; looked at now and then.

        Raises:
            Unavailable: it takes too long, or no answer can come any more.
        """
        loop = self.running()
        if loop is None:
            work.close()
            raise Unavailable("the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        ends_s = time.monotonic() + timeout_s
        while True:
            left_s = ends_s - time.monotonic()
            try:
                return future.result(min(LOOK_S, max(0.0, left_s)))
            except TimeoutError:
                if future.done():
                    raise
            if left_s <= 0 or not alive():
                future.cancel()
                why = f"no answer for {timeout_s:g} s" if left_s <= 0 else "the connection is lost"
                raise Unavailable(why)

    def close(self) -> None:
        """End the loop and all that runs on it. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_TIMEOUT_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_end_tasks())
    finally:
        loop.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
