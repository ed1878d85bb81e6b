import json
from pathlib import Path

import numpy as np
import pytest

from onyx.base.runs import Numbers, array_of
from onyx.ledger.lineage import is_final, pack_roots, positions_of, tries_of, unpack
from onyx.ledger.pending import PendingPositions, Range, rotations_until_expiry
from onyx.ledger.retry_delay import RetryDelay

CASES = Path(__file__).parents[2] / "conformance" / "cases" / "acking.json"


def positions(roots: Numbers) -> list[int]:
    return positions_of(array_of(roots)).tolist()


def attempts(roots: Numbers) -> list[int]:
    return unpack(array_of(roots)).attempts.tolist()


def test_positions_are_dense_from_the_frontier():
    window = PendingPositions(7, frontier=100)
    first, second = window.emit(3, 0.0), window.emit(2, 0.0)
    assert positions(first) == [100, 101, 102]
    assert positions(second) == [103, 104]
    assert unpack(array_of(second)).partitions.tolist() == [7, 7]
    assert window.in_flight == 5
    assert window.next_position == 105


def test_the_frontier_is_the_lowest_position_that_is_not_complete():
    window = PendingPositions(0)
    roots = window.emit(5, 0.0)
    assert window.complete(roots[1:3]) == 2
    assert (window.frontier, window.in_flight) == (0, 3)
    assert window.complete(roots[:1]) == 1
    assert window.frontier == 3
    assert window.complete(roots[3:]) == 2
    assert (window.frontier, window.in_flight) == (5, 0)


def test_a_completion_counts_once_in_whatever_order_it_comes():
    window = PendingPositions(0)
    roots = window.emit(4, 0.0)
    assert window.complete(roots[[3, 1, 3, 1]]) == 2
    assert window.complete(roots[[1, 3]]) == 0
    assert window.complete(roots) == 2


def test_what_is_of_another_partition_or_was_never_emitted_is_ignored():
    window = PendingPositions(0)
    window.emit(4, 0.0)
    anywhere = np.arange(8, dtype=np.uint64)
    assert window.complete(pack_roots(1, 0, anywhere)) == 0
    assert window.complete(pack_roots(0, 0, anywhere)) == 4


def test_the_ring_goes_round_and_never_overruns():
    window = PendingPositions(0, capacity=8)
    for start in range(0, 60, 6):
        roots = window.emit(6, 0.0)
        assert positions(roots) == list(range(start, start + 6))
        assert window.room == 2
        assert window.complete(roots) == 6
    window.emit(8, 0.0)
    with pytest.raises(AssertionError, match="full"):
        window.emit(1, 0.0)


def test_what_is_not_complete_after_the_pending_timeout_is_due_once():
    window = PendingPositions(0, pending_timeout_s=60, retry_interval_s=1)
    roots = window.emit(4, 0.5)
    window.complete(roots[1:2])
    assert window.expired(59.9) == []
    assert window.expired(60.1) == [Range(0, 4)]
    assert window.expired(200.0) == []
    assert window.in_flight == 3


def test_a_retry_is_a_new_root_and_whichever_attempt_is_complete_first_counts():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    old = window.emit(3, 0.0)
    [(first, end)] = window.expired(2.0)
    new = window.retry(first, end, 2.0)
    assert positions(new) == [0, 1, 2]
    assert attempts(new) == [1, 1, 1]
    both = np.concatenate((array_of(old[1:]), new[1:]))
    assert positions(window.incomplete(both)) == [1, 2]
    assert window.complete(old[1:]) == 2
    assert window.complete(new[1:]) == 0
    assert window.complete(np.array([new[0], old[0]], dtype=np.uint64)) == 1
    assert (window.frontier, window.in_flight) == (3, 0)


def test_what_somebody_works_on_is_not_due_until_nobody_has_for_the_whole_timeout():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    roots = window.emit(4, 0.0)
    for now_s in np.arange(0.5, 30.0, 0.5).tolist():
        window.held(roots[[2, 1, 2]], now_s)
        found = window.expired(now_s)
        assert found == ([Range(0, 4)] if now_s == 2.0 else [])
    assert window.overdue(29.5) == 4
    assert window.expired(31.4) == []
    assert window.expired(32.5) == [Range(1, 3)]


