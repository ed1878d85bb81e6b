"""What at-least-once costs against at-most-once, by batch size. `python -m benchmarks.acking`

The same job in one process, tasks short-circuited, so that nothing else is large beside it. CPU of
the whole process between the start of its first task and the end of the sink, as the process itself
measures it, less the same over few records: neither start-up nor the making of the job count. The
two guarantees alternate.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import onyx_run
from benchmarks.data import Data, segments
from benchmarks.figures import Measured, Options, Repeats, Size, parser, ratio, run

SIZES = (500, 1_000, 4_000)
GOAL = 1.10
GUARANTEES = ("at-most-once", "at-least-once")
TIMEOUT_S = 120.0


def job_cpu_s(data: Data, guarantee: str, batch_size: int) -> float:
    """CPU seconds of one run."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest("a.yaml")
        spec = job["spec"]
        spec["guarantee"] = guarantee
        for entry in spec["catalog"]:
            entry["batchSize"] = batch_size
        spec["catalog"][0]["options"]["path"] = data.pattern
        options = {"folder": name}
        spec["lifecycles"] = [
            {"task": "all", "calls": "bench_probe:span_calls", "options": options}
        ]
        command = onyx_run.command(job, folder, ["bench_tasks", "bench_probe"])
        onyx_run.finish(onyx_run.start(command), TIMEOUT_S)
        (span,) = [json.loads(path.read_text()) for path in folder.glob("span-*.json")]
        return float(span["cpu_s"])


def measure(options: argparse.Namespace) -> Measured:
    sizes = SIZES[1:2] if options.size is Size.QUICK else SIZES
    data, repeats = segments(options.records), options.repeats
    few = segments(options.few_records) if options.few_records else None
    found: dict[int, dict[str, list[float]]] = {}
    for repeat in range(repeats):
        empty_s = {
            guarantee: job_cpu_s(few, guarantee, sizes[0]) if few else 0.0
            for guarantee in GUARANTEES
        }
        for size in sizes:
            for guarantee in GUARANTEES:
                print(f"{repeat + 1}/{repeats} {size} {guarantee}", file=sys.stderr, flush=True)
                used_s = job_cpu_s(data, guarantee, size) - empty_s[guarantee]
                found.setdefault(size, {}).setdefault(guarantee, []).append(used_s)
    figures = []
    for size, used in found.items():
        most, least = (Repeats(tuple(used[each])) for each in GUARANTEES)
        figures.append(
            ratio(
                f"at-least-once / at-most-once, batches of {size:,}",
                least,
                most,
                GOAL,
                note=f"{least.best * 1e6 / data.records:.2f} us a segment in all",
            )
        )
    return Measured(figures, found)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--records", 2_000_000, 200_000, 2_000)
    made.sized("--few-records", 1_000, 1_000, 0, "to tell the start-up; 0 leaves it in")
    made.sized("--repeats", 3, 2, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
