"""Every benchmark that has figures with goals, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A command line, `python -m benchmarks.` and then `line`."""

    line: str
    about: str
    only_named: bool = False
    """It takes hours or needs a cluster: it runs when it is named."""

    @property
    def command(self) -> str:
        """As a user types it."""
        return f"python -m benchmarks.{self.line}"


PROGRAMS = {
    "workload_a": Program("workload_a", "CPU a segment against the plain loop, Bytewax and Spark"),
    "workload_a-columns": Program("workload_a --format columns", "the same in columns"),
    "workload_b": Program("workload_b", "counting words against Bytewax, also with a shuffle"),
    "workload_b-columns": Program("workload_b --format columns", "the same in columns"),
    "workload_c": Program("workload_c", "sums in windows of event time, and what the log costs"),
    "workload_c-columns": Program("workload_c --format columns", "the same in columns"),
    "nexmark": Program("nexmark", "ten queries against Bytewax, Pathway, Spark, Polars and DuckDB"),
    "spark_jobs": Program("spark_jobs", "sums in windows as a whole job on Spark, and by hand"),
    "spark_jobs-flights": Program("spark_jobs --workload flights", "the flights, in the same way"),
    "spark_streams": Program("spark_streams", "the sums in micro-batches, and by hand"),
    "spark_windows": Program("spark_windows", "windows by Spark: spooling, stage and job"),
    "spark_windows-large": Program(
        "spark_windows --rows 100000000 --keys 5000000 --only global",
        "a global window by Spark over 100 million rows of 5 million keys",
        only_named=True,
    ),
    "group_memory": Program("group_memory", "10 million groups with a sum: memory, and restoring"),
    "bench_windows": Program("bench_windows", "windows alone: segments into states, firings"),
    "bench_spill": Program("bench_spill", "state in memory and on disk"),
    "joins": Program("joins", "columns enriched from a table of a million rows"),
    "timer_memory": Program("timer_memory", "ten million keys with a timer each"),
    "combining": Program("combining", "windows that are combined before they are sent"),
    "keyed_state": Program("keyed_state", "state by key in functions, against windows"),
    "bad_rows": Program("bad_rows", "what a few bad records cost in columns"),
    "scale": Program("scale", "CPU a row and memory over 100 million rows of columns"),
    "acking": Program("acking", "what at-least-once costs against at-most-once"),
    "batch_cost": Program("batch_cost", "what a batch costs, whatever is in it"),
    "latency": Program("latency", "end to end over two gRPC hops"),
    "latency-columns": Program("latency --format columns", "the same in columns"),
    "requests": Program("requests", "requests into a job: latency and throughput"),
    "memory": Program("memory", "of a worker, while segments pass and while an output blocks"),
    "state_memory": Program("state_memory", "of a worker and its log, while windows come and go"),
    "end_memory": Program(
        "end_memory --groups 500000", "of a worker when everything fires at once"
    ),
    "recovery": Program("recovery", "of a job with state, when a worker is killed"),
    "spark_recovery": Program(
        "spark_recovery", "of an endless job on Spark, when a part is killed"
    ),
    "bench_log": Program("bench_log", "reading and writing the log on ZooKeeper"),
    "bench_replica": Program("bench_replica", "replay and scheduling"),
    "bench_state": Program("bench_state", "appending to state logs, recovering, telling repeats"),
    "many_jobs": Program("many_jobs", "100 jobs on 450 peers: time until all run, entries"),
    "soak": Program("soak", "10,000 short jobs on one ZooKeeper: does it grow", only_named=True),
    "startup": Program("startup", "`onyx run` of a trivial job"),
    "operator_jobs": Program("operator_jobs", "1,000 OnyxJobs and one operator"),
    "kubernetes": Program("kubernetes", "images, and pods on a real cluster", only_named=True),
}
