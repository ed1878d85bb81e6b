"""Columns and dicts are the same to a window: firings, late segments, records and states, to the
type of each number and the last bit of a float; also where both come in turns, and where the states
are in arrays. Only the order of groups may be another one: in arrays a group that comes back has
the place that it had."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.windows.short import plain, shown, singles, task_windows

from onyx.codec.values import decode_records, encode_records
from onyx.errors import SegmentError, UserError
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.codes import KeyCodes
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import hashable_keys
from onyx.keystate.records import DeleteGroups, Fired, FiringProgress, SetStates, WatermarkReached
from onyx.windows import extent_firing
from onyx.windows.task_windows import TaskWindows

LEAST = -20
SHAPES = {
    "fixed": {"type": "fixed", "range": (10, "elements")},
    "sliding": {
        "type": "sliding",
        "range": (7, "elements"),
        "slide": (3, "elements"),
        "min_value": LEAST,
    },
    "session": {"type": "session", "timeout_gap": (4, "elements")},
    "sessions by key": {"type": "session", "timeout_gap": (4, "elements"), "session_key": "s"},
    "global": {"type": "global"},
}
AGGREGATIONS = {
    "count": {"aggregation": "count"},
    "sum": {"aggregation": ("sum", "v")},
    "min": {"aggregation": ("min", "v"), "init": 3},
    "max": {"aggregation": ("max", "v"), "init": 0.0},
    "max of all": {"aggregation": ("max", "v")},
    "average": {"aggregation": ("average", "v")},
    "conj": {"aggregation": "conj"},
    "collect-key-value": {"aggregation": ("collect-key-value", "v")},
    "collect-by-key": {"aggregation": ("collect-by-key", "s")},
    "arrays": {"aggregation": "m:arrays", "batch_format": "arrow"},
}
TRIGGERS = {
    "watermark": {"type": "watermark"},
    "percentile": {"type": "percentile-watermark", "watermark_percentage": 0.5},
    "segment": {"type": "segment", "threshold": (3, "elements")},
    "all extents": {"type": "segment", "threshold": (2, "elements"), "fire_all_extents": True},
    "timer": {"type": "timer", "period": (5, "milliseconds")},
    "last timer": {"type": "timer", "period": (5, "milliseconds"), "fire_at_end": "changed"},
    "last watermark": {"type": "watermark", "fire_at_end": "changed"},
    "last segment": {"type": "segment", "threshold": (3, "elements"), "fire_at_end": "changed"},
    "punctuation": {"type": "punctuation", "pred": "m:whole"},
    "user": {"type": "m:trigger"},
}


def arrays():
    """Number and sum of the values, by a user's array functions."""

    def fold(window, states, groups, rows):
        np.add.at(states["n"], groups, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(states["sum"], groups, rows["v"].to_numpy().astype(np.float64))
        return states

    def merge(window, one, other):
        with np.errstate(over="ignore", invalid="ignore"):
            return {name: one[name] + other[name] for name in one}

    return {
        "init_array": lambda _, many: {"n": np.zeros(many, np.int64), "sum": np.zeros(many)},
        "fold_array": fold,
        "merge_array": merge,
    }


FUNCTIONS = {
    "m:arrays": arrays,
    "m:whole": lambda _, event: event["segment"]["at"] % 5 == 0,
    "m:trigger": lambda: {"trigger_fire": lambda _, __, event: event["lower_bound"] % 2 == 0},
}
REFINEMENTS = st.sampled_from(["discarding", "accumulating"])
PLACES = {
    "int": st.integers(-20, 60),
    "far": st.integers(-20, 60) | st.sampled_from([2**62, -(2**62)]),
    "float": st.floats(-20, 60) | st.sampled_from([1e17, -1e17]),
}
VALUES = {
    "int": st.integers(-5, 5) | st.sampled_from([2**62, 2**63 - 1, -(2**63), 2**53 + 1]),
    "float": st.floats() | st.sampled_from([0.0, -0.0, 1e308]),
}
KEYS = {
    "text": st.sampled_from("abc"),
    "int": st.integers(-2, 2),
    "float": st.sampled_from([0.0, -0.0, 1.0, 0.5]),
    "maybe": st.sampled_from([True, False, None]),
}


@st.composite
def batches(draw: st.DrawFn, floats: bool = True):
    """Batches whose keys hold one type each, with the watermark behind each."""

    def kinds(types):
        return st.sampled_from([each for each in types if floats or each != "float"])

    segments = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "at": PLACES[draw(kinds(PLACES))],
                    "v": VALUES[draw(kinds(VALUES))],
                    "k": KEYS[draw(kinds(KEYS))],
                    "s": st.integers(0, 1),
                }
            ),
            min_size=1,
            max_size=30,
        )
    )
    segments = [{key: each[key] for key in ("at", "v", "k", "s")} for each in segments]
    if draw(st.booleans()):
        segments.sort(key=lambda each: each["at"])
    bounds = draw(st.sets(st.integers(1, len(segments))))
    cuts = sorted({0, len(segments), *bounds})
    watermarks = sorted(draw(st.lists(st.integers(-20, 80), min_size=len(cuts))))
    return [(segments[a:b], watermarks[n]) for n, (a, b) in enumerate(pairwise(cuts))]


