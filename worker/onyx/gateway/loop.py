"""An event loop on a thread of its own, which starts when it is first needed."""

from __future__ import annotations

import asyncio
import threading

STOP_TIMEOUT_S = 2.0


class Loop:
    """The loop of one process, over all incarnations of its group. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def running(self) -> asyncio.AbstractEventLoop | None:
        """The loop; None: the process ends."""
        with self._lock:
            if self._closed:
                return None
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="onyx-requests", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End the loop and all that runs on it. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_TIMEOUT_S)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
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
