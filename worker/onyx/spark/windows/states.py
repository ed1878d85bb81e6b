"""States that Spark has computed, as the states of the window's aggregation, batch by batch.

What Spark leaves out is done here, by the aggregation itself: the first state of a group, an
`init`, ints and floats in one sum. So a state is what a peer would have, whoever has made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from onyx.codec.values import decode_values
from onyx.spark.windows.plan import (
    COUNT,
    FLOAT,
    INT,
    ITEM,
    ITEMS,
    KEY_INT,
    KEY_OTHER,
    KEY_TEXT,
    KEY_VALUE,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.ordered_log import OrderedLog
from onyx.windows.aggregations.table import name_of
from onyx.windows.compiled import CompiledWindow
from onyx.windows.groups import hashable_key


def form_of(compiled: CompiledWindow) -> str:
    """The form of a window's states: the name of its aggregation, or `ordered-log`, in which Spark
    collects segments."""
    is_log = isinstance(compiled.aggregation, OrderedLog)
    return "ordered-log" if is_log else name_of(compiled.window)


def states(name: str, aggregation: Aggregation, batch: pa.RecordBatch) -> list[Any]:
    """The state of each row of a result."""
    made = _MAKERS.get(name, _collected)
    return made(aggregation, _columns(batch, (COUNT, INT, FLOAT, ITEMS)), batch.num_rows)


def groups(batch: pa.RecordBatch) -> list[Any]:
    """The group of each row, as windows look it up."""
    found = _columns(batch, (KEY_INT, KEY_TEXT, KEY_OTHER, KEY_VALUE))
    keys: list[Any] = [None] * batch.num_rows
    for name in (KEY_INT, KEY_TEXT):
        if name in found:
            keys = [
                key if each is None else each for key, each in zip(keys, found[name], strict=True)
            ]
    if KEY_OTHER in found:
        values = found[KEY_VALUE]
        keys = [
            key if value is None else hashable_key(decode_values(value)[0])
            for key, value in zip(keys, values, strict=True)
        ]
    return keys


Columns = Mapping[str, list[Any]]


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> Columns:
    there = set(batch.schema.names)
    return {name: batch.column(name).to_pylist() for name in names if name in there}


def _counted(aggregation: Aggregation, columns: Columns, rows: int) -> list[Any]:
    return [each or 0 for each in columns[COUNT]]


def _computed(aggregation: Aggregation, columns: Columns, rows: int) -> list[Any]:
    found = [aggregation.init() for _ in range(rows)]
    for name in (INT, FLOAT):
        if name in columns:
            found = [
                state if value is None else aggregation.apply(state, value)
                for state, value in zip(found, columns[name], strict=True)
            ]
    return found


def _averaged(aggregation: Aggregation, columns: Columns, rows: int) -> list[Any]:
    totals: list[Any] = [0] * rows
    for name in (INT, FLOAT):
        if name in columns:
            totals = [
                total if value is None else total + value
                for total, value in zip(totals, columns[name], strict=True)
            ]
    return list(zip(_counted(aggregation, columns, rows), totals, strict=True))


def _collected(aggregation: Aggregation, columns: Columns, rows: int) -> list[Any]:
    return [_fold(aggregation, items or ()) for items in columns[ITEMS]]


def _fold(aggregation: Aggregation, items: Sequence[Mapping[str, Any]]) -> Any:
    state = aggregation.init()
    for each in items:
        extracted = decode_values(each[ITEM])[0]
        state = aggregation.apply(state, aggregation.create(state, extracted))
    return state


_MAKERS: Mapping[str, Callable[[Aggregation, Columns, int], list[Any]]] = {
    "average": _averaged, "count": _counted,
    "max": _computed, "min": _computed, "sum": _computed,
}  # fmt: skip
