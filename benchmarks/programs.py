"""Every benchmark: how it is run, and which figures it has.

What the page quotes of it is in `quoted`; `figures` are those beside them. The tests run each one
with `--tiny` and look whether all of these are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CLUSTER = "a ZooKeeper and workers of its own"
SPARK = "a JVM of Spark takes more CPU to start than all others together"
SEVERAL = "it is several jobs, each in processes of its own"


@dataclass(frozen=True)
class Program:
    """A command line, `python -m benchmarks.` and then `line`."""

    line: str
    about: str
    only_named: bool = False
    """It takes hours or needs a cluster: it runs when it is named."""
    figures: Sequence[str] = ()
    """Patterns of names, as of file names, of figures that the page does not quote."""
    not_tiny: Mapping[str, str] = field(default_factory=dict)
    """Patterns of figures that `--tiny` does not give, and why."""
    slow: str = ""
    """Why only all tests together run it, and not those before each commit."""
    elsewhere: str = ""
    """What it needs that no test has."""

    @property
    def module(self) -> str:
        return f"benchmarks.{self.line.split()[0]}"

    @property
    def arguments(self) -> list[str]:
        return self.line.split()[1:]

    @property
    def command(self) -> str:
        """As a user types it."""
        return f"python -m benchmarks.{self.line}"


PROGRAMS = {
    "workload_a": Program(
        "workload_a",
        "CPU a segment against the plain loop, Bytewax and Spark",
        not_tiny={"* / spark": SPARK},
    ),
    "workload_a-columns": Program(
        "workload_a --format columns", "the same in columns", not_tiny={"* / spark-arrow": SPARK},
        slow="it is `workload_a` over data of `workload_b-columns`",
    ),
    "workload_b": Program(
        "workload_b", "counting words against Bytewax, also with a shuffle", slow=SEVERAL
    ),
    "workload_b-columns": Program("workload_b --format columns", "the same in columns"),
    "workload_c": Program(
        "workload_c",
        "sums in windows of event time, and what the log costs",
        not_tiny={"* / pyflink": "PyFlink needs an environment of its own, and a JVM"},
        slow=SEVERAL,
    ),
    "workload_c-columns": Program("workload_c --format columns", "the same in columns"),
    "nexmark": Program(
        "nexmark", "eleven queries against Bytewax, Pathway, Spark, Polars and DuckDB",
        figures=["q6: events a second a core, columns"], slow=SEVERAL,
    ),
    "spark_jobs": Program(
        "spark_jobs", "sums in windows as a whole job on Spark, and by hand", slow=SPARK
    ),
    "spark_jobs-columns": Program(
        "spark_jobs --format columns", "the same in columns", slow=SPARK,
        figures=["CPU of job / native"],
    ),
    "spark_jobs-flights": Program(
        "spark_jobs --workload flights", "the flights, in the same way",
        elsewhere="300,000 flights on Spark; `spark_jobs` is the same over few rows",
    ),
    "spark_streams": Program("spark_streams", "the sums in micro-batches, and by hand", slow=SPARK),
    "spark_streams-columns": Program(
        "spark_streams --format columns", "the same in columns", slow=SPARK,
        figures=["CPU of job / native"],
    ),
    "spark_windows": Program(
        "spark_windows", "windows by Spark: spooling, stage and job", slow=SPARK,
        figures=[
            f"{shape}: {what}"
            for shape in ("global", "sliding")
            for what in (
                "spooling", "CPU of the stage / by hand", "CPU of the whole job / by hand",
                "memory of the worker without JVM",
            )
        ],
    ),
    "spark_windows-global": Program(
        "spark_windows --rows 5000000 --keys 1000000 --only global",
        "a global window by Spark over five million rows of a million keys",
        only_named=True,
        elsewhere="five million rows on Spark; `spark_windows` is the same over few",
    ),
    "spark_windows-large": Program(
        "spark_windows --rows 100000000 --keys 5000000 --only global",
        "a global window by Spark over 100 million rows of 5 million keys",
        only_named=True,
        elsewhere="100 million rows on Spark; `spark_windows` is the same over few",
    ),
    "grouping": Program(
        "grouping", "sums by key over a million groups, against DuckDB and Spark",
        not_tiny={"* / spark": SPARK}, slow=SEVERAL,
    ),
    "group_memory": Program("group_memory", "10 million groups with a sum: memory, and restoring"),
    "bench_restore": Program("bench_restore", "state that comes back from small chunks"),
    "bench_windows": Program("bench_windows", "windows alone: segments into states, firings"),
    "bench_spill": Program("bench_spill", "state in memory and on disk", slow=SEVERAL),
    "joins": Program("joins", "columns enriched from a table of a million rows"),
    "timer_memory": Program("timer_memory", "ten million keys with a timer each"),
    "combining": Program(
        "combining", "windows that are combined before they are sent", slow=SEVERAL
    ),
    "keyed_state": Program(
        "keyed_state", "state by key in functions, against windows", slow=SEVERAL
    ),
    "orders": Program(
        "orders", "a first job of a newcomer, against Bytewax and Polars",
        elsewhere="an `onyx run` of its own, for its tasks take all peers that there are",
        figures=["CPU of onyx / polars", "CPU of onyx-columns / polars"],
    ),
    "bad_rows": Program("bad_rows", "what a few bad records cost in columns", slow=SEVERAL),
    "scale": Program(
        "scale", "CPU a row and memory over 100 million rows of columns", slow=SEVERAL
    ),
    "acking": Program("acking", "what at-least-once costs against at-most-once", slow=SEVERAL),
    "batch_cost": Program("batch_cost", "what a batch costs, whatever is in it", slow=SEVERAL),
    "latency": Program("latency", "end to end over two gRPC hops"),
    "latency-columns": Program("latency --format columns", "the same in columns"),
    "requests": Program(
        "requests", "requests into a job: latency and throughput", slow=SEVERAL,
        figures=["journal at 200/s, p50", "requests of 100 dicts, ack", "batches of *, ack"],
        not_tiny={"* to Kafka and Bytewax": "Kafka takes long to start"},
    ),
    "http_requests": Program(
        "http_requests", "requests over HTTP: how many a second, and the CPU of one", slow=SEVERAL,
        figures=[
            f"{ack}, {what}"
            for ack in ("journal", "ack", "none")
            for what in ("requests", "CPU of a request", "p50", "p99")
        ],
    ),
    "memory": Program("memory", "of a worker, while segments pass and while an output blocks"),
    "state_memory": Program("state_memory", "of a worker and its log, while windows come and go"),
    "end_memory": Program(
        "end_memory", "of a worker when everything fires at once"
    ),
    "recovery": Program(
        "recovery", "of a job with state, when a worker is killed", slow=CLUSTER
    ),
    "spark_recovery": Program(
        "spark_recovery", "of an endless job on Spark, when a part is killed",
        elsewhere="it kills a JVM of Spark, and tests lend theirs to one process after the other",
    ),
    "bench_log": Program(
        "bench_log", "reading and writing the log on ZooKeeper",
        figures=["appending by a group to a reader", "an append by a client with its answer"],
    ),
    "bench_replica": Program(
        "bench_replica", "replay and scheduling",
        figures=["digest of a replica in which nothing changed"],
    ),
    "bench_state": Program("bench_state", "appending to state logs, recovering, telling repeats"),
    "bench_ledger": Program(
        "bench_ledger", "bookkeeping of a hop",
        figures=["ids of an input", "lineage and acks of a 1:1 hop", "fold, *", "acker, *",
                 "pending: *", "route, no conditions", "group by a str, *"],
    ),
    "bench_transport": Program(
        "bench_transport", "streams between two processes",
        figures=["segments over one stream", "CPU of a frame", "CPU of a million segments",
                 "two hops, p50", "two hops, p99", "CPU of a segment, one by one"],
    ),
    "bench_transport-tls": Program(
        "bench_transport --tls 1", "the same with TLS, to that without",
        slow="it is `bench_transport` twice",
        figures=["segments over one stream, TLS to plain", "two hops, p50, TLS to plain"],
    ),
    "slow_network": Program(
        "slow_network", "compressed frames over a slow network, to plain ones",
        slow="it starts three processes for each figure"
    ),
    "bench_files": Program(
        "bench_files", "reading and writing files, to loops by hand",
        figures=["read jsonl, 3 keys, *", "read csv, 3 columns, *", "read csv, 20 columns, *",
                 "read csv, 20 columns, quoted as columns, *", "read jsonl, 3 columns, *",
                 "read parquet, 3 columns, *", "write jsonl, 3 keys, *",
                 "write jsonl, 3 columns, *", "write parquet, 3 keys, *",
                 "write parquet, 3 columns, *"],
    ),
    "many_jobs": Program("many_jobs", "100 jobs on 450 peers: time until all run, entries",
        slow=CLUSTER,
    ),
    "soak": Program(
        "soak", "10,000 short jobs on one ZooKeeper: does it grow", only_named=True,
        figures=["jobs a second"], slow=CLUSTER,
    ),
    "startup": Program(
        "startup", "`onyx run` of a trivial job",
        not_tiny={"*, 4 worker processes": "four more processes"},
        slow="several processes, each from its start to its end",
    ),
    "worker_start": Program(
        "worker_start", "workers executed and forked: CPU and memory",
        figures=["1 worker: CPU *", "3 workers: CPU until *", "8 workers: CPU of *"],
        not_tiny={"[38] workers: *": "more processes"},
        slow=CLUSTER,
    ),
    "operator_jobs": Program(
        "operator_jobs", "1,000 OnyxJobs and one operator", slow="it waits for many jobs"
    ),
    "kubernetes": Program(
        "kubernetes", "images, and pods on a real cluster", only_named=True,
        elsewhere="a cluster with the images of this checkout",
    ),
}  # fmt: skip
