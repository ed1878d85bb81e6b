import contextlib
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserError
from onyx.flow.groups import grouping as module
from onyx.flow.groups.getters import ByKey, key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.keys import key_bytes, key_hash
from onyx.flow.segment import Refusal
from onyx.keystate.groups import hashable_key
from onyx.model.job import CatalogEntry

DISTINCT = [
    None, True, False, 0, 1, -1, 2**63, 0.5, 1e300, float("inf"), -1e-300, Decimal("0.1"), 0.1, 0.3,
    0.1 + 0.2, time(1), timedelta(1), "", "1", "True", "n", b"1", [], [1], ["1"], [[1]], [1, 1],
    [None], {}, {"a": 1}, {"a": "1"}, {"b": 1}, {"a": [1]}, "é", "\ud800", date(2013, 1, 1),
    datetime(2013, 1, 1, tzinfo=UTC),
    "2013-01-01", ["ab", "c"], ["a", "bc"], ["a", ["b"]], [["a"], "b"],
]  # fmt: skip


def test_different_keys_have_different_bytes_and_hashes():
    assert len({key_bytes(key) for key in DISTINCT}) == len(DISTINCT)
    assert len({key_hash(key) for key in DISTINCT}) == len(DISTINCT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, "a"], (1, "a")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (
            datetime(2013, 1, 1, 12, tzinfo=UTC),
            datetime(2013, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        ),
        (1, 1.0),
        (1.0, Decimal("1.00")),
        (0.0, -0.0),
        (0, -0.0),
        (0.5, Decimal("0.5")),
        (float("-inf"), Decimal("-Infinity")),
        (2.0**80, Decimal(2**80)),
        (["a", 2.0], ("a", 2)),
    ],
)
def test_keys_that_are_one_group(one, other):
    assert key_bytes(one) == key_bytes(other)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (float("nan"), "NaN"),
        (["a", Decimal("NaN")], "NaN"),
        ({"a": {"b": float("nan")}}, "NaN"),
        (2**64, "beyond 64 bits"),
        (Decimal("1e999999999"), r"beyond 10\*\*400"),
        (datetime(2013, 1, 1), "without a time zone"),  # noqa: DTZ001
        (time(1, tzinfo=UTC), "of type time"),
    ],
)
def test_what_cannot_be_told_from_others_is_refused_wherever_it_is(key, why):
    with pytest.raises(UserError, match=why):
        key_hash(key)


@given(st.floats(allow_nan=False) | st.integers(-(2**63), 2**64 - 1) | st.decimals(-1000, 1000))
def test_numbers_are_one_group_exactly_when_python_calls_them_equal(number):
    others = [number + 1, -number, Decimal(number)]
    others += [float(number)] if abs(number) < 1e308 else []
    for other in others:
        with contextlib.suppress(UserError):  # an int beyond 64 bits
            assert (key_bytes(number) == key_bytes(other)) is (number == other)
            assert (hashable_key(number) == hashable_key(other)) is (number == other)


def test_other_types_are_refused_by_name():
    with pytest.raises(UserError, match="frozenset"):
        key_hash(frozenset())


def test_a_key_nested_too_deep_is_refused():
    key: list = []
    key.append(key)
    with pytest.raises(UserError, match="nested deeper"):
        key_hash(key)


