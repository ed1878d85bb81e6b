"""One HTTP endpoint for several worker processes, so that a pod has one.

The supervisor asks the endpoints of the processes, on the loopback interface, at each request.
`/livez` and `/readyz` are those of all processes together. `/metrics` has every series of every
process, with the label `process` added. prometheus_client's multi-process mode was rejected: it
stores the values in files, and cannot end a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPConnection, HTTPException

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

ASK_TIMEOUT_S = 2.0
LABEL = "process"


class ProcessPages:
    """What the supervisor's endpoint shows of its processes.

    Args:
        ports: of their endpoints on the loopback interface, in the order of their numbers.
        running: whether the process of a number runs now.
    """

    def __init__(self, ports: Sequence[int], running: Callable[[int], bool]) -> None:
        self._ports = ports
        self._running = running
        self.registry = CollectorRegistry()
        self.registry.register(_Series(ports))

    def healthy(self) -> bool | str:
        """Whether no process is stuck. One that has ended is started again by the supervisor."""
        return self._all("/livez", only_running=True)

    def ready(self) -> bool | str:
        """Whether all take part."""
        return self._all("/readyz", only_running=False)

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


class _Series(Collector):
    """The series of all processes, each with the number of its process."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for number, port in enumerate(self._ports):
            status, text = ask(port, "/metrics")
            if status != 200:
                continue
            for family in text_string_to_metric_families(text):
                merged = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, LABEL: str(number)}
                    merged.samples.append(sample._replace(labels=labels))
        return found.values()


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page on this machine; 0 and the reason when there is no answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, HTTPException) as error:
        return 0, f"no answer: {error}"
    finally:
        connection.close()
