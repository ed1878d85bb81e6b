"""How long state takes to come back that was written in small chunks, a kind at a time.

    python -m benchmarks.bench_restore [--quick] [--json FILE]

A stream of a few segments a chunk makes the most records for its bytes: of a shard, one row each.
State by key, joins and windows each get the same rows, write the same number of chunks and no
snapshot, and are recovered from the log and restored, by CPU time. Each may take twice as long as
state by key for a byte that is read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.bench_windows import compiled
from benchmarks.figures import Figure, Measured, Options, parser, run
from tests.support.stream_joins import HeldStreams

from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import Shards, hashable_keys
from onyx.keystate.records import Records
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.operators.keyed.store import KeyedStore
from onyx.operators.stream_join.definition import stream_join
from onyx.operators.stream_join.looking import look_at
from onyx.operators.stream_join.spans import LEFT, RIGHT, Side
from onyx.processes.worker_process import tune_collector
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.recovery import RecoveredState, recover
from onyx.storage.interface import MemoryBlobStore
from onyx.windows.task_windows import TaskWindows

SETTINGS = StateSettings(snapshot_bytes_min=1 << 60)
GOAL_RATIO = 2.0
CHUNK_ROWS = 200
"""As many as come in a tenth of a second, at 2,000 segments/s."""
KINDS = (
    "state",
    "join of dicts",
    "join of columns",
    "window of dicts",
    "window of columns",
    "window of sessions in dicts",
    "window of sessions in columns",
)
STREAM = {"type": "input", "plugin": "sequence", "options": {"segments": []}}
JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "restore"},
    "spec": {
        "guarantee": "exactly-once",
        "workflow": [["a", "join"], ["b", "join"], ["join", "write"]],
        "catalog": [
            {"name": "a", **STREAM},
            {"name": "b", **STREAM},
            {"name": "join", "type": "join", "how": "inner", "within": {"after": "1 hour"},
             "left": {"task": "a", "key": "id", "at": "at"},
             "right": {"task": "b", "key": "id", "at": "at"}},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    },
}  # fmt: skip


class _State:
    """A value for each key."""

    def __init__(self) -> None:
        self._store = KeyedStore(Shards(shard_of))
        self._values = self._store.values("seen")
        self.restore, self.restored = self._store.restore, self._store.restored
        self.take_changes: Callable[[], Records] = self._store.take_changes

    def add(self, number: int, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._values.put(row["id"], row)


class _Join:
    """Rows of both sides, of which none meet."""

    def __init__(self, columns: bool) -> None:
        job: Job = parse_mapping(JOB)
        join = stream_join(job, "join", lambda name: len)
        assert join is not None
        self._join, self._columns = join, columns
        self._held = HeldStreams(join, Shards(shard_of), 10_000)
        self.restore, self.restored = self._held.restore, self._held.restored
        self.take_changes: Callable[[], Records] = self._held.take_changes

    def add(self, number: int, rows: list[dict[str, Any]]) -> None:
        side: Side = RIGHT if number % 2 else LEFT
        segments: Segments = Columns(pa.RecordBatch.from_pylist(rows)) if self._columns else rows
        looked = look_at(self._join, self._join.sides[side], segments)
        shards = np.array([shard_of(row["id"]) for row in rows])
        self._held.add(side, segments, looked.times, looked.rows, shards)


class _Window:
    """A sum for each key, and a watermark that follows the rows but passes none."""

    def __init__(self, columns: bool, sessions: bool) -> None:
        window: dict[str, Any] = {"type": "fixed", "range": (1, "days")}
        if sessions:
            window = {"type": "session", "timeout_gap": (1, "days")}
        trigger = {"type": "watermark", "refinement": "discarding"}
        window |= {"aggregation": ("sum", "amount")}
        self._columns = columns
        self._windows = TaskWindows(compiled(window, trigger, columns, "id", "at"), shard_of)
        self._keys = GroupKeys()
        self.restore = self._windows.restore
        self.take_changes: Callable[[], Records] = self._windows.take_changes

    def restored(self) -> None:
        """Windows have nothing to do when all shards are there."""

    def add(self, number: int, rows: list[dict[str, Any]]) -> None:
        if self._columns:
            columns = Columns(pa.RecordBatch.from_pylist(rows))
            self._windows.add(columns, self._keys.of(KeyCodes.of_column(columns, "id")), 0)
        else:
            self._windows.add(rows, hashable_keys([each["id"] for each in rows]), 0)
        self._windows.advance(rows[0]["at"])


def made(kind: str) -> _State | _Join | _Window:
    if kind.startswith("window"):
        return _Window("columns" in kind, "sessions" in kind)
    return _State() if kind == "state" else _Join(kind == "join of columns")


def rows_of(number: int) -> list[dict[str, Any]]:
    """The rows of a chunk; each key once."""
    first = number * CHUNK_ROWS
    return [
        {"id": n, "at": 1_000 * n, "text": f"order {n * 7919:09}", "amount": n / 7}
        for n in range(first, first + CHUNK_ROWS)
    ]


def written(kind: str, chunks: int) -> tuple[MemoryBlobStore, float]:
    """A log of so many chunks, and the CPU time of taking and appending them."""
    store, its, cpu_s = MemoryBlobStore(), made(kind), 0.0
    log = recover(store, "job", "task", 1, 0, range(SHARDS), SETTINGS).log
    for number in range(chunks):
        its.add(number, rows_of(number))
        start_s = time.process_time()
        changed = its.take_changes()
        log.append(Chunk({shard: ShardChange(records) for shard, records in changed.items()}))
        cpu_s += time.process_time() - start_s
    return store, cpu_s


def restored(kind: str, store: MemoryBlobStore, version: int) -> tuple[float, int]:
    """The CPU time of a recovery, and the bytes of records."""
    start_s = time.process_time()
    found: RecoveredState = recover(store, "job", "task", version, 0, range(SHARDS), SETTINGS)
    its = made(kind)
    for shard, state in found.shards.items():
        its.restore(shard, [])
        for records in state.records():
            its.restore(shard, records)
    its.restored()
    return time.process_time() - start_s, sum(each.size_bytes for each in store.list("job/"))


def measure(options: argparse.Namespace) -> Measured:
    tune_collector()  # as in a worker
    details: dict[str, Any] = {}
    figures: list[Figure] = []
    for kind in KINDS:
        store, write_s = written(kind, options.chunks)
        times = [restored(kind, store, 2 + again) for again in range(options.repeats)]
        restore_s, size_bytes = min(time_s for time_s, _ in times), times[0][1]
        details[kind] = {
            "restore_s": restore_s,
            "write_s": write_s,
            "mb": size_bytes / 1e6,
            "us_a_row": restore_s / options.chunks / CHUNK_ROWS * 1e6,
        }
    base = details["state"]
    for kind in KINDS[1:]:
        mine = details[kind]
        ratio = mine["restore_s"] / mine["mb"] / (base["restore_s"] / base["mb"])
        note = f"{mine['us_a_row']:.1f} us a row; state by key {base['us_a_row']:.1f} us"
        name = f"restoring a {kind}, to state by key of the same bytes"
        figures.append(Figure(name, ratio, "x", GOAL_RATIO, note=note))
    return Measured(figures, details)


def options() -> Options:
    made = parser(__doc__)
    made.sized("--chunks", 500, 100, 4, "that are read")
    made.sized("--repeats", 5, 3, 1, "of which the best counts")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
