import numpy as np

from onyx.ledger.hop import EdgeShare, hop
from onyx.ledger.lineage import child_ids


def u64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def share(parents=None, child_index=None, edge=0):
    def column(values):
        return None if values is None else np.array(values, dtype=np.intp)

    return EdgeShare(edge, column(parents), column(child_index))


def reported(made, count):
    rows = range(count) if made.reported is None else made.reported.tolist()
    return dict(zip(rows, made.values.tolist(), strict=True))


def test_an_only_child_keeps_its_parents_id_and_is_no_news():
    made = hop(u64(1, 2, 4), [share()], emitted=False)
    assert [ids.tolist() for ids in made.ids] == [[1, 2, 4]]
    assert reported(made, 3) == {}


def test_a_segment_without_children_is_reported_with_its_own_id():
    made = hop(u64(1, 2, 4), [share([1])], emitted=False)
    assert made.ids[0].tolist() == [2]
    assert reported(made, 3) == {0: 1, 2: 4}
    assert reported(hop(u64(1, 2), [], emitted=False), 2) == {0: 1, 1: 2}


def test_only_children_on_different_edges_keep_their_parents_ids():
    made = hop(u64(1, 2, 4), [share([0, 2]), share([1], edge=1)], emitted=False)
    assert [ids.tolist() for ids in made.ids] == [[1, 4], [2]]
    assert reported(made, 3) == {}


def test_several_children_get_ids_of_their_own_and_the_report_has_all_of_them():
    made = hop(u64(1, 2, 4), [share([0, 0, 2], [0, 1, 0])], emitted=False)
    first, second = child_ids(u64(1, 1), 0, np.array([0, 1])).tolist()
    assert made.ids[0].tolist() == [first, second, 4]
    assert reported(made, 3) == {0: 1 ^ first ^ second, 1: 2}


def test_children_on_two_edges_are_two():
    made = hop(u64(1, 2), [share(), share([1], edge=3)], emitted=False)
    second = child_ids(u64(2), 0).tolist()[0], child_ids(u64(2), 3).tolist()[0]
    assert [ids.tolist() for ids in made.ids] == [[1, second[0]], [second[1]]]
    assert reported(made, 2) == {1: 2 ^ second[0] ^ second[1]}


def test_what_goes_back_is_another_segment_each_time():
    back = share([0, 2], edge=5)._replace(back=True)
    made = hop(u64(1, 2, 4), [back, share([1])], emitted=False)
    first, second = child_ids(u64(1, 4), 5).tolist()
    assert [ids.tolist() for ids in made.ids] == [[first, second], [2]]
    assert reported(made, 3) == {0: 1 ^ first, 2: 4 ^ second}


def test_an_input_reports_children_only_and_0_for_what_nobody_wanted():
    assert reported(hop(u64(1, 2, 4), [share()], emitted=True), 3) == {0: 1, 1: 2, 2: 4}
    assert reported(hop(u64(1, 2, 4), [share([0, 2])], emitted=True), 3) == {0: 1, 1: 0, 2: 4}
    assert reported(hop(u64(1, 2), [], emitted=True), 2) == {0: 0, 1: 0}
    made = hop(u64(1, 2), [share([1, 1], [0, 1])], emitted=True)
    both = made.ids[0].tolist()
    assert reported(made, 2) == {0: 0, 1: both[0] ^ both[1]}


def test_the_ids_consumed_are_not_changed():
    ids = u64(1, 2)
    for emitted in (False, True):
        hop(ids, [share(), share(edge=1)], emitted)
    assert ids.tolist() == [1, 2]
