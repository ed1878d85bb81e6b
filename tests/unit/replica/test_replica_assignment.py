"""The assignment problem: what is found costs no more than any other assignment."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.replica.scheduling.assignment import cheapest

FORBIDDEN = 1_000.0
COSTS = st.lists(
    st.lists(st.sampled_from([1.0, 2.0, 5.0, FORBIDDEN]), min_size=2, max_size=2),
    min_size=3,
    max_size=3,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    costs=COSTS,
    kinds=st.lists(st.integers(0, 1), min_size=1, max_size=6),
    free=st.dictionaries(st.integers(0, 5), st.integers(0, 2), max_size=4),
    rows=st.lists(st.integers(0, 2), min_size=1, max_size=6),
)
def test_no_other_assignment_costs_less(costs, kinds, free, rows):
    rows = rows[: len(kinds)]
    free = {column: kind for column, kind in free.items() if column < len(kinds)}

    def cost(columns):
        return [
            0.0 if free.get(column) == row else costs[row][kinds[column]]
            for row, column in zip(rows, columns, strict=True)
        ]

    every = [cost(each) for each in permutations(range(len(kinds)), len(rows))]
    possible = [sum(each) for each in every if max(each) < FORBIDDEN]
    found = cheapest(costs, kinds, free, rows, FORBIDDEN)
    if found is None:
        assert not possible
    else:
        assert len(set(found)) == len(rows)
        assert max(cost(found)) < FORBIDDEN
        assert sum(cost(found)) == min(possible)


def test_equal_assignments_are_decided_by_the_order_of_columns():
    assert cheapest([[1.0]], [0, 0, 0], {}, [0, 0], FORBIDDEN) == [0, 1]
    assert cheapest([[1.0], [1.0]], [0, 0, 0], {2: 0}, [1, 0], FORBIDDEN) == [0, 2]


def test_many_rows_of_few_kinds_stay_where_they_cost_nothing():
    kinds, rows = [0] * 1_000, [row % 7 for row in range(900)]
    free = {column: rows[column] for column in range(900)}
    assert cheapest([[1.0]] * 7, kinds, free, rows, FORBIDDEN) == list(range(900))
