"""State in memory and on disk: memory of a process, and how fast windows are with either.

    python -m benchmarks.bench_spill [--quick] [--json FILE]

A global count of five million groups. Each group comes once; then more segments come, 19 of 20 of
them of one group in a hundred; then the state is read for a snapshot, shard by shard, and restored
from it beside the first. Changes are taken after each ten batches. Each way is a process of its
own: with all states in memory, with at most 200,000 of them there and the rest on disk, and so
with segments that come as columns.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil
import pyarrow as pa
from benchmarks import harness
from benchmarks.bench_windows import compiled
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.coded import GroupKeys, Keyed
from onyx.state.local.spilled import Spill
from onyx.windows.task_windows import TaskWindows

BATCH = 2_000
BATCHES_A_CHUNK = 10
HOT = 100
"""One group in so many is hot."""
MIB = 1_048_576
GOAL_MEMORY_MIB = 400.0
GOAL_RATE = 20_000.0
WINDOW = {"type": "global", "aggregation": "count"}
AT_END = {"type": "timer", "period": (1, "hours"), "refinement": "accumulating"}


def each_once(groups: int) -> Iterator[list[str]]:
    """Batches of group keys, in an order of no meaning."""
    numbers = list(range(groups))
    random.Random(1).shuffle(numbers)
    for begin in range(0, groups, BATCH):
        yield [f"group-{number}" for number in numbers[begin : begin + BATCH]]


def again(groups: int, segments: int) -> Iterator[list[str]]:
    """Batches of group keys, most of them of few groups."""
    chosen = random.Random(2)
    for _ in range(0, segments, BATCH):
        yield [
            f"group-{chosen.randrange(groups // HOT if chosen.random() < 0.95 else groups)}"
            for _ in range(BATCH)
        ]


def add(windows: TaskWindows, batches: Iterable[list[str]], columns: bool) -> float:
    """Segments a second, without the time that it takes to make them."""
    spent_s, many = 0.0, 0
    known = GroupKeys()
    for number, keys in enumerate(batches, 1):
        segments: Segments = [{} for _ in keys]
        if columns:
            segments = Columns.of(pa.record_batch({"k": keys}))
        start = time.perf_counter()
        groups: Keyed = keys
        if isinstance(segments, Columns):
            groups = known.of(KeyCodes.of_column(segments, "k"))
        windows.add(segments, groups, 0)
        if number % BATCHES_A_CHUNK == 0:
            windows.take_changes()
        spent_s += time.perf_counter() - start
        many += len(keys)
    return many / spent_s


def holder(folder: Path, extents_max: int) -> Holder:
    return Spill(folder, extents_max) if extents_max else InMemory()


def measure_one(extents_max: int, columns: bool, groups: int, segments: int) -> dict[str, float]:
    """Rates, seconds, and memory beyond that of the process before."""
    process = psutil.Process()
    before = process.memory_info().rss
    found: dict[str, float] = {}

    def memory(name: str) -> None:
        found[f"{name} MiB"] = (process.memory_info().rss - before) / MIB

    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
        made = compiled(WINDOW, AT_END, columns)
        windows = TaskWindows(made, shard_of, holder(Path(folder), extents_max))
        found["first segments/s"] = add(windows, each_once(groups), columns)
        memory("first")
        found["next segments/s"] = add(windows, again(groups, segments), columns)
        memory("next")
        start = time.perf_counter()
        frozen = windows.freeze(range(SHARDS))
        found["frozen s"] = time.perf_counter() - start
        other = TaskWindows(made, shard_of, holder(Path(folder), extents_max))
        for shard in range(SHARDS):
            other.restore(shard, frozen(shard))
        found["restored groups/s"] = groups / (time.perf_counter() - start)
        del frozen
        memory("restored")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
        found["most MiB"] = (peak - before) / MIB
        disk = sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
        found["disk MiB"] = disk / MIB
        del windows, other
    return found


def measure(options: argparse.Namespace) -> Measured:
    groups, segments, extents_max = options.groups, options.segments, options.extents_max
    details = {}
    ways = {
        "in memory": (0, False),
        "on disk": (extents_max, False),
        "on disk, columns": (extents_max, True),
    }
    for name, way in ways.items():
        details[name] = harness.fresh(measure_one, *way, groups, segments)
        print(name, "  ".join(f"{what} {value:,.0f}" for what, value in details[name].items()))
    memory, disk, columns = details.values()
    return Measured(
        [
            Figure(
                f"memory of {groups:,} groups on disk", disk["next MiB"], "MiB", GOAL_MEMORY_MIB,
                note=f"in memory {memory['next MiB']:,.0f} MiB",
            ),
            Figure(
                "segments into states on disk", disk["next segments/s"], "/s", GOAL_RATE,
                at_least=True, note=f"in memory {memory['next segments/s']:,.0f}/s",
            ),
            Figure(
                "segments into states on disk, columns", columns["next segments/s"], "/s",
                GOAL_RATE, at_least=True, note=f"{columns['next MiB']:,.0f} MiB",
            ),
        ],
        details,
    )  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.sized("--groups", 5_000_000, 200_000, 10_000)
    made.sized("--segments", 2_000_000, 100_000, 2_000, "that come after each group has come once")
    made.sized("--extents-max", 200_000, 20_000, 1_000, "groups in memory")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