def test_an_older_attempt_that_somebody_works_on_keeps_the_younger_from_being_due():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    old = window.emit(2, 0.0)
    window.expired(2.0)
    window.retry(0, 2, 2.0)
    window.held(old[:1], 3.5)
    assert window.expired(4.0) == [Range(1, 2)]
    assert window.overdue(4.0) == 2
    assert window.complete(old[:1]) == 1
    assert window.overdue(4.0) == 1


def test_what_is_held_is_of_this_partition_and_not_of_the_next_that_has_the_slot():
    window = PendingPositions(0, capacity=8, pending_timeout_s=2, retry_interval_s=1)
    roots = window.emit(8, 0.0)
    window.held(pack_roots(1, 0, np.arange(8, dtype=np.uint64)), 1.0)
    window.held(np.arange(8, 20, dtype=np.uint64), 1.0)
    assert window.expired(2.0) == [Range(0, 8)]
    window.held(roots, 2.5)
    window.complete(roots)
    later = window.emit(8, 2.6)
    window.held(roots, 9.0)
    assert window.expired(5.0) == [Range(8, 16)]
    assert window.in_flight == len(later)


def test_what_completes_before_it_is_read_again_is_not_sent_again():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    old = window.emit(4, 0.0)
    assert window.expired(2.0) == [Range(0, 4)]
    assert window.complete(old[1:3]) == 2
    assert positions(window.retry(0, 4, 2.0)) == [0, 3]


def test_a_retried_segment_expires_again():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    window.emit(1, 0.0)
    for attempt in range(1, 300):
        now_s = 2.0 * attempt
        [(first, end)] = window.expired(now_s)
        assert attempts(window.retry(first, end, now_s)) == [attempt % 128]
    assert window.frontier == 0


def test_a_flow_condition_can_ask_for_a_retry_but_only_of_the_current_attempt():
    window = PendingPositions(0)
    old = window.emit(5, 0.0)
    window.retry_roots(old[[3, 1, 3]], 9, 0.0)
    window.retry_roots(old[[3]], 9, 0.0)
    assert window.rested(10.0) == [Range(1, 4)]
    new = window.retry(1, 4, 10.0)
    assert positions(new) == [1, 3]
    window.retry_roots(old[[1]], 9, 10.0)
    assert window.rested(99.0) == []
    window.retry_roots(new[:1], 9, 10.0)
    assert window.rested(99.0) == [Range(1, 2)]


def test_each_retry_rests_twice_as_long_up_to_a_limit():
    window = PendingPositions(0, retry_delay=RetryDelay(first_s=1.0, max_s=5.0))
    roots = window.emit(1, 0.0)
    rests = []
    for _ in range(5):
        window.retry_roots(roots, 100, 0.0)
        rests.append(window.rested_s)
        assert window.rested(rests[-1] - 0.01) == []
        assert window.retry(0, 1, 0.0).tolist() == [], "it rests"
        assert window.rested(rests[-1]) == [Range(0, 1)]
        roots = window.retry(0, 1, 0.0)
    assert rests == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_last_retry_that_a_condition_may_ask_for_is_marked_and_stays_so():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    roots = window.emit(2, 0.0)
    seen = []
    for _ in range(3):
        window.retry_roots(roots[:1], 2, 0.0)
        window.rested(99.0)
        roots = window.retry(0, 1, 0.0)
        seen.append((tries_of(int(roots[0])), [*map(is_final, roots.tolist())]))
    assert seen == [(2, [False]), (3, [True]), (4, [True])]
    window.replay_all()
    both = window.retry(0, 2, 0.0)
    assert [*map(is_final, both.tolist())] == [True, False]
    assert window.complete(both) == 2


def test_time_outs_and_re_allocations_are_no_retries():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    window.emit(1, 0.0)
    for n in range(5):
        window.expired(4.0 * n + 4)
        roots = window.retry(0, 1, 4.0 * n + 4)
    window.retry_roots(roots, 2, 30.0)
    assert window.rested_s == 30.0 + RetryDelay().first_s
    window.rested(99.0)
    assert [*map(is_final, window.retry(0, 1, 99.0).tolist())] == [False]


