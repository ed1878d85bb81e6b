"""How much a server of `onyx zookeeper` keeps in memory, against its heap, as metrics.

The server is asked at each scrape. When its data outgrows its heap it dies, and all jobs stand
still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from onyx.telemetry.catalog import ZOOKEEPER_DATA, ZOOKEEPER_HEAP, Metric


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
