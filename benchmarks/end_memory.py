"""Resident memory of a worker at the end of a job, when everything fires at one moment.

    python -m benchmarks.end_memory [--groups N] [--quick] [--json FILE]

Two million groups are counted in one process, exactly-once, with at most 100,000 of them in memory
and the rest on the disk. When the input has ended, each fires once and is emitted. *Growth* is the
highest sample from the first firing on, less the highest before.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import memory, onyx_run
from benchmarks.figures import Figure, Measured, parser, run

GROUPS, GROUPS_QUICK = 2_000_000, 200_000
EXTENTS_MAX, EXTENTS_MAX_QUICK = 100_000, 10_000
GOAL_MIB = 192.0
TIMEOUT_S = 900.0


def measure(options: argparse.Namespace) -> Measured:
    groups = GROUPS_QUICK if options.quick else options.groups
    extents_max = EXTENTS_MAX_QUICK if options.quick else EXTENTS_MAX
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest("end-memory.yaml")
        job["spec"]["catalog"][0]["options"]["segments"] = groups
        job["spec"]["lifecycles"][0]["options"]["folder"] = name
        onyx_run.ENVIRONMENT |= {
            "ONYX_STATE_MEMORY_EXTENTS_MAX": str(extents_max),
            "ONYX_STATE_SCRATCH_DIR": str(folder / "scratch"),
            "BENCH_FIRED": str(folder / "fired"),
        }
        seen = memory.watched(job, folder, ("bench_probe", "bench_state"), TIMEOUT_S)
        fired_s = float((folder / "fired").read_text())
    assert seen.span["count"] == groups, f"{seen.span['count']:,} emissions arrived"
    before = max(mib for at_s, mib in seen.memory if at_s < fired_s)
    peak = max(mib for at_s, mib in seen.memory if at_s >= fired_s)
    took_s = seen.span["to_s"] - fired_s
    note = f"{groups:,} groups in {took_s:.0f} s; from {before:.0f} MiB to {peak:.0f} MiB"
    figure = Figure("memory growth at the end of a job", peak - before, "MiB", GOAL_MIB, note=note)
    return Measured([figure], {"memory": seen.memory})


if __name__ == "__main__":
    made = parser(__doc__)
    made.add_argument("--groups", type=int, default=GROUPS)
    run(__doc__, measure, made)
