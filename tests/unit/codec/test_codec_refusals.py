"""Which segments cannot travel, and what a person reads about them."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import OrderedDict, defaultdict
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from onyx.codec.kinds import NESTING_MAX
from onyx.codec.refusals import SEGMENT_BYTES_MAX, refusal, refuse, refused
from onyx.flow.leaves import Leaves

NAIVE = dt.datetime(2013, 1, 1, 5)  # noqa: DTZ001


class Colour(enum.IntEnum):
    RED = 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED = [
    ({"bad": {1}}, "key 'bad' holds a set, which cannot travel between tasks: make it a list"),
    ({"a": {"tags": [1, 2, {1}]}}, "key 'a.tags[2]' holds a set"),
    ({"a": [(1, frozenset())]}, r"key 'a[0][1]' holds a frozenset"),
    ({"at": NAIVE}, "key 'at' holds a datetime without a time zone"),
    ({"at": [NAIVE]}, "key 'at[0]' holds a datetime without a time zone"),
    ({"at": dt.time(5, tzinfo=dt.UTC)}, "key 'at' holds a time with a time zone"),
    ({"n": 2**64}, "key 'n' holds an int beyond 64 bits"),
    ({"n": {"m": -(2**63) - 1}}, "key 'n.m' holds an int beyond 64 bits"),
    ({"n": np.int64(3)}, "key 'n' holds a numpy.int64, which cannot travel between tasks: conv"),
    ({"n": np.float64(3)}, "numpy.float64, which cannot travel between tasks: convert it with .it"),
    ({"n": np.zeros(3)}, "numpy.ndarray, which cannot travel between tasks: convert it with .tol"),
    ({"n": Colour.RED}, "convert it with int(), for its subclass would arrive as that"),
    ({"n": OrderedDict()}, "convert it with dict()"),
    ({"n": uuid.UUID(int=1)}, "key 'n' holds an uuid.UUID, which cannot travel between tasks: "),
    ({"n": bytearray(b"x")}, "key 'n' holds a bytearray"),
    ({"n": object()}, "key 'n' holds an object, which cannot travel between tasks: use None, bool"),
    ({"n": 1j}, "key 'n' holds a complex"),
    ({"n": "\ud800"}, "key 'n' holds a str with half of a surrogate pair"),
    ({"\ud800": 1}, "the segment has a key with half of a surrogate pair"),
    ({1: 2}, "the segment has a key that is an int"),
    ({"a": [{None: 2}]}, "key 'a[0]' holds a key that is a NoneType"),
    ({float("nan"): 2}, "the segment has a key that is a float"),
    ({"deep": nested(NESTING_MAX + 1)}, "nested deeper than 64"),
    ({"n": 1, "page": "x" * SEGMENT_BYTES_MAX}, "bytes, of which key 'page' takes 2097157; at"),
    (defaultdict(int, n=1), "the segment is a collections.defaultdict, not a dict"),
]  # fmt: skip
TRAVELS = [
    {},
    {"n": None, "b": True, "s": "é", "y": b"\x00", "f": float("nan"), "i": float("inf")},
    {"low": -(2**63), "high": 2**64 - 1},
    {"d": dt.date(2026, 1, 2), "t": dt.time(3, 4), "p": dt.timedelta(days=-1), "x": Decimal("NaN")},
    {"at": dt.datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin"))},
    {"l": [1, (2, {"x": [dt.date(2026, 1, 2)]})], "e": {}, "t": ()},
    {"deep": nested(NESTING_MAX)},
    {"page": "x" * (SEGMENT_BYTES_MAX - 100)},
]


@pytest.mark.parametrize(("segment", "why"), REFUSED)
def test_it_is_found_wherever_in_a_batch_it_is(segment: Any, why: str) -> None:
    batch = [{"n": n} for n in range(9)]
    batch.insert(5, segment)
    [(index, error)] = refused(batch)
    assert index == 5
    assert why in str(error)


@pytest.mark.parametrize("segment", TRAVELS)
def test_what_may_travel_is_not_refused(segment: Any) -> None:
    assert refusal(segment) is None
    assert refused([{"n": 1}, segment, segment]) == []


def test_large_segments_together_are_no_large_segment() -> None:
    assert refused([{"page": "x" * (SEGMENT_BYTES_MAX // 2)}] * 5) == []


def test_a_cycle_and_nesting_beyond_the_interpreters_own_limit_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep = nested(100_000)
    assert [index for index, _ in refused([{"n": 1}, {"deep": deep}, {"cycle": cycle}])] == [1, 2]
    while type(deep) is list:
        deep = deep.pop()


def test_a_dict_that_once_had_other_keys_is_fine() -> None:
    segment: dict[Any, Any] = {1: 2, "n": 3}
    del segment[1]
    assert refused([segment]) == []


def test_a_parent_of_which_one_leaf_is_refused_has_failed_once_and_has_no_leaves() -> None:
    segments: list[Any] = [{"n": 0}, {"n": {1}}, {"n": {2}}, {"n": 3}]
    kept = refuse(
        Leaves(segments, np.array([0, 2, 2, 3]), np.array([0, 0, 1, 0]), [(1, ValueError("own"))])
    )
    assert kept.segments == [{"n": 0}, {"n": 3}]
    assert kept.parents is not None
    assert kept.parents.tolist() == [0, 3]
    assert [index for index, _ in kept.failures] == [1, 2]
    assert "key 'n' holds a set" in str(kept.failures[1][1])


def test_a_batch_of_which_nothing_is_refused_stays_the_very_same() -> None:
    leaves = Leaves([{"n": 1}])
    assert refuse(leaves) is leaves
