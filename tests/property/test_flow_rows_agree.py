"""Rows made in C are the dicts that a loop makes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onyx.flow.columns.record_batch import dict_rows, dicts_of

NAMES = st.text(max_size=6) | st.sampled_from(
    [
        "a",
        "self",
        "class",
        "mro",
        "_x",
        "__init__",
        "__dict__",
        "__weakref__",
        "é",
        "a b",
        "",
        "keys",
    ]
)
VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=2)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    names = draw(st.lists(NAMES, min_size=1, max_size=20, unique=True))
    count = draw(st.integers(0, 4))
    column = st.lists(VALUES, min_size=count, max_size=count)
    return names, [draw(column) for _ in names]


@given(table=tables())
@example(table=(["a", "__weakref__"], [[1], [2]]))
@example(table=(["\ud800"], [[1]]))
def test_rows_are_dicts_of_the_names_and_values_in_order(
    table: tuple[list[str], list[list[Any]]],
) -> None:
    names, columns = table
    found = dict_rows(names, columns)
    assert [list(row.items()) for row in found] == [
        list(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    ]
    assert dicts_of(names, zip(*columns, strict=True)) == found
    assert all(type(row) is dict for row in found)
    for row, values in zip(found, zip(*columns, strict=True), strict=True):
        assert all(row[name] is value for name, value in zip(names, values, strict=True))


def test_each_row_is_a_dict_of_its_own() -> None:
    first, second = dict_rows(["a", "b"], [[1, 1], [2, 2]])
    first["a"] = 3
    assert second == {"a": 1, "b": 2}


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b c"]])
@pytest.mark.parametrize("row", [[1], [1, 2, 3]])
def test_a_row_of_another_length_is_refused(names: list[str], row: list[int]) -> None:
    with pytest.raises((ValueError, TypeError)):
        dicts_of(names, [[1, 2], row])
