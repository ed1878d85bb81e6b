"""Windows by Spark fire what windows of peers fire, at the same moments: with columns and dicts,
late segments, sessions that merge, groups of all types, and peers that die between two pages and
hand over their shards.
Stages are carried out by Python here; tests/unit/spark has those of Spark."""

from __future__ import annotations

import math
import os
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.spark.windows import Peer, by_spark
from tests.support.windows.short import shown, task_windows

from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import key_hash
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import hashable_keys
from onyx.windows.firing import Firing

SHARDS = 4
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Parts are forced to disk, which takes its time elsewhere."""
SHAPES = [
    {"type": "fixed", "range": (10, "elements")},
    {"type": "fixed", "range": (10, "elements"), "allowed_lateness": (5, "elements")},
    {"type": "sliding", "range": (7, "elements"), "slide": (3, "elements"), "min_value": -20},
    {"type": "global"},
    {"type": "session", "timeout_gap": (4, "elements")},
    {"type": "session", "timeout_gap": (4, "elements"), "session_key": "s"},
    {"type": "fixed", "range": (10, "elements"), "storage_strategy": ("ordered-log",)},
]
AGGREGATIONS = [
    {"aggregation": "count"},
    {"aggregation": ("sum", "v")},
    {"aggregation": ("min", "v"), "init": 3},
    {"aggregation": ("max", "v"), "init": 0.0},
    {"aggregation": ("max", "v")},
    {"aggregation": ("average", "v")},
    {"aggregation": "conj"},
    {"aggregation": ("collect-key-value", "v")},
    {"aggregation": ("collect-by-key", "s")},
]
EXTENT_MAX = 10
"""Elements of the longest extent that ends."""
REFINEMENTS = [
    {"refinement": "discarding"},
    {"refinement": "accumulating"},
    {"post_evictor": ("all",)},
]
WATCHING = [
    {"type": "watermark"},
    {"type": "watermark", "delay": (2, "elements")},
    {"type": "percentile-watermark", "watermark_percentage": 0.5},
]
TIMER = {"type": "timer", "period": (5, "milliseconds")}
GROUPS = st.sampled_from(["a", "b", 7, -1, None, True, 0.5, b"x", (1, "t"), 2**63])
VALUES = st.integers(-50, 50) | st.integers(-9, 9).map(lambda each: each / 2)


@st.composite
def windows_and_triggers(draw: st.DrawFn):
    refined = st.sampled_from(REFINEMENTS)
    triggers = [{**draw(st.sampled_from(WATCHING)), **draw(refined)}]
    if draw(st.booleans()):
        triggers.insert(draw(st.integers(0, 1)), {**TIMER, **draw(refined)})
    at_end = st.sampled_from(["always", "never"])
    triggers = [{**each, "fire_at_end": draw(at_end)} for each in triggers]
    window = {**draw(st.sampled_from(SHAPES)), **draw(st.sampled_from(AGGREGATIONS))}
    if triggers[0].get("delay") or triggers[-1].get("delay"):
        window.pop("allowed_lateness", None)
    return window, triggers


@st.composite
def streams(draw: st.DrawFn):
    rows = st.fixed_dictionaries(
        {"at": st.integers(-20, 60), "v": VALUES, "k": GROUPS, "s": st.integers(0, 1)}
    )
    drawn = draw(st.lists(rows, min_size=1, max_size=30))
    segments = [{key: each[key] for key in ("at", "v", "k", "s")} for each in drawn]
    cuts = sorted({0, len(segments), *draw(st.sets(st.integers(1, len(segments))))})
    watermarks = sorted(draw(st.lists(st.integers(-20, 80), min_size=len(cuts))))
    return [(segments[a:b], watermarks[n]) for n, (a, b) in enumerate(pairwise(cuts))]


def on_time(stream):
    """The segments whose extents no watermark before them has reached."""
    before = [-math.inf, *(watermark for _, watermark in stream)]
    return [
        ([each for each in segments if each["at"] > reached + EXTENT_MAX], watermark)
        for (segments, watermark), reached in zip(stream, before, strict=False)
    ]


def shard_of(group) -> int:
    return key_hash(group) % SHARDS


def fed(windows, segments, grouped, as_columns=False):
    keys = hashable_keys([each["k"] for each in segments])
    batch = [dict(each) for each in segments]
    if as_columns:
        columns, kept, failures = from_dicts(segments)
        if kept is None and not failures:
            batch, keys = columns, GroupKeys().of(KeyCodes.of_column(columns, "k"))
    return windows.add(batch, keys if grouped else None, 0).late


def of_one_type(segments):
    """The segments with the numbers that their columns hold: 7 beside 0.5 is 7.0."""
    columns, kept, failures = from_dicts(segments)
    if kept is not None or failures or columns.column("k").type != pa.float64():
        return segments
    return [{**each, "k": None if each["k"] is None else float(each["k"])} for each in segments]


def in_order(firings):
    return Counter(shown(map(as_listed, one) for one in pages_of(firings)))


def pages_of(firings):
    """Firings of a moment, page by page or all in one."""
    for each in firings:
        yield [each] if isinstance(each, Firing) else each


def as_listed(firing):
    """Where sessions merge, peers put the lists of one after those of the other."""
    state = firing.state
    if firing.window.type != "session":
        return firing
    if isinstance(state, dict) and all(isinstance(each, list) for each in state.values()):
        return firing._replace(state={k: sorted(state[k], key=repr) for k in sorted(state)})
    return firing._replace(state=sorted(state, key=repr)) if isinstance(state, list) else firing


@settings(max_examples=examples(20))
@given(windows_and_triggers(), streams(), st.booleans(), st.booleans())
@example(
    ({**SHAPES[0], "aggregation": "conj"}, [{**WATCHING[0], **REFINEMENTS[0]}]),
    [([{"at": 0, "v": 0, "k": key, "s": 0} for key in (7, 0.5)], 10)],
    False,
    True,
)
def test_each_moment_fires_what_it_fires_on_peers(declared, stream, grouped, as_columns):
    window, triggers = declared
    group_by = "k" if grouped else None
    peers = task_windows((window, triggers), group_by=group_by)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        made = by_spark(Path(folder))
        mine = Peer(
            task_windows(
                ({**window, "engine": "spark"}, triggers), group_by=group_by, make_elsewhere=made
            ),
            [0],
        )
        for number, (segments, watermark) in enumerate(stream):
            if as_columns:
                segments = of_one_type([{**each, "v": float(each["v"])} for each in segments])
            late = fed(peers, segments, grouped)
            assert fed(mine.windows, segments, grouped, as_columns) == late
            for moment in (
                lambda each, n=number: each.tick(n * 4),
                lambda each, w=watermark: each.advance(w),
            ):
                assert in_order(mine.fired(moment(mine.windows))) == in_order(moment(peers))
        done = in_order(mine.fired(mine.windows.complete([0], 0)))
        assert done == in_order(peers.complete([0], 0))


@settings(max_examples=examples(20))
@given(
    windows_and_triggers(),
    streams(),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1),
)
@example(
    ({**SHAPES[-1], "aggregation": "count"}, [{**WATCHING[-1], **REFINEMENTS[0]}]),
    [([{"at": 0, "v": 0, "k": "a", "s": 0}], 0)],
    [(0, 0, False)],
)
def test_each_group_fires_once_however_peers_die(declared, stream, deaths):
    """`deaths`: how many pages of a moment are durable by then, with how many peers the
    shards are shared from then on (less one), and whether each page had a snapshot behind it.

    No segment comes to an extent that has fired. It would fire again at the next watermark, and
    after a death the newest one is such a next one: in two firings what else is in one.
    """
    window, triggers = declared
    triggers = [each for each in triggers if each["type"] != "timer"]
    if window["type"] == "session":  # of which a share is over when segments still come
        triggers = [
            {**each, "type": "watermark", "watermark_percentage": None} for each in triggers
        ]
    stream = on_time(stream)
    peers = task_windows((window, triggers), group_by="k", shard_of=shard_of)
    wanted, found = Counter(), Counter()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        made = by_spark(Path(folder), page_max=2)
        logs = {shard: [] for shard in range(SHARDS)}

        def anew(many):
            for shard in range(SHARDS):
                windows = task_windows(
                    ({**window, "engine": "spark"}, triggers),
                    group_by="k", shard_of=shard_of, make_elsewhere=made,
                )  # fmt: skip
                if shard < many:
                    own = range(shard, SHARDS, many)
                    yield Peer(windows, own, {each: logs[each] for each in own})

        mine = list(anew(2))
        deaths = iter(deaths)
        moments = [lambda each, shards, w=w: each.advance(w) for _, w in stream]
        moments.append(lambda each, shards: each.complete(shards, 0))
        for number, moment in enumerate(moments):
            segments = stream[number][0] if number < len(stream) else []
            if segments:
                fed(peers, segments, True)
            for each in mine:
                own = [one for one in segments if shard_of(one["k"]) in each.logs]
                if own:
                    fed(each.windows, own, True)
                each.chunk()
            wanted += in_order(moment(peers, range(SHARDS)))
            death = next(deaths, None)
            for each in mine:
                pages = moment(each.windows, list(each.logs))
                found += in_order(each.fired(pages, *(death[::2] if death else ())))
            for each in mine:
                logs.update(each.logs)
            if death:
                mine = list(anew(death[1] + 1))
                for each in mine:
                    found += in_order(each.fired(moment(each.windows, list(each.logs))))
        assert found == wanted
