"""How segments are cut into batches shows nowhere: not in states, to the last bit of a float, nor
in what is stored, nor in what is restored from it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.windows.short import shown, task_windows

from onyx.codec.values import decode_records, encode_records
from onyx.keystate.records import Record
from onyx.windows.task_windows import TaskWindows

SHAPES = {
    "fixed": {"range": (10, "elements")},
    "sliding": {"range": (7, "elements"), "slide": (3, "elements")},
    "session": {"timeout_gap": (4, "elements")},
    "global": {},
}
SEGMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 60) | st.floats(0, 60),
            "v": st.floats(-1e9, 1e9),
            "k": st.sampled_from("abc"),
        }
    ),
    max_size=30,
)


def made(shape: str, aggregation: object) -> TaskWindows:
    window = {"type": shape, "aggregation": aggregation, **SHAPES[shape]}
    trigger = {"type": "watermark", "refinement": "accumulating"}
    return task_windows((window, [trigger]), group_by="k", shard_of=ord)


def extents(windows: TaskWindows) -> list[str]:
    return sorted(repr(each) for each in windows.query("w0"))


@pytest.mark.parametrize("aggregation", [("sum", "v"), ("average", "v"), "conj"], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@given(segments=SEGMENTS, cuts=st.sets(st.integers(0, 30)), watermark=st.integers(0, 70))
@settings(max_examples=examples(20), deadline=None)
def test_batches_show_nowhere(shape, aggregation, segments, cuts, watermark):
    whole, cut, restored = (made(shape, aggregation) for _ in range(3))
    whole.add(segments, [each["k"] for each in segments], 0)
    bounds = sorted({0, len(segments), *(each for each in cuts if each < len(segments))})
    records: list[tuple[int, list[Record]]] = []
    for begin, end in pairwise(bounds):
        batch = segments[begin:end]
        cut.add(batch, [each["k"] for each in batch], 0)
        records += cut.take_changes().items()
    fired = sorted(shown(whole.advance(watermark)))
    assert sorted(shown(cut.advance(watermark))) == fired
    records += cut.take_changes().items()
    for shard, each in records:
        restored.restore(shard, decode_records(encode_records(each)))
    assert extents(whole) == extents(cut) == extents(restored)
    for windows in (whole, cut, restored):
        windows.add([{"at": 5, "v": 0.1, "k": "b"}], ["b"], 0)
    fired = sorted(shown(whole.advance(100)))
    assert sorted(shown(cut.advance(100))) == sorted(shown(restored.advance(100))) == fired
