"""Copies of states and updates share nothing with them that can be changed."""

from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.keystate.copies import copied

FLAT = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3)
VALUES = st.recursive(
    FLAT | st.just(Decimal("1.5")) | st.just(datetime(2020, 1, 1, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


def parts(value):
    """All lists and dicts of a value."""
    if isinstance(value, list | dict):
        yield value
        for each in value if isinstance(value, list) else value.values():
            yield from parts(each)


@given(VALUES)
def test_a_copy_is_equal_and_has_no_list_or_dict_in_common(value):
    copy = copied(value)
    assert copy == value
    assert {id(each) for each in parts(copy)}.isdisjoint({id(each) for each in parts(value)})


@pytest.mark.parametrize("value", [{1, 2}, OrderedDict(a=[1]), ([1], 2), {"a": {1}}, [{"a": [1]}]])
def test_other_types_stay_what_they_are(value):
    copy = copied(value)
    assert copy == value
    assert type(copy) is type(value)
    assert copy is not value
