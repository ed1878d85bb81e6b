"""Windows that Spark aggregates, with Spark: what fires is what fires on peers. One child for
all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.children import warm_children
from tests.support.spark.windows import Peer, by_spark
from tests.support.windows.short import shown, task_windows

from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import key_hash
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import hashable_keys

pytestmark = pytest.mark.server
SHARDS = 4
FIXED = {"type": "fixed", "range": (10, "elements")}
SLIDING = {
    "type": "sliding", "range": (7, "elements"), "slide": (3, "elements"), "min_value": -30,
}  # fmt: skip
GLOBAL = {"type": "global"}
SESSION = {"type": "session", "timeout_gap": (2, "elements")}
WATERMARK = {"type": "watermark"}
TIMER = {"type": "timer", "period": (5, "milliseconds")}
KEEP, DISCARD = {"refinement": "accumulating"}, {"refinement": "discarding"}
EVICT = {"post_evictor": ("all",)}
CASES = {
    "sliding sum, kept": ({**SLIDING, "aggregation": ("sum", "v")}, [{**WATERMARK, **KEEP}]),
    "global average of columns": (
        {**GLOBAL, "aggregation": ("average", "v")}, [{**TIMER, **DISCARD}],
    ),
    "fixed min of columns, late": (
        {**FIXED, "aggregation": ("min", "v"), "init": 3, "allowed_lateness": (5, "elements")},
        [{**TIMER, **KEEP}, {**WATERMARK, **EVICT}],
    ),
    "fixed collect-by-key": (
        {**FIXED, "aggregation": ("collect-by-key", "s")}, [{**WATERMARK, **KEEP}],
    ),
    "session sum, kept": (
        {**SESSION, "aggregation": ("sum", "v"), "session_key": "s"},
        [{**TIMER, **KEEP}, {**WATERMARK, **DISCARD}],
    ),
    "session average of columns": (
        {**SESSION, "aggregation": ("average", "v")},
        [{"type": "percentile-watermark", "watermark_percentage": 0.5, **DISCARD}],
    ),
}  # fmt: skip
SHORT = {"fixed min of columns, late", "session average of columns"}


@pytest.fixture(scope="module")
def stages() -> Iterator[Any]:
    """A `StageRunner` with a child of its own."""
    with warm_children() as runner:
        yield runner


def stream(columns: bool) -> list[tuple[list[dict[str, Any]], int]]:
    """Batches with the watermark behind each: some late; as dicts, of many types."""
    chance = random.Random(7)
    keys = ["a", "b", "c"] if columns else ["a", 7, -1, None, True, 0.5, b"x", 2**63, (1, "t")]
    batches = []
    for number in range(3):
        places = [number * 12 + chance.randint(-14, 12) for _ in range(40)]
        values = [chance.randint(-9, 9) / (1 if columns else chance.choice([1, 2])) for _ in places]
        if not columns:
            values = [int(each) if each == int(each) else each for each in values]
        segments = [
            {"at": at, "v": v, "k": chance.choice(keys), "s": chance.randint(0, 1)}
            for at, v in zip(places, values, strict=True)
        ]
        batches.append((segments, number * 12))
    return batches


def fed(windows: Any, segments: list[dict[str, Any]], as_columns: bool) -> list[int]:
    if as_columns:
        columns, _, failures = from_dicts(segments)
        assert not failures
        keys: Any = GroupKeys().of(KeyCodes.of_column(columns, "k"))
        return list(windows.add(columns, keys, 0).late)
    keys = hashable_keys([each["k"] for each in segments])
    return list(windows.add([dict(each) for each in segments], keys, 0).late)


def waited(peer: Peer, pages: Any) -> Counter[str]:
    return Counter(shown(peer.fired(pages)))


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "name",
    [each if each in SHORT else pytest.param(each, marks=pytest.mark.slow) for each in CASES],
)
def test_spark_fires_what_peers_fire(name: str, stages: Any, tmp_path: Path) -> None:
    (window, triggers), as_columns = CASES[name], "columns" in name
    peers = task_windows((window, triggers), group_by="k")
    made = by_spark(tmp_path, stages, page_max=7)
    declared = ({**window, "engine": "spark"}, triggers)
    mine = Peer(task_windows(declared, group_by="k", make_elsewhere=made), [0])
    fired = 0
    for number, (segments, watermark) in enumerate(stream(as_columns)):
        assert fed(mine.windows, segments, as_columns) == fed(peers, segments, False)
        if number == 1:  # a part of its own
            mine.chunk()
        for moment in (
            lambda each, n=number: each.tick(n * 4),
            lambda each, w=watermark: each.advance(w),
        ):
            wanted = Counter(shown(moment(peers)))
            assert waited(mine, moment(mine.windows)) == wanted
            fired += wanted.total()
    wanted = Counter(shown(peers.complete([0], 0)))
    assert waited(mine, mine.windows.complete([0], 0)) == wanted
    assert fired + wanted.total() > 0


@pytest.mark.slow
def test_shards_that_move_are_read_by_the_peers_that_have_them(stages: Any, tmp_path: Path) -> None:
    def shard_of(group: Any) -> int:
        return key_hash(group) % SHARDS

    declared = ({**SLIDING, "aggregation": ("sum", "v")}, [{**WATERMARK, **KEEP}])
    by_spark_ = ({**declared[0], "engine": "spark"}, declared[1])
    peers = task_windows(declared, group_by="k", shard_of=shard_of)
    logs: dict[int, list[Any]] = {shard: [] for shard in range(SHARDS)}
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for number, (segments, watermark) in enumerate(stream(False)):
        many = (1, 2, 1)[number]
        fed(peers, segments, False)
        wanted += Counter(shown(peers.advance(watermark)))
        for rank in range(many):
            own = range(rank, SHARDS, many)
            windows = task_windows(
                by_spark_, group_by="k", shard_of=shard_of,
                make_elsewhere=by_spark(tmp_path, stages),
            )  # fmt: skip
            peer = Peer(windows, own, {each: logs[each] for each in own})
            fed(windows, [each for each in segments if shard_of(each["k"]) in own], False)
            found += waited(peer, windows.advance(watermark))
            logs.update(peer.logs)
    assert found == wanted
    assert found.total() > 0
