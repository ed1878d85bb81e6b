"""The collection of garbage by this group, as long as it is the oldest one.

The oldest group, because everybody knows from the replica who that is, and it changes seldom. While
two groups take themselves for it (one is behind), both collect, which does no harm (`history`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from onyx.base.on_demand import OnDemand
from onyx.errors import OnyxError
from onyx.ids import GroupId
from onyx.peer.work.workforce import TaskServices
from onyx.replica.state import Replica
from onyx.telemetry.catalog import LOG_STORED, LOG_STORED_MAX
from onyx.telemetry.interface import GroupMetrics

if TYPE_CHECKING:
    from onyx.history.collection import Collected, HistoryCollector

logger = logging.getLogger("onyx.peer")
_COLLECTOR: OnDemand[Callable[..., HistoryCollector]]
_COLLECTOR = OnDemand("onyx.history.collection:collector_of_worker")
"""Only one worker of a cluster has it."""


class GarbageCollection:
    """The collection of garbage of one incarnation. Used by the group's thread."""

    def __init__(self, services: TaskServices, group: GroupId, metrics: GroupMetrics) -> None:
        self._services = services
        self._metrics = metrics
        self._group = group
        self._interval_s = services.settings.history.interval_s
        self._next_s = services.clock.monotonic_s() + self._interval_s
        self._collector: HistoryCollector | None = None
        self._under_way: Future[None] | None = None
        self._complaint = ""
        self._closed = False

    def close(self) -> None:
        """The incarnation has ended, and so does its log."""
        self._closed = True

    def look(self, replica: Replica, permitted: bool) -> None:
        """Begin a round, if it is time and this group's turn."""
        now_s = self._services.clock.monotonic_s()
        if self._interval_s == 0 or now_s < self._next_s or not permitted:
            return
        if replica.groups[:1] != (self._group,):
            return
        if self._under_way is None or self._under_way.done():
            self._next_s = now_s + self._interval_s
            self._under_way = self._services.background(lambda: self._collect(replica))

    def _collect(self, replica: Replica) -> None:
        try:
            if self._collector is None:
                self._collector = self._opened()
            self._tell(self._collector.round(replica))
            self._complaint = ""
        except OnyxError as error:
            if str(error) != self._complaint and not self._closed:
                self._complaint = str(error)
                logger.warning("garbage in the log is not collected now: %s", error)

    def _opened(self) -> HistoryCollector:
        services = self._services
        return _COLLECTOR.load()(
            services.settings,
            services.log,
            lambda job: services.state_store(durable=True).remove_tree(job),
            services.clock.wall_ms,
        )

    def _tell(self, found: Collected) -> None:
        if found.usage.bytes is not None:
            self._metrics.set(LOG_STORED, found.usage.bytes)
            self._metrics.set(LOG_STORED_MAX, found.usage.bytes_max)
        if found.jobs:
            logger.info(
                "%d jobs that ended long ago are forgotten; the log starts after entry %d",
                len(found.jobs),
                found.position,
            )