def given_as_columns(segments):
    columns, kept, failures = from_dicts(segments)
    assert kept is None
    assert not failures
    return columns, GroupKeys().of(KeyCodes.of_column(columns, "k"))


def given_as_dicts(segments):
    return [dict(each) for each in segments], hashable_keys([each["k"] for each in segments])


def trace(windows: TaskWindows, stream, grouped, forms):
    """All that can be seen of windows, batch by batch."""
    seen, records = [], []
    for number, (segments, watermark) in enumerate(stream):
        batch, groups = forms[number % len(forms)](segments)
        try:
            added = windows.add(batch, groups if grouped else None, number * 4)
        except UserError as error:
            seen.append(str(error))  # below minValue: nothing has changed
            continue
        seen.append((shown(added.firings), added.late))
        seen.append(repr([one.segment for each in added.firings for one in singles(each)]))
        seen.append(sorted(shown(windows.tick(number * 4))))
        seen.append(sorted(shown(windows.advance(watermark))))
        if number % 2:
            records.append(windows.take_changes())
    records.append(windows.take_changes())
    held = sorted(map(repr, windows.query("w0")))
    seen += [held, *map(of_groups, records), of_groups(windows.snapshots(range(2)))]
    seen.append(sorted(shown(windows.complete(range(2), 99))))
    return seen, records, held


def of_groups(records):
    """What records say of each group, in an order that does not depend on the order of groups."""
    return sorted(
        f"{shard} {each}"
        for shard, its in records.items()
        for record in plain(its)
        for each in said(record)
    )


def said(record):
    match record:
        case SetStates(extent=extent, groups=groups, states=states):
            pairs = zip(groups, states, strict=True)
            return [f"set {extent} {group!r} {state!r}" for group, state in pairs]
        case DeleteGroups(extent=extent, groups=groups):
            return [f"delete {extent} {group!r}" for group in groups]
        case Fired(extent=extent, waiting=waiting):
            return [f"fired {extent} {sorted(map(repr, waiting))}"]
        case FiringProgress(groups=[*groups]):
            return [f"progress {record.event_type} {record.extent} {sorted(map(repr, groups))}"]
    return [repr(record)]


def made(
    shape, aggregation, trigger, refinement, grouped, lateness, assigned=True, columns=False,
    emit=None,
):  # fmt: skip
    window = {**SHAPES[shape], **AGGREGATIONS[aggregation]}
    if lateness is not None and shape != "global":
        window["allowed_lateness"] = (lateness, "elements")
    return task_windows(
        (window, [{"refinement": refinement, "emit": emit, **TRIGGERS[trigger]}]),
        group_by="k" if grouped else None,
        assigned=assigned,
        functions=FUNCTIONS,
        shard_of=lambda key: len(repr(key)) % 2,
        columns=columns,
    )


