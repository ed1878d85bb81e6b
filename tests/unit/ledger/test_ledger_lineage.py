import numpy as np
import pytest

from onyx.ledger.lineage import (
    PARTITION_SHIFT,
    POSITIONS_MAX,
    child_ids,
    cut,
    fold,
    pack_roots,
    positions_of,
    range_key,
    renumbered,
    root_ids,
    source_number,
    unpack,
)


def u64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def test_a_root_unpacks_to_what_it_was_packed_of():
    positions = u64(0, 1, 4095, 4096, POSITIONS_MAX - 1)
    roots = pack_roots(65_535, 255, positions)
    partitions, attempts, back = unpack(roots)
    assert partitions.tolist() == [65_535] * 5
    assert attempts.tolist() == [255] * 5
    assert back.tolist() == positions.tolist() == positions_of(roots).tolist()


def test_each_position_may_have_its_own_attempt_modulo_256():
    roots = pack_roots(1, u64(0, 7, 256), u64(5, 6, 7))
    assert unpack(roots).attempts.tolist() == [0, 7, 0]


def test_a_partition_that_does_not_fit_is_refused():
    with pytest.raises(AssertionError):
        pack_roots(65_536, 0, u64(0))


def test_ranges_are_4096_positions_of_one_partition_and_attempt():
    keys = range_key(pack_roots(2, 0, u64(0, 4095, 4096)))
    assert keys[0] == keys[1] != keys[2]
    assert keys[0] != range_key(pack_roots(3, 0, u64(0)))[0]
    assert keys[0] != range_key(pack_roots(2, 1, u64(0)))[0]


def test_ids_of_input_segments_are_all_different_and_never_zero():
    positions = np.arange(50_000, dtype=np.uint64)
    sources = [source_number(task, name) for task in ("a", "b") for name in ("0", "1")]
    ids = np.concatenate([root_ids(source, positions) for source in [*sources, 2**63 - 1]])
    assert len(np.unique(ids)) == 250_000
    assert (ids != 0).all()


def test_ids_of_input_segments_are_made_of_names_and_positions():
    """Frozen: a replay after an upgrade must give the same ids."""
    source = source_number("read", "0")
    assert source == 7197049121424620397
    positions = [0, 1_000_000, POSITIONS_MAX - 1]
    expected = [source + position + 1 for position in positions]
    assert root_ids(source, u64(*positions)).tolist() == expected


def test_roots_get_the_partitions_of_another_job_and_those_it_lacks_go():
    old = np.concatenate([pack_roots(n, 0, u64(5, 6)) for n in (0, 1, 65_535)])
    roots, ids = renumbered(old, u64(1, 2, 3, 4, 5, 6), {0: 7, 65_535: 0})
    wanted = np.concatenate([pack_roots(7, 0, u64(5, 6)), pack_roots(0, 0, u64(5, 6))])
    assert roots.tolist() == wanted.tolist()
    assert ids.tolist() == [1, 2, 5, 6]


def test_ids_of_children_are_frozen_too():
    ids = child_ids(u64(1, 1, 1), 2, np.array([0, 1, 2]))
    assert ids.tolist() == [12867756255771543046, 1561243209987952111, 9409444992542877974]


def test_children_differ_by_parent_edge_and_index():
    parents = root_ids(0, np.arange(1000, dtype=np.uint64))
    ids = [child_ids(parents, edge) for edge in range(5)]
    ids += [child_ids(parents, 0, np.full(1000, index, dtype=np.intp)) for index in range(1, 5)]
    assert len(np.unique(np.concatenate(ids))) == 9_000


def test_the_first_child_is_the_same_whether_it_has_siblings_or_not():
    parents = root_ids(0, u64(1, 2))
    assert child_ids(parents, 1).tolist() == child_ids(parents, 1, np.array([0, 0])).tolist()


def test_computing_children_leaves_the_parents_as_they_are():
    parents = root_ids(0, u64(1, 2))
    before = parents.tolist()
    child_ids(parents, 0, np.array([0, 1]))
    assert parents.tolist() == before


@pytest.mark.parametrize(
    ("roots", "values", "folded"),
    [
        ([], [], ([], [])),
        ([9], [5], ([9], [5])),
        ([1, 2, 3], [5, 6, 7], ([1, 2, 3], [5, 6, 7])),
        ([1, 1, 3, 3, 3], [5, 6, 1, 2, 4], ([1, 3], [3, 7])),
        ([3, 1, 3, 2], [1, 2, 4, 8], ([1, 2, 3], [2, 8, 5])),
        ([4, 4], [5, 5], ([4], [0])),
    ],
)
def test_fold_gives_one_xor_for_each_root_in_order(roots, values, folded):
    got = fold(u64(*roots), u64(*values))
    assert (got[0].tolist(), got[1].tolist()) == folded


def test_increasing_roots_are_cut_where_the_key_changes():
    column = np.concatenate([pack_roots(number, 0, u64(0, 5)) for number in (1, 2, 4)])
    found = [(key, column[part].tolist()) for key, part in cut(column, PARTITION_SHIFT)]
    assert found == [(number, pack_roots(number, 0, u64(0, 5)).tolist()) for number in (1, 2, 4)]
    assert cut(column[:2], PARTITION_SHIFT) == [(1, slice(0, 2))]
    assert cut(column[:0], PARTITION_SHIFT) == []
