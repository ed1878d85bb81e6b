"""Many groups with a sum: the memory of their state, and how fast it is restored, in CPU seconds.

    python -m benchmarks.group_memory [--groups 10000000] [--keys text] [--quick] [--json FILE]

A global window with a sum over columns; each group comes once, in an order of no meaning, and
changes are taken after each ten batches. *Memory* is resident memory of a fresh process beyond what
it had before the first group. Then the snapshot of all shards is written by the state codec.
*Restore* is decoding and applying it, in another fresh process, and folding a first batch, which
gives all groups their places in a table; reading the files does not count. Beside it, the same for
a function that keeps a value by key.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks import harness
from benchmarks.bench_windows import compiled
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.codec.values import decode_records, encode_records
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import Shards
from onyx.operators.keyed.store import KeyedStore
from onyx.windows.task_windows import TaskWindows

BATCH = 50_000
VALUES_SHARE = 10
"""Of so many groups one is a key of a function: its value is an object of Python's."""
BATCHES_A_CHUNK = 10
WARM_UP = 1_000
STRIDE = 7_368_787
"""A prime: its multiples, modulo the number of groups, are all groups in a mixed order."""
GOAL_BYTES, GOAL_RESTORED, GOAL_VALUES_RESTORED = 80.0, 2_000_000.0, 2_000_000.0
WINDOW = {"type": "global", "aggregation": ("sum", "v")}
AT_END = {"type": "timer", "period": (1, "hours"), "refinement": "accumulating"}


def made() -> TaskWindows:
    return TaskWindows(compiled(WINDOW, AT_END, columns=True), shard_of)


def fold(windows: TaskWindows, known: GroupKeys, first: int, groups: int, keys: str) -> None:
    """A batch of groups, the first of them with this number."""
    numbers = np.arange(first, min(first + BATCH, groups), dtype=np.int64)
    column = pa.array(numbers * STRIDE % groups)
    if keys == "text":
        column = pc.binary_join_element_wise("group-", column.cast(pa.string()), "")
    batch = Columns.of(pa.record_batch({"k": column, "v": numbers % 97}))
    windows.add(batch, known.of(KeyCodes.of_column(batch, "k")), 0)


def fill(windows: TaskWindows, groups: int, keys: str) -> None:
    """Each group once."""
    known = GroupKeys()
    for number, first in enumerate(range(0, groups, BATCH), 1):
        fold(windows, known, first, groups, keys)
        if number % BATCHES_A_CHUNK == 0:
            windows.take_changes()
    windows.take_changes()


def resident() -> int:
    """Bytes, when what is free has been given back."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    return int(psutil.Process().memory_info().rss)


def grown(groups: int, keys: str, work: Callable[[TaskWindows], None]) -> tuple[TaskWindows, float]:
    """Windows after some work, and bytes a group beyond what the process had before."""
    fill(made(), WARM_UP, keys)  # what is loaded and allocated once is no state
    windows, before = made(), resident()
    work(windows)
    return windows, (resident() - before) / groups


def filled(folder: Path, groups: int, keys: str) -> dict[str, float]:
    """Fill windows and leave their snapshot, a file a shard."""
    began = time.process_time()
    windows, size = grown(groups, keys, lambda windows: fill(windows, groups, keys))
    took_s = time.process_time() - began
    stored = 0
    for shard, records in windows.snapshots(range(SHARDS)).items():
        stored += (folder / f"{shard}.records").write_bytes(encode_records(records))
    return {"bytes a group": size, "groups/s": groups / took_s, "bytes stored": stored / groups}


def restored(folder: Path, groups: int, keys: str) -> dict[str, float]:
    """Restore windows from the files, a shard at a time."""
    spent_s = 0.0

    def restore(windows: TaskWindows) -> None:
        nonlocal spent_s
        for path in sorted(folder.glob("*.records")):
            stored = path.read_bytes()
            began = time.process_time()
            windows.restore(int(path.stem), decode_records(stored))
            spent_s += time.process_time() - began
        began = time.process_time()
        fold(windows, GroupKeys(), 0, groups, keys)
        spent_s += time.process_time() - began

    _, size = grown(groups, keys, restore)
    return {"bytes a group": size, "groups/s": groups / spent_s}


def values_restored(groups: int, keys: str) -> dict[str, float]:
    """Restore a value by key from the bytes of each shard, without the collector, as peers do."""
    kept = KeyedStore(Shards(shard_of))
    numbers = range(groups)
    names = [f"group-{number}" for number in numbers] if keys == "text" else numbers
    kept.values("total").put_all(names, numbers)
    frozen = kept.freeze(range(SHARDS))
    stored = [encode_records(list(frozen(shard))) for shard in range(SHARDS)]
    again = KeyedStore(Shards(shard_of))
    again.values("total")
    del kept, frozen, names
    gc.collect()
    gc.disable()
    began = time.process_time()
    for shard, data in enumerate(stored):
        again.restore(shard, decode_records(data))
    again.restored()
    return {"groups/s": groups / (time.process_time() - began)}


def measure(options: argparse.Namespace) -> Measured:
    groups = options.groups
    details: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        for work in (filled, restored):
            details[work.__name__] = harness.fresh(work, Path(name), groups, options.keys)
    keys = groups // VALUES_SHARE
    details["values restored"] = harness.fresh(values_restored, keys, options.keys)
    first, again, values = details["filled"], details["restored"], details["values restored"]
    shown = f"{groups:,} groups, {options.keys} keys"
    return Measured(
        [
            Figure(
                "memory of a group with a sum", first["bytes a group"], "bytes", GOAL_BYTES,
                note=f"{shown}; restored {again['bytes a group']:,.0f}",
            ),
            Figure(
                "groups with a sum restored", again["groups/s"], "/s", GOAL_RESTORED,
                at_least=True, note=f"{first['bytes stored']:,.0f} bytes a group stored",
            ),
            Figure(
                "values by key restored", values["groups/s"], "/s", GOAL_VALUES_RESTORED,
                at_least=True, note=f"{keys:,} keys, in dicts",
            ),
        ],
        details,
    )  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.sized("--groups", 10_000_000, 200_000, 50_000)
    made.add_argument("--keys", choices=["int", "text"], default="int")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