def agree(stream, grouped, *given):
    dicts, _, _ = trace(made(*given), stream, grouped, [given_as_dicts])
    for columns in (False, True):
        windows = made(*given, columns=columns)
        found, records, held = trace(windows, stream, grouped, [given_as_columns])
        assert found == dicts
        windows = made(*given, columns=columns)
        turns, _, _ = trace(windows, stream, grouped, [given_as_columns, given_as_dicts])
        assert turns == dicts
        for restored in (made(*given), made(*given, columns=True)):
            try:
                for by_shard in records:
                    for shard, each in by_shard.items():
                        restored.restore(shard, decode_records(encode_records(each)))
            except SegmentError:  # a sum beyond 64 bits
                return
            assert sorted(map(repr, restored.query("w0"))) == held


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("shape", SHAPES)
@given(
    stream=batches(),
    refinement=REFINEMENTS,
    grouped=st.booleans(),
    lateness=st.none() | st.integers(0, 20),
)
@settings(max_examples=examples(10), deadline=None)
def test_a_window_gives_the_same(shape, aggregation, stream, refinement, grouped, lateness):
    agree(stream, grouped, shape, aggregation, "watermark", refinement, grouped, lateness)


@pytest.mark.parametrize("trigger", ["watermark", "timer", "percentile"])
@pytest.mark.parametrize("aggregation", [each for each in AGGREGATIONS if each != "max"])
@pytest.mark.parametrize("shape", SHAPES)
@given(stream=batches(floats=False), refinement=REFINEMENTS, grouped=st.booleans())
@settings(max_examples=examples(5), deadline=None)
def test_rows_are_what_single_groups_are(shape, aggregation, trigger, stream, refinement, grouped):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extent_firing, "_ROWS_MIN", 1)
        given = shape, aggregation, trigger, refinement, grouped, None
        dicts, _, _ = trace(made(*given), stream, grouped, [given_as_dicts])
        windows = made(*given, columns=True, emit="rows")
        rows, _, _ = trace(windows, stream, grouped, [given_as_columns])
        assert rows == dicts


@pytest.mark.parametrize("trigger", [each for each in TRIGGERS if each != "watermark"])
@pytest.mark.parametrize("shape", SHAPES)
@given(stream=batches(), refinement=REFINEMENTS, grouped=st.booleans(), assigned=st.booleans())
@settings(max_examples=examples(6), deadline=None)
def test_a_trigger_fires_the_same(shape, trigger, stream, refinement, grouped, assigned):
    agree(stream, grouped, shape, "sum", trigger, refinement, grouped, None, assigned)


@pytest.mark.parametrize("shape", SHAPES)
@given(stream=batches(), refinement=REFINEMENTS, lateness=st.none() | st.integers(0, 20))
@settings(max_examples=examples(6), deadline=None)
def test_segments_that_are_the_watermark_give_the_same(shape, stream, refinement, lateness):
    agree(stream, True, shape, "count", "watermark", refinement, True, lateness, False)


AFTER_A_TAKEOVER = [
    ([{"at": at, "v": v, "k": k, "s": 0} for at, v, k in batch], watermark)
    for batch, watermark in [
        ([(3, 1, "aa"), (25, 2, "aa"), (26, 3, "a")], 5),
        ([(27, 2**62, "a"), (27, 2**62, "a"), (28, 4, "bb"), (1, 5, "a")], 27),
        ([(50, 1, "aa"), (29, 6, "bb")], 60),
    ]
]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_shards_that_are_ahead_of_the_task_give_the_same(shape, aggregation):
    """As the log may say of those that a peer takes over: then each segment is looked at."""
    found = []
    for columns, as_given in ((False, given_as_dicts), (True, given_as_columns)):
        windows = made(shape, aggregation, "watermark", "accumulating", True, 9, columns=columns)
        windows.restore(0, [WatermarkReached("w0", 30)])
        found.append(trace(windows, AFTER_A_TAKEOVER, True, [as_given])[0])
    assert found[0] == found[1]
