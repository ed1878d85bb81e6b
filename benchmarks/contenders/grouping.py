"""Sums by key: `python grouping.py duckdb|spark SOURCE OUT`. The sums are written as Parquet.

Spark does it twice in one session, and the second time counts: a JVM that has compiled its code.
"""

from __future__ import annotations

import sys
from pathlib import Path


def by_duckdb(source: str, out: Path) -> None:
    import duckdb

    out.mkdir()
    sums = f"SELECT k, sum(v)::BIGINT AS state FROM '{source}/part-*.parquet' GROUP BY k"
    duckdb.sql(f"COPY ({sums}) TO '{out}/sums.parquet'")


def by_spark(source: str, out: Path) -> None:
    from pyspark.sql import functions as F
    from spark_stream import session_of, tree_cpu_s

    session = session_of(str(out.parent))
    rows = session.read.option("pathGlobFilter", "part-*").parquet(source)
    sums = rows.groupBy("k").agg(F.sum("v").alias("state"))
    sums.write.parquet(str(out))
    before = tree_cpu_s()
    sums.write.mode("overwrite").parquet(str(out))
    print("CPU", tree_cpu_s() - before, flush=True)
    session.stop()


if __name__ == "__main__":
    engine, source, out = sys.argv[1:]
    {"duckdb": by_duckdb, "spark": by_spark}[engine](source, Path(out))
