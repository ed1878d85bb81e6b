"""One HTTP endpoint for several worker processes, so that a pod has one.

The supervisor asks the endpoints of the processes, on the loopback interface, at each request.
`/livez` and `/readyz` are those of all processes together, and `/lag` has the documents of all.
`/metrics` has every series of every process, with the label `process` added; processes are asked
for OpenMetrics, which alone has exemplars. prometheus_client's multi-process mode was rejected: it
stores the values in files, and cannot end a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlencode

import msgspec
from prometheus_client import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from onyx.telemetry.http_server import NAMES

ASK_TIMEOUT_S = 2.0
_DOCUMENTS = msgspec.json.Decoder(list[msgspec.Raw])
LABEL = "process"


class ProcessPages:
    """What the supervisor's endpoint shows of its processes.

    Args:
        ports: of their endpoints on the loopback interface, in the order of their numbers.
        running: whether the process of a number runs now.
        own: series that are of no single process.
    """

    def __init__(
        self,
        ports: Sequence[int],
        running: Callable[[int], bool],
        own: Collector | None = None,
    ) -> None:
        self._ports = ports
        self._running = running
        self.registry = Series(ports, own=own)

    def healthy(self) -> bool | str:
        """Whether no process is stuck. One that has ended is started again by the supervisor."""
        return self._all("/livez", only_running=True)

    def ready(self) -> bool | str:
        """Whether all take part."""
        return self._all("/readyz", only_running=False)

    def lag(self) -> bytes:
        """The documents of all processes; one that does not answer has none."""
        found: list[msgspec.Raw] = []
        for port in self._ports:
            status, text = ask(port, "/lag")
            if status == 200:
                found += _DOCUMENTS.decode(text)
        return msgspec.json.encode(found)

    def _all(self, path: str, only_running: bool) -> bool | str:
        for number, port in enumerate(self._ports):
            if not self._running(number):
                if only_running:
                    continue
                return f"{LABEL} {number}: it has ended and is started again"
            status, text = ask(port, path)
            if status != 200:
                return f"{LABEL} {number}: {text.strip()}"
        return True


class Series:
    """The series of all processes, each with the number of its process.

    Args:
        ports: as of `ProcessPages`.
        names: of the series that the processes are asked for; all of them if empty.
        own: further series, which are of no process.
    """

    def __init__(
        self, ports: Sequence[int], names: Iterable[str] = (), own: Collector | None = None
    ) -> None:
        self._ports = ports
        self._names = frozenset(names)
        self._own = own
        self._path = metrics_path(names)

    def restricted_registry(self, names: Iterable[str]) -> Series:
        """A registry of these names: the processes are asked for no others."""
        return Series(self._ports, names, self._own)

    def collect(self) -> Iterable[Metric]:
        """Ask all processes; one that does not answer has none."""
        found: dict[str, Metric] = {}
        for number, port in enumerate(self._ports):
            status, text = ask(port, self._path, CONTENT_TYPE_LATEST)
            if status != 200:
                continue
            for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
                merged = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, LABEL: str(number)}
                    merged.samples.append(sample._replace(labels=labels))
        own = self._own.collect() if self._own is not None else ()
        return [*found.values(), *(each for each in own if self._is_wanted(each))]

    def _is_wanted(self, family: Metric) -> bool:
        names = {sample.name for sample in family.samples}
        return not self._names or not self._names.isdisjoint(names)


def metrics_path(names: Iterable[str] = ()) -> str:
    """Where the series of these names are asked for; all series without a name."""
    query = urlencode([(NAMES, name) for name in names])
    return f"/metrics?{query}" if query else "/metrics"


def ask(port: int, path: str, accept: str = "*/*") -> tuple[int, str]:
    """Status and text of a page on this machine; 0 and the reason when there is no answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, HTTPException) as error:
        return 0, f"no answer: {error}"
    finally:
        connection.close()
