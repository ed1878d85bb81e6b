"""Requests into a job, and their answers: latency and throughput. `python -m benchmarks.requests`

Three tasks in three processes, exactly once, from `plugin: requests` to files. The journal and
every file are forced to disk. A client in this process sends:

* one segment a request, 200 requests a second, each answered when its segment is in a file;
* requests of 100 dicts, and record batches of 10,000 rows, a window of them on the way, each
  answered when it is journalled (and, beside it, when it is processed).

Beside it, the same requests by way of Kafka and Bytewax (`kafka_requests.py`), where both are
there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from benchmarks import kafka_requests, onyx_run
from benchmarks.figures import Figure, Measured, Options, Size, parser, run

from onyx import api
from onyx.client import Answer, Appender
from onyx.settings import LogSettings, Settings, ZooKeeperSettings

PROCESSES = 3
PER_SECOND = 200
SEGMENTS_OF_BATCH = 100
ROWS_OF_BATCH = 10_000
WINDOW = 32
"""Requests on the way."""
START_TIMEOUT_S = 60.0
GOAL_P50_MS, GOAL_P99_MS = 5.0, 20.0
GOAL_DICTS, GOAL_ROWS = 50_000, 1_000_000
ACKS = ("journal", "ack")
OTHERS = "Kafka and Bytewax"

Send = Callable[[Any], Future[Any]]


@contextmanager
def running(form: str) -> Iterator[tuple[Appender, psutil.Process]]:
    """The job in three processes, an appender to it, and the process above them."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest(f"requests-{form}.yaml")
        job["spec"]["catalog"][-1]["options"]["path"] = str(folder / "out")
        command = onyx_run.command(
            job, folder, ["bench_probe", "bench_columns"], PROCESSES, apart=True
        )
        process = onyx_run.start(command)
        try:
            with api.appender(_settings(process), "bench-requests") as appender:
                appender.append({"n": 0, "key": "a"}, timeout_s=START_TIMEOUT_S)
                yield appender, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=START_TIMEOUT_S)


def _settings(process: subprocess.Popen[str]) -> Settings:
    """What leads to the job, as `onyx run` prints it."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"--(log|zookeeper) (\S+) --tenancy (\S+)", line)
        if found is not None:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            kind, place, tenancy = found.groups()
            if kind == "log":
                return Settings(tenancy_id=tenancy, log=LogSettings(folder=place))
            return Settings(tenancy_id=tenancy, zookeeper=ZooKeeperSettings(place))
    raise RuntimeError("onyx run has ended without a job")


def cpu_s(process: psutil.Process) -> float:
    """CPU of a process and all below it, so far."""
    each = [process, *process.children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in each)


def latencies_ms(send: Send, count: int) -> list[float]:
    """Of requests at a fixed rate, whether the ones before are answered or not."""
    found: list[float] = []
    done = threading.Semaphore(0)
    start_s = time.monotonic()
    for number in range(count):
        due_s = start_s + number / PER_SECOND
        time.sleep(max(0.0, due_s - time.monotonic()))

        def answered(future: Future[Any], due_s: float = due_s) -> None:
            assert _reached(future.result()), future.result()
            found.append(1e3 * (time.monotonic() - due_s))
            done.release()

        send([{"n": number, "key": "a"}]).add_done_callback(answered)
    for _ in range(count):
        done.acquire()
    return found


def per_second(send: Send, segments: Any, requests: int) -> float:
    """Segments a second with a window of requests on the way."""
    room = threading.BoundedSemaphore(WINDOW)
    wrong: list[Any] = []

    def answered(future: Future[Any]) -> None:
        if not _reached(future.result()):
            wrong.append(future.result())
        room.release()

    start_s = time.monotonic()
    for _ in range(requests):
        room.acquire()
        send(segments).add_done_callback(answered)
    for _ in range(WINDOW):
        room.acquire()
    assert not wrong, wrong[0]
    return requests * len(segments) / (time.monotonic() - start_s)


def _reached(answer: Answer | None) -> bool:
    return answer is None or answer.status.reached


class Measuring:
    """Collects the figures of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.figures: list[Figure] = []
        self.details: dict[str, Any] = {}

    def latency(self, name: str, send: Send) -> tuple[float, float]:
        """p50 and p99 in ms of single requests, after some in which everything gets warm."""
        latencies_ms(send, self._options.warm_up)
        found = latencies_ms(send, self._options.singles)
        p50, p99 = np.percentile(found, [50, 99]).tolist()
        self.details[name] = {"p50_ms": p50, "p99_ms": p99, "requests": len(found)}
        return p50, p99

    def rate(
        self, name: str, send: Send, segments: Any, cpu_s: Callable[[], float]
    ) -> tuple[float, float]:
        """Segments a second of large requests, and us of CPU a segment behind the client."""
        few = len(segments) == SEGMENTS_OF_BATCH
        requests = self._options.of_dicts if few else self._options.of_rows
        before_s = cpu_s()
        rate = per_second(send, segments, requests)
        cpu_us = 1e6 * (cpu_s() - before_s) / (requests * len(segments))
        self.details[name] = {"per_second": rate, "cpu_us": cpu_us}
        return rate, cpu_us

    def says(self, name: str, value: float, unit: str, goal: float, note: str = "") -> None:
        least = unit == "/s"
        self.figures.append(Figure(name, value, unit, goal, at_least=least, note=note))


