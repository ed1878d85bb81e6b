"""What the bookkeeping of a hop costs, in nanoseconds a segment, by batch size.

    python -m benchmarks.bench_ledger [--quick] [--json FILE]

Best of several runs. `apply` is the whole call less a list comprehension over the same function;
`route` the whole call with one predicate less a list comprehension over that predicate. The figures
are those of batches of 1,000, without such differences, which noise can turn negative.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.flow.conditions import compile_conditions
from onyx.flow.groups.getters import ByKey
from onyx.flow.groups.grouping import Grouping
from onyx.flow.leaves import apply_function
from onyx.flow.routing import route_batch
from onyx.ledger.acker import Acker
from onyx.ledger.hop import EdgeShare, hop
from onyx.ledger.lineage import fold, pack_roots, root_ids
from onyx.ledger.pending import PendingPositions
from onyx.model.job import CatalogEntry, FlowCondition, Job

SIZES = (20, 100, 500, 1000, 5000)
SIZE = 1000
"""Of which the figures are."""
DIFFERENCES = ("apply, 1:1", "apply, filter (2 of 3)", "route, one predicate")


def cost_ns(call: Callable[[], Any], size: int, options: argparse.Namespace) -> float:
    """Best time of one call, a segment."""
    number: int = max(1, options.segments // size)
    best_s: float = min(timeit.repeat(call, number=number, repeat=options.repeats))
    return best_s / number / size * 1e9


def renamed(segment: dict[str, Any]) -> dict[str, Any]:
    return {**segment, "age": segment["age"] + 1}


def two_of_three(segment: dict[str, Any]) -> dict[str, Any] | None:
    return segment if segment["id"] % 3 else None


def is_even(event: Any, old: Any, new: dict[str, Any], all_new: Any) -> bool:
    return bool(new["id"] % 2 == 0)


def ledger_rows(size: int, options: argparse.Namespace) -> dict[str, float]:
    positions = np.arange(size, dtype=np.uint64)
    roots, ids = pack_roots(1, 0, positions), root_ids(1, positions)
    kept = np.flatnonzero(np.arange(size) % 3)
    thrice = np.repeat(np.arange(size), 3)
    index = np.tile(np.arange(3), size)
    shuffled = np.random.default_rng(1).permutation(size)
    acker, window = Acker(), PendingPositions(1)

    def one_to_one() -> None:
        hop(ids, [EdgeShare(1, None, None)], emitted=False)

    def filtered() -> None:
        hop(ids, [EdgeShare(1, kept, None)], emitted=False)

    def fanned_out() -> None:
        hop(ids, [EdgeShare(1, thrice, index)], emitted=False)

    return {
        "ids of an input": cost_ns(lambda: root_ids(1, positions), size, options),
        "lineage and acks of a 1:1 hop": cost_ns(one_to_one, size, options),
        "... of a filter (2 of 3)": cost_ns(filtered, size, options),
        "... of a fan-out by 3, per input": cost_ns(fanned_out, size, options),
        "fold, in order": cost_ns(lambda: fold(roots, ids), size, options),
        "fold, shuffled": cost_ns(lambda: fold(roots[shuffled], ids), size, options),
        "acker, dense": cost_ns(lambda: acker.absorb([(roots, ids)]), size, options),
        "acker, 2 of 3": cost_ns(lambda: acker.absorb([(roots[kept], ids[kept])]), size, options),
        "pending: emit and complete": cost_ns(
            lambda: window.complete(window.emit(size, 0.0)), size, options
        ),
    }


def flow_rows(size: int, options: argparse.Namespace) -> dict[str, float]:
    batch = [{"id": i, "name": f"name-{i % 50:013d}", "age": i % 90} for i in range(size)]
    leaves = apply_function(renamed, (), batch)
    job = Job("bench", (("a", "b"),), (), flow_conditions=(FlowCondition("a", ("b",), "m:f"),))
    conditions = compile_conditions(job, "a", lambda _: is_even)
    grouping = Grouping(ByKey("name", "b", True), CatalogEntry("b", "function", 1))

    def over(whole: Callable[[], Any], bare: Callable[[], Any]) -> float:
        return cost_ns(whole, size, options) - cost_ns(bare, size, options)

    return {
        "apply, 1:1": over(
            lambda: apply_function(renamed, (), batch), lambda: [renamed(s) for s in batch]
        ),
        "apply, filter (2 of 3)": over(
            lambda: apply_function(two_of_three, (), batch),
            lambda: [two_of_three(s) for s in batch],
        ),
        "route, no conditions": cost_ns(
            lambda: route_batch(None, ("b",), None, batch, leaves), size, options
        ),
        "route, one predicate": over(
            lambda: route_batch(conditions, ("b",), None, batch, leaves),
            lambda: [is_even(None, s, s, None) for s in batch],
        ),
        "group by a str, 50 groups": cost_ns(lambda: grouping.slots_of(batch, 4), size, options),
    }


def measure(options: argparse.Namespace) -> Measured:
    columns = {size: ledger_rows(size, options) | flow_rows(size, options) for size in SIZES}
    print(f"{'ns a segment, batches of':34}" + "".join(f"{size:>9,}" for size in SIZES))
    for name in columns[SIZES[0]]:
        print(f"{name:34}" + "".join(f"{columns[size][name]:>9.1f}" for size in SIZES))
    whole = {name: ns for name, ns in columns[SIZE].items() if name not in DIFFERENCES}
    return Measured([Figure(name, ns, "ns a segment") for name, ns in whole.items()], columns)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 100_000, 20_000, 1_000, "of one measurement")
    made.sized("--repeats", 7, 3, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
