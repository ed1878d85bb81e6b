import numpy as np
import pytest

from onyx.base.runs import joined
from onyx.ledger.acker import Acker, acker_of, split_by_acker
from onyx.ledger.lineage import RANGE_POSITIONS, fold, pack_roots, range_key


def u64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def roots(*positions: int, partition: int = 0, attempt: int = 0) -> np.ndarray:
    return pack_roots(partition, attempt, u64(*positions))


def absorb(acker, roots, values):
    return joined(acker.absorb([(roots, values)]))


def test_a_tree_is_complete_when_every_value_has_come_twice():
    acker = Acker()
    assert absorb(acker, roots(1, 2, 3), u64(5, 6, 7)).tolist() == []
    assert acker.pending_count() == 3
    assert absorb(acker, roots(1, 3), u64(5, 7)).tolist() == roots(1, 3).tolist()
    assert acker.pending_count() == 1
    assert absorb(acker, roots(2), u64(6)).tolist() == roots(2).tolist()
    assert acker.pending_count() == 0


def test_an_unknown_root_with_zero_is_complete_at_once():
    assert absorb(Acker(), roots(8), u64(0)).tolist() == roots(8).tolist()


def test_zero_for_an_open_root_changes_nothing():
    acker = Acker()
    absorb(acker, roots(8), u64(3))
    assert absorb(acker, roots(8), u64(0)).tolist() == []
    assert acker.pending_count() == 1


def test_roots_that_repeat_in_one_call_count_together_and_complete_once():
    acker = Acker()
    done = absorb(acker, roots(5, 4, 5, 5), u64(1, 9, 2, 3))
    assert done.tolist() == roots(5).tolist()
    assert acker.pending_count() == 1


def test_roots_that_repeat_in_parcels_taken_together_count_together_and_complete_once():
    acker = Acker()
    parcels = [(roots(4, 5), u64(9, 1)), (roots(7), u64(0)), (roots(5), u64(1))]
    assert joined(acker.absorb(parcels)).tolist() == roots(5, 7).tolist()
    assert acker.pending_count() == 1


def test_attempts_and_partitions_are_separate_trees():
    acker = Acker()
    absorb(acker, roots(1), u64(5))
    absorb(acker, roots(1, attempt=1), u64(5))
    absorb(acker, roots(1, partition=1), u64(5))
    assert acker.pending_count() == 3
    assert absorb(acker, roots(1, attempt=1), u64(5)).tolist() == roots(1, attempt=1).tolist()


def test_one_call_may_span_many_ranges():
    positions = np.arange(0, 5 * RANGE_POSITIONS, 100, dtype=np.uint64)
    values = positions + np.uint64(1)
    acker = Acker()
    all_roots = pack_roots(3, 0, positions)
    assert len(absorb(acker, all_roots, values)) == 0
    assert acker.pending_count() == len(positions)
    assert absorb(acker, all_roots[::-1], values[::-1]).tolist() == all_roots.tolist()
    assert acker.range_count() == 0


def test_what_the_caller_gave_is_not_changed():
    values = u64(5, 6)
    acker = Acker()
    absorb(acker, roots(1, 2), values)
    absorb(acker, roots(1, 2), u64(1, 1))
    assert values.tolist() == [5, 6]


def test_a_range_in_which_all_is_complete_takes_no_memory():
    acker = Acker()
    for first in range(0, 100 * RANGE_POSITIONS, RANGE_POSITIONS):
        absorb(acker, roots(first), u64(7))
        absorb(acker, roots(first), u64(7))
    assert acker.range_count() == 0


def test_a_reused_range_remembers_nothing():
    acker = Acker()
    absorb(acker, roots(0, 1), u64(7, 8))
    absorb(acker, roots(0, 1), u64(7, 8))
    assert absorb(acker, roots(RANGE_POSITIONS), u64(9)).tolist() == []
    assert acker.pending_count() == 1


