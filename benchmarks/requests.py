"""Requests into a job, and their answers: latency and throughput. `python -m benchmarks.requests`

Three tasks in three processes, exactly once, from `plugin: requests` to files. The journal and
every file are forced to disk. A client in this process sends:

* one segment a request, 200 requests a second, each answered when its segment is in a file;
* requests of 100 dicts, and record batches of 10,000 rows, a window of them on the way, each
  answered when it is journalled (and, beside it, when it is processed).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, parser, run

from onyx import api
from onyx.client import Answer, Appender
from onyx.settings import Settings, ZooKeeperSettings

PROCESSES = 3
PER_SECOND = 200
SEGMENTS_OF_BATCH = 100
ROWS_OF_BATCH = 10_000
WINDOW = 32
"""Requests on the way."""
START_TIMEOUT_S = 60.0
GOAL_P50_MS, GOAL_P99_MS = 5.0, 20.0
GOAL_DICTS, GOAL_ROWS = 50_000, 1_000_000

Send = Callable[[], Any]


@contextmanager
def running(form: str) -> Iterator[tuple[Appender, psutil.Process]]:
    """The job in three processes, an appender to it, and the process above them."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest(f"requests-{form}.yaml")
        job["spec"]["catalog"][-1]["options"]["path"] = str(folder / "out")
        command = onyx_run.command(job, folder, ["bench_probe", "bench_columns"], PROCESSES)
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
        found = re.search(r"--zookeeper (\S+) --tenancy (\S+)", line)
        if found is not None:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            zookeeper = ZooKeeperSettings(found[1])
            return Settings(tenancy_id=found[2], zookeeper=zookeeper)
    raise RuntimeError("onyx run has ended without a job")


def cpu_s(process: psutil.Process) -> float:
    """CPU of a process and all below it, so far."""
    each = [process, *process.children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in each)


def latencies_ms(appender: Appender, count: int, ack: str) -> list[float]:
    """Of requests at a fixed rate, whether the ones before are answered or not."""
    found: list[float] = []
    done = threading.Semaphore(0)
    start_s = time.monotonic()
    for number in range(count):
        due_s = start_s + number / PER_SECOND
        time.sleep(max(0.0, due_s - time.monotonic()))

        def answered(future: Any, due_s: float = due_s) -> None:
            assert future.result().status.reached, future.result()
            found.append(1e3 * (time.monotonic() - due_s))
            done.release()

        appender.send({"n": number, "key": "a"}, ack).add_done_callback(answered)
    for _ in range(count):
        done.acquire()
    return found


def per_second(send: Send, requests: int, segments: int) -> float:
    """Segments a second with a window of requests on the way."""
    room = threading.BoundedSemaphore(WINDOW)
    wrong: list[Answer] = []

    def answered(future: Any) -> None:
        if not future.result().status.reached:
            wrong.append(future.result())
        room.release()

    start_s = time.monotonic()
    for _ in range(requests):
        room.acquire()
        send().add_done_callback(answered)
    for _ in range(WINDOW):
        room.acquire()
    assert not wrong, wrong[0]
    return requests * segments / (time.monotonic() - start_s)


def measure(options: argparse.Namespace) -> Measured:
    seconds = 3 if options.quick else 15
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    with running("dicts") as (appender, process):
        for ack in ("journal", "ack"):
            latencies_ms(appender, PER_SECOND, ack)
            found = latencies_ms(appender, seconds * PER_SECOND, ack)
            p50, p99 = np.percentile(found, [50, 99]).tolist()
            details[ack] = {"p50_ms": p50, "p99_ms": p99, "requests": len(found)}
            figures += [
                Figure(f"{ack} at 200/s, p50", p50, "ms", GOAL_P50_MS),
                Figure(f"{ack} at 200/s, p99", p99, "ms", GOAL_P99_MS),
            ]
        batch = [{"n": n, "key": f"k{n % 10}"} for n in range(SEGMENTS_OF_BATCH)]
        requests = 300 if options.quick else 5_000
        for ack in ("journal", "ack"):
            before_s = cpu_s(process)
            rate = per_second(partial(_send, appender, batch, ack), requests, len(batch))
            cpu_us = 1e6 * (cpu_s(process) - before_s) / (requests * len(batch))
            details[f"dicts {ack}"] = {"per_second": rate, "cpu_us": cpu_us}
            figures.append(_rate(f"requests of 100 dicts, {ack}", rate, GOAL_DICTS, cpu_us))
    with running("columns") as (appender, process):
        columns = np.arange(ROWS_OF_BATCH)
        rows = pa.RecordBatch.from_pydict({"n": columns, "v": columns * 0.5, "key": columns % 10})
        requests = 20 if options.quick else 400
        for ack in ("journal", "ack"):
            before_s = cpu_s(process)
            rate = per_second(partial(_send, appender, rows, ack), requests, ROWS_OF_BATCH)
            cpu_us = 1e6 * (cpu_s(process) - before_s) / (requests * ROWS_OF_BATCH)
            details[f"columns {ack}"] = {"per_second": rate, "cpu_us": cpu_us}
            figures.append(_rate(f"batches of 10,000 rows, {ack}", rate, GOAL_ROWS, cpu_us))
    return Measured(figures, details)


def _send(appender: Appender, segments: Any, ack: str) -> Any:
    return appender.send(segments, ack)


def _rate(text: str, rate: float, goal: int, cpu_us: float) -> Figure:
    note = f"{cpu_us:.2f} us of CPU a segment in the workers"
    return Figure(text, rate, "/s", goal, at_least=True, note=note)


if __name__ == "__main__":
    run(__doc__, measure, parser(__doc__))
