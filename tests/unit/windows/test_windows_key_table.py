"""A table of keys gives each group a row of its own, whatever type and hash its key has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.groups.keys import column_hashes
from onyx.keystate.coded import Groups
from onyx.keystate.groups import hashable_key
from onyx.windows.arrays import key_table
from onyx.windows.arrays.key_table import AnyKeys, HashedKeys, table_for, unpacked

INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
TEXT = st.text(alphabet="ab\0é漢", max_size=70)
KEYS = {"ints": INTS, "text": TEXT, "any": st.none() | st.floats(allow_nan=False) | TEXT | INTS}


def groups_of(keys):
    return Groups.each(list(dict.fromkeys(map(hashable_key, keys))))


@pytest.mark.parametrize("hashes", ["as they are", "of four values"])
@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_a_group_keeps_its_row(kind, hashes, data):
    few = hashes == "of four values"
    weak = (lambda column: column_hashes(column) << np.uint64(62)) if few else column_hashes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_table, "column_hashes", weak)
        batches = data.draw(st.lists(st.lists(KEYS[kind], min_size=1, max_size=40), min_size=1))
        table = table_for(groups_of(batches[0]))
        expected = {}
        for keys in batches:
            groups = groups_of(keys)
            first = len(table)
            if expected.keys().isdisjoint(groups.keys) and data.draw(st.booleans()):
                rows = np.arange(first, first + groups.many) if table.append(groups) else None
            else:
                rows = table.add(groups)
            if rows is None:  # a key of another type
                assert len(table) == first
                continue
            for key in groups.keys:
                expected.setdefault(key, len(expected))
            assert rows.tolist() == [expected[key] for key in groups.keys]
        known = np.arange(len(table))
        assert table.keys(known) == list(expected)
        assert [table.row(key) for key in expected] == known.tolist()
        asked = groups_of(data.draw(st.lists(KEYS[kind])))
        assert table.find(asked).tolist() == [expected.get(key, -1) for key in asked.keys]
        half = len(expected) // 2
        for part in table.packed(known, [slice(0, half), slice(half, len(expected))]):
            again = unpacked(table.kind, part)
            assert again.keys == list(expected)[:half] or again.keys == list(expected)[half:]


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ([1, 2**63 - 1], HashedKeys),
        ([2**63], AnyKeys),
        (["a", "\ud800"], AnyKeys),
        ([None], AnyKeys),
        ([1, "1"], AnyKeys),
        (["a"], HashedKeys),
    ],
)
def test_arrays_hold_ints_of_64_bits_and_text(keys, kind):
    assert type(table_for(Groups.each(keys))) is kind


@pytest.mark.parametrize("column", [pa.array([2**63], pa.uint64()), pa.array(["a"])])
def test_a_key_of_another_type_changes_nothing(column):
    table = table_for(Groups.each([1, 2]))
    table.add(Groups.each([1, 2]))
    assert table.add(Groups(np.arange(1), None, column)) is None
    assert len(table) == 2
