"""Any tree of segments, acked in any order and any folding, is complete exactly at its last ack."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onyx.base.runs import joined
from onyx.ledger.acker import Acker, split_by_acker
from onyx.ledger.hop import EdgeShare, hop
from onyx.ledger.lineage import RANGE_POSITIONS, fold, pack_roots, root_ids

shapes = st.recursive(st.just([]), lambda children: st.lists(children, max_size=3), max_leaves=12)
"""A segment as the list of its children."""


def reports(partition, attempt, positions, trees):
    """What the peers report, in the order of the flow: one (roots, values) for each hop of each
    tree that is news, as a peer with a batch of one would."""
    column = pack_roots(partition, attempt, positions)
    ids = root_ids(partition, positions)
    result = []
    for place, tree in enumerate(trees):
        root, own = column[place : place + 1], ids[place : place + 1]
        emitted = hop(own, [EdgeShare(0, None, None)], emitted=True)
        result.append((root, emitted.values))
        visit(root, emitted.ids[0], tree, result)
    return result


def visit(root, own, children, result):
    count = len(children)
    share = EdgeShare(1, np.zeros(count, dtype=np.intp), np.arange(count))
    made = hop(own, [share] if count else [], emitted=False)
    if len(made.values):
        result.append((root, made.values))
    for place, child in enumerate(children):
        visit(root, made.ids[0][place : place + 1], child, result)


def concatenate(parts):
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


@given(st.lists(shapes, min_size=1, max_size=4), st.data())
def test_a_tree_is_complete_exactly_when_its_last_report_has_come(trees, data):
    positions = np.array(
        data.draw(
            st.lists(
                st.integers(0, 2 * RANGE_POSITIONS),
                unique=True,
                min_size=len(trees),
                max_size=len(trees),
            )
        ),
        dtype=np.uint64,
    )
    everything = data.draw(st.permutations(reports(1, 0, positions, trees)))
    left = {int(root): 0 for root in pack_roots(1, 0, positions)}
    for root, _ in everything:
        left[int(root[0])] += 1
    acker = Acker(ranges_max=data.draw(st.integers(1, 4)))
    completed: list[int] = []
    while everything:
        size = data.draw(st.integers(1, len(everything)))
        part, everything = everything[:size], everything[size:]
        for root, _ in part:
            left[int(root[0])] -= 1
        completed += joined(acker.absorb(part)).tolist()
        assert sorted(completed) == sorted(root for root, open_ in left.items() if open_ == 0)
    assert acker.pending_count() == 0
    assert acker.range_count() == 0


@given(st.lists(shapes, min_size=1, max_size=4), st.integers(1, 255))
def test_a_replay_gives_the_same_ids_under_new_roots(trees, attempt):
    positions = np.arange(len(trees), dtype=np.uint64)
    first = concatenate(reports(2, 0, positions, trees))
    again = concatenate(reports(2, attempt, positions, trees))
    assert first[1].tolist() == again[1].tolist()
    assert not set(first[0].tolist()) & set(again[0].tolist())


@given(st.lists(shapes, min_size=1, max_size=3), st.integers(1, 255), st.data())
def test_late_acks_of_an_old_attempt_do_not_complete_the_new_one(trees, attempt, data):
    positions = np.arange(len(trees), dtype=np.uint64)
    old, new = reports(0, 0, positions, trees), reports(0, attempt, positions, trees)
    lost = data.draw(st.integers(0, len(new) - 1))
    acker = Acker()
    done = joined(acker.absorb(old + new[:lost] + new[lost + 1 :])).tolist()
    assert int(new[lost][0][0]) not in done
    assert joined(acker.absorb([new[lost]])).tolist() == new[lost][0].tolist()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=30))
def test_folding_is_xor_by_root(pairs):
    model: dict[int, int] = {}
    for root, value in pairs:
        model[root] = model.get(root, 0) ^ value
    roots = np.array([root for root, _ in pairs], dtype=np.uint64)
    values = np.array([value for _, value in pairs], dtype=np.uint64)
    got = fold(roots, values)
    assert dict(zip(got[0].tolist(), got[1].tolist(), strict=True)) == model
    assert got[0].tolist() == sorted(model)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3 * RANGE_POSITIONS), st.integers(0, 3)), max_size=20),
        max_size=8,
    ),
    st.integers(1, 4),
)
def test_ackers_together_answer_like_a_dict(batches, n_ackers):
    ackers = [Acker() for _ in range(n_ackers)]
    model: dict[int, int] = {}
    for batch in batches:
        roots = pack_roots(1, 0, np.array([position for position, _ in batch], dtype=np.uint64))
        values = np.array([value for _, value in batch], dtype=np.uint64)
        for root, value in zip(*(column.tolist() for column in (roots, values)), strict=True):
            model[root] = model.get(root, 0) ^ value
        touched = set(roots.tolist())
        done: list[int] = []
        for acker, part, folded in split_by_acker(*fold(roots, values), n_ackers):
            done += joined(ackers[acker].absorb([(part, folded)])).tolist()
        assert sorted(done) == sorted(root for root in touched if model[root] == 0)
        open_ = sum(1 for value in model.values() if value)
        assert sum(acker.pending_count() for acker in ackers) == open_
