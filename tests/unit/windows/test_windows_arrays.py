"""Arrays folded into states give what Python gives, to the type and the last bit."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.keystate.coded import GroupKeys, Groups, chosen, numbers_of
from onyx.keystate.groups import hashable_keys
from onyx.windows.aggregations.array_forms import ExtremeForm, added, extremes, sums_of
from onyx.windows.aggregations.numbers import Max, Min

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0])


@pytest.mark.parametrize("made", [Max, Min])
@given(data=st.data(), kind=st.sampled_from([INTS, FLOATS]))
def test_extremes_without_a_first_state_are_those_of_all_numbers(made, data, kind):
    values = data.draw(st.lists(kind, min_size=1, max_size=12))
    aggregation, form = made("window w", "v"), ExtremeForm(None, made is Max)
    expected = None
    for value in values:
        expected = aggregation.apply(expected, aggregation.create(expected, value))
    known = [value for value in values if not math.isnan(value)]
    assert expected == ((max if made is Max else min)(known) if known else None)
    numbers = np.array(values)
    if numbers.dtype.kind in "if":  # an int beyond 64 bits is in no array
        states = form.first(1, numbers)
        states = form.fold(states, np.zeros(len(values), np.intp), numbers)
        assert (states is None) if not known else repr(form.to_python(states)) == repr([expected])


@pytest.mark.parametrize("value", ["z", None, [1]])
def test_what_is_no_number_has_no_extreme_without_a_first_state(value):
    with pytest.raises(UserError, match="cannot compute with the values of key 'v'"):
        Max("window w", "v").extract([{"v": 1}, {"v": value}])
    assert Max("window w", "v", "a").extract([{"v": "z"}]) == ["z"]


def one_by_one(states, codes, values, step):
    states = list(states)
    for code, value in zip(codes, values, strict=True):
        states[code] = step(states[code], value)
    return states


@given(data=st.data(), kind=st.sampled_from([INTS, FLOATS]))
def test_sums_are_those_of_python(data, kind):
    values = data.draw(st.lists(kind, min_size=1, max_size=20))
    codes = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    codes = Groups.of_rows(codes).codes.tolist()
    states = data.draw(
        st.lists(INTS | FLOATS | st.just(2**70), min_size=max(codes) + 1, max_size=max(codes) + 1)
    )
    sums = sums_of(states, np.array(values))
    found = None if sums is None else added(sums, np.array(codes), np.array(values))
    if found is not None:
        expected = one_by_one(states, codes, values, lambda state, value: state + value)
        assert repr(found.tolist()) == repr(expected).replace("-nan", "nan")


@pytest.mark.parametrize(
    ("states", "values"),
    [([2**63 - 1], [1]), ([0], [2**62, 2**62]), ([2**64], [1]), ([10**400], [0.5]), (["a"], [1])],
)
def test_what_arrays_cannot_add_is_left_to_python(states, values):
    sums = sums_of(states, np.array(values))
    assert sums is None or added(sums, np.zeros(len(values), np.intp), np.array(values)) is None


@pytest.mark.parametrize(("greatest", "choose"), [(True, max), (False, min)])
@given(data=st.data(), kind=st.sampled_from([INTS, FLOATS]))
def test_of_equal_extremes_the_first_stays(greatest, choose, data, kind):
    values = data.draw(st.lists(kind, min_size=1, max_size=20))
    codes = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    codes = Groups.of_rows(codes).codes
    many = int(codes.max()) + 1
    ones = extremes(many, codes, np.array(values), greatest).tolist()
    for start in (0, 0.0, -0.0, math.nan, 3):
        expected = one_by_one([start] * many, codes.tolist(), values, choose)
        assert repr([choose(start, one) for one in ones]) == repr(expected)


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.5, None]), min_size=1))
def test_groups_of_columns_are_those_of_dicts(values):
    columns = Columns(pa.RecordBatch.from_pydict({"k": pa.array(values, pa.float64())}))
    groups = GroupKeys().of(KeyCodes.of_column(columns, "k"))
    rows = hashable_keys(values)
    assert groups.rows() == rows
    assert list(map(type, groups.rows())) == list(map(type, rows))
    assert groups.keys == list(dict.fromkeys(rows))
    assert groups.counts() == [rows.count(key) for key in groups.keys]
    some = np.arange(1, len(values))
    taken = chosen(groups, some)
    assert taken.rows() == rows[1:]
    assert taken.keys == list(dict.fromkeys(rows[1:]))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([1, 2], pa.int8()), [1, 2]),
        (pa.array([1, 2], pa.uint64()), [1, 2]),
        (pa.array([1, 2**63], pa.uint64()), None),
        (pa.array([0.5], pa.float32()), [0.5]),
        (pa.array([1, None]), None),
        (pa.array([True]), None),
        (pa.array(["1"]), None),
        (pa.array([], pa.uint64()), []),
    ],
)
def test_numbers_that_python_has_alike_become_arrays(column, found):
    numbers = numbers_of(column)
    assert (None if numbers is None else numbers.tolist()) == found
