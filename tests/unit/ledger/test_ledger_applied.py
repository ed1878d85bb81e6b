"""Applied ids: repeats are known, what is new never is, and what is forgotten costs nothing."""

from __future__ import annotations

import numpy as np

from onyx.ledger.applied import Applied
from onyx.ledger.lineage import PARTITIONS_MAX, POSITIONS_MAX, U64, pack_roots


def roots(partition: int, *positions: int, attempt: int = 0) -> U64:
    return pack_roots(partition, attempt, np.array(positions, dtype=np.uint64))


def ids(*values: int) -> U64:
    return np.array(values, dtype=np.uint64)


def known(applied: Applied, of: U64, with_ids: U64) -> list[bool]:
    found = applied.known(of, with_ids)
    return [False] * len(of) if found is None else found.tolist()


def test_a_retry_finds_what_the_first_attempt_applied() -> None:
    applied = Applied()
    applied.add(roots(3, 10, 11, 12), ids(70, 71, 72))

    again = roots(3, 10, 11, 13, attempt=1)
    assert known(applied, again, ids(70, 71, 73)) == [True, True, False]
    assert known(applied, roots(3, 10, attempt=255), ids(70)) == [True]
    assert known(applied, roots(3, 10, attempt=1), ids(71)) == [False]
    assert known(applied, roots(4, 10, attempt=1), ids(70)) == [False]


def test_an_applied_retry_is_known_to_the_next_one() -> None:
    applied = Applied()
    applied.add(roots(0, 5, attempt=1), ids(9))
    assert known(applied, roots(0, 5, attempt=2), ids(9)) == [True]


def test_a_first_attempt_that_a_retry_has_overtaken_is_known() -> None:
    applied = Applied()
    applied.add(roots(0, 5, attempt=1), ids(9))
    applied.add(roots(0, 6), ids(11))
    assert known(applied, roots(0, 4, 5, 6), ids(8, 9, 11)) == [False, True, False]


def test_both_attempts_in_one_batch_are_one() -> None:
    both = np.concatenate([roots(0, 4, 5, 6), roots(0, 5, 5, attempt=1)])
    assert known(Applied(), both, ids(8, 9, 11, 9, 10)) == [False, False, False, True, False]


def test_first_attempts_are_looked_up_only_below_what_an_older_version_applied() -> None:
    applied = Applied(roots(0, 5, 7), ids(50, 70))
    applied.add(roots(0, 8), ids(80))

    assert known(applied, roots(0, 5, 6, 7, 8, 9), ids(50, 60, 70, 80, 90)) == [
        True, False, True, False, False,
    ]  # fmt: skip
    applied.rewired()
    assert known(applied, roots(0, 5, 8, 9), ids(50, 80, 90)) == [True, True, False]
    assert known(applied, roots(1, 5), ids(50)) == [False]


def test_trees_whose_ids_are_the_same_or_end_alike_are_told_apart() -> None:
    applied = Applied()
    applied.add(roots(0, 1, 1, 1, 2), ids(0x100, 0x200, 0x300, 0x100))

    again = roots(0, 1, 1, 1, 2, 2, attempt=1)
    assert known(applied, again, ids(0x300, 0x100, 0x400, 0x100, 0x200)) == [
        True, True, False, True, False,
    ]  # fmt: skip


def test_the_ends_of_the_ranges_are_told_apart() -> None:
    last = PARTITIONS_MAX - 1, POSITIONS_MAX - 1
    applied = Applied(roots(last[0], 0, last[1]), ids(2**64 - 1, 0))

    assert known(applied, roots(last[0], 0, last[1]), ids(2**64 - 1, 0)) == [True, True]
    assert known(applied, roots(0, 0, last[1]), ids(2**64 - 1, 0)) == [False, False]


def test_what_the_frontier_has_passed_is_forgotten_wherever_it_is_kept() -> None:
    applied = Applied(roots(0, 1, 2, 3), ids(10, 20, 30))
    applied.known(roots(0, 1, attempt=1), ids(10))  # sorts them
    applied.add(roots(0, 2, 4, attempt=1), ids(21, 40))
    applied.add(roots(1, 1), ids(11))

    applied.forget({0: 3, 7: 100})

    left = sorted(zip(*(column.tolist() for column in applied.columns()), strict=True))
    assert left == [(3, 30), (4, 40), (int(roots(1, 1)[0]), 11)]
    applied.forget({0: 5, 1: 2})
    assert [len(column) for column in applied.columns()] == [0, 0]


def test_nothing_is_looked_up_any_more_when_the_frontier_has_passed_the_older_version() -> None:
    applied = Applied(roots(0, 5), ids(50))
    applied.forget({0: 6})
    assert applied._limits is None
    assert known(applied, roots(0, 6), ids(60)) == [False]


def test_columns_have_no_attempts() -> None:
    applied = Applied()
    applied.add(roots(2, 7, attempt=3), ids(70))
    assert [column.tolist() for column in applied.columns()] == [roots(2, 7).tolist(), [70]]
    assert [len(column) for column in Applied().columns()] == [0, 0]


def test_many_batches_make_few_runs() -> None:
    applied = Applied()
    for batch in range(300):
        some = np.arange(20 * batch, 20 * batch + 20, dtype=np.uint64)
        again = pack_roots(0, 1, some)
        assert applied.known(again, some) is None
        applied.add(again, some)
    assert all(known(applied, pack_roots(0, 2, np.arange(6000, dtype=np.uint64)),
                     np.arange(6000, dtype=np.uint64)))  # fmt: skip
    assert len(applied._runs) < 12
