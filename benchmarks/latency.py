"""End-to-end latency at 200 segments/s over two gRPC hops. `python -m benchmarks.latency [--format
columns]`

Three processes with one task each. The source stamps a segment when it reads it, the sink compares
the stamp with the same clock (CLOCK_MONOTONIC is one clock for the whole machine). The first
segments, while connections open and code is compiled, do not count.

Beside it, in the same run, what Bytewax takes from the same source to a sink in one process, with
no hop at all: how much of the latency is this machine's scheduler.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, Size, parser, run

GOAL_P50_MS, GOAL_P99_MS = 1.0, 3.0
TIMEOUT_S = 120.0
MODULES = ("bench_probe", "bench_columns", "bench_sources")
PROCESSES = 3
JOBS = {"dicts": "latency.yaml", "columns": "latency-columns.yaml"}


def over_grpc(segments: int, job_name: str) -> list[float]:
    """Latencies in ms, in the order of arrival."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest(job_name)
        job["spec"]["catalog"][0]["options"]["segments"] = segments
        job["spec"]["lifecycles"][0]["options"]["folder"] = name
        command = onyx_run.command(job, folder, MODULES, PROCESSES, apart=True)
        onyx_run.finish(onyx_run.start(command), TIMEOUT_S)
        (found,) = [json.loads(path.read_text()) for path in folder.glob("latency-*.json")]
    assert len(found) >= segments, f"{len(found)} of {segments} segments arrived"
    return [each / 1e6 for each in found]


def in_bytewax(segments: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        path = Path(name) / "latency.json"
        command = ["env", f"BENCH_SEGMENTS={segments}", f"BENCH_OUT={path}"]
        command += [sys.executable, "-m", "bytewax.run", "bytewax_latency:flow"]
        onyx_run.finish(onyx_run.start(command), TIMEOUT_S)
        return [each / 1e6 for each in json.loads(path.read_text())]


def percentiles(latencies_ms: Sequence[float], warm_up: int) -> dict[str, float]:
    counted = latencies_ms[warm_up:]
    p50, p99, most = np.percentile(counted, [50, 99, 100]).tolist()
    return {"segments": len(counted), "p50_ms": p50, "p99_ms": p99, "max_ms": most}


def measure(options: argparse.Namespace) -> Measured:
    segments = options.warm_up + options.segments
    ours = percentiles(over_grpc(segments, JOBS[options.format]), options.warm_up)
    details = {"onyx": ours}
    note = f"{ours['segments']:,.0f} segments, max {ours['max_ms']:.0f} ms"
    if importlib.util.find_spec("bytewax") and options.size is Size.FULL:
        peer = details["bytewax"] = percentiles(in_bytewax(segments), options.warm_up)
        note += f"; bytewax, no hop: p50 {peer['p50_ms']:.2f}, p99 {peer['p99_ms']:.2f} ms"
    return Measured(
        [
            Figure(f"latency over two hops, {options.format}, p50", ours["p50_ms"], "ms",
                   GOAL_P50_MS, note=note),
            Figure(f"latency over two hops, {options.format}, p99", ours["p99_ms"], "ms",
                   GOAL_P99_MS),
        ],
        details,
    )  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.add_argument("--format", choices=list(JOBS), default="dicts")
    made.sized("--warm-up", 800, 800, 20, "segments that do not count")
    made.sized("--segments", 4_200, 1_000, 100, "that count")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
