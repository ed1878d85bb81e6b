"""Sums and means of Decimals and large ints have all digits, in whatever order they come."""

from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

from onyx.codec.values import decode_records, encode_records
from onyx.errors import UserError
from onyx.flow.columns.record_batch import from_dicts
from onyx.keystate.coded import Groups
from onyx.keystate.records import SetStates
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.numbers import Average, Max, Sum

LARGE = list(map(Decimal, ["12345678901234567890123456789.5", "0.0000000001", "-1e30", "0.25"]))


def folded(aggregation: Aggregation, values: list[Any], columns: bool) -> Any:
    """The state of one group after a batch."""
    rows = [{"k": each} for each in values]
    segments = from_dicts(rows)[0] if columns else rows
    bucket, extracted = {"g": aggregation.init()}, aggregation.extract(segments)
    if columns:
        aggregation.fold_groups(bucket, Groups.of_rows(["g"] * len(values)), extracted)
    else:
        aggregation.fold(bucket, ["g"] * len(values), extracted)
    return bucket["g"]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("values", list(permutations(LARGE)))
def test_sums_of_decimals_are_exact_in_every_order(values: list[Decimal], columns: bool) -> None:
    exact = sum(map(Fraction, values))
    for aggregation in (Sum("", "k"), Average("", "k")):
        states = [
            folded(aggregation, list(values), columns),
            aggregation.gather(aggregation.extract([{"k": each} for each in values])),
            aggregation.merge(
                folded(aggregation, list(values[:1]), columns),
                folded(aggregation, list(values[1:]), columns),
            ),
        ]
        for state in states:
            found = aggregation.view(state)
            assert Fraction(found["sum"] if isinstance(found, dict) else found) == exact


def test_a_mean_has_as_many_digits_as_the_sum() -> None:
    average = Average("", "k")
    assert average.view((4, Decimal("1e40") + 0))["average"] == Decimal("2.5e39")
    long = Decimal("1234567890123456789012345678901234567890.5")
    assert average.view((2, long))["average"] == Decimal(
        "617283945061728394506172839450617283945.25"
    )
    assert average.view((3, Decimal(1)))["average"] == Decimal("0." + "3" * 28)


@pytest.mark.parametrize("columns", [False, True])
def test_a_sum_of_ints_beyond_64_bits_is_kept_and_shown_with_all_digits(columns: bool) -> None:
    values = [2**63 - 1] * 3
    for aggregation in (Sum("", "k"), Average("", "k")):
        state = folded(aggregation, values, columns)
        (dumped,) = aggregation.dump_all([state])
        assert aggregation.load(dumped) == state
        assert type(aggregation.load(dumped)) is type(state)
        found = aggregation.view(state)
        total = found["sum"] if isinstance(found, dict) else found
        assert (type(total), total) == (Decimal, 3 * (2**63 - 1))
        aggregation.apply(state, -(2**63))


@pytest.mark.parametrize("value", ["NaN", "sNaN", "Infinity", "1e401", "1e-401"])
@pytest.mark.parametrize("make", [Sum, Average, Max])
def test_decimals_that_cannot_be_added_exactly_are_refused(make: Any, value: str) -> None:
    with pytest.raises(UserError, match="cannot compute with the values of key 'k'"):
        make("", "k", 0).extract([{"k": 1}, {"k": Decimal(value)}])


@pytest.mark.parametrize(
    ("segment", "what"),
    [
        ({"k": "abc"}, "which are of type str, as 'abc'"),
        ({"k": None}, "which are of type NoneType, as None"),
        ({"n": 1}, r"give the input a schema with required: \[k\]"),
    ],
)
def test_what_cannot_be_added_is_shown_with_a_way_out(segment: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        Sum("", "k", 0).extract([{"k": 1}, segment])


def test_records_hold_large_sums() -> None:
    record = SetStates("w", 0, ["g"], Sum("", "k").dump_all([2**70]))
    assert decode_records(encode_records([record])) == [record]
