"""The programs of others, as contenders: a plain Python loop, Bytewax, Spark, PyFlink.

What is not installed is `Absent`, with what would install it. PyFlink is heavy (850 MB) and wants
other versions of what Onyx needs, so it lives in a venv of its own:

    python3.11 -m venv bench-data/pyflink
    bench-data/pyflink/bin/pip install apache-flink==2.3.0 msgspec==0.22.0

It takes ten times longer than all others together; `--contender` chooses who takes part.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.checkout import python_path
from benchmarks.data import ROOT, Data
from benchmarks.harness import Absent, Contender, printed_answer

HERE = Path(__file__).parent
CONTENDERS = HERE / "contenders"
CODE = {"PYTHONPATH": python_path(HERE / "jobs", CONTENDERS)}
PYFLINK = ROOT / "pyflink"
UNIT = "plain"
PYARROW = "pyarrow"


def by_name(*contenders: Contender | Absent) -> dict[str, Contender | Absent]:
    return {each.name: each for each in contenders}


def absent(name: str, install: str) -> Absent:
    return Absent(name, f"not installed: {install}")


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
) -> Contender | Absent:
    """A flow of `contenders/bytewax_flows.py`, without recovery store."""
    if not importlib.util.find_spec("bytewax"):
        return absent(name, "pip install bytewax")
    setup = f"{processes} process{'es' * (processes > 1)}, no recovery store"
    command = partial(_bytewax, flow, processes)
    return Contender(name, command, printed_answer, CODE, "; ".join(filter(None, [note, setup])))


def _bytewax(flow: str, processes: int, data: Data, folder: Path) -> Sequence[str]:
    program = f"bytewax_flows:{flow}()"
    start = ["env", f"BENCH_FOLDER={data.folder}", sys.executable, "-m"]
    if processes == 1:
        return [*start, "bytewax.run", program]
    return [*start, "bytewax.testing", program, "-p", str(processes)]


def spark(workload: str, columns: bool = False) -> Contender | Absent:
    """A query of `contenders/spark_stream.py`, over the files of text or those of Parquet."""
    name = "spark-arrow" if columns and workload == "segments" else "spark"
    if not importlib.util.find_spec("pyspark"):
        return absent(name, "pip install 'onyx-on-kubernetes[spark]'")
    functions = {"segments": "mapInArrow" if columns else "Python UDF"}
    note = f"structured streaming, {functions.get(workload, 'native')}, local[1], warm"
    return Contender(
        name, partial(_spark, workload, columns), printed_answer, spark_environment(), note,
        tells_cpu=True,
    )  # fmt: skip


def _spark(workload: str, columns: bool, data: Data, folder: Path) -> Sequence[str]:
    read = data.as_parquet() if columns else data
    kind = "columns" if columns else "dicts"
    program = str(CONTENDERS / "spark_stream.py")
    return [sys.executable, program, workload, kind, str(read.folder), str(folder)]


def spark_environment() -> dict[str, str]:
    from onyx.java import java_home_for_spark

    return {**CODE, "JAVA_HOME": str(java_home_for_spark()), "PYSPARK_PYTHON": sys.executable}


def pyflink(job: str) -> Contender | Absent:
    """A job of `contenders/pyflink_stream.py`, in the venv with PyFlink."""
    packages = next(iter(PYFLINK.glob("lib/python*/site-packages/pyflink")), None)
    if packages is None:
        return absent("pyflink", f"pip install apache-flink, in {PYFLINK.relative_to(ROOT.parent)}")
    from onyx.java import SPARK_JAVA_MIN, find_java

    path = python_path(HERE / "jobs", CONTENDERS, packages.parent)
    environment = {"PYTHONPATH": path, "JAVA_HOME": str(find_java(SPARK_JAVA_MIN).home)}
    return Contender(
        "pyflink", partial(_pyflink, job), printed_answer, environment,
        "thread mode, parallelism 1, no checkpoints",
    )  # fmt: skip


def _pyflink(job: str, data: Data, folder: Path) -> Sequence[str]:
    program = str(CONTENDERS / "pyflink_stream.py")
    return [str(PYFLINK / "bin" / "python"), program, job, str(data.folder), str(folder)]
