"""How requests were answered, by input: by transport, level and status, and the time to the answer.

Counted once, where a client gets its answer, over HTTP or gRPC, however many workers have had a
part in it. Requests of which no input is known are counted together, without a name: what clients
make up becomes no series. Those of a job end with it, as they have its id.

Looks are kept as `peer.work.measuring` does, so that a document says what was in the last minute.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping

from onyx.ids import JobId, TaskName
from onyx.peer.router.inputs import RequestInput
from onyx.reports.measures import WINDOW_S, RequestMeasures
from onyx.requests.request import Level, Status
from onyx.telemetry.catalog import REQUEST_SECONDS
from onyx.telemetry.interface import EXAMPLE_CHARACTERS_MAX, NO_EXAMPLE, GroupMetrics, in_example
from onyx.telemetry.labels import RequestTransport
from onyx.telemetry.tallies import Tally

Key = tuple[JobId, TaskName]
Totals = Mapping[Key, RequestMeasures]
NO_RUN = ("-", "-", "-")
"""In place of names, of which none can be so; an empty label would be none in Prometheus."""
ID_SHOWN_MAX = EXAMPLE_CHARACTERS_MAX - len("request")


class AnsweredRequests:
    """The answers that one process has given. From any thread."""

    def __init__(self, metrics: GroupMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._inputs: dict[Key, _OfInput] = {}
        self._looks: deque[tuple[float, Totals]] = deque()
        self._closed = False

    def count(
        self,
        found: RequestInput | None,
        transport: RequestTransport,
        level: Level,
        status: Status,
        seconds: float,
        id: str = "",
    ) -> None:
        """A request was answered so, and so long after it came.

        Args:
            found: the input; None: nobody knows it.
            id: the name of the request.
        """
        run = NO_RUN if found is None else (found.job_name, found.job, found.task)
        labels = *run, transport.value, level.value, status.value
        with self._lock:
            if self._closed:
                return
            if found is not None:
                its = self._inputs.setdefault((found.job, found.task), _OfInput())
                its.answers[f"{level} {status}"] += 1
                its.series.add(labels)
                if status.final:
                    its.seconds.observe(seconds)
            example = {"request": in_example(id, ID_SHOWN_MAX)} if id else NO_EXAMPLE
            self._metrics.observe(REQUEST_SECONDS, seconds, *labels, example=example)

    def look(self, now_s: float, jobs: Collection[JobId]) -> None:
        """Take down what was counted, and forget jobs that are not among these."""
        with self._lock:
            for key in [each for each in self._inputs if each[0] not in jobs]:
                for labels in self._inputs.pop(key).series:
                    self._metrics.remove(REQUEST_SECONDS, *labels)
            self._looks.append((now_s, self._totals()))
            while len(self._looks) > 1 and self._looks[1][0] <= now_s - WINDOW_S:
                self._looks.popleft()

    def close(self, now_s: float) -> None:
        """The incarnation has ended: what it answers still is not counted."""
        with self._lock:
            self._closed = True
        self.look(now_s, ())

    def measures(self, job: JobId | None) -> Iterator[tuple[Key, RequestMeasures]]:
        """What was answered in the last minute, of a job or of all."""
        with self._lock:
            before: Totals = self._looks[0][1] if self._looks else {}
            now = self._totals()
        for key, its in now.items():
            if job in (None, key[0]):
                yield key, its.since(before[key]) if key in before else its

    def _totals(self) -> Totals:
        return {key: its.measures() for key, its in self._inputs.items()}


class _OfInput:
    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.seconds = Tally(REQUEST_SECONDS.buckets)
        self.series: set[tuple[str, ...]] = set()

    def measures(self) -> RequestMeasures:
        return RequestMeasures(dict(self.answers), self.seconds.durations())
