"""The bounded filter of keys that were seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserError
from onyx.keystate.uniqueness import BUCKETS, UniqueKeys

KEYS = st.lists(st.one_of(st.integers(0, 9), st.booleans(), st.text(max_size=1), st.none()))


@given(st.lists(KEYS, max_size=5))
def test_a_value_is_new_exactly_once(batches: list[list[Any]]) -> None:
    unique = UniqueKeys()
    seen: set[tuple[type, Any]] = set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append((type(value), value) not in seen)
            seen.add((type(value), value))
        assert unique.first_seen(batch) == expected


@given(st.lists(KEYS, max_size=5))
def test_what_was_recorded_gives_the_same_filter(batches: list[list[Any]]) -> None:
    unique, replayed, copied = UniqueKeys(30), UniqueKeys(30), UniqueKeys(30)
    for batch in batches:
        unique.first_seen(batch)
        replayed.restore(unique.take_news())
    copied.restore(unique.snapshot())
    assert replayed.snapshot() == unique.snapshot() == copied.snapshot()


def test_the_oldest_bucket_is_forgotten() -> None:
    unique = UniqueKeys(keys_max=2 * BUCKETS)
    unique.first_seen(list(range(2 * BUCKETS)))
    assert unique.first_seen([0, 2 * BUCKETS - 1]) == [False, False]
    unique.first_seen([-1])
    assert unique.first_seen([2, 0]) == [False, True]


def test_nan_is_refused() -> None:
    with pytest.raises(UserError, match="NaN"):
        UniqueKeys().first_seen([float("nan")])
