"""How long ago segments were read, told by the batches in which they were."""

import numpy as np
import pytest

from onyx.base.runs import Run
from onyx.ledger.lineage import pack_roots
from onyx.ledger.read_times import DROPPED_AT_ONCE, ReadTimes


def three() -> ReadTimes:
    """Positions 0 to 9 were read at 1 s, 10 to 19 at 2 s, 20 to 29 at 3 s."""
    times = ReadTimes()
    for batch in range(3):
        times.read(10 * (batch + 1), 1.0 + batch, 0)
    return times


def roots(*positions):
    return pack_roots(7, np.zeros(len(positions), np.uint64), np.array(positions, np.uint64))


@pytest.mark.parametrize(
    ("positions", "found"),
    [
        ([0, 9], [(1.0, 2)]),
        ([9, 10], [(1.0, 1), (2.0, 1)]),
        ([3, 25, 29], [(1.0, 1), (3.0, 2)]),
        ([30], []),
        ([], []),
        (list(range(30)), [(1.0, 10), (2.0, 10), (3.0, 10)]),
    ],
)
def test_segments_are_counted_by_the_moment_at_which_they_were_read(positions, found):
    assert list(three().of(roots(*positions))) == found
    if positions == list(range(30)):
        assert list(three().of(Run(int(roots(0)[0]), 30))) == found


def test_a_run_within_batches_is_counted_by_them():
    run = Run(int(roots(5)[0]), 10)
    assert list(three().of(run)) == [(1.0, 5), (2.0, 5)]


def test_the_oldest_is_the_one_at_the_frontier():
    times = three()
    assert [times.oldest_s(at, 5.0) for at in (0, 9, 10, 29, 30)] == [4.0, 4.0, 3.0, 2.0, None]


def test_what_is_read_at_once_is_one_batch_and_what_is_complete_is_forgotten():
    times = ReadTimes()
    for position in range(1, 1001):
        times.read(position, position * 1e-5, 0)
    assert len(times._ends) == 10
    times = ReadTimes()
    for position in range(1, 1001):
        times.read(position, float(position), position - 1)
    assert len(times._ends) <= DROPPED_AT_ONCE + 1
    assert list(times.of(roots(999))) == [(1000.0, 1)]
