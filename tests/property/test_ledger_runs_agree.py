"""Runs of roots and ids, wherever they are understood, mean what the arrays mean."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onyx.base.runs import Numbers, Run, array_of, distinct, follow, gathered, joined, taken
from onyx.codec.segments import decode_column, encode_column
from onyx.ledger.acker import Acker, split_by_acker
from onyx.ledger.hop import EdgeShare, hop
from onyx.ledger.lineage import (
    RANGE_POSITIONS,
    any_retried,
    cut,
    first_attempts,
    fold,
    ids_of,
    pack_roots,
    run_of_ids,
    run_of_roots,
)

POSITIONS = 3 * RANGE_POSITIONS
PLACES = st.sampled_from(
    [0, 1, 10, 100, 4_000, RANGE_POSITIONS - 1, RANGE_POSITIONS, RANGE_POSITIONS + 1, 9_000]
)
SPANS = st.tuples(PLACES, st.sampled_from([1, 2, 50, 97, RANGE_POSITIONS, 5_000]))
"""First position and length: few of them, so that they often meet."""
RUNS = st.builds(Run, st.integers(0, 40), st.integers(0, 30))
COLUMNS = st.lists(
    RUNS | st.lists(st.integers(0, 40), max_size=6).map(lambda some: np.array(some, np.uint64)),
    max_size=8,
)


def flat(columns: list[Numbers]) -> list[int]:
    return [number for each in columns for number in each.tolist()]


@given(st.integers(0, 2**63), st.integers(0, 50), st.data())
def test_a_run_is_indexed_like_its_array(first, count, data):
    run = Run(first, count)
    array = run.array()
    assert run.tolist() == array.tolist()
    start, stop = data.draw(st.integers(-60, 60)), data.draw(st.none() | st.integers(-60, 60))
    assert run[start:stop].tolist() == array[start:stop].tolist()
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    assert taken(run, mask).tolist() == array[mask].tolist()
    if count:
        chosen = data.draw(st.lists(st.integers(0, count - 1)))
        assert taken(run, np.array(chosen, np.intp)).tolist() == [first + at for at in chosen]
        assert (run[0], run[-1]) == (int(array[0]), int(array[-1]))


@given(COLUMNS)
def test_joined_and_gathered_columns_have_the_numbers_in_the_same_order(columns):
    assert joined(columns).tolist() == flat(columns)
    assert isinstance(joined(columns), Run) >= follow(columns)
    found = gathered(columns)
    assert flat(found) == flat(columns)
    assert all(len(each) for each in found)


@given(COLUMNS)
def test_distinct_columns_increase_and_have_the_same_numbers(columns):
    found = distinct(columns)
    assert set(flat(found)) == set(flat(columns))
    assert all((np.diff(array_of(each).astype(np.int64)) > 0).all() for each in found)


@given(st.integers(0, 2**64 - 100), st.integers(1, 100))
def test_a_run_crosses_the_network(first, count):
    run = Run(first, count)
    assert encode_column(run) == encode_column(run.array())
    assert decode_column(encode_column(run), count) == run


@given(st.integers(0, 3), st.integers(0, 2), SPANS)
def test_what_is_asked_of_roots_is_the_same_of_a_run(partition, attempt, span):
    first, count = span
    array = pack_roots(partition, attempt, np.arange(first, first + count, dtype=np.uint64))
    run = Run(int(array[0]), count)
    assert any_retried(run) == any_retried(array) == bool(attempt)
    assert first_attempts(run).tolist() == first_attempts(array).tolist()
    assert cut(run, 12) == cut(array, 12)
    assert ids_of(77, run).tolist() == ids_of(77, array).tolist()
    values = ids_of(77, run)
    assert fold(run, values) == (run, values)


@given(st.integers(1, 30), st.booleans(), st.booleans(), st.data())
def test_a_hop_of_a_run_is_that_of_its_array(count, emitted, withheld, data):
    ids = run_of_ids(5, 100, 100 + count)
    shares = []
    for edge in range(data.draw(st.integers(0, 2))):
        rows = st.lists(st.integers(0, count - 1), max_size=40).map(sorted)
        parents = data.draw(st.none() | rows.map(lambda some: np.array(some, np.intp)))
        index = None
        if parents is not None:
            index = np.arange(len(parents)) - np.searchsorted(parents, parents)
            index = index if index.any() else None
        shares.append(EdgeShare(edge, parents, index))
    of_run, of_array = (hop(each, shares, emitted, withheld) for each in (ids, ids.array()))
    assert [each.tolist() for each in of_run.ids] == [each.tolist() for each in of_array.ids]
    assert of_run.values.tolist() == of_array.values.tolist()
    assert (of_run.reported is None) == (of_array.reported is None)
    if of_run.reported is not None:
        assert of_run.reported.tolist() == of_array.reported.tolist()


def _parcel(data: st.DataObject) -> tuple[Numbers, Numbers]:
    first, count = data.draw(SPANS)
    roots = run_of_roots(data.draw(st.integers(0, 1)), first, first + count)
    values = ids_of(data.draw(st.sampled_from([1_000, 1_000, 1_000, 5_000])), roots)
    form = data.draw(st.sampled_from(["run", "run", "run", "array", "some", "values"]))
    if form == "array":
        return roots.array(), array_of(values)
    if form == "some":
        chosen = np.arange(0, count, 2)
        return taken(roots, chosen), taken(values, chosen)
    if form == "values":
        return roots, array_of(values) * np.uint64(data.draw(st.integers(0, 1)))
    return roots, values


@given(st.data())
def test_ackers_that_are_given_runs_answer_like_those_that_are_given_arrays(data):
    n_ackers, ranges_max = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 100]))
    by_run = [Acker(ranges_max) for _ in range(n_ackers)]
    model = np.zeros((2, POSITIONS + RANGE_POSITIONS * 2), np.uint64)
    for _ in range(data.draw(st.integers(1, 6))):
        parcels = [_parcel(data) for _ in range(data.draw(st.integers(1, 4)))]
        touched = np.zeros(model.shape, np.bool_)
        for roots, values in parcels:
            array = array_of(roots)
            at = (array >> np.uint64(48)).astype(int), (array & np.uint64(2**40 - 1)).astype(int)
            model[at] ^= array_of(values)
            touched[at] = True
        parts = [(split_by_acker(*fold(*each), n_ackers)) for each in parcels]
        done: list[int] = []
        for number, acker in enumerate(by_run):
            mine = [(roots, values) for its in parts for to, roots, values in its if to == number]
            found = flat(acker.absorb(mine))
            assert found == sorted(found)
            done += found
        partitions, positions = (touched & (model == 0)).nonzero()
        assert sorted(done) == ((partitions << 48) | positions).tolist()
        assert sum(each.pending_count() for each in by_run) == np.count_nonzero(model)
    for partition in (0, 1):
        positions = np.flatnonzero(model[partition])
        if len(positions):
            roots = pack_roots(partition, 0, positions.astype(np.uint64))
            for to, part, values in split_by_acker(roots, model[partition][positions], n_ackers):
                assert flat(by_run[to].absorb([(part, values)])) == part.tolist()
    assert sum(each.range_count() for each in by_run) == 0
