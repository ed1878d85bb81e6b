"""Bugs planted on purpose in joins of two streams: the simulator must find each.

M1 the log does not say how far event time is; M2 a snapshot has the newest rows only; M3 rows go
when they meet nothing new, though others still ask whether they have met something; M4 a row is
alone as soon as the watermark has passed it; M5 who takes over has the rows of one side only; M6
what is known as applied meets the other side again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from tests.sim.planting import FoundBy, Plants, planted_of

from onyx.flow.arrays import Indices, Mask
from onyx.flow.batch import Batch
from onyx.keystate.records import Record, Records, WatermarkReached
from onyx.operators.stream_join.changelog import ChangelogWriter
from onyx.operators.stream_join.keyed_rows import KeyedRows
from onyx.operators.stream_join.operator import JoinedStreams
from onyx.operators.stream_join.spans import LEFT, Interval, Side, Times
from onyx.task.state.keeper import StateKeeper

_freeze = ChangelogWriter.freeze
_fresh = StateKeeper.fresh
_store_restored = JoinedStreams._store_restored
_take_changes = ChangelogWriter.take_changes


def _rows_only(chronicle: ChangelogWriter, known: Any) -> Records:
    """M1."""
    found = _take_changes(chronicle, known)
    return {
        shard: [each for each in records if not isinstance(each, WatermarkReached)]
        for shard, records in found.items()
    }


def _newest_only(
    chronicle: ChangelogWriter,
    parts: Sequence[tuple[Side, KeyedRows]],
    gone: Mapping[Side, Callable[[KeyedRows], Mask]],
) -> Callable[[int], list[Record]]:
    """M2."""
    return _freeze(chronicle, parts[-1:], gone)


def _gone_when_alone(spans: Interval, side: Side, watermarks: Times) -> Times:
    """M3."""
    return spans.alone_before(side, watermarks)


def _alone_at_once(spans: Interval, side: Side, watermarks: Times) -> Times:
    """M4."""
    return watermarks


def _restore_left(joined: JoinedStreams, side: Side, rows: pa.RecordBatch, shards: Indices) -> None:
    """M5."""
    if side == LEFT:
        _store_restored(joined, side, rows, shards)


def _all_of_them(keeper: StateKeeper, batch: Batch, withdrawn: Sequence[int]) -> None:
    """M6."""
    _fresh(keeper, batch, withdrawn)


PLANTS: Plants = {
    "M1": (ChangelogWriter, "take_changes", _rows_only),
    "M2": (ChangelogWriter, "freeze", _newest_only),
    "M3": (Interval, "gone_before", _gone_when_alone),
    "M4": (Interval, "alone_before", _alone_at_once),
    "M5": (JoinedStreams, "_store_restored", _restore_left),
    "M6": (StateKeeper, "fresh", _all_of_them),
}
FOUND_BY: FoundBy = {
    "M1": {"M1", "W5"},
    "M2": {"M1", "W5"},
    "M3": {"M1"},
    "M4": {"M1"},
    "M5": {"M1", "W5"},
    "M6": {"M1"},
}
planted = partial(planted_of, PLANTS)
