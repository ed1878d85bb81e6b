"""The user's functions of the workloads over record batches, the same for every program that takes
such: Onyx, Spark's `mapInArrow`, a loop of pyarrow without an engine.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from bench_probe import seen
from bench_tasks import Answer


def inc_even(batch: Any) -> Any:
    """Workload a: add one, and keep the even ones."""
    n = pc.add(batch["n"], 1)
    batch = batch.set_column(batch.schema.get_field_index("n"), "n", n)
    return batch.filter(pc.equal(pc.bit_wise_and(n, 1), 0))


def count(batch: Any) -> None:
    """The sink of workload a: count and sum."""
    Answer.count += batch.num_rows
    Answer.total += pc.sum(batch["n"]).as_py() or 0


def split(batch: Any) -> Any:
    """Workload b: the words of lines. `__row__` says from which row a word comes."""
    words = pc.ascii_split_whitespace(batch["line"])
    rows = batch["__row__"].take(pc.list_parent_indices(words))
    return pa.record_batch({"word": pc.list_flatten(words), "__row__": rows})


def same(batch: Any) -> Any:
    return batch


# Latency


def arrive(batch: Any) -> None:
    """The sink: how old each segment is."""
    now = time.monotonic_ns()
    seen.latencies_ns.extend(pc.subtract(now, batch["ns"]).to_pylist())
