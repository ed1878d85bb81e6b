"""The checker of requests under faults finds what contradicts a client, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.jobs.histories import Operation, Outcome, violations

OK = Operation("r1", [1, 2], Outcome.OK, {"sum": 3}, {"sum": 3})
FAIL = Operation("r2", [3], Outcome.FAIL)
UNKNOWN = Operation("r3", [4, 5], Outcome.UNKNOWN)
PART_OF_A_SUM = Operation("r1", [1, 2], Outcome.OK, {"sum": 1}, {"sum": 3})
HISTORY = [OK, FAIL, UNKNOWN]


@pytest.mark.parametrize("there", [[1, 2], [1, 2, 4], [2, 1, 5, 4]])
def test_what_clients_learned_may_be_so(there: list[int]) -> None:
    assert violations(HISTORY, Counter(there)) == []


@pytest.mark.parametrize(
    ("history", "there", "found"),
    [
        (HISTORY, [1], "r1 ended as ok, and segment 2 is there 0 times"),
        (HISTORY, [1, 2, 2], "r1 ended as ok, and segment 2 is there 2 times"),
        (HISTORY, [1, 2, 3], "r2 ended as fail, and segment 3 is there 1 times"),
        (HISTORY, [1, 2, 5, 5], "r3 ended as unknown, and segment 5 is there 2 times"),
        (HISTORY, [1, 2, 9], "segment 9 is there, and was never sent"),
        ([PART_OF_A_SUM], [1, 2], "r1 gave back {'sum': 1}, not {'sum': 3}"),
    ],
)
def test_what_cannot_be_so_is_named(history: list[Operation], there: list[int], found: str) -> None:
    assert violations(history, Counter(there)) == [found]
