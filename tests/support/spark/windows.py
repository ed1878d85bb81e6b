"""Stages of windows without Spark: a plan of a firing, carried out by Python.

For tests of what surrounds a stage, and as a second opinion on what the real one computes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onyx.codec.values import decode_records, encode_records
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.objects.messages import write_list
from onyx.spark.objects.writing import UploadOrder, uploaded
from onyx.spark.target import opened
from onyx.spark.windows.aggregate import state_columns
from onyx.spark.windows.plan import (
    COORDINATE,
    COUNT,
    DUE,
    EXTENT,
    FIRES,
    FRESH,
    ITEM,
    ITEMS,
    KEY_OTHER,
    KEY_VALUE,
    LAST,
    LOWER,
    SEQ,
    SHARD,
    UPPER,
    Piece,
    Plan,
)
from onyx.spark.windows.spool import Spool, files_of
from onyx.spark.windows.window import SparkRuns, SparkWindow
from onyx.storage.opening import location_of
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import Firing, FiringPages
from onyx.windows.running import Make
from onyx.windows.task_windows import TaskWindows

CONF = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
Logs = dict[int, list[Record]]
FILES = 2
"""Of a result, so that a place in it has a file and a row."""


def run_plan(request: StageRequest, timeout_s: float, watch: Watch) -> None:
    """A `StageRunner`."""
    plan = msgspec.convert(request.params["plan"], Plan)
    states: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for piece in plan.pieces:
        for row in rows_of(plan, piece):
            states[row[EXTENT], *(row.get(key) for key in plan.keys)].append(row)
    if plan.sessions is None:
        found = [merged(plan, rows) for rows in states.values()]
    else:
        found = [
            session(plan, rows)
            for owned in states.values()
            for rows in near(owned, plan.sessions.gap)
        ]
    found.sort(key=lambda row: (str(row.get(ITEMS)), row[EXTENT], *map(repr, row.values())))
    parts = [part for number in range(FILES) if (part := found[number::FILES])]
    if request.objects is not None:
        order = UploadOrder(request.objects)
        staged = [
            each
            for number, part in enumerate(parts)
            for each in uploaded(order, number, 0, [pa.RecordBatch.from_pylist(part)])
        ]
        write_list(Path(request.target), tuple(staged))
        return
    target = Path(request.target)
    target.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(pa.Table.from_pylist(part), target / f"part-{number}.snappy.parquet")
    (target / "_SUCCESS").touch()


def rows_of(plan: Plan, piece: Piece) -> list[dict[str, Any]]:
    found = []
    for path in piece.paths:
        for file in tables_of(path):
            for row in file.to_pylist():
                found += [
                    as_state(plan, piece, {**row, EXTENT: extent})
                    for extent in range(row[EXTENT], row.get(LAST, row[EXTENT]) + 1)
                    if counts(piece, row[SHARD], extent) and not (piece.unfired and row[FIRES])
                ]
    return found


def tables_of(path: str) -> list[pa.Table]:
    """What is in a part or result."""
    return [table_of(each) for each in files_of(path)]


def table_of(path: str) -> pa.Table:
    folder, _, name = path.rpartition("/")
    with opened(location_of(folder), name) as file:
        return file.read()


def counts(piece: Piece, shard: int, extent: int) -> bool:
    within = piece.extents is None or any(low <= extent <= high for low, high in piece.extents)
    return within and (piece.shards is None or shard in piece.shards)


def as_state(plan: Plan, piece: Piece, row: dict[str, Any]) -> dict[str, Any]:
    if COORDINATE in row:
        row = {**row, LOWER: row[COORDINATE], UPPER: row[COORDINATE]}
    if piece.emptied and row.get(FIRES, True):
        return {key: each for key, each in row.items() if key not in state_columns(plan)}
    if piece.partial:
        return row
    return {**row, COUNT: 1, FRESH: True, ITEMS: [{SEQ: row.get(SEQ), ITEM: row.get(ITEM)}]}


def near(rows: list[dict[str, Any]], gap: int) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    last = 0
    for row in sorted(rows, key=lambda each: each[LOWER]):
        if not found or row[LOWER] > last + gap:
            found.append([])
            last = row[UPPER]
        found[-1].append(row)
        last = max(last, row[UPPER])
    return found


def session(plan: Plan, rows: list[dict[str, Any]]) -> dict[str, Any]:
    rule = plan.sessions
    assert rule is not None
    made = merged(plan, rows)
    made[LOWER] = min(row[LOWER] for row in rows)
    made[UPPER] = max(row[UPPER] for row in rows)
    made[FIRES] = True
    if plan.tracked:
        fresh = any(row.get(FRESH) for row in rows)
        due = made[UPPER] + rule.delay
        if rule.share is not None:
            due = made[LOWER] + rule.share * (made[UPPER] - made[LOWER])
        if rule.watermark is not None:
            made[FIRES] = fresh and due <= rule.watermark
            fresh = fresh and due > rule.watermark
        made[FRESH], made[DUE] = fresh, math.floor(due) if fresh else None
    return made


def merged(plan: Plan, rows: list[dict[str, Any]]) -> dict[str, Any]:
    made = {EXTENT: rows[0][EXTENT]} | ({SHARD: rows[0][SHARD]} if plan.sharded else {})
    others = [KEY_VALUE] if KEY_OTHER in plan.columns else []
    made |= {key: rows[0].get(key) for key in [*plan.keys, *others]}
    combine = {"max": max, "min": min}.get(plan.aggregation, sum)
    for name in state_columns(plan):
        values = [row[name] for row in rows if row.get(name) is not None]
        if name == ITEMS:
            made[name] = sorted(chain.from_iterable(values), key=lambda item: item[SEQ])
        else:
            made[name] = (sum if name == COUNT else combine)(values) if values else None
    if plan.tracked:
        fresh = any(row.get(FRESH) for row in rows)
        made[FIRES], made[FRESH] = (fresh, False) if plan.settles else (True, fresh)
    return made


def inline(work: Any) -> Future[Any]:
    """Runs something at once, in place of a thread."""
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
    return future


def by_spark(
    folder: Path, runner: Any = run_plan, aside: Any = inline, page_max: int = 1_000
) -> Make:
    """Makes windows by Spark whose files are in a folder."""

    def make(compiled: CompiledWindow, grouped: bool, shards: Shards) -> SparkWindow:
        spark = SparkRuns(runner, aside, "local[2]", CONF, "test", lambda: True)
        return SparkWindow(
            compiled, grouped, shards, Spool(location_of(str(folder))), spark, page_max
        )

    return make


class Peer:
    """Windows by Spark with their state log: by shard, what is durable."""

    def __init__(
        self, windows: TaskWindows, shards: Iterable[int], logs: Logs | None = None
    ) -> None:
        self.windows = windows
        self.logs: Logs = logs if logs is not None else {}
        for shard in shards:
            windows.restore(shard, [])
            windows.restore(shard, self.logs.setdefault(shard, []))

    def chunk(self) -> None:
        """What has changed becomes durable."""
        records = self.windows.take_changes()
        files = self.windows.take_files()
        for each in files:
            each.write()
        for shard, mine in records.items():
            self.logs.setdefault(shard, []).extend(decode_records(encode_records(mine)))
        for each in files:
            each.remove()

    def snapshot(self) -> None:
        """The log of each shard begins with its state."""
        self.chunk()
        for shard in self.logs:
            records = self.windows.snapshot(shard)
            self.logs[shard] = decode_records(encode_records(records))

    def fired(
        self, pages: FiringPages, most: int | None = None, whole: bool = False
    ) -> list[Firing]:
        """What fires at one moment, with a chunk or a snapshot behind each page; if the peer dies
        when `most` pages are durable, only these."""
        found: list[Firing] = []
        for page in pages:
            if page and most == 0:
                return found
            found += page
            (self.snapshot if whole and page else self.chunk)()
            if page and most is not None:
                most -= 1
        self.chunk()
        return found
