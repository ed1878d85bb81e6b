"""Metrics that are looked up at each scrape: kills for want of memory, and what a server of `onyx
zookeeper` keeps in memory, against its heap. When its data outgrows that it dies, and all jobs
stand still.

Apart from `memory_kills`, by which each supervisor knows of what its processes have died, whether
it serves metrics or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from onyx.telemetry.catalog import MEMORY_KILLS, ZOOKEEPER_DATA, ZOOKEEPER_HEAP, Metric
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


class ZooKeeperDataCollector(Collector):
    """The gauges of one server.

    Args:
        data_bytes: asks the server; None when it does not answer.
        heap_bytes: of its virtual machine.
    """

    def __init__(self, data_bytes: Callable[[], int | None], heap_bytes: int) -> None:
        self._data_bytes = data_bytes
        self._heap_bytes = heap_bytes

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The metrics without values."""
        yield from (_gauge(metric, None) for metric in (ZOOKEEPER_DATA, ZOOKEEPER_HEAP))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics as they are now; of the data nothing while the server does not answer."""
        data_bytes = self._data_bytes()
        if data_bytes is not None:
            yield _gauge(ZOOKEEPER_DATA, data_bytes)
        yield _gauge(ZOOKEEPER_HEAP, self._heap_bytes)


def _gauge(metric: Metric, value: int | None) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.meaning, value=value)
