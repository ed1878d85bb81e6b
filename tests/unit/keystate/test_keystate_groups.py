"""Group keys as what a dict can look up, and back."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from onyx.errors import UserError
from onyx.keystate.groups import (
    Shards,
    dump_key,
    group_value,
    hashable_key,
    hashable_keys,
    load_key,
)

GROUPS = [
    1, True, "1", b"1", None, 0, False, "", [1], ["1"], {"a": 1}, {"a": True}, [], {}, [None],
    date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), 0.5, Decimal("0.1"), 0.1, (1, 2),
    float("inf"), time(3, 4), timedelta(5),
    {"day": date(2026, 1, 2)},
]  # fmt: skip


def test_different_groups_are_different_keys():
    assert len(dict.fromkeys(hashable_keys(GROUPS))) == len(GROUPS)


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 2], (1, 2)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([["x"]], [("x",)])],
)
def test_the_same_group_written_differently_is_one_key(one, other):
    assert hashable_key(one) == hashable_key(other)
    assert hash(hashable_key(one)) == hash(hashable_key(other))


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_the_users_value_comes_back(group):
    got = group_value(hashable_key(group))
    assert got == group
    assert type(got) is type(group)


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_a_stored_key_is_the_same_group_again(group):
    key = hashable_key(group)
    loaded = load_key(dump_key(key))
    assert loaded == key
    assert group_value(loaded) == group


def test_text_and_ints_stand_for_themselves():
    assert hashable_keys(["a", 1, None]) == ["a", 1, None]


def test_a_whole_float_is_the_int_that_it_equals():
    assert hashable_keys([1, 1.0, Decimal("1.0"), -0.0]) == [1, 1, 1, 0]
    assert {type(key) for key in hashable_keys([1.0, -0.0])} == {int}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"a": 1.0}, {"a": 1}),
        ([1.0, "x", Decimal("2.0")], [1, "x", 2]),
        ((1.0, [-0.0]), (1, [0])),
        ({"a": {"b": [3.0, 0.5, True]}}, {"a": {"b": [3, 0.5, True]}}),
        (Decimal("1E+30"), Decimal("1E+30")),
        ([1e300, float("inf")], [1e300, float("inf")]),
        (1e19, 10**19),
    ],
)
def test_whole_numbers_within_a_key_are_shown_as_ints(given, shown):
    got = group_value(hashable_key(given))
    assert repr(got) == repr(shown)
    assert hashable_key(given) == hashable_key(shown)


def test_nan_is_refused():
    with pytest.raises(UserError, match="NaN"):
        hashable_keys([1, float("nan")])


def test_shards_are_computed_once_a_group_of_the_users_value():
    asked = []
    shards = Shards(lambda group: asked.append(group) or len(group))
    keys = hashable_keys([["a", "b"], "x", ["a", "b"], "x"])
    assert [shards[key] for key in keys] == [2, 1, 2, 1]
    assert asked == [["a", "b"], "x"]
    assert list(shards.known) == [2, 1]
    shards.forget([2])
    assert list(shards.known) == [1]
