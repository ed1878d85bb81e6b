import numpy as np

from onyx.ledger.hop import ack_values, emitted_values


def u64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def test_one_to_one_is_own_id_xor_childs():
    assert ack_values(u64(1, 2, 4), [(u64(8, 16, 32), None)]).tolist() == [9, 18, 36]


def test_a_segment_without_children_leaves_its_own_id():
    assert ack_values(u64(1, 2, 4), [(u64(8), np.array([1]))]).tolist() == [1, 10, 4]
    assert ack_values(u64(1, 2), [(u64(), np.array([], dtype=np.intp))]).tolist() == [1, 2]


def test_several_children_of_one_parent_are_folded():
    parents = np.array([0, 0, 2, 2, 2])
    assert ack_values(u64(0, 0, 0), [(u64(1, 2, 1, 2, 4), parents)]).tolist() == [3, 0, 7]


def test_every_edge_counts():
    produced = [(u64(8, 16), None), (u64(32), np.array([0])), (u64(64, 128), np.array([1, 1]))]
    assert ack_values(u64(1, 2), produced).tolist() == [41, 210]


def test_an_input_starts_from_nothing_and_what_nobody_wanted_is_zero():
    assert emitted_values(3, [(u64(5, 6), np.array([0, 2]))]).tolist() == [5, 0, 6]


def test_the_ids_consumed_are_not_changed():
    ids = u64(1, 2)
    ack_values(ids, [(u64(8, 16), None)])
    assert ids.tolist() == [1, 2]
