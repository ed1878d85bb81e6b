"""`ack_return`: a value for the segment that a function works on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onyx import ack_return
from onyx.codec.returns import size_bytes
from onyx.errors import SegmentError, UserError
from onyx.returning import VALUE_BYTES_MAX, Returned, collecting, one_by_one


def given(count: int, calls: list[tuple[str, Any]]) -> list[Returned]:
    with collecting({"k": "sum"}, count, size_bytes) as found:
        for key, value in calls:
            ack_return(key, value)
    return found


def test_a_function_of_one_segment_gives_back_for_this_one() -> None:
    with collecting({"k": "sum"}, 3, size_bytes) as found:
        for segment in one_by_one([10, 20, 30]):
            if segment != 20:
                ack_return("k", segment)
    assert found == [Returned(0, "k", 10), Returned(2, "k", 30)]


@pytest.mark.parametrize("values", [[1, None, 3], pa.array([1, None, 3])])
def test_a_function_of_a_batch_gives_back_for_each(values: Any) -> None:
    assert given(3, [("k", values)]) == [Returned(0, "k", 1), Returned(2, "k", 3)]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (("other", [1]), "the job names no such key; add other: sum"),
        (("k", [1, 2]), "gives 2 values for 1 segments"),
        (("k", ["x" * VALUE_BYTES_MAX]), "at most 65,536 are possible"),
    ],
)
def test_what_cannot_be_given_back_is_said(call: tuple[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        given(1, [call])


def test_a_value_that_cannot_travel_is_said() -> None:
    with pytest.raises(SegmentError, match="holds an object"):
        given(1, [("k", [object()])])


def test_nothing_can_be_given_back_outside_of_a_function() -> None:
    with pytest.raises(UserError, match=r"in a job with spec\.ackReturns"):
        ack_return("k", 1)
