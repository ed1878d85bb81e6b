"""The programs of others, as contenders: a plain Python loop, Bytewax, Spark, PyFlink.

PyFlink is heavy (850 MB) and takes ten times longer than all others together, so it lives in a venv
of its own and takes part only when it is named:

    python3.11 -m venv bench-data/pyflink
    bench-data/pyflink/bin/pip install apache-flink==2.3.0 msgspec==0.22.0
    python -m benchmarks.workload_c --contender pyflink --contender onyx-1
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.data import ROOT, Data
from benchmarks.harness import Contender, printed_answer

HERE = Path(__file__).parent
CONTENDERS = HERE / "contenders"
CODE = {"PYTHONPATH": os.pathsep.join([str(HERE / "jobs"), str(CONTENDERS)])}
PYFLINK = ROOT / "pyflink"
UNIT = "plain"
PYARROW = "pyarrow"


def installed(*contenders: Contender | None) -> dict[str, Contender]:
    """By name, without those that are not there."""
    return {each.name: each for each in contenders if each is not None}


def plain(function: str) -> Contender:
    """A loop of `contenders/plain.py`."""
    return Contender(
        UNIT, partial(_script, "plain.py", function), printed_answer, CODE,
        "a loop; no delivery guarantee",
    )  # fmt: skip


def _script(name: str, function: str, data: Data, folder: Path) -> Sequence[str]:
    return [sys.executable, str(CONTENDERS / name), function, str(data.folder)]


def pyarrow(function: str) -> Contender:
    """A loop of `contenders/pyarrow_loop.py` over the Parquet files."""
    return Contender(
        PYARROW, partial(_pyarrow, function), printed_answer, CODE,
        "a loop over record batches of Parquet files; no delivery guarantee",
    )  # fmt: skip


def _pyarrow(function: str, data: Data, folder: Path) -> Sequence[str]:
    return _script("pyarrow_loop.py", function, data.as_parquet(), folder)


def bytewax(
    flow: str, name: str = "bytewax", note: str = "", processes: int = 1
) -> Contender | None:
    """A flow of `contenders/bytewax_flows.py`, without recovery store."""
    if not importlib.util.find_spec("bytewax"):
        return None
    setup = f"{processes} process{'es' * (processes > 1)}, no recovery store"
    command = partial(_bytewax, flow, processes)
    return Contender(name, command, printed_answer, CODE, "; ".join(filter(None, [note, setup])))


def _bytewax(flow: str, processes: int, data: Data, folder: Path) -> Sequence[str]:
    program = f"bytewax_flows:{flow}()"
    start = ["env", f"BENCH_FOLDER={data.folder}", sys.executable, "-m"]
    if processes == 1:
        return [*start, "bytewax.run", program]
    return [*start, "bytewax.testing", program, "-p", str(processes)]


def spark(columns: bool = False) -> Contender | None:
    """Workload a as a structured stream: UDFs over JSON Lines, or `mapInArrow` over Parquet."""
    if not importlib.util.find_spec("pyspark"):
        return None
    note = "mapInArrow" if columns else "Python UDF"
    return Contender(
        "spark-arrow" if columns else "spark", partial(_spark, columns), printed_answer,
        spark_environment(), f"structured streaming, {note}, local[1], warm", tells_cpu=True,
    )  # fmt: skip


def _spark(columns: bool, data: Data, folder: Path) -> Sequence[str]:
    read = data.as_parquet() if columns else data
    kind = "columns" if columns else "dicts"
    program = str(CONTENDERS / "spark_stream.py")
    return [sys.executable, program, str(read.folder), str(folder), kind]


def spark_environment() -> dict[str, str]:
    from onyx.java import java_home_for_spark

    return {**CODE, "JAVA_HOME": str(java_home_for_spark()), "PYSPARK_PYTHON": sys.executable}


def pyflink(job: str) -> Contender | None:
    """A job of `contenders/pyflink_stream.py`, if there is a venv with PyFlink."""
    packages = next(iter(PYFLINK.glob("lib/python*/site-packages/pyflink")), None)
    if packages is None:
        return None
    from onyx.java import SPARK_JAVA_MIN, find_java

    path = os.pathsep.join([CODE["PYTHONPATH"], str(packages.parent)])
    environment = {"PYTHONPATH": path, "JAVA_HOME": str(find_java(SPARK_JAVA_MIN).home)}
    return Contender(
        "pyflink", partial(_pyflink, job), printed_answer, environment,
        "thread mode, parallelism 1, no checkpoints", on_demand=True,
    )  # fmt: skip


def _pyflink(job: str, data: Data, folder: Path) -> Sequence[str]:
    program = str(CONTENDERS / "pyflink_stream.py")
    return [str(PYFLINK / "bin" / "python"), program, job, str(data.folder), str(folder)]
