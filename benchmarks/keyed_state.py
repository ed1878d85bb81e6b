"""What state by key costs: `python -m benchmarks.keyed_state`

CPU of a worker that keeps a sum for each of 1,000 keys in a function, to that of one that keeps it
in a window with `sum`: over segments and over columns, exactly-once, with the state log on the
local disk. The same of a running sum, which gives each segment its total; beside it, what a timer
costs that each segment moves, and a processor that adds, and saves its state for each chunk.
The kinds alternate, so that a busy machine disturbs all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run

GOALS = {True: 1.5, False: 5.0}
"""For columns, and for segments."""
TIMEOUT_S = 600.0
KINDS = {
    "window": "",
    "sum": "add",
    "running sum": "running",
    "timers": "later",
    "processor": "Sums",
}
"""What is measured, with the function that does it."""


def cpu_s(kind: str, columns: bool, segments: int) -> float:
    """CPU seconds of the worker in one run."""
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        job = onyx_run.manifest("keyed-state.yaml")
        spec = job["spec"]
        read, keep, _ = spec["catalog"]
        read["options"]["segments"] = segments
        spec["lifecycles"][0]["options"] = {"folder": name}
        if columns:
            read["options"]["fn"] += "_columns"
            read["batchFormat"] = keep["batchFormat"] = "arrow"
        if kind != "window":
            del spec["windows"], spec["triggers"]
            keep |= _function(KINDS[kind], columns)
        modules = ["bench_keyed_state", "bench_probe"]
        onyx_run.finish(onyx_run.start(onyx_run.command(job, Path(name), modules)), TIMEOUT_S)
        found = [json.loads(each.read_text()) for each in Path(name).glob("span-*.json")]
        return float(sum(each["cpu_s"] for each in found))


def _function(fn: str, columns: bool) -> dict[str, Any]:
    """The keys of the task that keeps the sums itself."""
    if fn == "Sums":
        name = f"bench_keyed_state:{fn}{'OfColumns' if columns else ''}"
        return {"type": "function", "processor": name}
    its = {
        "type": "function",
        "fn": f"bench_keyed_state:{fn}{'_columns' if columns else ''}",
        "state": {"total": "value[int]"},
    }
    return {**its, "onTimer": "bench_keyed_state:nothing"} if fn == "later" else its


def measure(options: argparse.Namespace) -> Measured:
    figures: list[Figure] = []
    for columns in (True, False):
        what = "columns" if columns else "segments"
        kinds = [kind for kind in KINDS if kind != "timers" or not columns]
        runs: dict[str, list[float]] = {kind: [] for kind in kinds}
        for repeat in range(options.repeats):
            for kind in kinds:
                runs[kind].append(cpu_s(kind, columns, options.segments))
            shown = ", ".join(f"{kind} {found[-1]:.2f} s" for kind, found in runs.items())
            print(f"{repeat + 1} {what}: {shown}", file=sys.stderr, flush=True)
        used = {kind: Repeats(tuple(found)) for kind, found in runs.items()}
        note = ", ".join(f"{kind} {found.typical:.2f} s" for kind, found in used.items())
        for kind in ("sum", "running sum"):
            name = f"a {kind} in a function with state to a sum in a window, {what}"
            figures.append(ratio(name, used[kind], used["window"], GOALS[columns], note))
    return Measured(figures)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 500_000, 50_000, 2_000)
    made.sized("--repeats", 5, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
