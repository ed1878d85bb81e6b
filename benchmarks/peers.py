"""What others need for workload a: the plain loop, Bytewax, Spark. `python -m benchmarks.peers`"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.data import Data, segments
from benchmarks.figures import Figure, Measured, publish
from benchmarks.figures import parser as figures_parser
from benchmarks.harness import Contender, Result, compare, printed_answer, report

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


def measure(
    title: str,
    contenders: dict[str, Contender],
    figures: Callable[[Sequence[Result]], list[Figure]] = lambda results: [],
    quick: Sequence[str] = (),
) -> None:
    """Command line of a comparison. `figures` are made of the results; `--quick` compares only the
    contenders named in `quick`, over fewer records."""
    parser = figures_parser(title)
    parser.add_argument("--contender", action="append", choices=list(contenders))
    parser.add_argument("--records", type=int)
    parser.add_argument("--small-records", type=int, default=1_000)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    options = parser.parse_args()
    known = [name for name in quick if name in contenders] if options.quick else list(contenders)
    records = options.records or (200_000 if options.quick else 1_000_000)
    results = compare(
        [contenders[name] for name in options.contender or known],
        segments(records),
        segments(options.small_records),
        options.repeats or (1 if options.quick else 3),
        options.timeout,
    )
    details = report(f"{title}, {records:,} records", results, UNIT)
    publish(Measured(figures(results), details), options.json)


if __name__ == "__main__":
    measure("Workload a: parse JSON, add one, keep even ones", peers(), quick=[UNIT, "bytewax"])
