"""Windows that are folded before the shuffle: states are shuffled instead of segments.

Each origin folds its own segments with the code of peers, without triggers. Now and then, and at
the end of the origin, the states go to the buckets of their groups, which merge them and let them
fire. `compiler.combining` says for which windows this is right, but one thing only data show: a
segment behind the watermark of its own origin. It stops the query, which runs again without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onyx.codec.records import encode_records
from onyx.flow.batch import Batch, Segment, Segments
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.ledger.applied import Mask
from onyx.program.program import Program
from onyx.program.trigger_calls import TriggerCalls
from onyx.seams import Clock
from onyx.spark_query.failure import Disordered
from onyx.windows.assigning.assigner import Axis
from onyx.windows.coded import Keyed
from onyx.windows.compiled import CompiledWindows
from onyx.windows.firing import Added, Number
from onyx.windows.groups import Shards
from onyx.windows.prepared import Taken
from onyx.windows.records import SetStates
from onyx.windows.task_windows import TaskWindows

SEGMENTS_MAX = 500_000
"""Segments whose states are gathered before they go to their buckets: what bounds the memory."""


class Combining:
    """The windows of one task over the segments of one origin (`program.folding.Folding`)."""

    def __init__(self, program: Program, watermark: Callable[[], int | None]) -> None:
        """`watermark`: that of the origin, before the batch that is worked on."""
        its = program.windowed
        assert its is not None, "only windowed tasks fold"
        self._compiled = CompiledWindows(
            its.compiled.task,
            tuple(replace(each, triggers=(), lateness=None) for each in its.compiled.windows),
            its.compiled.grouped,
        )
        self._grouped = its.group_key is not None
        self._watermark = watermark
        self.shard_of = Shards(shard_of if self._grouped else _only_shard)
        self.calls = TriggerCalls(program.task, its.functions, program.event)
        self.clock: Clock = program.clock
        self.closed: set[int] = set()
        self._segments = 0
        self.windows: TaskWindows = _Ordered(self._compiled, watermark)

    @property
    def full(self) -> bool:
        """Whether the states should go."""
        return self._segments >= SEGMENTS_MAX

    def take(self, bucket_of: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
        """The states, encoded, with the bucket of each part; nothing is left.

        Args:
            bucket_of: gives the bucket of a shard.
        """
        shards = range(SHARDS) if self._grouped else [0]
        found: dict[int, list[SetStates]] = {}
        for shard, records in self.windows.snapshots(shards).items():
            states = [each for each in records if isinstance(each, SetStates)]
            if states:
                found.setdefault(bucket_of(shard), []).extend(states)
        self.windows = _Ordered(self._compiled, self._watermark)
        self._segments = 0
        for bucket, states in found.items():
            yield bucket, encode_records(states)

    # What segments do.

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """All but those that are withdrawn: nothing comes twice."""
        if not withdrawn:
            return None
        news = np.ones(len(batch), np.bool_)
        news[list(withdrawn)] = False
        return news

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """Tasks with a uniqueness key do not combine."""
        raise AssertionError("no uniqueness key")

    def emit(self, shard: int, segments: Sequence[Segment], child: str | None = None) -> None:
        """Nothing fires here."""
        assert not segments, "no trigger, nothing late"

    def changed(self, segments: int) -> None:
        """So many segments were added."""
        self._segments += segments


class _Ordered(TaskWindows):
    """Takes only segments that are not behind the watermark."""

    def __init__(self, compiled: CompiledWindows, watermark: Callable[[], int | None]) -> None:
        super().__init__(compiled, shard_of)
        self._mark = watermark

    def add(
        self,
        segments: Segments,
        groups: Keyed | None,
        now_ms: int,
        taken: Sequence[Taken] | None = None,
    ) -> Added:
        """Take a batch.

        Raises:
            Disordered: a segment is behind the watermark.
        """
        mark = self._mark()
        for each in taken or ():
            if (
                mark is not None
                and each.coordinates is not None
                and _least(each.coordinates) < mark
            ):
                raise Disordered(self._task)
        return super().add(segments, groups, now_ms, taken)


def _least(coordinates: Axis) -> Number:
    return coordinates.min().item() if isinstance(coordinates, np.ndarray) else min(coordinates)


def _only_shard(group: None) -> int:
    return 0
