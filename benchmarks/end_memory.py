"""Resident memory of a worker at the end of a job, when everything fires at one moment.

    python -m benchmarks.end_memory [--groups N] [--quick] [--json FILE]

Half a million groups are counted in one process, exactly-once, with at most 100,000 of them in
memory and the rest on the disk. When the input has ended, each fires once and is emitted. *Growth*
is the highest sample from the first firing on, less the highest before.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import memory, onyx_run
from benchmarks.figures import Figure, Measured, Options, parser, run

GOAL_MIB = 192.0
TIMEOUT_S = 900.0


def measure(options: argparse.Namespace) -> Measured:
    groups = options.groups
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest("end-memory.yaml")
        job["spec"]["catalog"][0]["options"]["segments"] = groups
        job["spec"]["lifecycles"][0]["options"]["folder"] = name
        environment = {
            "ONYX_STATE_MEMORY_EXTENTS_MAX": str(options.extents_max),
            "ONYX_STATE_SCRATCH_DIR": str(folder / "scratch"),
        }
        modules = ("bench_probe", "bench_state")
        seen = memory.watched(job, folder, modules, TIMEOUT_S, environment)
        fired_s = float((folder / "fired").read_text())
    assert seen.span["count"] == groups, f"{seen.span['count']:,} emissions arrived"
    before = max(memory.within(seen.memory, 0.0, fired_s))
    peak = max(memory.within(seen.memory, fired_s, math.inf))
    took_s = seen.span["to_s"] - fired_s
    note = f"{groups:,} groups in {took_s:.0f} s; from {before:.0f} MiB to {peak:.0f} MiB"
    figure = Figure("memory growth at the end of a job", peak - before, "MiB", GOAL_MIB, note=note)
    return Measured([figure], {"memory": seen.memory})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--groups", 500_000, 200_000, 2_000)
    made.sized("--extents-max", 100_000, 10_000, 1_000, "groups in memory")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
