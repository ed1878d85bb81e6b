"""Functions of jobs whose state is measured: a source that fills the state and then trickles, and
results that tell when and by which process they were made.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_probe import seen
from bench_sources import StampedReader

from onyx.plugin import Cursor, Input

FIRST_MS = 1_700_000_040_000
EVENT_EVERY_MS = 3
KEYS = 1_000


# A state that grows to a size and then only trickles


def payload(number: int, size: int) -> str:
    """Text of `size` characters that hardly compresses, the same for the same number."""
    drawn = hashlib.shake_128(number.to_bytes(8)).digest(size * 3 // 4 + 1)
    return base64.b64encode(drawn).decode()[:size]


class FillingReader(StampedReader):
    """Segments of as many keys as the state is to have groups, as fast as they are taken; then
    segments of few keys at a rate (`bench_probe.RATE_SEGMENTS`), without end."""

    def __init__(self, position: int, fill: int, payload_bytes: int, trickle_keys: int) -> None:
        super().__init__(max(position, fill), sys.maxsize)
        self.next = position
        self.fill = fill
        self.payload_bytes = payload_bytes
        self.trickle_keys = trickle_keys

    def read(self, segments_max: int) -> list[dict[str, Any]]:
        if self.next >= self.fill:
            return [
                {"key": f"trickle-{each['n'] % self.trickle_keys}", "payload": "", "trickle": True}
                for each in super().read(segments_max)
            ]
        first, self.next = self.next, min(self.next + segments_max, self.fill)
        return [
            {"key": f"fill-{number}", "payload": payload(number, self.payload_bytes)}
            for number in range(first, self.next)
        ]


class FillingInput(Input):
    cooperative = True

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def partitions(self) -> list[str]:
        return ["only"]

    def open(self, partition: str, cursor: Cursor) -> FillingReader:
        sizes = [self.options[key] for key in ("fill", "payloadBytes", "trickleKeys")]
        return FillingReader(cursor.position, *sizes)

    def close(self) -> None:
        pass


def filling(context: Any) -> FillingInput:
    """Input plugin with options `fill` (segments), `payloadBytes` and `trickleKeys`."""
    return FillingInput(context.options)


def trickles(trigger: Any, state_event: dict[str, Any]) -> bool:
    """Fires for what comes after the state was filled."""
    return "trickle" in state_event["segment"]


def result(
    event: Any, window: Any, trigger: Any, state_event: dict[str, Any], state: Any
) -> dict[str, Any]:
    """What is emitted: the group, and the process that has its state."""
    return {"key": state_event["group_key"], "process": os.getpid()}


class Results:
    path = Path()
    """It is named when the task starts."""


def tell(segments: list[dict[str, Any]]) -> None:
    """The sink: what has arrived, and when (CLOCK_MONOTONIC, in s), in a file of this process."""
    now = time.monotonic()
    with open(Results.path, "a") as file:
        file.writelines([f"{now} {each['process']} {each['key']}\n" for each in segments])


def tell_calls() -> dict[str, Callable[..., None]]:
    """Lifecycle of the sink: the folder of the file."""
    return {"before_task_start": name_file}


def name_file(event: Any, lifecycle: Any) -> None:
    Results.path = Path(lifecycle.options["folder"], f"results-{os.getpid()}.txt")


# A stream of event times without end


def reading(number: int) -> dict[str, Any]:
    """Input function: events of 1,000 keys, 20,000 a minute of event time."""
    return {"key": number % KEYS, "ts": FIRST_MS + number * EVENT_EVERY_MS, "v": number % 100}


# A state that fires as a whole when the job ends


def each_once(number: int) -> dict[str, Any]:
    """Input function: a group of its own for each segment."""
    return {"key": f"group-{number}"}


class Fired:
    """The job of which something has fired in this process."""

    job = ""


def at_end(
    event: Any, window: Any, trigger: Any, state_event: dict[str, Any], state: Any
) -> dict[str, Any]:
    """What is emitted; when the first one was (CLOCK_MONOTONIC, in s), is left in a file, in the
    folder of the lifecycle of `bench_probe`."""
    if Fired.job != event["job_id"]:
        Fired.job = event["job_id"]
        Path(seen.options["folder"], "fired").write_text(str(time.monotonic()))
    return {"key": state_event["group_key"], "count": state}