def test_what_rests_does_not_time_out_and_a_re_allocation_wakes_it():
    window = PendingPositions(0, pending_timeout_s=2, retry_interval_s=1)
    window.retry_roots(window.emit(1, 0.0), 9, 0.0)
    assert window.expired(50.0) == []
    assert window.in_flight == 1
    assert window.replay_all() == [Range(0, 1)]
    assert window.rested(99.0) == []


def test_forced_retries_keep_their_positions_when_the_ring_has_wrapped():
    window = PendingPositions(0, capacity=8)
    window.complete(window.emit(6, 0.0))
    roots = window.emit(8, 0.0)
    window.retry_roots(roots[[7, 0]], 9, 0.0)
    window.rested(99.0)
    assert positions(window.retry(0, 100, 0.0)) == [6, 13]


def test_after_a_re_allocation_everything_not_complete_is_replayed_at_once():
    window = PendingPositions(0)
    roots = window.emit(6, 0.0)
    window.complete(roots[[0, 2]])
    assert window.replay_all() == [Range(1, 6)]
    assert window.replay_all() == [Range(1, 6)]
    new = window.retry(1, 6, 0.0)
    assert positions(new) == [1, 3, 4, 5]
    assert window.due() == []
    assert window.complete(new) == 4


def test_a_range_can_be_replayed_piece_by_piece():
    window = PendingPositions(0)
    window.emit(10, 0.0)
    window.replay_all()
    assert positions(window.retry(0, 4, 0.0)) == [0, 1, 2, 3]
    assert window.due() == [Range(4, 10)]


def test_due_positions_far_apart_are_separate_ranges():
    window = PendingPositions(0)
    roots = window.emit(10_000, 0.0)
    window.retry_roots(roots[[10, 20, 9_000]], 9, 0.0)
    assert window.rested(99.0) == [Range(10, 21), Range(9_000, 9_001)]


def rotating_bucket_cases():
    return json.loads(CASES.read_text())["rotating_bucket_cases"]


@pytest.mark.parametrize(
    "case",
    [case for case in rotating_bucket_cases() if case["fn"] == "create"],
    ids=lambda case: case["id"],
)
def test_the_number_of_rotations_is_that_of_the_originals_buckets(case):
    lifetime_s, interval_s = case["bucket_lifetime"] / 1000, case["expire_interval"] / 1000
    assert rotations_until_expiry(lifetime_s, interval_s) == case["n_buckets"]


def test_segments_expire_at_the_rotation_at_which_their_bucket_falls_out():
    """The original's example: three buckets; m1 m2, expire, m3, expire, expire."""
    window = PendingPositions(0, pending_timeout_s=3, retry_interval_s=1)
    window.emit(2, 0.5)
    assert window.expired(1.0) == []
    window.emit(1, 1.5)
    assert window.expired(2.0) == []
    assert window.expired(3.0) == [Range(0, 2)]
    assert window.expired(4.0) == [Range(2, 3)]


def test_a_late_ack_from_below_the_frontier_does_not_touch_what_now_has_its_slot():
    window = PendingPositions(0, capacity=8)
    old = window.emit(8, 0.0)
    window.complete(old)
    window.emit(8, 0.0)
    assert window.complete(old) == 0
    assert window.complete(old[[5, 2]]) == 0
    assert window.in_flight == 8


def test_a_slot_used_again_starts_with_the_first_attempt():
    window = PendingPositions(0, capacity=8)
    window.emit(8, 0.0)
    window.replay_all()
    window.complete(window.retry(0, 8, 0.0))
    fresh = window.emit(8, 0.0)
    assert attempts(fresh) == [0] * 8
    assert window.complete(fresh) == 8


def test_a_short_interval_on_a_machine_that_has_been_up_for_a_year_is_no_problem():
    year_s = 365 * 86_400.0
    window = PendingPositions(0, pending_timeout_s=0.002, retry_interval_s=0.001)
    window.emit(1, year_s)
    assert window.expired(year_s) == []
    assert window.expired(year_s + 0.01) == [Range(0, 1)]