@pytest.mark.parametrize("ranges_max", [1, 10])
def test_what_nothing_touches_for_the_idle_timeout_is_dropped(ranges_max):
    acker = Acker(ranges_max)
    acker.expire(100.0, 60)
    absorb(acker, roots(1), u64(5))
    absorb(acker, roots(RANGE_POSITIONS), u64(5))
    assert acker.expire(150.0, 60) == 0
    absorb(acker, roots(RANGE_POSITIONS), u64(6))
    assert acker.expire(161.0, 60) == 1
    assert acker.pending_count() == 1
    assert acker.expire(211.0, 60) == 1
    assert acker.pending_count() == 0
    assert acker.forgotten().tolist() == [], "replayed long ago"


def test_a_tree_that_is_open_for_a_day_is_known_as_long_as_the_job_says():
    day_s = 86_400.0
    acker = Acker()
    acker.expire(0.0, day_s)
    absorb(acker, roots(1), u64(5))
    assert acker.expire(day_s - 1, day_s) == 0
    assert absorb(acker, roots(1), u64(5)).tolist() == roots(1).tolist()


def test_more_ranges_than_there_is_room_for_are_packed_and_forget_nothing():
    acker = Acker(ranges_max=3)
    many = [number * RANGE_POSITIONS + number for number in range(40)]
    for number in many:
        absorb(acker, roots(number), u64(number + 1))
    assert (acker.range_count(), acker.pending_count()) == (40, 40)
    for number in many:
        assert absorb(acker, roots(number), u64(number + 1)).tolist() == roots(number).tolist()
    assert (acker.range_count(), acker.pending_count()) == (0, 0)
    assert acker.forgotten().tolist() == []


def test_what_there_is_no_room_for_at_all_is_said_to_be_forgotten():
    acker = Acker(ranges_max=1, trees_max=4)
    for number in range(8):
        absorb(acker, roots(number * RANGE_POSITIONS), u64(5))
    assert acker.range_count() == 5
    lost = [number * RANGE_POSITIONS for number in range(3)]
    assert acker.forgotten().tolist() == roots(*lost).tolist()
    assert acker.forgotten().tolist() == []
    assert acker.pending_count() == 5


def test_nothing_reported_completes_nothing():
    assert absorb(Acker(), u64(), u64()).tolist() == []


def test_ranges_spread_evenly_over_ackers_and_a_range_stays_on_one():
    keys = range_key(roots(*range(0, 1000 * RANGE_POSITIONS, RANGE_POSITIONS)))
    chosen = acker_of(keys, 4)
    assert chosen.tolist() == acker_of(keys, 4).tolist()
    counts = np.bincount(chosen, minlength=4)
    assert counts.min() > 200
    same = acker_of(range_key(roots(0, 1, 4095)), 4)
    assert len(set(same.tolist())) == 1


@pytest.mark.parametrize("n_ackers", [1, 2, 5])
def test_splitting_by_acker_loses_nothing(n_ackers):
    positions = np.arange(0, 20 * RANGE_POSITIONS, 1000, dtype=np.uint64)
    column = pack_roots(1, 0, positions)
    parts = split_by_acker(column, positions, n_ackers)
    assert len({acker for acker, _, _ in parts}) == len(parts)
    for acker, part, values in parts:
        assert set(acker_of(range_key(part), n_ackers).tolist()) == {acker}
        assert (part[1:] > part[:-1]).all()
        assert (part & np.uint64((1 << 40) - 1)).tolist() == values.tolist()
    gathered, _ = fold(*(np.concatenate(each) for each in list(zip(*parts, strict=True))[1:]))
    assert gathered.tolist() == column.tolist()


def test_a_batch_within_one_range_goes_to_one_acker_uncut():
    column = roots(1, 2, 4095)
    [(acker, part, _)] = split_by_acker(column, u64(1, 2, 3), 5)
    assert part is column
    assert acker == acker_of(range_key(column), 5)[0]
