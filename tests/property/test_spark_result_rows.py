"""Rows of a result by Spark are what its groups are one by one, or are not made."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.flow.batch import as_dicts
from onyx.keystate.groups import group_value
from onyx.model.job import Window
from onyx.spark.windows.results import groups, result_rows, states
from onyx.windows.aggregations.table import compile_aggregation

AGGREGATIONS = {
    "count": ("count", {"count": st.integers(1, 9)}),
    "sum": (("sum", "v"), {}),
    "min": (("min", "v"), {}),
    "max": (("max", "v"), {}),
    "average": (("average", "v"), {"count": st.integers(1, 9)}),
}
INTS = st.integers(-(2**62), 2**62) | st.integers(-3, 3)
NUMBERS = {"int": (pa.int64(), INTS), "float": (pa.float64(), st.floats(allow_nan=False))}
KEYS = {"key_int": (pa.int64(), INTS), "key_text": (pa.string(), st.text(max_size=3))}
TYPES = {"count": pa.int64(), **{name: kind for name, (kind, _) in {**NUMBERS, **KEYS}.items()}}
EXTENTS = {"global": lambda number: (-math.inf, math.inf), "hours": lambda n: (n * 60, n * 60 + 59)}


@st.composite
def results(draw, more):
    """A result with some of the columns of keys and numbers, each of which may have nulls."""
    columns = {"shard": st.integers(0, 3), "extent": st.integers(-2, 2), **more}
    nulls = draw(st.booleans())
    for kinds in (NUMBERS, KEYS):
        for name in draw(st.lists(st.sampled_from(sorted(kinds)), unique=True, max_size=2)):
            values = kinds[name][1]
            columns[name] = st.none() | values if nulls else values
    rows = draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=12))
    return pa.record_batch(
        {name: pa.array([row[name] for row in rows], TYPES.get(name)) for name in columns}
    )


def shown(bounds):
    return [None if math.isinf(each) else each for each in bounds]


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("name", AGGREGATIONS)
@given(data=st.data())
@settings(max_examples=examples(30))
def test_rows_are_what_groups_are(name, extents, data):
    how, more = AGGREGATIONS[name]
    init = data.draw(st.sampled_from([None, 0])) if name in ("min", "max") else None
    window = Window("w", "t", "global", how, init=init)
    aggregation = compile_aggregation(window, "window w", {}.__getitem__)
    batch = data.draw(results(more))
    made = result_rows(aggregation, EXTENTS[extents], batch)
    if made is None:
        return
    rows, slices = made
    expected = [
        (shard, [group_value(key), *shown(EXTENTS[extents](extent)), aggregation.view(state)])
        for shard, key, extent, state in zip(
            batch["shard"].to_pylist(), groups(batch), batch["extent"].to_pylist(),
            states(aggregation, batch), strict=True,
        )
    ]  # fmt: skip
    found = [
        (shard, list(row.values()))
        for shard, where in slices.items()
        for row in as_dicts(rows.slice(where.start, where.stop))
    ]
    assert repr(found) == repr(sorted(expected, key=lambda each: each[0]))


def test_the_usual_results_are_rows():
    batch = pa.record_batch(
        {"shard": [1, 0], "extent": [2, 2], "key_text": ["a", "b"], "int": [5, 7]}
    )
    window = Window("w", "t", "global", ("sum", "v"))
    made = result_rows(
        compile_aggregation(window, "window w", {}.__getitem__), EXTENTS["hours"], batch
    )
    assert made is not None
    assert as_dicts(made[0]) == [
        {"group": "b", "lower": 120, "upper": 179, "state": 7},
        {"group": "a", "lower": 120, "upper": 179, "state": 5},
    ]
