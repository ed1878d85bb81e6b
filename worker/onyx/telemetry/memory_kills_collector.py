"""The kills for want of memory as a metric.

Apart from `memory_kills`, by which each supervisor knows of what its processes have died, whether
it serves metrics or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from onyx.telemetry.catalog import MEMORY_KILLS
from onyx.telemetry.memory_kills import MemoryKills


class MemoryKillsCollector(Collector):
    """The count as a metric; none where only the machine counts."""

    def __init__(self, kills: MemoryKills | None = None) -> None:
        self._kills = kills or MemoryKills()

    def describe(self) -> Iterator[CounterMetricFamily]:
        """The metric without a value."""
        yield CounterMetricFamily(MEMORY_KILLS.name, MEMORY_KILLS.meaning)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The metric as it is now."""
        count = self._kills.count() if self._kills.of_container else None
        if count is not None:
            yield CounterMetricFamily(MEMORY_KILLS.name, MEMORY_KILLS.meaning, value=count)
