"""What one append makes durable: the changes of some shards and the ids of the segments in them.

Both in one chunk, because exactly-once rests on it: a segment is known to be applied exactly when
its change is there. What records mean is defined in `keystate/records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import field

from onyx.base.runs import Numbers
from onyx.flow.batch import U64, EncodedRun, Segments, part_of
from onyx.keystate.records import Record

Watermark = int | float
"""Event time in milliseconds, or any ordered number that a window is over."""


def _no_column() -> U64:
    return np.empty(0, dtype=np.uint64)


class EmittedRun(NamedTuple):
    """What triggers of a shard have emitted, at consecutive positions."""

    first: int
    """Position of the first one."""
    segments: Segments
    child: str | None = None
    """The only child task that they are for; None: all."""
    encoded: EncodedRun | None = None
    """What `encode_run` gives of them, or stands for it, if somebody has that."""

    def behind(self, position: int) -> EmittedRun | None:
        """The part from this position on; None: there is none."""
        past = position - self.first
        if past <= 0:
            return self
        if past >= len(self.segments):
            return None
        return EmittedRun(position, part_of(self.segments, past, len(self.segments)), self.child)


class ShardChange(msgspec.Struct):
    """What became of one shard since the chunk before; in a snapshot, all of it."""

    records: Iterable[Record] = ()
    """The changes of `Operator.take_changes`, in order; of an output, `StagedOutput`. In a snapshot
    they may be read as they are asked for, and once."""
    emitted: Sequence[EmittedRun] = ()
    """What its triggers emitted, whose positions increase; in a snapshot, what is not settled."""
    settled: int = 0
    """Emission frontier: the trees of all positions below are complete. Never falls."""
    closed: bool = False
    """Whether the shard has fired for the last time."""
    keys: list[Any] = field(default_factory=list)
    """Values of the `uniquenessKey` seen; in a snapshot, all that are remembered, oldest first."""


class Chunk(msgspec.Struct):
    """One atomic step of the state of a peer."""

    shards: Mapping[int, ShardChange] = field(default_factory=dict)
    roots: Numbers = field(default_factory=_no_column)
    """The roots of the segments applied, attempt bits cleared (`lineage.first_attempts`)."""
    ids: Numbers = field(default_factory=_no_column)
    """One a root."""
    forgotten: Mapping[int, int] = field(default_factory=dict)
    """Frontiers by partition, below which nothing is ever replayed and no id is kept."""
    watermark: Watermark | None = None
    """The watermark of the task; None says nothing."""
