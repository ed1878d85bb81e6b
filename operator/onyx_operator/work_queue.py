"""A queue of objects to be worked on: level-based, one worker at a time for an object.

An event about an object only says that it has to be worked on again: ten events before the work
are one piece of work, and an event during it causes one more after it. Work that fails is repeated
after a wait that doubles. Rejected: work in kopf's handlers. A handler knows one object, while an
object has work when its StatefulSet, its log or its cluster changes, and when a wait is over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from onyx.errors import Unavailable
from onyx_operator.kube import KubeError
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import WorkPace

logger = logging.getLogger(__name__)


class ObjectKey(msgspec.Struct, frozen=True):
    """Namespace and name of an object: which one is to be worked on."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class WorkQueue:
    """Works on objects of one kind. All methods belong to one event loop.

    Args:
        kind: for logs and metrics.
        work: works on one object; what it raises is logged, and it is called again later.
    """

    def __init__(
        self,
        kind: str,
        work: Callable[[ObjectKey], Awaitable[None]],
        pace: WorkPace,
        metrics: OperatorMetrics,
    ) -> None:
        self._kind, self._work_on, self._pace, self._metrics = kind, work, pace, metrics
        self._queue: asyncio.Queue[ObjectKey] = asyncio.Queue()
        self._queued: set[ObjectKey] = set()
        self._busy: set[ObjectKey] = set()
        self._again: set[ObjectKey] = set()
        self._failures: dict[ObjectKey, int] = {}
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}

    def touch(self, key: ObjectKey) -> None:
        """Have an object worked on soon."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)
            self._metrics.queue(self._kind, len(self._queued))

    def touch_later(self, key: ObjectKey, wait_s: float | None) -> None:
        """Have an object worked on after a wait, in place of any earlier wait for it; with None
        there is no wait any more."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if wait_s is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(wait_s, self._time_is_up, key)

    async def run(self) -> None:
        """Work on what is touched, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._pace.concurrent_max):
                group.create_task(self._work())

    def _time_is_up(self, key: ObjectKey) -> None:
        self._timers.pop(key, None)
        self.touch(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            self._busy.add(key)
            self._metrics.queue(self._kind, len(self._queued))
            try:
                await self._once(key)
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.touch(key)

    async def _once(self, key: ObjectKey) -> None:
        started_s, result = time.monotonic(), "ok"
        try:
            await self._work_on(key)
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

    def _retry(self, key: ObjectKey) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait_s = min(self._pace.retry_max_s, self._pace.retry_min_s * 2 ** min(failures, 30))
        asyncio.get_running_loop().call_later(wait_s, self.touch, key)
