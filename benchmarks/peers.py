"""What others need for workload a: the plain loop, Bytewax, Spark. `python benchmarks/peers.py`"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from data import Data, segments
from harness import Contender, compare, printed_answer, report

HERE = Path(__file__).parent
CONTENDERS = HERE / "contenders"
CODE = {"PYTHONPATH": os.pathsep.join([str(HERE / "jobs"), str(CONTENDERS)])}
UNIT = "plain"


def _plain(data: Data, folder: Path) -> Sequence[str]:
    return [sys.executable, str(CONTENDERS / "plain.py"), str(data.folder)]


def _bytewax(data: Data, folder: Path) -> Sequence[str]:
    set_folder = f"BENCH_FOLDER={data.folder}"
    return ["env", set_folder, sys.executable, "-m", "bytewax.run", "bytewax_flow:flow"]


def _spark(data: Data, folder: Path) -> Sequence[str]:
    return [sys.executable, str(CONTENDERS / "spark_stream.py"), str(data.folder), str(folder)]


def _spark_environment() -> dict[str, str]:
    from onyx.java import java_home_for_spark

    return {**CODE, "JAVA_HOME": str(java_home_for_spark()), "PYSPARK_PYTHON": sys.executable}


def peers() -> dict[str, Contender]:
    """Those that are installed, by name."""
    found = {UNIT: Contender(UNIT, _plain, printed_answer, CODE, "a loop; no delivery guarantee")}
    if importlib.util.find_spec("bytewax"):
        found["bytewax"] = Contender(
            "bytewax", _bytewax, printed_answer, CODE, "1 worker, no recovery store"
        )
    if importlib.util.find_spec("pyspark"):
        found["spark"] = Contender(
            "spark",
            _spark,
            printed_answer,
            _spark_environment(),
            "structured streaming, Python UDF, local[1], warm",
            tells_cpu=True,
        )
    return found


def measure(title: str, contenders: dict[str, Contender], arguments: Sequence[str]) -> None:
    """Command line of a comparison."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--contender", action="append", choices=list(contenders))
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--small-records", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    chosen = options.contender or list(contenders)
    results = compare(
        [contenders[name] for name in chosen],
        segments(options.records),
        segments(options.small_records),
        options.repeats,
        options.timeout,
    )
    report(f"{title}, {options.records:,} records", results, UNIT, options.json)


if __name__ == "__main__":
    measure("Workload a: parse JSON, add one, keep even ones", peers(), sys.argv[1:])
