"""Every figure, one after the other, in one table: `python -m benchmarks [NAME...] [--quick]`.

Each benchmark is a process of its own; one that fails is shown as failed and the others go on.
The exit code is 0 if all ran, whatever they measured, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures import table
from rich.console import Console

ROOT = Path(__file__).parents[1]
BENCHMARKS = {
    "workload_a": "CPU a segment against the plain loop, Bytewax and Spark",
    "workload_b": "counting words against Bytewax, in one process and with a shuffle",
    "workload_c": "sums in windows of event time against Bytewax, and what the state log costs",
    "spark_jobs": "sums in windows as a whole job on Spark against PySpark by hand",
    "spark_streams": "the same in micro-batches against Structured Streaming by hand",
    "spark_windows": "windows by Spark: spooling, and a stage against PySpark by hand",
    "bad_rows": "what a few bad records cost in columns, reading and in a whole job",
    "nexmark": "six queries of Nexmark against Bytewax, Pathway, Polars and DuckDB",
    "scale": "CPU a row and memory over 100 million rows of columns",
    "acking": "what at-least-once costs against at-most-once",
    "batch_cost": "what a batch costs, whatever is in it, in one process and in three",
    "latency": "end to end over two gRPC hops",
    "memory": "of a worker, while segments pass and while an output blocks",
    "state_memory": "of a worker and its state log, while windows open and close",
    "end_memory": "of a worker when everything fires at the end of a job",
    "recovery": "of a job with state, when a worker is killed",
    "spark_recovery": "of an endless job on Spark, when driver, JVM or worker is killed",
    "bench_log": "reading and writing the log on ZooKeeper",
    "bench_replica": "replay and scheduling",
    "bench_state": "appending to state logs, recovering from them, telling repeats",
    "bench_windows": "windows alone: segments into states, firings and changes",
    "bench_spill": "state in memory and on disk: memory, and segments into states",
    "many_jobs": "100 jobs on 450 peers: time until all run, and entries of the log",
    "startup": "`onyx run` of a trivial job",
    "operator_jobs": "OnyxJobs applied, reported and deleted, and what the operator takes for it",
}
"""Those that have goals, in the order of the table. The other modules explain where costs are."""
TIMEOUT_S = 1_800.0


def measure(name: str, quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and the whole document of one benchmark.

    Raises:
        RuntimeError: it failed.
    """
    command = ["python", "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, *command[1:], "--json", str(path)], cwd=ROOT, timeout=TIMEOUT_S
        )
        if done.returncode or not path.exists():
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}")
        document = json.loads(path.read_text())
    found = [{**row, "command": " ".join(command)} for row in document["figures"]]
    return found, document


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="under 20 s each")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    options = parser.parse_args()
    present = [name for name in BENCHMARKS if importlib.util.find_spec(f"benchmarks.{name}")]
    if unknown := sorted(set(options.name).difference(present)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(present)}")
    rows: list[dict[str, Any]] = []
    documents: dict[str, Any] = {}
    failed: list[str] = []
    for name in options.name or present:
        print(f"== {name}: {BENCHMARKS[name]}", flush=True)
        try:
            found, documents[name] = measure(name, options.quick)
            rows += found
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            failed.append(name)
    Console(width=180).print(table(rows))
    if options.json is not None:
        document = {
            "quick": options.quick, "figures": rows, "failed": failed,
            "load_average": os.getloadavg(), "benchmarks": documents,
        }  # fmt: skip
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