def measure(options: argparse.Namespace) -> Measured:
    found = Measuring(options)
    dicts = [{"n": n, "key": f"k{n % 10}"} for n in range(SEGMENTS_OF_BATCH)]
    numbers = np.arange(ROWS_OF_BATCH)
    rows = pa.RecordBatch.from_pydict({"n": numbers, "v": numbers * 0.5, "key": numbers % 10})
    with running("dicts") as (appender, _):
        waits = {ack: found.latency(ack, partial(_send, appender, ack)) for ack in ACKS}
    for ack, (p50, p99) in waits.items():
        found.says(f"{ack} at {PER_SECOND}/s, p50", p50, "ms", GOAL_P50_MS)
        found.says(f"{ack} at {PER_SECOND}/s, p99", p99, "ms", GOAL_P99_MS)
    dicts_cpu_us = _rates(found, "dicts", "requests of 100 dicts", dicts, GOAL_DICTS)
    _rates(found, "columns", "batches of 10,000 rows", rows, GOAL_ROWS)
    if options.size is not Size.TINY and kafka_requests.possible():
        with kafka_requests.running() as (client, cpu_s):
            its = found.latency(OTHERS, client.send)
            _, its_cpu_us = found.rate(
                f"requests of 100 dicts, {OTHERS}", client.send, dicts, cpu_s
            )
        for text, mine_ms, its_ms in zip(("p50", "p99"), waits["ack"], its, strict=True):
            note = f"{its_ms:.1f} ms with {OTHERS}"
            found.says(f"ack, {text}, to {OTHERS}", mine_ms / its_ms, "x", 1, note)
        note = f"{its_cpu_us:.1f} us a segment with {OTHERS}"
        found.says(f"ack, CPU of 100 dicts, to {OTHERS}", dicts_cpu_us / its_cpu_us, "x", 1, note)
    return Measured(found.figures, found.details)


def _rates(found: Measuring, form: str, name: str, segments: Any, goal: float) -> float:
    """Figures of large requests to a fresh job; us of CPU a segment when each is processed."""
    cpu_us = 0.0
    with running(form) as (appender, process):
        for ack in ACKS:
            title, send = f"{name}, {ack}", partial(_send, appender, ack)
            rate, cpu_us = found.rate(title, send, segments, partial(cpu_s, process))
            note = f"{cpu_us:.2f} us of CPU a segment behind the client"
            found.says(title, rate, "/s", goal, note)
    return cpu_us


def _send(appender: Appender, ack: str, segments: Any) -> Future[Any]:
    return appender.send(segments, ack)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--warm-up", PER_SECOND, PER_SECOND, 5, "single requests that do not count")
    made.sized("--singles", 15 * PER_SECOND, 3 * PER_SECOND, 20, "single requests that count")
    made.sized("--of-dicts", 4_000, 1_000, 10, f"requests of {SEGMENTS_OF_BATCH} dicts")
    made.sized("--of-rows", 40, 20, 2, f"requests of {ROWS_OF_BATCH:,} rows")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
