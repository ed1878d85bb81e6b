"""A queue of objects that have to be looked at: level-based, one look at an object at a time.

Whatever happens to an object only says that it is to be looked at again; ten events before the look
are one look, and one during it is another one after it. A look that fails is repeated after a wait
that doubles. Rejected: work in kopf's handlers themselves, which know one object each, while a
cluster is to be looked at when its StatefulSet changes or its resync is due, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from onyx.errors import Unavailable
from onyx_operator.kube import KubeError
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import Pace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """Which object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Reconciler:
    """Looks at objects of one kind. All methods belong to one event loop.

    Args:
        kind: for logs and metrics.
        look: reconciles one object; what it raises is told, and it is called again later.
    """

    def __init__(
        self,
        kind: str,
        look: Callable[[Key], Awaitable[None]],
        pace: Pace,
        metrics: OperatorMetrics,
    ) -> None:
        self._kind, self._look, self._pace, self._metrics = kind, look, pace, metrics
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._looking: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}

    def touch(self, key: Key) -> None:
        """Have an object looked at soon."""
        if key in self._looking:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)
            self._metrics.queue(self._kind, len(self._queued))

    async def run(self) -> None:
        """Look at what is touched, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._pace.concurrent_max):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            self._looking.add(key)
            self._metrics.queue(self._kind, len(self._queued))
            try:
                await self._once(key)
            finally:
                self._looking.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.touch(key)

    async def _once(self, key: Key) -> None:
        started_s, result = time.monotonic(), "ok"
        try:
            await self._look(key)
        except Unavailable as error:
            result = "retry"
            logger.warning("%s %s: %s", self._kind, key, error)
        except KubeError as error:
            result = "error"
            logger.warning("%s %s: %s", self._kind, key, error)
        except Exception:
            result = "error"
            logger.exception("%s %s: a bug in the operator", self._kind, key)
        self._metrics.reconciled(self._kind, result, time.monotonic() - started_s)
        if result == "ok":
            self._failures.pop(key, None)
        else:
            self._retry(key)

    def _retry(self, key: Key) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait_s = min(self._pace.retry_max_s, self._pace.retry_min_s * 2 ** min(failures, 30))
        asyncio.get_running_loop().call_later(wait_s, self.touch, key)
