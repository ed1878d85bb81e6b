"""An event loop on a thread of its own, for a client that has no other way to be used."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from onyx.errors import Unavailable

T = TypeVar("T")
END_TIMEOUT_S = 2.0
LOOK_S = 0.2


class EventLoop:
    """Calls of one thread are run one after the other; the client's own tasks go on between."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(
        self,
        work: Coroutine[Any, Any, T],
        timeout_s: float,
        alive: Callable[[], bool] = lambda: True,
    ) -> T:
        """The result of a coroutine.

        Args:
            alive: whether an answer may still come; looked at now and then.

        Raises:
            Unavailable: it takes too long, or no answer can come any more.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
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
        """Cancel what runs, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
        finally:
            self._loop.close()


async def _end_all() -> None:
    """Cancel whatever the client has left."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for each in left:
        each.cancel()
    await asyncio.gather(*left, return_exceptions=True)
