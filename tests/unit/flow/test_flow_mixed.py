"""Reads that are partly columns and partly dicts: pieces, order, and what is taken of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.batch import (
    Batch,
    Mixed,
    Read,
    Segments,
    as_dicts,
    by_format,
    of_runs,
    part_of_read,
    pieces_of,
    runs_of,
    take_of_read,
)
from onyx.flow.columns.record_batch import Columns, from_dicts


def numbers(segments: Segments) -> list[Any]:
    return [each["n"] for each in as_dicts(segments)]


def in_order(read: Read) -> list[Any]:
    """By the places of the pieces; the runs must say the same."""
    found: dict[int, Any] = {}
    for places, segments in pieces_of(read):
        found.update(zip(places.tolist(), numbers(segments), strict=True))
    assert sorted(found) == list(range(len(read)))
    assert [n for run in runs_of(read) for n in numbers(run)] == [found[n] for n in sorted(found)]
    return [found[n] for n in sorted(found)]


def columns(*values: Any) -> Columns:
    return from_dicts([{"n": value} for value in values])[0]


def dicts(*values: Any) -> Segments:
    return [{"n": value} for value in values]


@given(
    runs=st.lists(
        st.tuples(st.sampled_from(["ints", "text", "dicts"]), st.integers(1, 5)), min_size=1
    ),
    data=st.data(),
)
def test_a_read_is_its_runs_however_they_are_grouped_and_cut(runs, data):
    count, made = 0, []
    for form, size in runs:
        values = range(count, count + size)
        count += size
        texts = [str(n) for n in values]
        made.append(
            columns(*values) if form == "ints" else columns(*texts) if form == "text"
            else dicts(*values)
        )  # fmt: skip
    read = of_runs(made)
    expected = [n for run in made for n in numbers(run)]
    assert in_order(read) == expected
    assert len(pieces_of(read)) == len({form for form, _ in runs})
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, count)] * 2)))
    assert in_order(part_of_read(read, first, last)) == expected[first:last]
    chosen = sorted(data.draw(st.sets(st.integers(0, count - 1))))
    taken = take_of_read(read, np.array(chosen, dtype=np.intp))
    assert in_order(taken) == [expected[n] for n in chosen]


def test_a_read_of_one_form_is_no_mixture():
    assert isinstance(of_runs([columns(1), dicts(2)]), Mixed)
    assert isinstance(of_runs([columns(1), columns(2)]), Columns)
    assert of_runs([dicts(1), dicts(2)]) == dicts(1, 2)


@pytest.mark.parametrize("lineage", [True, False])
def test_waiting_batches_become_one_of_each_form(lineage):
    def batch(segments: Segments) -> Batch:
        ids = np.array(numbers(segments), dtype=np.uint64)
        return Batch(segments, ids, ids) if lineage else Batch(segments)

    waiting = [columns(1, 2), dicts(3), columns(4), dicts(5, 6)]
    rows, others = by_format(list(map(batch, waiting)))
    assert (numbers(rows.segments), numbers(others.segments)) == ([1, 2, 4], [3, 5, 6])
    assert isinstance(rows.segments, Columns)
    if lineage:
        assert (rows.ids.tolist(), others.roots.tolist()) == ([1, 2, 4], [3, 5, 6])
    assert by_format([]) == []


def test_waiting_columns_whose_types_do_not_fit_together_stay_apart():
    nulls = Columns(pa.record_batch({"n": pa.nulls(1)}))
    one, two = by_format([Batch(columns(1)), Batch(columns("x")), Batch(columns(2))])
    assert (numbers(one.segments), numbers(two.segments)) == ([1, 2], ["x"])
    (wider,) = by_format([Batch(columns(1)), Batch(nulls), Batch(columns(0.5))])
    assert numbers(wider.segments) == [1, None, 0.5]
