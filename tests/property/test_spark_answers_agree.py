"""What is answered about a window by Spark out of its files is what peers would answer whose state
is as of the last chunk: whatever has fired, of all selections, page by page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.test_spark_windows_agree import (
    GROUPS,
    IN_MEMORY,
    SHARDS,
    fed,
    shard_of,
    streams,
    windows_and_triggers,
)
from tests.support.examples import examples
from tests.support.spark.windows import Peer, by_spark
from tests.support.windows.short import task_windows

from onyx.keystate.extents import Extent
from onyx.keystate.groups import hashable_key
from onyx.keystate.selection import EVERYTHING, Selection, place_of
from onyx.spark.windows.answers import AskedWindow
from onyx.spark.windows.spool import Spool
from onyx.storage.opening import location_of

LARGE = 1_000
EDGES = st.integers(-2, 9) | st.sampled_from([2**63, 2**64 - 1, -(2**63)])
SELECTIONS = st.one_of(
    st.just(EVERYTHING),
    GROUPS.map(lambda key: Selection(key=key)),
    st.sampled_from(["", "a", (1,), [1], {"x": 1}]).map(lambda each: Selection(prefix=each)),
    st.tuples(EDGES, EDGES).map(lambda each: Selection(key_from=each[0], key_to=each[1])),
    st.sampled_from("ab").map(lambda each: Selection(key_from=each)),
    st.tuples(st.integers(-20, 60), st.integers(-20, 60)).map(
        lambda each: Selection(time_from=each[0], time_to=each[1])
    ),
)


def comparable(extent: Extent, sessions: bool) -> tuple[Any, ...]:
    """Where sessions merge, peers put the lists of one after those of the other."""
    state = extent.state
    if sessions and isinstance(state, list):
        state = sorted(map(repr, state))
    elif sessions and isinstance(state, dict):
        state = sorted((repr(key), sorted(map(repr, each)) if isinstance(each, list) else each)
                       for key, each in state.items())  # fmt: skip
    return (hashable_key(extent.group), extent.lower, extent.upper, repr(state), extent.of_session)


def in_pages(one: Any, select: Selection, extents_max: int) -> list[Extent]:
    found: list[Extent] = []
    while True:
        page = one.query(select, extents_max)
        found += page
        if len(page) < extents_max:
            return found
        select = replace(select, after=place_of(page[-1]))


@settings(max_examples=examples(60))
@given(
    windows_and_triggers(),
    streams(),
    st.booleans(),
    st.booleans(),
    st.lists(SELECTIONS, min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_answers_out_of_files_are_those_of_peers(
    declared, stream, grouped, whole, selections, extents_max
):
    window, triggers = declared
    window.pop("session_key", None)  # which is refused
    sessions = window["type"] == "session"
    of_group = shard_of if grouped else lambda group: 0
    group_by = "k" if grouped else None
    peers = task_windows((window, triggers), group_by=group_by, shard_of=of_group)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        make, compiled = by_spark(Path(folder)), []

        def made(its, *others):
            compiled.append(replace(its, triggers=()))
            return make(its, *others)

        windows = task_windows(
            ({**window, "engine": "spark"}, triggers),
            group_by=group_by, shard_of=of_group, make_elsewhere=made,
        )  # fmt: skip
        mine = Peer(windows, range(SHARDS))
        for segments, watermark in stream:
            assert fed(mine.windows, segments, grouped) == fed(peers, segments, grouped)
            mine.fired(mine.windows.advance(watermark), whole=whole)
            list(peers.advance(watermark))
            for select in selections:
                if select.by_group and not grouped:
                    continue
                asked = AskedWindow(compiled[0], Spool(location_of(folder)), of_group)
                own = range(SHARDS) if select.key is EVERYTHING.key else [of_group(select.key)]
                for shard in own:
                    asked.restore(shard, mine.logs[shard])
                wanted = peers.query("w0", select, LARGE)
                found = in_pages(asked, select, extents_max)
                assert [comparable(each, sessions) for each in found] == [
                    comparable(each, sessions) for each in wanted
                ]
