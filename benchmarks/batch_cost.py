"""What a batch costs, whatever is in it: `python -m benchmarks.batch_cost`

On its way through three tasks. Workload a over the same records in batches of two sizes: the
difference of their CPU divided by the difference of their numbers of batches. In one process, where
tasks hand batches over as they are, and in three with gRPC between them. CPU is that of the worker
processes between the start of their first task and the end of their last, as each measures it; the
two sizes alternate. Each run also shows how often threads waited, which is most of what a batch
costs between processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import onyx_run
from benchmarks.data import Data, segments
from benchmarks.figures import Measured, Options, Repeats, Size, parser, run, typical

SIZES = (1_000, 4_000)
SIZES_TINY = (10, 500)
"""So small that what a batch costs is more than what the rest of a job differs by."""
GOALS_US = {1: 150.0, 3: 800.0}
"""By processes."""
TIMEOUT_S = 120.0


def spent(data: Data, processes: int, batch_size: int) -> dict[str, float]:
    """CPU seconds of one run, and what was counted in it, of all processes."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        job = onyx_run.manifest("a.yaml")
        spec = job["spec"]
        for entry in spec["catalog"]:
            entry["batchSize"] = batch_size
        spec["catalog"][0]["options"]["path"] = data.pattern
        spec["lifecycles"] = [
            {"task": "all", "calls": "bench_probe:span_calls", "options": {"folder": name}}
        ]
        command = onyx_run.command(
            job, folder, ["bench_tasks", "bench_probe"], processes, apart=True
        )
        onyx_run.finish(onyx_run.start(command), TIMEOUT_S)
        found = [json.loads(path.read_text()) for path in folder.glob("span-*.json")]
    assert len(found) == processes, f"{len(found)} of {processes} processes had tasks"
    counted = ("cpu_s", "waits", "preemptions")
    return {name: float(sum(each[name] for each in found)) for name in counted}


def cost_us(data: Data, runs: Mapping[int, list[dict[str, float]]]) -> Repeats:
    """Of a batch."""
    few, many = max(runs), min(runs)
    batches = data.records / many - data.records / few
    used = {size: Repeats(tuple(each["cpu_s"] for each in found)) for size, found in runs.items()}
    return used[many].less(used[few]).per(batches / 1e6)


def measure(options: argparse.Namespace) -> Measured:
    data, repeats = segments(options.records), options.repeats
    both = SIZES_TINY if options.size is Size.TINY else SIZES
    runs: dict[int, dict[int, list[dict[str, float]]]] = {
        processes: {size: [] for size in both} for processes in options.processes
    }
    for repeat in range(repeats):
        for processes, sizes in runs.items():
            for size, found in sizes.items():
                found.append(spent(data, processes, size))
                shown = ", ".join(f"{name} {value:.2f}" for name, value in found[-1].items())
                print(
                    f"{repeat + 1}/{repeats} {processes} processes, {size}: {shown}",
                    file=sys.stderr,
                    flush=True,
                )
    figures = []
    for processes, sizes in runs.items():
        name = f"CPU of a batch, {processes} process{'es' if processes > 1 else ''}"
        note = f"batches of {both[0]:,} against {both[1]:,}, {data.records:,} records"
        figures.append(typical(name, cost_us(data, sizes), "us", GOALS_US[processes], note))
    return Measured(figures, {"runs": runs})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--repeats", 5, 2, 1)
    made.sized("--records", 1_000_000, 200_000, 5_000)
    made.add_argument("--processes", type=int, nargs="+", choices=GOALS_US, default=list(GOALS_US))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
