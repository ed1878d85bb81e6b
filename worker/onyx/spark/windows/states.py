"""States that Spark has computed, as the states of the window's aggregation, batch by batch.

What Spark leaves out is done here, by the aggregation itself: the first state of a group, an
`init`, ints and floats in one sum. So a state is what a peer would have, whoever has made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from onyx.codec.values import decode_values
from onyx.keystate.groups import hashable_key
from onyx.model.kinds import AGGREGATIONS, COLLECTED, Native, aggregation_name
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
from onyx.windows.aggregations.collecting import OrderedLog
from onyx.windows.compiled import CompiledWindow


def native_of(compiled: CompiledWindow) -> Native:
    """How Spark computes the aggregation of a window. Of an ordered log it collects segments."""
    if isinstance(compiled.aggregation, OrderedLog):
        return COLLECTED
    return AGGREGATIONS[aggregation_name(compiled.window.aggregation)].native


def states(aggregation: Aggregation, batch: pa.RecordBatch) -> list[Any]:
    """The state of each row of a result."""
    found = _columns(batch, (COUNT, INT, FLOAT, ITEMS))
    if ITEMS in found:
        return [aggregation.gather(_values(items)) for items in found[ITEMS]]
    counts = [each or 0 for each in found.get(COUNT, [0] * batch.num_rows)]
    numbers = zip(*(found[name] for name in (INT, FLOAT) if name in found), strict=True)
    known = ([each for each in row if each is not None] for row in numbers)
    return list(map(aggregation.finish, counts, chain(known, repeat([]))))


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


def _values(items: Sequence[Mapping[str, Any]] | None) -> Iterator[Any]:
    """What segments hold, as it was collected."""
    return (decode_values(each[ITEM])[0] for each in items or ())
