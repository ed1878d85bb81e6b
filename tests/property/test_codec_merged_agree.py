"""Dicts made of two come back from the bytes of both as they were, whatever their keys are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onyx.codec.columns import encode, encode_schema
from onyx.codec.segment_runs import decode_run, merged, merged_batch
from onyx.codec.segments import encode_apart
from onyx.flow.columns.record_batch import Columns

NAMES = st.sampled_from(["a", "b", "r_a", "with space", "class", ""])
VALUES = (
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.lists(st.booleans())
)
DICTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4)
PREFIXES = st.sampled_from(["", "r_", "l "])


@st.composite
def pairs(draw: st.DrawFn) -> Any:
    """Dicts of two sides, mostly with the same keys, and pairs of them."""
    sides = []
    for _ in range(2):
        dicts = draw(DICTS)
        sides.append([dicts[0] | {}] * len(dicts) if draw(st.booleans()) else dicts)
    many = draw(st.integers(0, 6))
    indices = [
        draw(st.lists(st.integers(0, len(s) - 1), min_size=many, max_size=many)) for s in sides
    ]
    return sides, indices


@given(pairs(), st.tuples(PREFIXES, PREFIXES))
def test_merged_dicts_have_the_keys_of_both_and_come_back(
    made: Any, prefixes: tuple[str, str]
) -> None:
    ((left, right), (i, j)), (one, other) = made, prefixes
    found = merged(prefixes, left, i, right, j)
    assert found == [
        {other + key: value for key, value in right[b].items()}
        | {one + key: value for key, value in left[a].items()}
        for a, b in zip(i, j, strict=True)
    ]
    columns = [
        pa.array(encode_apart([side[at] for at in chosen]), pa.binary())
        for side, chosen in ((left, i), (right, j))
    ]
    batch = merged_batch(prefixes, *columns)
    back = decode_run(encode(Columns(batch)), encode_schema(batch.schema))
    assert back == found