def test_hashes_are_the_same_in_every_process():
    program = (
        "from onyx.flow.groups.keys import key_hash;"
        "print(key_hash('JFK'), key_hash(['JFK', 2013]), key_hash({'b': 1, 'a': None}))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = f"{key_hash('JFK')} {key_hash(['JFK', 2013])} {key_hash({'b': 1, 'a': None})}\n"
    assert answers == {here}


def test_a_batch_of_mixed_types_hashes_like_each_key_alone():
    keys = ["a", 1, True, None, "1", ["a"], 1, "a", False, 0]
    group = grouping()
    for batch in (keys, ["a", "b", "a"], [1, 2, 1], [True, False], [0, 1]):
        hashes = group.hashes_of([{"k": key} for key in batch])
        assert hashes.tolist() == [key_hash(key) for key in batch]


def test_a_bool_does_not_find_what_an_int_has_left():
    group = grouping()
    [one] = group.hashes_of([{"k": 1}]).tolist()
    [true] = group.hashes_of([{"k": True}]).tolist()
    assert one != true


def test_keys_are_hashed_for_nobody_who_only_asks_whether_they_are_groups():
    group = grouping()
    keys = [1, 2**64 - 1, -(2**63), True, "a", b"b", None]
    assert group.check([{"k": key} for key in keys]).raws == keys
    assert not any(group._memos.values())


@pytest.mark.parametrize("key", [2**64, -(2**63) - 1, float("nan")])
@pytest.mark.parametrize("others", [[], [1], [True, "a"]])
def test_what_is_no_group_is_refused_without_a_hash_too(key, others):
    with pytest.raises(UserError, match="a group key is"):
        grouping().check([{"k": each} for each in [*others, key]])


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MEMO_KEYS_MAX", 10)
    group = grouping()
    segments = [{"k": str(number)} for number in range(25)]
    assert group.hashes_of(segments).tolist() == [key_hash(str(n)) for n in range(25)]
    assert max(map(len, group._memos.values())) <= 10


def test_groups_spread_over_slots_and_each_stays_on_one():
    group = grouping()
    segments = [{"k": f"carrier-{number % 1000}"} for number in range(2000)]
    slots = group.slots_of(segments, 4).tolist()
    assert slots[:1000] == slots[1000:]
    assert min(slots.count(slot) for slot in range(4)) > 400


def entry(**given):
    return CatalogEntry("count", "function", 1, **given)


def grouping():
    return Grouping(ByKey("k", "count", False), entry(group_by_key="k"))


@pytest.mark.parametrize("keys", ["a", ("b", "a")])
def test_a_segment_without_the_key_is_refused_with_task_and_key(keys):
    grouped = entry(group_by_key=keys)
    group = Grouping(key_getter(grouped, {}.__getitem__), grouped)
    for ask in (group.hashes_of, group.check):
        with pytest.raises(Refusal, match=r"task count: .* no key 'a', which is the groupByKey"):
            ask([{"a": 1, "b": 1}, {"b": 1}])


def test_a_key_that_is_none_is_a_group():
    grouped = entry(group_by_key="a")
    group = Grouping(key_getter(grouped, {}.__getitem__), grouped)
    assert group.hashes_of([{"a": None}]).tolist() == [key_hash(None)]


def test_segments_without_the_key_are_a_group_where_the_job_asks_for_it():
    grouped = {"on_missing_key": "group"}
    by_one = key_getter(entry(group_by_key="a", **grouped), {}.__getitem__)
    by_two = key_getter(entry(group_by_key=("a", "b"), **grouped), {}.__getitem__)
    assert by_one.of_dicts([{"b": 1}]).values() == [None]
    assert by_two.of_dicts([{"b": 1, "c": 2}]).values() == [{"b": 1}]
    assert key_getter(entry(), {}.__getitem__) is None


def test_a_function_may_make_the_key():
    functions = {"m:first": lambda segment: segment["name"][0]}
    getter = key_getter(entry(group_by_fn="m:first"), functions.__getitem__)
    assert getter.of_dicts([{"name": "JFK"}]).values() == ["J"]


def test_a_key_that_is_refused_is_told_with_task_and_key():
    grouped = entry(group_by_key="delay")
    group = Grouping(key_getter(grouped, {}.__getitem__), grouped)
    with pytest.raises(UserError, match=r"^groupByKey delay of task count: a group key is NaN"):
        group.hashes_of([{"delay": float("nan")}])


def test_a_function_that_raises_is_told_with_task_and_name():
    functions = {"m:first": lambda segment: segment["name"][0]}
    grouped = entry(group_by_fn="m:first")
    group = Grouping(key_getter(grouped, functions.__getitem__), grouped)
    with pytest.raises(UserError, match=r"^groupByFn m:first of task count raised KeyE"):
        group.hashes_of([{}])
