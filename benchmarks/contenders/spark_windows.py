"""The stage of a window and the same by hand: `python spark_windows.py FOLDER OUT MASTER`.

Both aggregate what was spooled, in turns in one warm session. Prints the CPU seconds of driver and
JVM, for each the least of some runs, and how many groups and which sum were found.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import psutil

from onyx.spark.session.opening import open_session
from onyx.spark.windows.aggregate import aggregate
from onyx.spark.windows.plan import Piece, Plan

RUNS = 4


def by_hand(session: Any, folder: Path) -> Any:
    from pyspark.sql import functions as F

    rows = session.read.parquet(str(folder / "rows"))
    return rows.groupBy("extent", "key_int").agg(F.sum("int").alias("int"))


def by_plan(session: Any, folder: Path) -> Any:
    parts = tuple(str(path) for path in sorted((folder / "rows").glob("*.parquet")))
    plan = Plan("sum", ("key_int", "int"), (Piece(parts),))
    return aggregate(session, plan.params()["plan"])


def cpu_s() -> float:
    """Of this process and its JVM, so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    below = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return own.ru_utime + own.ru_stime + sum(each.user + each.system for each in below)


def main(folder: Path, out: Path, master: str) -> None:
    """Both ways in turns, in one session: so both are as warm."""
    session = open_session(master, "windows", out, {"spark.driver.memory": "3g"})
    best: dict[str, float] = {}
    answers: dict[str, Any] = {}
    for run in range(RUNS):
        for way, frame in (("hand", by_hand), ("stage", by_plan)):
            target = str(out / f"{way}-{run}")
            before = cpu_s()
            frame(session, folder).write.parquet(target)
            used = cpu_s() - before
            best[way] = min(used, best.get(way, used))
            found = session.read.parquet(target).selectExpr("count(*)", "sum(int)").first()
            answers[way] = list(found)
        print(json.dumps({"cpu_s": best, "answers": answers}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
