"""Windows by Spark and the same by hand.

    python spark_windows.py stage SOURCE PARTS OUT MASTER SHAPE RUNS
    python spark_windows.py whole SOURCE OUT MASTER SHAPE

`stage`: the plan of a firing over parts, and `groupBy` over the source, in turns in one warm
session. Prints the CPU seconds of driver and JVM in each of some runs, and how many groups with
which sum were found. The first of each warms the JVM and does not count. `whole`: the `groupBy`
once, as a program of its own. SHAPE is `global`, or `sliding:WIDTH:SLIDE`.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import psutil

from onyx.model.kinds import Native
from onyx.spark.session.opening import open_session
from onyx.spark.windows.aggregate import aggregate
from onyx.spark.windows.plan import INT, KEY_INT, Piece, Plan

SUM = Native(merges="sum")
CONF = {"spark.driver.memory": "3g"}


def by_hand(session: Any, source: Path, shape: str) -> Any:
    from pyspark.sql import functions as F

    rows, keys = session.read.parquet(str(source)), ["k"]
    if shape != "global":
        width, slide = map(int, shape.split(":")[1:])
        first, behind = F.expr(f"t div {slide}"), F.expr(f"(t + {width}) div {slide}")
        rows = rows.withColumn("extent", F.explode(F.sequence(first, behind - 1)))
        keys = ["extent", "k"]
    return rows.groupBy(*keys).agg(F.sum("v").alias("int"))


def by_plan(session: Any, parts: Path, shape: str) -> Any:
    files = tuple(str(path) for path in sorted(parts.glob("*.parquet")))
    plan = Plan("sum", SUM, (KEY_INT, INT), (Piece(files),), overlapping=shape != "global")
    return aggregate(session, plan.params()["plan"])


def cpu_s() -> float:
    """Of this process and its JVM, so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    below = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return own.ru_utime + own.ru_stime + sum(each.user + each.system for each in below)


def found_in(session: Any, target: Path) -> list[int]:
    return list(session.read.parquet(str(target)).selectExpr("count(*)", "sum(int)").first())


def stage(source: Path, parts: Path, out: Path, master: str, shape: str, runs: int) -> None:
    """Both ways in turns, in one session: so both are as warm."""
    session = open_session(master, "windows", out, CONF)
    spent: dict[str, list[float]] = {"hand": [], "stage": []}
    answers: dict[str, Any] = {}
    for run in range(runs):
        for way, frame in (
            ("hand", by_hand(session, source, shape)),
            ("stage", by_plan(session, parts, shape)),
        ):
            target = out / f"{way}-{run}"
            before = cpu_s()
            frame.write.parquet(str(target))
            if run:
                spent[way].append(cpu_s() - before)
            answers[way] = found_in(session, target)
        print(json.dumps({"cpu_s": spent, "answers": answers}), flush=True)
    session.stop()


def whole(source: Path, out: Path, master: str, shape: str) -> None:
    session = open_session(master, "windows", out, CONF)
    by_hand(session, source, shape).write.parquet(str(out / "hand"))
    session.stop()


if __name__ == "__main__":
    way, source, *rest = sys.argv[1:]
    if way == "stage":
        parts, out, master, shape, runs = rest
        stage(Path(source), Path(parts), Path(out), master, shape, int(runs))
    else:
        out, master, shape = rest
        whole(Path(source), Path(out), master, shape)
