"""Functions and plugins with which jobs measure themselves: CPU, times, latency, a slow output.

Times are CLOCK_MONOTONIC, which all processes of a machine share. What was measured is left as JSON
in the folder that the lifecycle's options name. A process may run one job after another: with the
first task of a job begins what is measured of it.
"""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

RATE_SEGMENTS = 200
"""A second, by the stamping source."""


def same(segment: dict[str, Any]) -> dict[str, Any]:
    return segment


Calls = dict[str, Callable[..., None]]
"""Functions of a lifecycle, by when they are called."""


class Span(NamedTuple):
    """When the first task of this process began, and what had been used until then."""

    at_s: float
    cpu_s: float
    switches: tuple[int, int]


class Seen:
    """What this process has measured of one job."""

    def __init__(self) -> None:
        self.job = ""
        self.options: Mapping[str, Any] = {}
        """Of the lifecycle."""
        self._clear()

    def _clear(self) -> None:
        self.began: Span | None = None
        self.latencies_ns: list[int] = []
        self.count = 0
        self.blocked: list[float] = []

    def start(self, job: str, options: Mapping[str, Any]) -> None:
        """The first task of a job begins."""
        self.job, self.options = job, options
        self._clear()
        self.began = Span(time.monotonic(), time.process_time(), switches())


seen = Seen()
writing = threading.Lock()
"""Tasks of a process may begin and end on several threads."""


# CPU and time of a task's life


def span_calls() -> Calls:
    """Lifecycle: when the tasks of this process began and ended, and the CPU used between."""
    return {"before_task_start": begin, "after_task_stop": end}


def counted_span_calls() -> Calls:
    """The same, and how many segments a task was given."""
    return {**span_calls(), "after_batch": count_batch}


def count_batch(event: Any, lifecycle: Any) -> None:
    seen.count += len(event["batch"])


def begin(event: Any, lifecycle: Any) -> None:
    with writing:
        if seen.job != event["job_id"]:
            seen.start(event["job_id"], lifecycle.options)


def end(event: Any, lifecycle: Any) -> None:
    began = seen.began
    assert began is not None, "a task ends that has not begun"
    span = {
        "from_s": began.at_s,
        "to_s": time.monotonic(),
        "cpu_s": time.process_time() - began.cpu_s,
        "waits": switches()[0] - began.switches[0],
        "preemptions": switches()[1] - began.switches[1],
        "count": seen.count,
        "blocked": seen.blocked,
    }
    with writing:
        Path(lifecycle.options["folder"], f"span-{os.getpid()}.json").write_text(json.dumps(span))


def switches() -> tuple[int, int]:
    """How often threads of this process have waited, and have been made to."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw, usage.ru_nivcsw


# A sink that blocks once


def block_once(segments: list[dict[str, Any]]) -> None:
    """Takes some, then nothing for some seconds, then everything; the lifecycle says how much."""
    seen.count += len(segments)
    if seen.count >= seen.options["blockAfter"] and not seen.blocked:
        since = time.monotonic()
        time.sleep(seen.options["blockS"])
        seen.blocked.extend([since, time.monotonic()])


# Latency


class StampingReader:
    """A source. A stamp is made when a segment is read, a second time if it is replayed."""

    def __init__(self, position: int, size: int) -> None:
        self.next = position
        self.size = size
        self.first = position
        self.started_ns: int | None = None

    def read(self, segments_max: int) -> list[dict[str, Any]]:
        now = time.monotonic_ns()
        self.started_ns = self.started_ns or now
        due = self.first + (now - self.started_ns) * RATE_SEGMENTS // 1_000_000_000
        last = min(due, self.size, self.next + segments_max)
        segments = [{"n": number, "ns": now} for number in range(self.next, last)]
        self.next = max(self.next, last)
        return segments

    def exhausted(self) -> bool:
        return self.next >= self.size


def arrive(segments: list[dict[str, Any]]) -> None:
    """The sink: how old each segment is."""
    now = time.monotonic_ns()
    seen.latencies_ns.extend([now - segment["ns"] for segment in segments])


def latency_calls() -> Calls:
    return {"before_task_start": begin, "after_task_stop": leave_latencies}


def leave_latencies(event: Any, lifecycle: Any) -> None:
    path = Path(lifecycle.options["folder"], f"latency-{os.getpid()}.json")
    path.write_text(json.dumps(seen.latencies_ns))
