"""What Spark runs for a window: the files of a plan to a state for each group and extent. Sessions
are found by `sessions`.

Built-in functions of Spark alone, so no group passes through Python, and Spark combines states
before it shuffles them. Called by the Spark child; `pyspark` is imported where it runs.
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
)
from onyx.spark.windows.sessions import NUMBER, firing, numbered
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


def aggregate(session: Any, plan: Mapping[str, Any]) -> Any:
    """The DataFrame of states: a row for each group and extent."""
    return _states(session, msgspec.convert(plan, Plan))


def _states(session: Any, plan: Plan) -> Any:
    from pyspark.sql import functions as F

    frames = [_piece(session, plan, piece) for piece in plan.pieces]
    rows = reduce(lambda one, other: one.union(other), frames)
    if plan.sessions is not None:
        apart = numbered(rows, plan.sessions.gap, plan.keys)
        found = apart.groupBy(EXTENT, *plan.keys, NUMBER).agg(*_merged(plan)).drop(NUMBER)
        return firing(found, plan.sessions)
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
