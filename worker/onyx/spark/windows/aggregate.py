"""What Spark runs for a window: the files of a plan to a state for each group and extent.

Built-in functions of Spark alone, so no group passes through Python, and Spark combines states
before it shuffles them. Called by the Spark child; `pyspark` is imported where it runs.

Rows and states of sessions that are near each other are one, whatever came first. A row is a
session of one coordinate. Sorted by group and first coordinate, a session begins where
the last coordinate of all before is further away than the gap; then sessions are merged as groups
are. That takes one shuffle by group, and Spark sorts on disk what does not fit into memory.

Rejected: `session_window` of Spark, which knows timestamps only, adds the gap to the end, and does
not go on from states; a function over the rows of a group, which would pass through Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec

from onyx.spark.objects.reading import read_files
from onyx.spark.windows.plan import (
    COORDINATE,
    COUNT,
    DUE,
    EXTENT,
    FIRES,
    FLOAT,
    FRESH,
    INT,
    ITEM,
    ITEMS,
    KEY_INT,
    KEY_OTHER,
    KEY_SESSION,
    KEY_TEXT,
    KEY_VALUE,
    LAST,
    LOWER,
    SEQ,
    SHARD,
    UPPER,
    Piece,
    Plan,
    Ranges,
    SessionRule,
)
from onyx.spark.windows.spool import files_of

_TYPES = {
    SHARD: "SMALLINT", EXTENT: "BIGINT", LAST: "BIGINT", SEQ: "BIGINT", FRESH: "BOOLEAN",
    FIRES: "BOOLEAN", COORDINATE: "BIGINT", LOWER: "BIGINT", UPPER: "BIGINT", KEY_SESSION: "BINARY",
    KEY_INT: "BIGINT", KEY_TEXT: "STRING", KEY_OTHER: "BINARY", KEY_VALUE: "BINARY",
    INT: "BIGINT", FLOAT: "DOUBLE", ITEM: "BINARY", COUNT: "BIGINT",
    ITEMS: "ARRAY<STRUCT<seq: BIGINT, item: BINARY>>",
}  # fmt: skip
RANGES_MAX = 200
"""More are compared one by one with the numbers in them."""
_SESSION = "session"
"""Which session of its group a row or state is a part of."""
_BEFORE = "before"


def aggregate(session: Any, plan: Mapping[str, Any]) -> Any:
    """The DataFrame of states: a row for each group and extent."""
    return _states(session, msgspec.convert(plan, Plan))


def _states(session: Any, plan: Plan) -> Any:
    from pyspark.sql import functions as F

    frames = [_piece(session, plan, piece) for piece in plan.pieces]
    rows = reduce(lambda one, other: one.union(other), frames)
    if plan.sessions is not None:
        apart = _numbered(rows, plan.sessions.gap, plan.keys)
        found = apart.groupBy(EXTENT, *plan.keys, _SESSION).agg(*_merged(plan)).drop(_SESSION)
        return _firing(found, plan.sessions)
    if plan.extent is None or not plan.keys:  # without a key there would be a row of no rows
        found = rows.groupBy(EXTENT, *plan.keys).agg(*_merged(plan))
    else:
        found = rows.groupBy(*plan.keys).agg(*_merged(plan))
        found = found.select(F.lit(plan.extent).cast(_TYPES[EXTENT]).alias(EXTENT), "*")
    if not plan.tracked:
        return found
    fires, fresh = (F.col(FRESH), F.lit(False)) if plan.settles else (F.lit(True), F.col(FRESH))
    return found.withColumn(FIRES, fires).withColumn(FRESH, fresh)


def state_columns(plan: Plan) -> list[str]:
    """Columns of a state."""
    if plan.native.collects:
        return [ITEMS]
    return [*([COUNT] if plan.native.counts else []), *(plan.numbers if plan.native.merges else [])]


def _carried(plan: Plan) -> list[str]:
    """Columns of groups that are no keys."""
    value = [KEY_VALUE] if KEY_OTHER in plan.columns else []
    bounds = [LOWER, UPPER] if plan.sessions is not None else []
    shard = [SHARD] if plan.sharded else []
    return [*shard, *value, *([FRESH] if plan.tracked else []), *bounds]


def _piece(session: Any, plan: Plan, piece: Piece) -> Any:
    """Rows of some files as states."""
    from pyspark.sql import functions as F

    source = [*plan.keys, *([KEY_VALUE] if KEY_OTHER in plan.columns else [])]
    states = state_columns(plan)
    names = [SHARD] if plan.sharded or piece.shards is not None else []
    names += [EXTENT, *source]
    if piece.partial:
        apart = plan.sessions is not None
        names += [LOWER, UPPER, FIRES] if apart else []
        names += [FRESH] if plan.tracked else []
        names += states if apart or not piece.emptied else []
    else:
        names += [COORDINATE] if plan.sessions is not None else []
        names += [LAST] if plan.overlapping else []
        names += plan.numbers if plan.native.merges else []
        names += [SEQ, ITEM] if ITEMS in states else []
    schema = ", ".join(f"{name} {_TYPES[name]}" for name in names)
    rows = _rows(session, schema, piece.paths)
    if piece.unfired:
        rows = rows.where(~F.col(FIRES))
    if piece.shards is not None:
        rows = rows.where(F.col(SHARD).isin(list(piece.shards)))
    if plan.overlapping and not piece.partial:
        if piece.extents is not None:  # before rows are multiplied
            low, high = piece.extents[0][0], piece.extents[-1][1]
            rows = rows.where((F.col(LAST) >= low) & (F.col(EXTENT) <= high))
        rows = rows.withColumn(EXTENT, F.explode(F.sequence(EXTENT, LAST)))
    if piece.extents is not None:
        rows = rows.where(_within(piece.extents))
    made = [_made(plan, piece, name).alias(name) for name in [*_carried(plan), *states]]
    return rows.select(EXTENT, *plan.keys, *made)


def _rows(session: Any, schema: str, paths: Sequence[str]) -> Any:
    files = [file for path in paths for file in files_of(path)]
    return read_files(session, files, session.createDataFrame([], schema).schema)


def _made(plan: Plan, piece: Piece, name: str) -> Any:
    """One column of a state, of a row or of the state of an earlier firing."""
    from pyspark.sql import functions as F

    if piece.emptied and name in state_columns(plan):
        nothing = F.lit(None).cast(_TYPES[name])
        return nothing if plan.sessions is None else F.when(~F.col(FIRES), F.col(name))
    if piece.partial:
        return F.col(name)
    if name in (LOWER, UPPER):
        return F.col(COORDINATE)
    if name == COUNT:
        return F.lit(1).cast("BIGINT")
    if name == FRESH:
        return F.lit(True)
    if name == ITEMS:
        return F.array(F.struct(SEQ, ITEM))
    return F.col(name)


def _within(extents: Ranges) -> Any:
    from pyspark.sql import functions as F

    if len(extents) > RANGES_MAX:
        every = [number for low, high in extents for number in range(low, high + 1)]
        return F.col(EXTENT).isin(every)
    each = [F.col(EXTENT).between(low, high) for low, high in extents]
    return reduce(lambda one, other: one | other, each)


def _merged(plan: Plan) -> list[Any]:
    """How the columns of states are merged."""
    from pyspark.sql import functions as F

    numeric = {"max": F.max, "min": F.min, "sum": F.sum, None: None}[plan.native.merges]
    how = {
        SHARD: F.max, KEY_VALUE: F.max, FRESH: F.max,
        LOWER: F.min, UPPER: F.max, COUNT: F.sum, INT: numeric, FLOAT: numeric,
        ITEMS: lambda name: F.array_sort(F.flatten(F.collect_list(name))),
    }  # fmt: skip
    return [how[name](name).alias(name) for name in [*_carried(plan), *state_columns(plan)]]


def _numbered(rows: Any, gap: int, keys: list[str]) -> Any:
    """Rows and states with the number of their session."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy(EXTENT, *keys).orderBy(LOWER)
    all_before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.col(_BEFORE)
    begins = F.when(before.isNull() | (F.col(LOWER) > before + gap), 1).otherwise(0)
    found = rows.withColumn(_BEFORE, F.max(UPPER).over(all_before))
    return found.withColumn(_SESSION, F.sum(begins).over(so_far))


def _firing(sessions: Any, rule: SessionRule) -> Any:
    """Whole sessions with whether they fire, whether they have got rows since they fired last, and
    the least watermark at which those are due."""
    from pyspark.sql import functions as F

    if FRESH not in sessions.columns:
        return sessions.withColumn(FIRES, F.lit(True))
    due = F.col(UPPER) + rule.delay
    if rule.share is not None:
        length = F.col(UPPER).cast("DOUBLE") - F.col(LOWER).cast("DOUBLE")
        due = F.col(LOWER).cast("DOUBLE") + F.lit(rule.share) * length
    if rule.watermark is None:
        sessions = sessions.withColumn(FIRES, F.lit(True))
    else:
        is_due = due <= F.lit(rule.watermark)
        fires, waits = F.col(FRESH) & is_due, F.col(FRESH) & ~is_due
        sessions = sessions.withColumn(FIRES, fires).withColumn(FRESH, waits)
    return sessions.withColumn(DUE, F.when(F.col(FRESH), F.floor(due)))
