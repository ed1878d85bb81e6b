"""The figures of `docs/figures.md`: which number of which benchmark is quoted, with what goal.

A goal stands here and in the benchmark, which says whether it is reached: `page` refuses a figure
whose goals differ. How a figure is called in the results of its benchmark may contain numbers that
differ with `--quick`, so it is a pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.nexmark import RATES
from benchmarks.slow_network import GOALS as SLOW_NETWORK


@dataclass(frozen=True)
class Quoted:
    text: str
    """What the page says that it is."""
    figure: str
    """Pattern of its name in the results, as of a file name."""
    goal: float
    unit: str = "x"
    at_least: bool = False
    with_note: bool = False
    """The page has what stands beside it in the results, such as others in the same run."""


def _nexmark() -> list[Quoted]:
    ratios = [
        Quoted(f"{query} in {kind}, one process, to Bytewax", f"{query}: CPU of {way} / *", goal)
        for kind, way, goal in (("dicts", "onyx-1", 1.0), ("columns", "onyx-1-columns", 0.5))
        for query in ("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q13")
    ]
    rates = [
        Quoted(
            f"{query} in columns, one process: thousand events a second a core",
            f"{query}: events a second a core, columns",
            goal,
            "k/s",
            True,
            with_note=True,
        )
        for query, goal in RATES.items()
    ]
    return [*rates, *ratios]


_A_GLOBAL_WINDOW = (
    Quoted("CPU of the stage to `groupBy` by hand", "global: CPU of the stage / by hand", 1.18),
    Quoted("CPU of the whole job to `groupBy` by hand",
           "global: CPU of the whole job / by hand", 1.3),
    Quoted("memory of the worker without JVM", "global: memory of the worker without JVM",
           1_024, "MiB"),
)  # fmt: skip

QUOTED: Mapping[str, Sequence[Quoted]] = {
    "workload_a": (
        Quoted("CPU a segment, one process, at-least-once, to a plain loop of the same functions",
               "CPU of onyx-1 / plain", 1.3),
        Quoted("one process to Bytewax with one worker, which acknowledges nothing",
               "CPU of onyx-1 / bytewax", 1.0),
        Quoted("three processes to the plain loop", "CPU of onyx-3 / plain", 3.0),
        Quoted("three processes to Spark structured streaming with Python UDFs",
               "CPU of onyx-3 / spark", 0.7),
    ),
    "workload_a-columns": (
        Quoted("Parquet, one process to the same pyarrow program without an engine",
               "CPU of onyx-1 / pyarrow", 1.5),
        Quoted("Parquet, three processes to it", "CPU of onyx-3 / pyarrow", 4.0),
        Quoted("JSON Lines, one process to the plain loop over dicts",
               "CPU of onyx-1-jsonl / plain", 0.7),
        Quoted("JSON Lines, three processes to it", "CPU of onyx-3-jsonl / plain", 1.5),
        Quoted("three processes to Spark with `mapInArrow`", "CPU of onyx-3 / spark-arrow", 0.33),
    ),
    "workload_b": (
        Quoted("counting words, exactly-once, to Bytewax's `stateful_map`, one process each",
               "CPU of onyx-1 / bytewax", 0.67),
        Quoted("three processes with a shuffle to Bytewax in two", "CPU of onyx-3 / bytewax-2",
               0.33),
    ),
    "workload_b-columns": (
        Quoted("one process to Bytewax in one", "CPU of onyx-1 / bytewax", 0.125),
        Quoted("three processes with a shuffle to Bytewax in two", "CPU of onyx-3 / bytewax-2",
               0.125),
    ),
    "workload_c": (
        Quoted("one-minute sums by key and watermark, exactly-once with the state log on disk, to "
               "Bytewax's `fold_window`", "CPU of onyx-1 / bytewax", 0.33),
        Quoted("the same to PyFlink in thread mode", "CPU of onyx-1 / pyflink", 0.05),
        Quoted("the same with its state log to the same without", "CPU of onyx-1 / onyx-1-no-log",
               1.3),
    ),
    "workload_c-columns": (
        Quoted("Parquet, one process, exactly-once, to a plain loop over dicts of JSON Lines",
               "CPU of onyx-1 / plain", 0.35),
        Quoted("JSON Lines, one process, exactly-once, to it", "CPU of onyx-1-jsonl / plain", 0.35),
        Quoted("Parquet, one process, to Bytewax's `fold_window`", "CPU of onyx-1 / bytewax", 0.04),
    ),
    "nexmark": _nexmark(),
    "orders": (
        Quoted("CPU of 300,000 orders in dicts, start-up included", "CPU of onyx", 12.0, "s"),
        Quoted("in dicts, to Bytewax", "CPU of onyx / bytewax", 1.4),
        Quoted("CPU of them in columns", "CPU of onyx-columns", 12.0, "s"),
        Quoted("in columns, to Bytewax", "CPU of onyx-columns / bytewax", 1.4),
    ),
    "spark_jobs": (
        Quoted("workload c as a whole job on Spark: CPU to PySpark by hand",
               "CPU of job / native", 1.3),
    ),
    "spark_jobs-flights": (
        Quoted("flights as a whole job on Spark: CPU to PySpark by hand",
               "CPU of job / native", 1.3),
    ),
    "spark_streams": (
        Quoted("workload c in micro-batches: CPU to Structured Streaming by hand",
               "CPU of job / native", 1.3),
    ),
    "spark_windows-global": _A_GLOBAL_WINDOW,
    "spark_windows-large": _A_GLOBAL_WINDOW,
    "grouping": (
        Quoted("sums of 20 million rows by a million keys, one process in columns, to DuckDB",
               "CPU of onyx-1 / duckdb", 4.0),
        Quoted("the same to Spark", "CPU of onyx-1 / spark", 0.35),
    ),
    "group_memory": (
        Quoted("memory of a group with a sum", "memory of a group with a sum", 80, "bytes"),
        Quoted("groups with a sum restored", "groups with a sum restored", 2_000_000, "/s", True),
    ),
    "bench_restore": (
        Quoted("restoring a join of dicts, to state by key of the same bytes",
               "restoring a join of dicts*", 2.0),
        Quoted("restoring a join of columns, to it", "restoring a join of columns*", 2.0),
    ),
    "bench_windows": (
        Quoted("tumbling sum, dicts", "tumbling sum over *", 0.35, "us/segment"),
        Quoted("global count, dicts", "global count over *", 0.2, "us/segment"),
        Quoted("tumbling sum, columns", "tumbling sum, arrays over *", 0.1, "us/segment"),
        Quoted("global count, columns", "global count, arrays over *", 0.1, "us/segment"),
    ),
    "bench_spill": (
        Quoted("memory of five million groups, 200,000 of them in memory",
               "memory of * groups on disk", 400, "MiB"),
        Quoted("segments into states on disk", "segments into states on disk", 20_000, "/s", True),
    ),
    "keyed_state": (
        Quoted("a sum in a function with state to one in a window, columns", "a sum *, columns",
               1.5),
        Quoted("a running sum, which each row gets, to it, columns", "a running sum *, columns",
               1.5),
        Quoted("a sum in a function with state to one in a window, segments", "a sum *, segments",
               5.0),
        Quoted("a running sum, which each segment gets, to it, segments",
               "a running sum *, segments", 5.0),
    ),
    "timer_memory": (
        Quoted("most memory while ten million keys set a timer each, and these fire",
               "memory of * keys with timers, on disk", 1_024, "MiB"),
    ),
    "combining": (
        Quoted("CPU of three processes with `combine: true`, to without it, columns",
               "CPU *, columns", 1.0),
        Quoted("the same, segments", "CPU *, segments", 1.0),
        Quoted("bytes between them, columns", "bytes *, columns", 0.2),
        Quoted("the same, segments", "bytes *, segments", 0.2),
    ),
    "joins": (
        Quoted("rows of columns that get what a table of a million has under a number",
               "join by whole numbers, columns", 1_000_000, "/s", at_least=True),
        Quoted("the same by text", "join by text, columns", 1_000_000, "/s", at_least=True),
        Quoted("a whole job with such a join, Parquet", "job with a join *", 1_000_000, "/s",
               at_least=True),
    ),
    "bad_rows": (
        Quoted("reading CSV with one bad record in 250 to none", "reading csv: *", 3.0),
        Quoted("reading JSON Lines with one bad record in 250 to none", "reading jsonl: *", 3.0),
        Quoted("a whole job over CSV", "job over csv: *", 1.5),
        Quoted("a whole job over JSON Lines", "job over jsonl: *", 1.5),
    ),
    "scale": (
        Quoted("workload a: CPU a row, 100 million rows to a million", "a: CPU a row, *", 1.1),
        Quoted("workload c: CPU a row, 100 million rows to a million", "c: CPU a row, *", 1.1),
        Quoted("workload a: memory growth", "a: memory growth of the worker", 64, "MiB"),
        Quoted("workload c: memory growth", "c: memory growth of the worker", 64, "MiB"),
    ),
    "acking": tuple(
        Quoted(f"at-least-once to at-most-once, batches of {size}", f"* batches of {size}", 1.1)
        for size in ("500", "1,000", "4,000")
    ),
    "batch_cost": (
        Quoted("CPU of a batch, one process", "CPU of a batch, 1 process", 150, "us"),
        Quoted("CPU of a batch, three processes", "CPU of a batch, 3 processes", 800, "us"),
    ),
    "latency": (
        Quoted("p50 over two gRPC hops at 200 segments/s", "latency * p50", 1, "ms"),
        Quoted("p99", "latency * p99", 3, "ms"),
    ),
    "latency-columns": (
        Quoted("p50 over two gRPC hops at 200 segments/s", "latency * p50", 1, "ms"),
        Quoted("p99", "latency * p99", 3, "ms"),
    ),
    "slow_network": tuple(
        Quoted(
            f"{kind} over 100 Mbit/s, {codec}: {text} to without",
            f"{kind}: {what}, {codec} to none",
            goal,
        )
        for (kind, codec), goals in SLOW_NETWORK.items()
        for what, text, goal in zip(("wall", "CPU"), ("time", "CPU"), goals, strict=True)
    ),
    "requests": (
        Quoted("ack at 200/s, p50", "ack at 200/s, p50", 5, "ms"),
        Quoted("ack at 200/s, p99", "ack at 200/s, p99", 20, "ms"),
        Quoted("requests of 100 dicts, journalled", "requests of 100 dicts, journal", 50_000, "/s",
               at_least=True),
        Quoted("batches of 10,000 rows, journalled", "batches of 10,000 rows, journal", 1_000_000,
               "/s", at_least=True),
        Quoted("ack at 200/s to Kafka and Bytewax, p50", "ack, p50, to Kafka and Bytewax", 1),
        Quoted("requests of 100 dicts to Kafka and Bytewax, CPU",
               "ack, CPU of 100 dicts, to Kafka and Bytewax", 1),
    ),
    "memory": (
        Quoted("memory growth while 10 million segments pass", "memory growth while segments pass",
               64, "MiB"),
        Quoted("memory growth while an output blocks for 30 s", "memory growth while *block*", 64,
               "MiB"),
    ),
    "state_memory": (
        Quoted("memory growth while 20 million segments pass a million windows",
               "memory growth *", 64, "MiB"),
        Quoted("state log on disk at most", "state log on disk at most", 192, "MiB"),
    ),
    "end_memory": (
        Quoted("memory growth when 500,000 groups fire at the end of a job, 100,000 of them in "
               "memory", "memory growth at the end of a job", 192, "MiB"),
    ),
    "recovery": (
        Quoted("first result after a kill, session timeout 6 s", "first result after a kill", 11,
               "s"),
        Quoted("1 GB of state restored from local disk", "* restored", 30, "s"),
    ),
    "spark_recovery": (
        Quoted("first rows of an endless job on Spark", "first rows of an endless job", 10, "s"),
        *(
            Quoted(f"rows again after SIGKILL of the {victim}", f"rows again, {victim} killed", 20,
                   "s")
            for victim in ("driver", "JVM", "worker")
        ),
    ),
    "bench_log": (
        Quoted("reading the log from ZooKeeper", "reading a log of *", 5_000, "entries/s", True),
    ),
    "bench_replica": (
        Quoted("replay of a log of 10,000 entries", "replay of a log of *", 5_000, "entries/s",
               True),
        Quoted("scheduling 1,000 peers over 50 jobs without tags", "scheduling *, no tags", 1, "s"),
        Quoted("scheduling them with too few tagged peers", "scheduling *, too many tags", 1, "s"),
        Quoted("fold of a log in which 1,000 jobs wait, with what it says",
               "fold of a log in which * jobs wait", 8, "CPU s"),
    ),
    "bench_state": (
        Quoted("CPU of an id in a chunk of the state log", "CPU of appending *", 100, "ns an id"),
        Quoted("recovery of 1 GB of state", "recovery of a GB of state", 30, "s"),
        Quoted("an id told from repeats", "applied ids, *", 10, "ns an id"),
        Quoted("CPU of a changed entry of a map of a million to one of a thousand",
               "CPU of a changed entry of *, in memory", 1.5),
        Quoted("bytes of the log for it", "bytes logged for a changed entry *", 1.5),
    ),
    "many_jobs": (
        Quoted("100 endless jobs on 450 peers in three processes, submitted with one command: "
               "until all run", "* jobs on * run", 60, "s"),
        Quoted("log entries of one job on all peers", "entries of one job *", 14, "entries"),
    ),
    "soak": tuple(
        Quoted(f"growth of {what}, last quarter to second", f"growth: {name}", 1.2)
        for what, name in (
            ("ZooKeeper's nodes", "nodes in ZooKeeper"), ("its size", "KiB in ZooKeeper"),
            ("the replica", "KiB of the replica"), ("state files", "files of state"),
            ("memory of workers", "MiB of a worker"),
        )
    ),
    "startup": (
        Quoted("`onyx run` of a trivial job, its log included",
               "`onyx run` of a trivial job", 4, "s"),
        Quoted("the same with four worker processes",
               "`onyx run` of a trivial job, 4 worker processes", 4, "s"),
    ),
    "worker_start": (
        Quoted("CPU of a worker from its fork until it has joined, among three",
               "3 workers: CPU of one more", 0.3, "s"),
        Quoted("CPU of eight workers, forked to executed",
               "8 workers: CPU until joined, to executed", 0.3),
        *(
            Quoted(f"memory of {of} with its zygote, to executed", f"{of}: PSS, to executed", most)
            for of, most in (("1 worker", 1.3), ("3 workers", 0.7), ("8 workers", 0.5))
        ),
    ),
    "operator_jobs": (
        Quoted("1,000 OnyxJobs applied and reconciled", "* OnyxJobs applied *", 20, "s"),
        Quoted("memory of the operator then", "memory of the operator at most", 200, "MB"),
    ),
    "kubernetes": (
        Quoted("image of the operator, as pulled", "image of the operator, as pulled", 150, "MB"),
        Quoted("image of the worker, with Java and Spark, as pulled",
               "image of the worker, as pulled", 1_500, "MB"),
        Quoted("worker pod, created to ready", "worker pod, created to ready", 15, "s"),
        Quoted("memory at rest of a worker with 4 peers", "memory at rest of a worker *", 1_024,
               "MiB"),
        Quoted("memory at rest of the operator", "memory at rest of the operator", 128, "MiB"),
        Quoted("memory at rest of ZooKeeper", "memory at rest of ZooKeeper", 384, "MiB"),
    ),
}  # fmt: skip
"""By the name of the program (`programs.PROGRAMS`)."""
