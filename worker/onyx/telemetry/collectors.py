"""Metrics that are looked up at each scrape: kills for want of memory, and what a server of `onyx
zookeeper` says of itself, its heap and its disk. When its data outgrows either it dies, and all
jobs stand still.

Apart from `memory_kills`, by which each supervisor knows of what its processes have died, whether
it serves metrics or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from onyx.telemetry.catalog import (
    MEMORY_KILLS,
    OF_ZOOKEEPER,
    ZOOKEEPER_DATA,
    ZOOKEEPER_DISK,
    ZOOKEEPER_DISK_FREE,
    ZOOKEEPER_HEAP,
    ZOOKEEPER_OUTSTANDING,
    ZOOKEEPER_SERVED,
    ZOOKEEPER_SERVED_SECONDS,
    ZOOKEEPER_SYNC_SECONDS,
    ZOOKEEPER_SYNCS,
    Metric,
)
from onyx.telemetry.container import ContainerMemory

MetricFamily = CounterMetricFamily | GaugeMetricFamily


class MemoryKillsCollector(Collector):
    """The count as a metric; none where only the machine counts."""

    def __init__(self, kills: ContainerMemory | None = None) -> None:
        self._kills = kills or ContainerMemory()

    def describe(self) -> Iterator[CounterMetricFamily]:
        """The metric without a value."""
        yield CounterMetricFamily(MEMORY_KILLS.name, MEMORY_KILLS.meaning)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The metric as it is now."""
        count = self._kills.count() if self._kills.of_container else None
        if count is not None:
            yield CounterMetricFamily(MEMORY_KILLS.name, MEMORY_KILLS.meaning, value=count)


class ZooKeeperCollector(Collector):
    """The series of one server.

    Args:
        figures: asks the server, by names of `mntr`; empty when it does not answer.
        disk_bytes: the room that is left for its data, and all that there is.
        heap_bytes: of its virtual machine.
    """

    def __init__(
        self,
        figures: Callable[[], Mapping[str, float]],
        disk_bytes: Callable[[], tuple[int, int]],
        heap_bytes: int,
    ) -> None:
        self._figures, self._disk_bytes, self._heap_bytes = figures, disk_bytes, heap_bytes

    def describe(self) -> Iterator[MetricFamily]:
        """The metrics without values."""
        yield from (_family(each, None) for each in OF_ZOOKEEPER)

    def collect(self) -> Iterator[MetricFamily]:
        """The metrics as they are now; while the server does not answer, only those of its heap and
        its disk."""
        yield _family(ZOOKEEPER_HEAP, self._heap_bytes)
        with contextlib.suppress(OSError):
            free_bytes, all_bytes = self._disk_bytes()
            yield _family(ZOOKEEPER_DISK_FREE, free_bytes)
            yield _family(ZOOKEEPER_DISK, all_bytes)
        said = self._figures()
        if "approximate_data_size" not in said:
            return
        yield _family(ZOOKEEPER_DATA, said["approximate_data_size"])
        yield _family(ZOOKEEPER_OUTSTANDING, said.get("outstanding_requests", 0.0))
        for metric, kinds in ((ZOOKEEPER_SERVED, "cnt"), (ZOOKEEPER_SERVED_SECONDS, "sum")):
            total = sum(said.get(f"{kinds}_{each}latency", 0.0) for each in ("read", "update"))
            yield _family(metric, total if kinds == "cnt" else total / 1000)
        yield _family(ZOOKEEPER_SYNCS, said.get("cnt_fsynctime", 0.0))
        yield _family(ZOOKEEPER_SYNC_SECONDS, said.get("sum_fsynctime", 0.0) / 1000)


def _family(metric: Metric, value: float | None) -> MetricFamily:
    if metric.kind == "counter":
        name = metric.name.removesuffix("_total")
        return CounterMetricFamily(name, metric.meaning, value=value)
    return GaugeMetricFamily(metric.name, metric.meaning, value=value)
