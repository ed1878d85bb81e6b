"""Resident memory of a worker while 10 million segments pass, and while an output blocks.

    python -m benchmarks.memory [--quick] [--json FILE]

Sampled ten times a second from outside, over the process that does the work. *Growth* is the
highest sample after the warm-up less the median at the end of the warm-up: the first quarter of the
time in which segments pass, or the last second before the output blocks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import psutil
from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.processes.child import NAME

GOAL_MIB = 64.0
INTERVAL_S = 0.1
TIMEOUT_S = 300.0
ENDING_S = 10.0
"""From the last sample to the end of the process."""

Samples = list[tuple[float, float]]
"""CLOCK_MONOTONIC in s, and MiB."""


@dataclass(frozen=True)
class Watched:
    """A run of a job."""

    memory: Samples
    """Of the worker process."""
    state: Samples
    """Of its state on disk."""
    span: dict[str, Any]
    """What its lifecycle measured."""


def _works(process: psutil.Process) -> bool:
    """Whether it is the worker of `onyx run`, and not the command."""
    return process.name() == NAME


def watched(
    job: dict[str, Any],
    folder: Path,
    modules: Sequence[str] = ("bench_probe",),
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Watched:
    """Run a job of one process to its end.

    Raises:
        RuntimeError: it failed, or took longer than `timeout_s`.
    """
    process = onyx_run.start(onyx_run.command(job, folder, modules), environment)
    memory: Samples = []
    state: Samples = []
    deadline_s = time.monotonic() + timeout_s
    while process.poll() is None and (now_s := time.monotonic()) < deadline_s:
        try:
            worker = next(
                filter(_works, psutil.Process(process.pid).children(recursive=True)), None
            )
            if worker is None:
                process.wait(INTERVAL_S)
                continue
            memory.append((now_s, worker.memory_info().rss / 2**20))
            state.append((now_s, onyx_run.size_mib(folder / onyx_run.STATE)))
            process.wait(INTERVAL_S)
        except subprocess.TimeoutExpired:
            continue
        except psutil.Error:
            break
    onyx_run.finish(process, ENDING_S)
    (span,) = [json.loads(path.read_text()) for path in folder.glob("span-*.json")]
    return Watched(memory, state, span)


def within(samples: Samples, from_s: float, to_s: float) -> list[float]:
    """Samples of some time; that which is nearest to its start, if it was so short."""
    found = [mib for at_s, mib in samples if from_s <= at_s <= to_s]
    return found or [min(samples, key=lambda sample: abs(sample[0] - from_s))[1]]


def growth(before: Sequence[float], during: Sequence[float]) -> float:
    return max(during) - median(before)


def passing(
    name: str,
    segments: int,
    folder: Path,
    modules: Sequence[str] = ("bench_probe",),
    timeout_s: float = TIMEOUT_S,
) -> tuple[Figure, Watched]:
    """Growth while so many segments pass through the job `jobs/NAME`, which counts them."""
    job = onyx_run.manifest(name)
    job["spec"]["catalog"][0]["options"]["segments"] = segments
    job["spec"]["lifecycles"][0]["options"]["folder"] = str(folder)
    seen = watched(job, folder, modules, timeout_s)
    assert seen.span["count"] == segments, f"{seen.span['count']:,} segments arrived"
    grown = growth_while_passing(seen.memory, seen.span)
    rate = segments / (seen.span["to_s"] - seen.span["from_s"])
    note = f"{segments:,} segments at {rate:,.0f}/s; peak {max(m for _, m in seen.memory):.0f} MiB"
    return Figure("memory growth while segments pass", grown, "MiB", GOAL_MIB, note=note), seen


def growth_while_passing(samples: Samples, span: Mapping[str, Any]) -> float:
    """After the first quarter of the time in which segments passed."""
    from_s, to_s = span["from_s"], span["to_s"]
    warm_s = from_s + (to_s - from_s) / 4
    return growth(
        within(samples, warm_s - (to_s - from_s) / 10, warm_s), within(samples, warm_s, to_s)
    )


def blocking(block_s: int, segments: int, folder: Path) -> tuple[Figure, Samples]:
    """Growth while the output takes nothing, after a twentieth of the segments."""
    job = onyx_run.manifest("memory.yaml")
    spec = job["spec"]
    spec["catalog"][0]["options"]["segments"] = segments
    sink = spec["catalog"][2]
    sink["plugin"] = "function"
    sink["options"] = {
        "fn": "bench_probe:block_once",
        "batch": True,
    }
    spec["lifecycles"][0] = {
        "task": "sink",
        "calls": "bench_probe:span_calls",
        "options": {"folder": str(folder), "blockAfter": segments // 20, "blockS": block_s},
    }
    seen = watched(job, folder)
    since_s, until_s = seen.span["blocked"]
    before = within(seen.memory, since_s - 1, since_s)[-2:]
    grown = growth(before, within(seen.memory, since_s, until_s))
    name = f"memory growth while an output blocks for {block_s} s"
    return Figure(name, grown, "MiB", GOAL_MIB, note=f"from {median(before):.0f} MiB"), seen.memory


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        flat, passed = passing("memory.yaml", options.segments, Path(one))
        blocked, waited = blocking(options.block_s, options.blocked_segments, Path(two))
    return Measured([flat, blocked], {"passing": passed.memory, "blocking": waited})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 10_000_000, 1_000_000, 50_000)
    made.sized("--blocked-segments", 1_000_000, 1_000_000, 20_000, "into the output that blocks")
    made.sized("--block-s", 30, 5, 1, "seconds for which it blocks")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
