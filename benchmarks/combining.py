"""What a window with `combine: true` saves: `python -m benchmarks.combining`

Sums of ten groups by the hour, exactly-once, with each task in a worker process of its own: CPU,
and the bytes that went over the loopback interface, to those without `combine`. CPU is that of all
processes of `onyx run`, less that of the same job over a thousand segments: what looks at batches
cannot be combined, so no lifecycle can measure. The interface has the traffic of ZooKeeper too, and
that of whatever else runs on the machine. All kinds alternate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from benchmarks import harness, onyx_run
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run

GOAL_CPU, GOAL_BYTES = 1.0, 0.2
TIMEOUT_S = 600.0
PROCESSES = 3


class Used(NamedTuple):
    """What one run has used."""

    cpu_s: float
    """Of all processes."""
    loopback_bytes: int


def used(combine: bool, columns: bool, segments: int) -> Used:
    """One run."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        job = onyx_run.manifest("combining.yaml")
        spec = job["spec"]
        read, summed, _ = spec["catalog"]
        read["options"]["segments"] = segments
        summed["combine"] = combine
        if columns:
            read["options"]["fn"] += "_columns"
            read["batchFormat"] = summed["batchFormat"] = "arrow"
        command = onyx_run.command(job, Path(name), ["bench_keyed_state"], PROCESSES, apart=True)
        sent = _loopback_bytes()
        done = harness.run(command, onyx_run.ENVIRONMENT, TIMEOUT_S)
        return Used(done.cpu_s, _loopback_bytes() - sent)


def _loopback_bytes() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def measure(options: argparse.Namespace) -> Measured:
    figures: list[Figure] = []
    for columns in (True, False):
        what = "columns" if columns else "segments"
        runs: dict[bool, list[Used]] = {True: [], False: []}
        for repeat in range(options.repeats):
            for combine, found in runs.items():
                whole = used(combine, columns, options.segments)
                start_s = used(combine, columns, options.few).cpu_s if options.few else 0.0
                found.append(whole._replace(cpu_s=whole.cpu_s - start_s))
            shown = ", ".join(
                f"{'with' if combine else 'without'} {found[-1].cpu_s:.2f} s "
                f"{found[-1].loopback_bytes / 1e6:.0f} MB"
                for combine, found in runs.items()
            )
            print(f"{repeat + 1} {what}: {shown}", file=sys.stderr, flush=True)
        cpu = {each: Repeats(tuple(one.cpu_s for one in found)) for each, found in runs.items()}
        sent = {
            each: Repeats(tuple(float(one.loopback_bytes) for one in found))
            for each, found in runs.items()
        }
        note = f"{cpu[True].typical:.2f} s to {cpu[False].typical:.2f} s"
        name = f"CPU of three processes with combine to without, {what}"
        figures.append(ratio(name, cpu[True], cpu[False], GOAL_CPU, note))
        note = f"{sent[True].typical / 1e6:.0f} MB to {sent[False].typical / 1e6:.0f} MB"
        name = f"bytes between the processes with combine to without, {what}"
        figures.append(ratio(name, sent[True], sent[False], GOAL_BYTES, note))
    return Measured(figures)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 4_000_000, 200_000, 2_000)
    made.sized("--few", 1_000, 1_000, 0, "to tell the start-up; 0 leaves it in")
    made.sized("--repeats", 3, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
