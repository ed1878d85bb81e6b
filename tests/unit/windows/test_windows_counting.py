"""Segments that triggers only count: those of groups that do not fire are not looked at."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.windows.short import shown, task_windows

from onyx.flow.columns import record_batch
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.codes import KeyCodes
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import hashable_keys

SHAPES = {
    "fixed": {"type": "fixed", "range": (10, "elements")},
    "sliding": {"type": "sliding", "range": (6, "elements"), "slide": (3, "elements")},
    "session": {"type": "session", "timeout_gap": (4, "elements")},
    "global": {"type": "global"},
}
AGGREGATIONS = [{"aggregation": "count"}, {"aggregation": ("sum", "at")}, {"aggregation": "conj"}]


def every(number, **more):
    threshold = {"threshold": (number, "elements"), "refinement": "accumulating"}
    return {"type": "segment", **threshold, **more}


def made(shape, triggers):
    return task_windows((shape, triggers), group_by="k")


def one_by_one(windows, segments):
    found = []
    for each in segments:
        found += shown(windows.add([each], hashable_keys([each["k"]]), 0).firings)
    return found


def as_columns(windows, segments):
    batch = from_dicts(segments)[0]
    return shown(windows.add(batch, GroupKeys().of(KeyCodes.of_column(batch, "k")), 0).firings)


def as_dicts(windows, segments):
    return shown(windows.add(segments, [each["k"] for each in segments], 0).firings)


@pytest.mark.parametrize("shape", SHAPES)
@settings(deadline=None, max_examples=examples(40))
@given(
    batches=st.lists(
        st.lists(
            st.builds(lambda k, at: {"k": k, "at": at}, st.sampled_from("abc"), st.integers(0, 20)),
            min_size=1,
            max_size=8,
        ),
        max_size=5,
    ),
    aggregation=st.sampled_from(AGGREGATIONS),
    thresholds=st.lists(st.integers(1, 6), min_size=1, max_size=2),
)
def test_a_batch_fires_as_its_segments_one_by_one(shape, batches, aggregation, thresholds):
    triggers = [every(each) for each in thresholds]
    alone, dicts, rows = (made({**SHAPES[shape], **aggregation}, triggers) for _ in range(3))
    for batch in batches:
        expected = one_by_one(alone, batch)
        assert as_dicts(dicts, batch) == expected
        assert as_columns(rows, batch) == expected
    state = {str(each) for each in alone.query("w0")}
    assert {str(each) for each in dicts.query("w0")} == state
    assert {str(each) for each in rows.query("w0")} == state


def test_columns_stay_columns_while_nothing_fires(monkeypatch):
    def forbidden(_):
        raise AssertionError("a dict is made")

    windows = made(SHAPES["fixed"], [every(4)])
    batch = [{"k": key, "at": 1} for key in "aabbb"]
    with monkeypatch.context() as patch:
        patch.setattr(record_batch.to_dicts, "__code__", forbidden.__code__)
        assert as_columns(windows, batch) == []
    assert len(as_columns(windows, batch[2:])) == 1


def test_what_was_counted_is_restored():
    old, new = made(SHAPES["global"], [every(5)]), made(SHAPES["global"], [every(5)])
    batch = [{"k": key, "at": 1} for key in "aab"]
    as_columns(old, batch)
    new.restore(0, old.take_changes()[0])
    assert as_columns(new, batch) == as_columns(old, batch) == []
    fired = as_columns(new, batch)
    assert fired == as_columns(old, batch)
    assert len(fired) == 1
