"""Resident memory of a worker while windows open and close. `python -m benchmarks.state_memory`

20 million segments of 1,000 keys pass through one process, exactly-once, with the state log on the
local disk: a million windows of a minute of event time in all, of which 11,000 are open at a time.
What is kept has to be bounded by those and by the segments that are not yet complete, so memory and
the log stay flat. Growth is as in `memory.py`: after the first quarter of the run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import memory
from benchmarks.figures import Figure, Measured, Options, parser, run

MODULES = ("bench_probe", "bench_state")
GOAL_STATE_MIB = 192.0
"""A snapshot is written when the log is larger than this (`snapshot_bytes_min` and the log since
the last one)."""
TIMEOUT_S = 900.0


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
        flat, seen = memory.passing(
            "state-memory.yaml", options.segments, Path(folder), MODULES, TIMEOUT_S
        )
    largest = max(mib for _, mib in seen.state)
    return Measured(
        [
            replace(flat, name="memory growth while windows open and close"),
            Figure("state log on disk at most", largest, "MiB", GOAL_STATE_MIB),
        ],
        {"memory": seen.memory, "state": seen.state},
    )


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 20_000_000, 1_000_000, 50_000)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
